from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar import together
from ebar.errors import UserError
from ebar.objectives import MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.loop import NonFiniteError, Position, evaluate_objective, fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.types import Clock, Loss, Objective
from tests.training.tiny import Bigram, data


class Number(nn.Module):
    def __init__(self, value: float):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value, dtype=torch.float64))


class Says:
    """An objective given by a function of (batch, clock)."""

    def __init__(self, losses: Callable[[Any, Clock], list[Callable[[], Loss]]]):
        self.function = losses

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        for loss in self.function(batch, clock):
            yield loss()


def player(module: nn.Module, *, rate: float = 0.1, clip: float | None = None) -> Player:
    return Player(
        module=module, optimiser=OPTIMISERS["sgd"](learning_rate=rate).build(module.parameters()), clip_norm=clip
    )


ROWS = Batches(data=torch.arange(4.0, dtype=torch.float64), batch_size=2, shuffle=False)


def test_two_steps_on_a_parabola_worked_out_by_hand(generator):
    """w ← w − 0.1·2w = 0.8 w, from 1: losses 1, 0.64."""
    number = Number(1.0)
    objective = Says(lambda batch, clock: [lambda: Loss(number.value**2)])
    assert isinstance(objective, Objective)
    first, second = islice(fit(objective, ROWS, {"model": player(number)}, generator=generator), 2)
    assert first.metrics == pytest.approx({"loss": 1.0, "gradient_norm": 2.0, "learning_rate": 0.1})
    assert second.metrics["loss"] == pytest.approx(0.64)
    assert number.value.item() == pytest.approx(0.64)
    assert (first.position, second.position) == (Position(1, 0, 1), Position(2, 1, 0))
    assert (first.ends_epoch, second.ends_epoch) == (False, True)


def test_in_a_game_each_loss_moves_its_own_player_and_later_losses_see_it(generator):
    """f = x·y. x descends by y = 2: 1 → 0.8. Then y ascends by the new x: 2 → 2.08."""
    x, y = Number(1.0), Number(2.0)
    x.value.grad = None
    y.value.grad = torch.tensor(7.0, dtype=torch.float64)
    seen: list[Tensor | None] = []

    def losses(batch: Any, clock: Clock) -> list[Callable[[], Loss]]:
        def of_y() -> Loss:
            seen.append(y.value.grad)  # after x has moved: untouched by x's loss
            return Loss(-x.value * y.value, "y")

        return [lambda: Loss(x.value * y.value, "x"), of_y]

    (step,) = islice(fit(Says(losses), ROWS, {"x": player(x), "y": player(y)}, generator=generator), 1)
    assert x.value.item() == pytest.approx(0.8)
    assert y.value.item() == pytest.approx(2.08)
    assert seen == [torch.tensor(7.0)]
    assert x.value.grad is None
    assert (step.metrics["x.loss"], step.metrics["y.loss"]) == pytest.approx((2.0, -1.6))


def test_an_objective_may_move_a_player_twice_and_another_never(generator):
    x, y = Number(1.0), Number(2.0)
    objective = Says(lambda batch, clock: [lambda: Loss(x.value**2, "x")] * 2)
    next(fit(objective, ROWS, {"x": player(x), "y": player(y)}, generator=generator))
    assert (x.value.item(), y.value.item()) == pytest.approx((0.64, 2.0), abs=1e-12)


def test_clipping_scales_the_gradient_and_reports_it_unclipped(generator):
    number = Number(1.0)
    objective = Says(lambda batch, clock: [lambda: Loss(number.value * 10)])
    step = next(fit(objective, ROWS, {"model": player(number, clip=0.5)}, generator=generator))
    assert step.metrics["gradient_norm"] == 10.0
    assert number.value.item() == pytest.approx(0.95, abs=1e-6)


def test_parts_count_by_their_weight(generator):
    """Rows 0, 1 | 2 with weights 2 and 1: the mean over rows is 1, the mean of the parts' means 1.25."""
    number = Number(0.0)

    def losses(batch: Tensor, clock: Clock) -> list[Callable[[], Loss]]:
        return [lambda: Loss((number.value * batch).mean(), "model", {"mean": 0.0}, weight=float(len(batch)))]

    rows = Batches(data=torch.arange(3.0, dtype=torch.float64), batch_size=3, shuffle=False)
    next(fit(Says(losses), rows, {"model": player(number)}, generator=generator, accumulate=2))
    assert number.value.item() == pytest.approx(-0.1)


