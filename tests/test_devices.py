"""Devices by name, and bfloat16 where it may be."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Generator

from ebar import devices
from ebar.backbones import BACKBONES
from ebar.errors import UserError
from ebar.models.construction import assemble
from ebar.objectives import MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.loop import fit
from ebar.training.optimisers import Adam
from ebar.training.players import Player
from ebar.types import Context, Sequences, Space

SQUARE = {"image_height": 3, "image_width": 3, "channels": 1}
DATA = Sequences(torch.randint(5, (6, 9), generator=Generator().manual_seed(0)), torch.full((6,), 9))


def test_a_device_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert devices.device_named("auto") == devices.device_named("cpu") == "cpu"
    for name in ("cuda", "cuda:1", "mps"):
        with pytest.raises(UserError, match=f"This machine has no device {name}: give --device cpu, or auto"):
            devices.device_named(name)
        assert devices.device_at_hand(name) == "cpu"  # to open what was made there
    with pytest.raises(UserError, match="no device called 'gpu': choose one of auto, cpu, cuda, mps"):
        devices.device_named("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.device_named("auto") == "cuda"


def test_bfloat16_is_refused_where_it_would_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for known, has in (({}, False), ({"avx512_bf16": True}, True), ({"amx_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known)
        if has:
            devices.check_bfloat16("cpu")
        else:
            with pytest.raises(UserError, match=r"leave out training\.autocast"):
                devices.check_bfloat16("cpu")


def steps(kind: str, autocast: str | None) -> tuple[Any, list[float]]:
    options: dict[str, Any] = {} if "pixelcnn" in kind else {"hidden": 8, "layers": 1}
    if kind in ("transformer", "encoder_decoder", "transformer_xl", "local_xl", "xlnet"):
        options["heads"] = 2
    torch.manual_seed(0)
    sources = kind == "encoder_decoder"
    model = assemble(Space(5, 9), kind, options, shape=SQUARE if "pixelcnn" in kind else None, sources=sources)
    players = {"model": Player(module=model, optimiser=Adam(learning_rate=0.01).build(model.parameters()))}
    batches = Batches(data=(DATA, Context(DATA)) if sources else DATA, batch_size=6)
    source: Iterator[Any] = fit(
        MaximumLikelihood(model=model), batches, players, generator=Generator(), autocast=autocast
    )
    return model, [next(source).metrics["loss"] for _ in range(2)]


@pytest.mark.parametrize("kind", BACKBONES)
def test_every_backbone_learns_in_bfloat16_nearly_the_same(kind: str) -> None:
    model, half = steps(kind, "cpu")
    _, whole = steps(kind, None)
    assert half == pytest.approx(whole, abs=0.01)
    assert half != whole
    assert all(weight.dtype == torch.float32 for weight in model.parameters())


def test_a_head_computes_in_full_precision_whatever_autocast_says() -> None:
    model, _ = steps("transformer", None)
    hidden = torch.randn(3, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside, given = model.head(hidden), model.head.log_probs(hidden, torch.tensor([0, 1, 2]))
    assert inside.dtype == given.dtype == torch.float32
    assert torch.equal(inside, model.head(hidden.float()))
