"""Al-Rfou's losses: which layers count when, what they add up to, and that the second head learns."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ebar.backbones.backbone import Layered
from ebar.backbones.transformer import Transformer
from ebar.backbones.transformer_xl import TransformerXl
from ebar.data import LanguageData
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.journeys.train import train
from ebar.models.construction import Autoregressive, transformer
from ebar.objectives import AuxiliaryLosses, MaximumLikelihood
from ebar.training.course import Training
from ebar.types import Clock, Context, Loss, Sequences, Space
from tests.backbones.reading import CONTEXTS, lively, some_tokens
from tests.models.examples import lstm

FIXED, ENDING = Space(5, 4), Space(5, 4, end=4)
FOUR = Training(epochs=4, batch_size=8)
X = Sequences(torch.tensor([[0, 1, 2, 4], [3, 4, 9, 9]]), torch.tensor([4, 2]))


def model_of(kind: Any, space: Space = ENDING, **options: Any) -> Autoregressive:
    torch.manual_seed(0)
    backbone = lively(kind(5, **{"layers": 3, "hidden": 6, "heads": 2, "dropout": 0.0, **options}))
    return Autoregressive(backbone, Softmax(6, 5).double(), space).eval()


def value(objective: Any, step: int = 0, x: Any = X) -> Tensor:
    loss: Loss = next(iter(objective.losses(x, Clock(step=step, epoch=0), generator=Generator())))
    return loss.value


def test_which_layers_count_by_hand():
    """Of four layers and 800 steps: the first until step 100, the second until 200, the third until 300."""
    objective = AuxiliaryLosses(model=model_of(Transformer), steps=800)
    steps = (0, 99, 100, 199, 200, 299, 300)
    counting = {step: [n for n in range(1, 5) if objective.counts(n, 4, step)] for step in steps}
    assert counting == {
        0: [1, 2, 3, 4], 99: [1, 2, 3, 4], 100: [2, 3, 4], 199: [2, 3, 4], 200: [3, 4], 299: [3, 4], 300: [4],
    }  # fmt: skip
    alone = AuxiliaryLosses(model=model_of(Transformer), steps=800, intermediate=False)
    assert [n for n in range(1, 5) if alone.counts(n, 4, 0)] == [4]


@torch.no_grad()
def test_losses_of_uniform_heads_by_hand():
    """Both heads zero: each of 6 tokens costs log 5, but for the end in the last place, which is certain; of the
    4 tokens after the next, one is. Three layers, then two, then one."""
    model = model_of(Transformer)
    for parameter in model.head.parameters():  # type: ignore[attr-defined]
        parameter.zero_()
    objective = AuxiliaryLosses(model=model, steps=600)
    for parameter in objective.memory.parameters():
        parameter.zero_()
    one = (5 + 0.5 * 3) * math.log(5) / 6
    for step, layers in ((0, 3), (99, 3), (100, 2), (200, 1)):
        assert float(value(objective, step)) == pytest.approx(layers * one)


@pytest.mark.parametrize("kind", [Transformer, TransformerXl])
@torch.no_grad()
def test_the_sum_is_that_of_its_parts(kind):
    model = model_of(kind, FIXED)
    x = Sequences(some_tokens(4), torch.full((6,), 4))
    objective = AuxiliaryLosses(model=model, ahead_weight=0.3, steps=10)
    backbone: Any = model.backbone
    wanted = 0.0
    for hidden in backbone.read_layers(backbone.embed(x.tokens[:, :3])):
        wanted += float(F.cross_entropy(model.head(hidden).flatten(0, 1), x.tokens.flatten(), reduction="sum"))
        ahead = objective.memory(hidden[:, :3]).flatten(0, 1)
        wanted += 0.3 * float(F.cross_entropy(ahead, x.tokens[:, 1:].flatten(), reduction="sum"))
    assert float(value(objective, x=x)) == pytest.approx(wanted / 24)
    plain = AuxiliaryLosses(model=model, ahead_weight=0.0, intermediate=False, steps=10)
    torch.testing.assert_close(value(plain, x=x), value(MaximumLikelihood(model=model), x=x))


@pytest.mark.parametrize("kind", [Transformer, TransformerXl])
@pytest.mark.parametrize("context", [None, CONTEXTS["unequal"], CONTEXTS["shared equal"]])
@torch.no_grad()
def test_the_last_layer_is_what_read_gives(kind, context: Context | None):
    backbone: Any = model_of(kind).backbone
    inputs = backbone.embed(some_tokens())
    layers = backbone.read_layers(inputs, context)
    assert len(layers) == 3
    torch.testing.assert_close(layers[-1], backbone.read(inputs, context), rtol=0, atol=1e-12)
    assert not torch.allclose(layers[0], layers[1])
    assert isinstance(backbone, Layered)


def test_training_moves_the_head_of_the_token_after_the_next_and_keeps_it(tmp_path):
    """Ended after one epoch and continued by an objective with other first weights, it is the run that went through."""
    data = LanguageData(motif="11", length=5, size=40, test_size=10).read()

    def run(folder: Path, seed: int, until: int | None = None) -> list[Tensor]:
        torch.manual_seed(seed)
        model = transformer(data, layers=2, hidden=8, heads=2, positions="learnt_by_layer", maximal_length=8)
        objective = AuxiliaryLosses(model=model)
        first = objective.memory.weight.detach().clone()
        train(model, data, objective=objective, training=FOUR, seed=1, folder=folder, until=until)
        assert not torch.equal(objective.memory.weight, first)
        assert objective.steps is None  # the caller's is not changed
        return [objective.memory.weight.detach(), *(parameter.detach() for parameter in model.parameters())]

    whole = run(tmp_path / "whole", 0)
    run(tmp_path / "parts", 0, until=1)
    parts = run(tmp_path / "parts", 5)
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="Lstm does not show its layers"):
        AuxiliaryLosses(model=lstm(ENDING))
    with pytest.raises(ValueError, match="ahead_weight"):
        AuxiliaryLosses(model=model_of(Transformer), ahead_weight=-1.0)
    with pytest.raises(ValueError, match="for_steps"):
        value(AuxiliaryLosses(model=model_of(Transformer)))
