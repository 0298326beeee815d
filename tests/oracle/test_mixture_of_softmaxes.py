"""The mixture of softmaxes against the original network of Yang et al. 2018, run elsewhere; every file is checked.

Its recurrent layers are plain LSTMs of unequal size in evaluation mode.
"""

import ast
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ebar.heads.mixture import MixtureOfSoftmaxes

FOLDER = os.environ.get("EBAR_ORACLES")
FILES = sorted(Path(FOLDER).glob("mixture_of_softmaxes*.npz")) if FOLDER else []

pytestmark = pytest.mark.skipif(not FOLDER, reason="EBAR_ORACLES does not name the folder of oracles")


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as stored:
        tensors = {name: torch.from_numpy(stored[name]) for name in stored.files if name != "config"}
        return tensors, ast.literal_eval(str(stored["config"]))


@torch.no_grad()
def hidden_vectors(tensors: dict[str, Tensor], layers: int) -> Tensor:
    """After each token of each row, from a zero state: batch first."""
    hidden = tensors["weight/encoder.weight"][tensors["input"].T]
    for number in range(layers):
        prefix = f"weight/rnns.{number}."
        weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        width = weights["weight_hh_l0"].shape[1]
        layer = nn.LSTM(hidden.shape[-1], width, batch_first=True, dtype=torch.float64)
        layer.load_state_dict(weights)
        hidden, _ = layer(hidden)
    return hidden


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_next_token_probabilities_are_the_originals(path: Path, tied: bool) -> None:
    tensors, config = read(path)
    width, vocabulary, embedding = config["hidden_last"], config["vocabulary"], config["embedding"]
    decoder = tensors["weight/decoder.weight"]
    if tied and not torch.equal(decoder, tensors["weight/encoder.weight"]):
        pytest.skip("the original's output layer is not tied to its input vectors")
    head = MixtureOfSoftmaxes(
        width, vocabulary, nn.Parameter(tensors["weight/encoder.weight"]), components=config["components"],
        size=embedding, dropout=0.3, tied=tied,
    ).double()  # fmt: skip
    head.load_state_dict({
        "components.latent.weight": tensors["weight/latent.0.weight"],
        "components.latent.bias": tensors["weight/latent.0.bias"],
        "components.prior.weight": tensors["weight/prior.weight"],
        "linear.weight": decoder,
        "linear.bias": tensors["weight/decoder.bias"],
    })  # fmt: skip
    hidden = hidden_vectors(tensors, config["layers"])
    wanted = tensors["prob"].transpose(0, 1)
    with torch.no_grad():
        found = head.eval()(hidden)
        torch.testing.assert_close(found.exp(), wanted, rtol=0, atol=1e-9)
        for token in range(vocabulary):
            log_probs = head.log_probs(hidden, torch.full(hidden.shape[:2], token))
            torch.testing.assert_close(log_probs.exp(), wanted[..., token], rtol=0, atol=1e-9)


def test_there_is_a_file_to_check() -> None:
    assert FILES
