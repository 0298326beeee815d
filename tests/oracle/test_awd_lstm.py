"""The authors' network of AWD-LSTM layers and a mixture of softmaxes (Yang et al. 2018), from its own weights."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ebar.models.from_awd_lstm import awd_lstm_backbone

FOLDER = os.environ.get("EBAR_ORACLES")

pytestmark = pytest.mark.skipif(not FOLDER, reason="EBAR_ORACLES does not name the folder of oracles")


@torch.no_grad()
def test_hidden_states_give_the_oracles_next_token_probabilities():
    assert FOLDER is not None
    with np.load(Path(FOLDER) / "mixture_of_softmaxes.npz", allow_pickle=False) as arrays:
        weights = {
            name.removeprefix("weight/"): torch.from_numpy(arrays[name])
            for name in arrays.files
            if name.startswith("weight/")
        }
        tokens, wanted = torch.from_numpy(arrays["input"]).T, torch.from_numpy(arrays["prob"]).transpose(0, 1)
    backbone = awd_lstm_backbone(weights)
    assert backbone.widths == [10, 10, 8]
    rows, length = tokens.shape
    for segments in ([length], [3, length - 3], [1] * length):
        memory, parts = backbone.empty_memory(rows), []
        for segment in torch.split(tokens, segments, 1):
            hidden, memory = backbone.read_segment(segment, memory)
            parts.append(hidden)
        hidden = torch.cat(parts, 1)
        # Σ π·softmax(W·tanh(latent) + b), the mixture by its definition.
        prior = (hidden @ weights["prior.weight"].T).softmax(-1)
        latent = (hidden @ weights["latent.0.weight"].T + weights["latent.0.bias"]).tanh()
        latent = latent.unflatten(-1, (prior.shape[-1], -1))
        softmaxes = (latent @ weights["decoder.weight"].T + weights["decoder.bias"]).softmax(-1)
        found = (prior[..., None] * softmaxes).sum(2)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
