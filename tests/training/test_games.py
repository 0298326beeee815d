"""What the loop does with a game: its batches stay whole, players may be left out, it halts with a reason."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.training.batches import Batches
from ebar.training.games import Round, WithNoise
from ebar.training.loop import fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.run import Run, open_run
from ebar.training.train import History, Plan, Result, train_run
from ebar.types import Clock, Game, Loss


class Number(nn.Module):
    def __init__(self, value: float):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value, dtype=torch.float64))


class Last(nn.Module):
    """The last value of the game, in a buffer."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros((), dtype=torch.float64))


class Tug:
    """x·y, which x lowers and, where it was below 1 in the last step, y raises; too large an x halts it."""

    def __init__(self, *, most: float = float("inf")):
        self.x, self.y, self.last, self.most = Number(1.0), Number(2.0), Last(), most
        self.seen: list[int] = []

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        self.seen.append(len(batch))
        yield Loss(-self.x.value * batch.sum(), "x", {"height": self.x.value.item()})
        if self.last.value < 1:
            yield Loss(-self.y.value, "y")

    def after_step(self, metrics: Mapping[str, float]) -> str | None:
        self.last.value.fill_(metrics["x.height"])
        return None if self.x.value.item() <= self.most else f"x is above {self.most:g}."

    def players(self, rate: float = 0.1) -> dict[str, Player]:
        moved = OPTIMISERS["sgd"](learning_rate=rate)
        x, y = (Player(module=one, optimiser=moved.build(one.parameters())) for one in (self.x, self.y))
        return {"x": x, "y": y, "memory": Player(module=self.last)}


ROWS = Batches(data=torch.arange(1.0, 5.0, dtype=torch.float64), batch_size=2, shuffle=False)  # 1, 2 | 3, 4


def test_a_game_is_not_cut_and_leaves_a_player_out_by_what_the_last_step_did(generator):
    """x: 1 + 0.1·3 = 1.3, + 0.1·7 = 2, + 0.3 = 2.3. y moves while the height told was below 1: at first (0) only."""
    tug = Tug()
    assert isinstance(tug, Game)
    steps = list(islice(fit(tug, ROWS, tug.players(), generator=generator, accumulate=2), 3))
    assert tug.seen == [2, 2, 2]
    assert tug.x.value.item() == pytest.approx(2.3)
    assert tug.y.value.item() == pytest.approx(2.1)
    assert ["y.loss" in step.metrics for step in steps] == [True, False, False]
    assert float(tug.last.value) == pytest.approx(2.0)


def run(folder: Path, tug: Tug, *, steps: int, checkpoint_every: int = 2) -> Result:
    plan = Plan(steps=steps, log_every=1, checkpoint_every=checkpoint_every)
    with open_run(folder, config="", seed=0) as opened:
        return train_run(opened, tug, ROWS, tug.players(), plan, generator=Generator().manual_seed(0))


def test_a_game_that_halts_says_why_and_keeps_the_last_good_checkpoint(tmp_path):
    """After steps x is 1.3, 2, 2.3, 3: the fourth halts, and would have been a checkpoint."""
    tug = Tug(most=2.5)
    result = run(tmp_path, tug, steps=9)
    assert (result.status, result.reason, result.position.step) == ("halted", "x is above 2.5.", 4)
    assert Run(tmp_path).checkpoints.steps() == [0, 2]
    newest = Run(tmp_path).checkpoints.newest()
    assert newest is not None
    assert float(newest.weights["x"]["value"]) == pytest.approx(2.0)
    assert [line["step"] for line in History.read(tmp_path)] == [1, 2, 3, 4]
    assert json.loads((tmp_path / "results.json").read_text())["reason"] == "x is above 2.5."
    again = run(tmp_path, other := Tug(most=9.0), steps=5)  # from the last good state, with a bound that allows it
    assert (again.status, again.position.step) == ("finished", 5)
    assert other.x.value.item() == pytest.approx(3.3)


def test_a_game_goes_on_with_what_it_remembered(tmp_path):
    run(tmp_path / "whole", whole := Tug(), steps=6)
    run(tmp_path / "halves", Tug(), steps=3)
    run(tmp_path / "halves", halves := Tug(), steps=6)
    assert halves.y.value.item() == whole.y.value.item() == pytest.approx(2.1)
    assert (tmp_path / "halves/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_noise_belongs_to_the_batch(law):
    source = WithNoise(batches=ROWS, latent=3, seed=5, law=law)
    first, second = source.at(4, 0)
    assert isinstance(first, Round)
    assert first.noise.shape == (2, 3)
    assert first.noise.dtype == torch.float64
    assert not torch.equal(first.noise, second.noise)
    (alone,) = source.at(4, 1)
    assert torch.equal(alone.noise, second.noise)
    assert torch.equal(alone.data, second.data)
    assert not torch.equal(next(source.at(5, 0)).noise, first.noise)
    many = next(WithNoise(batches=ROWS, latent=1, seed=5, law=law, rows=4000).at(0, 0)).noise
    mean, deviation = {"normal": (0.0, 1.0), "uniform": (0.5, 12**-0.5)}[law]  # 5 standard errors; the seed is fixed
    assert float(many.mean()) == pytest.approx(mean, abs=5 * deviation / 4000**0.5)
    assert float(many.std()) == pytest.approx(deviation, rel=0.06)


def test_a_loss_of_a_player_without_an_optimiser_is_an_error(generator):
    tug = Tug()
    players = {**tug.players(), "y": Player(module=tug.y)}
    with pytest.raises(ValueError, match="no optimiser"):
        next(fit(tug, ROWS, players, generator=generator))


def test_no_batch_at_all_is_an_error(generator):
    empty = WithNoise(batches=Batches(data=torch.zeros(0, 2), batch_size=2), latent=1, seed=0)
    with pytest.raises(UserError, match="no batch"):
        next(fit(Tug(), empty, Tug().players(), generator=generator))
