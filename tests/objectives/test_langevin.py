import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones import BACKBONES
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.objectives import Earm, MaximumLikelihood
from ebar.objectives.langevin import Place, langevin, last_log_partition, vectors_of
from ebar.types import Clock, Context, Loss
from tests.models.examples import ENDING, FIXED, lstm, three_contexts

SPACES = pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])

PLACES: tuple[Place, ...] = ("input", "first_layer")


def loss_of(objective: Any, batch: Any, seed: int = 1) -> Loss:
    (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator().manual_seed(seed))
    return loss  # type: ignore[no-any-return]


@SPACES
def test_the_last_log_partition_is_that_of_the_logits_in_the_last_place(space):
    model, context = lstm(space, embedding=4), three_contexts()
    x = model.sample(2, context, generator=Generator().manual_seed(0))
    found = last_log_partition(model, model.backbone.embed(x.tokens[:, :-1]), x.lengths, context)
    logits = model.teacher_forced(x.tokens, context)
    wanted = logits.logsumexp(2).gather(1, x.lengths[:, None] - 1).squeeze(1)
    torch.testing.assert_close(found, wanted)


def test_one_step_without_noise_goes_half_a_step_up_the_gradient():
    model = lstm(FIXED, embedding=4)
    x = model.sample(3, generator=Generator().manual_seed(0))
    start = model.backbone.embed(x.tokens[:, :-1]).detach()
    options: Any = {"steps": 1, "step_size": 0.2, "noise": 0.0, "generator": Generator()}
    moved = langevin(model, start, x.lengths, first=1, **options)
    assert torch.equal(moved[:, 0], start[:, 0])  # what lies before the window stays
    small = 1e-6
    for row, place, part in ((0, 1, 0), (2, 2, 3)):
        ends = []
        for sign in (1, -1):
            z = start.detach().clone()
            z[row, place, part] += sign * small
            with torch.no_grad():
                ends.append(float(last_log_partition(model, z, x.lengths)[row]))
        slope = (ends[0] - ends[1]) / (2 * small)
        assert float(moved[row, place, part] - start[row, place, part]) == pytest.approx(0.1 * slope, abs=1e-8)


def test_noise_has_the_variance_of_the_step():
    model = lstm(FIXED, embedding=4)
    x = model.sample(500, generator=Generator().manual_seed(0))
    start = model.backbone.embed(x.tokens[:, :-1]).detach()
    still, moved = (
        langevin(model, start, x.lengths, steps=1, step_size=0.04, noise=noise, generator=Generator().manual_seed(1))
        for noise in (0.0, 1.0)
    )
    kicks = (moved - still).detach().flatten()  # 6,000 of them: the deviation's own is 0.2/√12,000
    assert float(kicks.std()) == pytest.approx(0.2, abs=5 * 0.2 / math.sqrt(12_000))
    assert abs(float(kicks.mean())) < 5 * 0.2 / math.sqrt(6_000)


def test_the_dynamics_finds_vectors_of_low_energy():
    model = lstm(FIXED, embedding=4)
    x = model.sample(6, generator=Generator().manual_seed(0))
    start = model.backbone.embed(x.tokens[:, :-1]).detach()
    moved = langevin(model, start, x.lengths, steps=20, step_size=0.1, noise=0.0, generator=Generator())
    with torch.no_grad():
        assert bool((last_log_partition(model, moved, x.lengths) > last_log_partition(model, start, x.lengths)).all())


@SPACES
@pytest.mark.parametrize("data_term", [True, False])
def test_the_loss_contrasts_the_last_step(space, data_term):
    model, context = lstm(space, embedding=4), three_contexts()
    x = model.sample(2, context, generator=Generator().manual_seed(0))
    objective = Earm(model=model, negatives="langevin", weight=0.3, langevin_steps=3, data_term=data_term)
    loss = loss_of(objective, (x, context))
    inputs = model.backbone.embed(x.tokens[:, :-1])
    moved = langevin(
        model, inputs, x.lengths, context, steps=3, step_size=0.01, noise=1.0, generator=Generator().manual_seed(1)
    )
    negative = last_log_partition(model, moved, x.lengths, context).mean()
    logits = model.teacher_forced(x.tokens, context)
    positive = []
    for row, length in enumerate(x.lengths.tolist()):
        value = logits[row, length - 1, x.tokens[row, length - 1]]
        for place in range(max(0, length - 3), length - 1) if data_term else ():
            value = value + logits[row, place].log_softmax(0)[x.tokens[row, place]]
        positive.append(value)
    ordinary = loss_of(MaximumLikelihood(model=model), (x, context))
    wanted = ordinary.value + 0.3 * (negative - torch.stack(positive).mean())
    torch.testing.assert_close(loss.value, wanted)
    gradients = [torch.autograd.grad(value, model.parameters()) for value in (loss.value, wanted)]
    for found, other in zip(*gradients, strict=True):
        torch.testing.assert_close(found, other)


