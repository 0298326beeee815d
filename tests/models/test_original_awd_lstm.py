from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.models.original_weights import awd_lstm_from_original


def originals(*, wrapped: bool = False) -> dict[str, Tensor]:
    """A network of two layers as the authors' code names it: 5 words, vectors of 3, layers of 4 and 3."""
    torch.manual_seed(0)
    weights = {"encoder.weight": torch.randn(5, 3).double(), "decoder.bias": torch.randn(5).double()}
    for number, layer in enumerate((nn.LSTM(3, 4), nn.LSTM(4, 3))):
        for name, tensor in layer.double().state_dict().items():
            if wrapped and name == "weight_hh_l0":
                weights[f"rnns.{number}.module.{name}_raw"] = tensor
                weights[f"rnns.{number}.module.{name}"] = nn.functional.dropout(tensor, 0.5)
            else:
                weights[f"rnns.{number}.{'module.' if wrapped else ''}{name}"] = tensor
    return weights


def expected(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """What torch's own layers make of the tokens, from zeros."""
    vectors = weights["encoder.weight"][tokens]
    for number, sizes in enumerate(((3, 4), (4, 3))):
        layer = nn.LSTM(*sizes, batch_first=True).double()
        own = {name.split(".")[-1]: tensor for name, tensor in weights.items() if name.startswith(f"rnns.{number}.")}
        layer.load_state_dict(own)
        vectors = layer(vectors)[0]
    return vectors


TOKENS = torch.tensor([[0, 4, 2, 2], [1, 1, 3, 0]])


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", ["mapping", "npz", "safetensors"])
@torch.no_grad()
def test_it_computes_what_the_original_does(wrapped, kind, tmp_path):
    weights, source = originals(wrapped=wrapped), tmp_path / f"model.{kind}"
    if kind == "npz":
        arrays: Any = {name: tensor.numpy() for name, tensor in weights.items()}
        np.savez(source, **arrays)
    elif kind == "safetensors":
        save_file(weights, source)
    model = awd_lstm_from_original(weights if kind == "mapping" else source, length=4, beginning=2)
    hidden, _ = model.backbone.read_segment(TOKENS, model.backbone.empty_memory(2))  # type: ignore[attr-defined]
    wanted = expected(originals(), TOKENS)
    torch.testing.assert_close(hidden, wanted, rtol=0, atol=1e-12)
    logits = wanted @ weights["encoder.weight"].T + weights["decoder.bias"]  # tied
    torch.testing.assert_close(model.head(hidden), logits, rtol=0, atol=1e-12)
    assert not model.training
    begun = model.backbone.start(2)[0]
    torch.testing.assert_close(begun, expected(originals(), torch.tensor([[2], [2]]))[:, 0], rtol=0, atol=1e-12)


def test_without_a_beginning_its_vector_is_zero_and_dropouts_are_options():
    backbone: Any = awd_lstm_from_original(originals(), dropout_weight=0.25).backbone
    assert not bool(backbone.inputs[5].any())
    assert backbone.dropout_weight == 0.25


def without(name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in originals().items() if key != name}


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (without("encoder.weight"), "no encoder.weight"),
        (without("rnns.1.bias_hh_l0"), r"no rnns\.1\.bias_hh_l0"),
        ({"encoder.weight": torch.zeros(2, 2)}, "Layers are called"),
        (originals() | {"rnns.1.weight_ih_l0": torch.zeros(12, 9).double()}, "do not fit together"),
        (originals() | {"prior.weight": torch.zeros(2, 3)}, r"no latent\.0\.weight"),
    ],
)
def test_other_weights_are_refused_in_a_sentence(weights, words):
    with pytest.raises(UserError, match=words):
        awd_lstm_from_original(weights)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.npz", "cannot be read as .npz"),
        ("model.safetensors", "cannot be read as .safetensors"),
        ("model.pt", "never to be unpickled"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_sentence(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04nothing")
    for path in (tmp_path / name, tmp_path / f"no-{name}"):
        with pytest.raises(UserError, match=words):
            awd_lstm_from_original(path)


@torch.no_grad()
def test_an_output_layer_of_its_own_is_kept_apart():
    weights = originals() | {"decoder.weight": torch.randn(5, 3).double()}
    model = awd_lstm_from_original(weights, length=4)
    hidden = expected(originals(), TOKENS)
    wanted = hidden @ weights["decoder.weight"].T + weights["decoder.bias"]
    torch.testing.assert_close(model.head(hidden), wanted, rtol=0, atol=1e-12)
    assert not torch.equal(model.head.linear.weight[:5], weights["encoder.weight"])  # type: ignore[attr-defined]
