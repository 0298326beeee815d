"""The network of AWD-LSTM layers and a mixture of softmaxes (Yang et al. 2018), run by its authors' code elsewhere."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebar.models.continued import Continued, begin
from ebar.models.original_weights import awd_lstm_from_original

FOLDER = os.environ.get("EBAR_ORACLES")
FILES = sorted(Path(FOLDER).glob("mixture_of_softmaxes*.npz")) if FOLDER else []

pytestmark = pytest.mark.skipif(not FOLDER, reason="EBAR_ORACLES does not name the folder of oracles")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@torch.no_grad()
def test_next_token_probabilities_are_the_originals(path: Path) -> None:
    with np.load(path, allow_pickle=False) as stored:
        tokens, wanted = torch.from_numpy(stored["input"]).T, torch.from_numpy(stored["prob"]).transpose(0, 1)
    model: Any = awd_lstm_from_original(path)
    rows, length = tokens.shape
    for segments in ([length], [3, length - 3], [1] * length):
        memory, parts = model.backbone.empty_memory(rows), []
        for segment in torch.split(tokens, segments, 1):
            hidden, memory = model.backbone.read_segment(segment, memory)
            parts.append(hidden)
        hidden = torch.cat(parts, 1)
        torch.testing.assert_close(model.head(hidden).exp(), wanted, rtol=0, atol=1e-9)
    for token in range(wanted.shape[2]):
        log_probs = model.head.log_probs(hidden, torch.full((rows, length), token))
        torch.testing.assert_close(log_probs.exp(), wanted[..., token], rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@torch.no_grad()
def test_a_text_that_goes_on_is_scored_as_the_original_scores_it(path: Path) -> None:
    with np.load(path, allow_pickle=False) as stored:
        tokens, prob = torch.from_numpy(stored["input"]).T, torch.from_numpy(stored["prob"]).transpose(0, 1)
    model = awd_lstm_from_original(path)
    # The original starts from zeros with the first token: as if it were the last one read, not yet gone on from.
    carried = begin(model, len(tokens))._replace(last=tokens[:, 0])
    found = Continued(model, carried, length=tokens.shape[1] - 1).given_log_probs(tokens[:, 1:])
    wanted = prob[:, :-1].gather(2, tokens[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(found.exp(), wanted, rtol=0, atol=1e-9)


def test_there_is_a_file_to_check() -> None:
    assert FILES