def test_a_window_moves_what_is_in_it_only():
    model = lstm(replace(FIXED, length=9), embedding=4)
    x = model.sample(4, generator=Generator().manual_seed(0))
    loss = loss_of(Earm(model=model, negatives="langevin", window=3, contexts="real", langevin_steps=2), x)
    generator = Generator().manual_seed(1)
    begin = int(torch.randint(7, (), generator=generator))
    lengths = torch.full((4,), begin + 3)
    moved = langevin(
        model, model.backbone.embed(x.tokens[:, : begin + 2]), lengths, first=begin, steps=2, step_size=0.01, noise=1.0,
        generator=generator,
    )  # fmt: skip
    logits = model.teacher_forced(x.tokens)
    rows = torch.arange(4)
    log_probs = logits.log_softmax(2)
    positive = logits[rows, begin + 2, x.tokens[:, begin + 2]]
    for place in (begin, begin + 1):
        positive = positive + log_probs[rows, place, x.tokens[:, place]]
    wanted = (last_log_partition(model, moved, lengths) - positive).mean()
    assert loss.metrics["contrastive"] == pytest.approx(float(wanted.detach()))


def test_vectors_need_a_model_that_reads_them():
    with pytest.raises(UserError, match="no vectors in place of tokens"):
        Earm(model=Tabular.random(FIXED, generator=Generator()), negatives="langevin")


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", ["transformer", "encoder_decoder"])
def test_reading_on_from_the_first_layer_is_reading(kind: str, layers: int) -> None:
    model, context = layered(kind, layers)
    x = model.sample(2, context, generator=Generator().manual_seed(0))
    inputs = model.backbone.embed(x.tokens[:, :-1])
    context = None if context is None else Context(context.given.repeat(2))
    vectors = vectors_of(model, x.tokens[:, :-1], context, at="first_layer")
    torch.testing.assert_close(model.backbone.read_on(vectors, context), model.backbone.read(inputs, context))
    assert vectors.shape[1] == x.tokens.shape[1]


@pytest.mark.parametrize("kind", ["transformer", "encoder_decoder"])
def test_the_dynamics_may_move_what_the_first_layer_gives(kind: str) -> None:
    """Half a step up the gradient, by differences; what stands for the beginning and the first token stays."""
    model, context = layered(kind, 2)
    x = model.sample(1, context, generator=Generator().manual_seed(0))
    start = vectors_of(model, x.tokens[:, :-1], context, at="first_layer")
    options: Any = {"steps": 1, "step_size": 0.2, "noise": 0.0, "at": "first_layer", "generator": Generator()}
    moved = langevin(model, start, x.lengths, context, first=1, **options)
    assert torch.equal(moved[:, :2], start[:, :2])
    row = int(x.lengths.argmax())
    small, ends = 1e-6, []
    for sign in (1, -1):
        z = start.clone()
        z[row, 2, 1] += sign * small
        with torch.no_grad():
            ends.append(float(last_log_partition(model, z, x.lengths, context, at="first_layer")[row]))
    slope = (ends[0] - ends[1]) / (2 * small)
    assert slope != 0
    assert float(moved[row, 2, 1] - start[row, 2, 1]) == pytest.approx(0.1 * slope, abs=1e-8)
    batch = x if context is None else (x, context)
    losses = [loss_of(Earm(model=model, negatives="langevin", langevin_at=at), batch).value for at in PLACES]
    assert losses[0] != losses[1]


def layered(kind: str, layers: int) -> tuple[Any, Context | None]:
    torch.manual_seed(3)
    more = {"encoder_layers": 1} if kind == "encoder_decoder" else {}
    backbone = BACKBONES[kind](3, layers=layers, hidden=4, heads=2, feedforward=8, dropout=0.1, **more)
    model = Autoregressive(backbone, Softmax(4, 3), FIXED).double().eval()
    return model, three_contexts() if kind == "encoder_decoder" else None


def test_the_first_layer_is_asked_of_networks_that_have_one():
    with pytest.raises(UserError, match="cannot be entered after its first layer"):
        Earm(model=lstm(FIXED, embedding=4), negatives="langevin", langevin_at="first_layer")