class Joins:
    """The mean over a whole batch of what dropout leaves of w·x, plus noise; remembers what was joined."""

    def __init__(self, number: Number, late: bool = False):
        self.number, self.late = number, late
        self.joined: list[Tensor] = []
        self.noise: list[float] = []

    def losses(self, batch: Tensor, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        if self.late:
            yield Loss(self.number.value**2, "model", {}, weight=float(len(batch)))
        noise = together.drawn(len(batch), lambda rows: torch.rand(rows, 1, generator=generator), generator)
        once = together.once(lambda: float(torch.rand((), generator=generator)))
        together.kept(lambda: self.noise.append(once))
        dropped = torch.nn.functional.dropout(self.number.value * batch) + noise[:, 0]
        rows, counts = together.joined(dropped, torch.tensor([len(batch)]))
        self.joined.append(rows.detach())
        yield Loss(together.alike(rows.mean(), len(batch), int(counts.sum())), "model", {}, weight=float(len(batch)))


def test_parts_that_join_are_computed_twice_with_the_same_numbers_and_the_same_dropout(generator):
    """Noise and what is found once belong to the batch; what is kept is found once for each part."""
    rows = Batches(data=torch.arange(1.0, 9.0, dtype=torch.float64), batch_size=8, shuffle=False)
    objective = Joins(Number(1.0))
    state = torch.get_rng_state()
    next(fit(objective, rows, {"model": player(objective.number)}, generator=generator, accumulate=2))
    first, second = objective.joined  # of each part, the second time; the first time it gives up where it joins
    assert torch.equal(first, second)
    assert len(objective.noise) == 2
    assert len(set(objective.noise)) == 1
    # By hand: what both parts dropped, one after the other.
    torch.set_rng_state(state)
    dropped = [torch.nn.functional.dropout(part) for part in torch.arange(1.0, 9.0).double().split(4)]
    gradient = torch.cat(dropped).mean()
    assert objective.number.value.item() == pytest.approx(1 - 0.1 * gradient.item())


def test_what_is_joined_later_than_in_the_first_loss_or_by_one_part_alone_is_an_error(generator):
    rows = Batches(data=torch.arange(4.0, dtype=torch.float64), batch_size=4, shuffle=False)
    number = Number(1.0)
    with pytest.raises(ValueError, match="belongs to the first loss"):
        next(fit(Joins(number, late=True), rows, {"model": player(number)}, generator=generator, accumulate=2))

    def joining(row: int) -> Says:
        """The part that begins with this row joins."""

        def loss(batch: Tensor) -> Loss:
            if batch[0] == row:
                together.joined(batch)
            return Loss(number.value**2)

        return Says(lambda batch, clock: [lambda: loss(batch)])

    for row, message in ((0, "joins its rows where another does not"), (2, "has a loss for player 'model'")):
        with pytest.raises(ValueError, match=message):
            next(fit(joining(row), rows, {"model": player(number)}, generator=generator, accumulate=2))


def test_fit_started_in_the_middle_takes_the_steps_that_were_left(generator):
    def run(steps: int, model: Bigram, start: Position) -> list[Any]:
        objective = MaximumLikelihood(model=model)
        batches = Batches(data=data(20), batch_size=8, seed=1)
        return list(islice(fit(objective, batches, {"model": player(model)}, generator=generator, start=start), steps))

    torch.manual_seed(0)
    whole, halves = Bigram(), Bigram()
    halves.load_state_dict(whole.state_dict())
    expected = run(7, whole, Position())
    first = run(4, halves, Position())
    assert first + run(3, halves, first[-1].position) == expected
    assert first[-1].position == Position(4, 1, 1)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_non_finite_loss_stops_before_anything_has_moved(bad, generator):
    number = Number(1.0)
    objective = Says(lambda batch, clock: [lambda: Loss(number.value * (bad if clock.step == 1 else 1.0))])
    steps = fit(objective, ROWS, {"model": player(number)}, generator=generator)
    next(steps)
    with pytest.raises(NonFiniteError, match=r"The loss is (nan|inf) in step 2") as caught:
        next(steps)
    assert caught.value.batch.tolist() == [2.0, 3.0]
    assert number.value.item() == pytest.approx(0.9)
    assert number.value.grad is None


def test_a_non_finite_gradient_of_a_finite_loss_stops_too(generator):
    number = Number(0.0)
    objective = Says(lambda batch, clock: [lambda: Loss(number.value.sqrt())])  # 0, with slope ∞
    with pytest.raises(NonFiniteError, match="The gradient norm is inf in step 1"):
        next(fit(objective, ROWS, {"model": player(number)}, generator=generator))
    assert number.value.item() == 0.0


def test_a_loss_for_nobody_is_an_error_that_lists_the_players(generator):
    number = Number(0.0)
    objective = Says(lambda batch, clock: [lambda: Loss(number.value, "critic")])
    with pytest.raises(UserError, match="player called 'critic': choose one of model"):
        next(fit(objective, ROWS, {"model": player(number)}, generator=generator))
    with pytest.raises(ValueError, match="'critic', which has no optimiser"):
        next(fit(objective, ROWS, {"critic": Player(module=number)}, generator=generator))


@pytest.mark.parametrize("start", [Position(), Position(3, 0, 3)])
def test_data_that_is_empty_or_was_cut_is_an_error(start, generator):
    rows = Batches(data=torch.zeros(0 if start == Position() else 2), batch_size=2)
    with pytest.raises(UserError, match=f"no batch number {start.taken} in epoch 0"):
        next(fit(Says(lambda batch, clock: []), rows, {}, generator=generator, start=start))


def test_a_held_out_figure_is_the_mean_over_all_tokens_not_over_batches(generator):
    model, x = Bigram().double(), data(23)
    objective = MaximumLikelihood(model=model)
    figures = evaluate_objective(objective, Batches(data=x, batch_size=4), generator=generator)
    exact = -model.log_prob(x).sum().item() / int(x.lengths.sum())
    assert figures == pytest.approx({"loss": exact, "nll_per_token": exact}, abs=1e-12)
