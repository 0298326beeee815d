"""A Transformer of ebar's and the GPT-2 that it becomes have the same logits."""

from typing import Any

import pytest
import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.models.construction import Autoregressive, assemble
from ebar.types import Space

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
from ebar.models.gpt2_weights import to_gpt2

SPACE = Space(11, 9)


def trained_by_chance(options: dict[str, Any], head: dict[str, Any], *, dtype: torch.dtype) -> Autoregressive:
    """No weight is what it was at first, biases and norms included."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = assemble(SPACE, "transformer", {"layers": 2, "hidden": 12, "heads": 3, **options}, "softmax", head)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return model.to(dtype)


@pytest.mark.parametrize(
    ("options", "head"),
    [
        ({}, {}),
        ({"activation": "gelu_tanh", "positions": "learnt", "maximal_length": 10}, {"tied": True}),
        ({"activation": "relu", "feedforward": 5, "heads": 1, "dropout": 0.5}, {}),
    ],
)
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@torch.no_grad()
def test_the_logits_are_the_same(options: Any, head: Any, dtype: torch.dtype, within: float) -> None:
    model = trained_by_chance(options, head, dtype=dtype).eval()
    theirs = to_gpt2(model)
    tokens = torch.randint(11, (3, 9), generator=Generator().manual_seed(1))
    read = torch.cat([torch.full((3, 1), 11), tokens[:, :-1]], 1)
    logits = theirs(read).logits
    ours = model.teacher_forced(tokens)
    assert float(ours.std()) > 0.5  # there is something to agree on
    assert torch.allclose(logits[..., :11], ours, rtol=0, atol=within)
    assert float(logits.softmax(-1)[..., 11].max()) == 0  # the beginning never comes again
    assert logits.dtype == dtype


def test_what_has_no_place_in_a_gpt2_is_refused_with_the_reason() -> None:
    small: dict[str, Any] = {"layers": 2, "hidden": 4, "heads": 2}
    with pytest.raises(UserError, match="network is Lstm, not Transformer"):
        to_gpt2(assemble(SPACE, "lstm", {"hidden": 4}))
    with pytest.raises(UserError, match="head is MixtureOfSoftmaxes"):
        to_gpt2(assemble(SPACE, "transformer", small, "mixture_of_softmaxes"))
    with pytest.raises(UserError, match="learnt for each layer"):
        to_gpt2(assemble(SPACE, "transformer", {**small, "positions": "learnt_by_layer"}))
