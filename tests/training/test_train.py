import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator

from ebar.errors import UserError
from ebar.objectives import MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.loop import Position
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.stopping import Patience, interruptible
from ebar.training.train import History, Plan, Result, train_run
from ebar.types import Clock, Loss
from tests.training.tiny import Bigram, data, kept


def run(folder: Path, plan: Plan, objective: Any = None, **options: Any) -> Result:
    generator = seeded(1)
    model = Bigram(dropout=0.2)
    players = {"model": Player(module=model, optimiser=OPTIMISERS["adam"]().build(model.parameters()))}
    batches = Batches(data=data(20), batch_size=8)
    objective = MaximumLikelihood(model=model) if objective is None else objective(model)
    with open_run(folder, config="", seed=1) as opened:
        return train_run(opened, objective, batches, players, plan, generator=generator, **options)


class Signals:
    """Sends this process a signal when told of a given step."""

    def __init__(self, step: int, number: signal.Signals):
        self.step, self.number = step, number

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if step == self.step:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_saves_and_the_run_goes_on_to_the_same_end(number, tmp_path):
    plan = Plan(steps=9, log_every=1)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(tmp_path / "whole", plan)
    stopped = run(tmp_path / "stopped", plan, sinks=[Signals(4, number)])
    assert (stopped.status, stopped.reason, stopped.position) == ("interrupted", "signal", Position(4, 1, 1))
    assert not (tmp_path / "stopped" / "results.json").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert run(tmp_path / "stopped", plan).status == "finished"
    whole, again = kept(tmp_path / "whole"), kept(tmp_path / "stopped")
    for name in ("metrics.jsonl", "results.json", "checkpoints/step-000000009/model.safetensors"):
        assert again[name] == whole[name]


def test_a_second_interrupt_stops_at_once():
    with interruptible() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_training_in_a_thread_of_its_own_works_without_handlers(tmp_path):
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, Plan(steps=2))))
    thread.start()
    thread.join()
    assert results[0].status == "finished"


def test_patience_ends_a_run_and_the_best_is_kept(tmp_path):
    figures = iter([3.0, 2.0, 2.5, 1.0, 1.5, 1.5, 0.1])
    plan = Plan(validate_every=2, checkpoint_every=100, patience=Patience(evaluations=2))
    result = run(tmp_path, plan, validation=lambda: {"loss": next(figures)})
    assert (result.reason, result.position.step) == ("patience", 12)
    assert (result.best.value, result.best.step, result.best.stale) == (1.0, 8, 2)
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert steps == ["step-000000008", "step-000000012"]
    assert json.loads((tmp_path / "results.json").read_bytes())["best"] == {
        "value": 1.0,
        "step": 8,
        "stale": 2,
        "stale_in_all": 3,
        "history": [],
    }
    assert run(tmp_path, plan, validation=lambda: {"loss": 0.0}) == result  # it stays finished


def test_held_out_figures_are_taken_without_dropout_and_gradients_at_each_epochs_end(tmp_path):
    seen = []
    model: list[Bigram] = []

    def objective(made: Bigram) -> MaximumLikelihood:
        model.append(made)
        return MaximumLikelihood(model=made)

    def validation() -> dict[str, float]:
        seen.append((model[0].dropout.training, torch.is_grad_enabled()))
        return {"loss": 1.0}

    result = run(tmp_path, Plan(epochs=2, log_every=100), objective, validation=validation)
    assert seen == [(False, False)] * 2
    assert model[0].dropout.training
    assert (result.reason, result.position) == ("epochs", Position(6, 2, 0))
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert records == [{"step": 3 * n, "epoch": n, "validation.loss": 1.0} for n in (1, 2)]


def test_a_finished_run_can_be_made_longer_and_equals_one_that_was_long_from_the_start(tmp_path):
    run(tmp_path / "long", Plan(steps=8, log_every=1))
    run(tmp_path / "short", Plan(steps=5, log_every=1))
    assert run(tmp_path / "short", Plan(steps=8, log_every=1)).position.step == 8
    for name in ("metrics.jsonl", "checkpoints/step-000000008/model.safetensors"):
        assert kept(tmp_path / "short")[name] == kept(tmp_path / "long")[name]


class Breaks:
    """Likelihood, until the fifth batch."""

    def __init__(self, model: Bigram):
        self.likelihood = MaximumLikelihood(model=model)
        self.calls = count(1)

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        for loss in self.likelihood.losses(batch, clock, generator=generator):
            yield Loss(loss.value * torch.nan) if next(self.calls) == 5 else loss


def test_a_loss_that_is_not_a_number_keeps_the_batch_and_the_state_before(tmp_path):
    plan = Plan(steps=9, log_every=1, checkpoint_every=3)
    with pytest.raises(UserError) as caught:
        run(tmp_path, plan, Breaks)
    path = tmp_path / "non-finite-step-5.safetensors"
    message = str(caught.value)
    assert message.startswith("The loss is nan in step 5: ")
    assert message.endswith(f"kept in {path}.")
    expected = next(iter(Batches(data=data(20), batch_size=8).at(1, 1)))
    saved = load_file(path)
    assert torch.equal(saved["batch.tokens"], expected.tokens)
    assert torch.equal(saved["batch.lengths"], expected.lengths)
    assert run(tmp_path, plan).status == "finished"  # from step 3, with an objective that does not break
    run(tmp_path / "whole", plan)
    for name in ("metrics.jsonl", "checkpoints/step-000000009/model.safetensors"):
        assert kept(tmp_path)[name] == kept(tmp_path / "whole")[name]


def test_without_its_checkpoints_a_run_starts_anew_and_so_do_its_metrics(tmp_path):
    run(tmp_path, Plan(steps=4, log_every=1))
    whole = kept(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    run(tmp_path, Plan(steps=4, log_every=1))
    assert kept(tmp_path) == whole


@pytest.mark.parametrize(
    ("plan", "message"), [(Plan(), "Nothing says when training ends"), (Plan(patience=Patience()), "held-out data")]
)
def test_a_plan_without_an_end_is_an_error(plan, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run(tmp_path, plan)


def test_a_figure_that_is_not_measured_cannot_be_monitored(tmp_path):
    with pytest.raises(UserError, match="held-out figure called 'loss': choose one of nll"):
        run(tmp_path, Plan(epochs=1), validation=lambda: {"nll": 1.0})


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([1.0, 0.8, 0.6], None),
        ([1.0, 1.4], None),  # the mean of the last ones, 1.2, is not half as much again
        ([1.0, *[3.0] * 10], "the loss rising from 1 to 3: the learning rate of 0.5 is too high, try a tenth of it"),
        ([1.0], None),
        ([-1.0, 5.0], None),  # a loss of another kind
    ],
)
def test_a_rate_that_diverges_is_told_by_the_training_loss(losses: list[float], told: str | None) -> None:
    history = History({"step": step, "loss": loss, "learning_rate": 0.5} for step, loss in enumerate(losses, 1))
    found = history.diverged()
    assert found == (None if told is None else f"training diverged, {told}")


def test_a_rate_that_diverges_at_once_is_told_by_what_a_guess_costs() -> None:
    lines = [{"step": step, "validation.loss": loss} for step, loss in enumerate([3e20, 1e20], 1)]
    said = "training diverged, the loss being 2e+20 at the end, far above the 1.1 of a guess: the learning rate is too"
    assert str(History(lines).diverged(1.1)).startswith(said)
    assert History(lines).diverged() is None
    assert History([{"step": 1, "validation.loss": 1.2}]).diverged(1.1) is None
    assert History([{"step": 1, "loss": 4.5}]).diverged(1.1) is not None
