import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Generator, nn, optim

from ebar.objectives import MaximumLikelihood
from ebar.training.batches import Batches
from ebar.training.loop import evaluate_objective
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player, averaged
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.stopping import Best, Patience, no_longer_improves
from ebar.training.train import Plan, Result, load_best, train_run
from ebar.training.triggered import TriggeredAsgd, TriggeredAveraging, Watches
from tests.training.tiny import Bigram, data, kept


@pytest.mark.parametrize(
    ("losses", "excluding", "expected"),
    [
        ([5.0, 4.0, 6.0], 2, False),  # only two before the last
        ([5.0, 4.0, 6.0, 5.5], 2, True),  # 5.5 > min(5)
        ([5.0, 4.0, 6.0, 5.0], 2, False),  # no more than 5: it must be above
        ([5.0, 4.0, 6.0, 4.5], 2, False),  # 4 is among the two left out
        ([5.0, 4.0, 6.0, 4.9, 4.5], 2, True),  # now it is not: 4.5 > min(5, 4)
        ([math.nan, 4.0, 6.0, 4.5], 2, False),  # NaN is not the best of anything
        ([5.0, 4.0, 6.0, math.nan], 2, False),
        ([1.0], 0, False),
        ([1.0, 2.0], 0, True),
    ],
)
def test_no_longer_improving_by_hand(losses, excluding, expected):
    assert no_longer_improves(losses, excluding) is expected


def twins(evaluations: int = 2) -> tuple[nn.Linear, TriggeredAveraging, nn.Linear]:
    torch.manual_seed(0)
    own, other = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    other.load_state_dict(own.state_dict())
    optimiser = TriggeredAsgd(learning_rate=0.5, weight_decay=0.1, evaluations=evaluations).build(own.parameters())
    assert isinstance(optimiser, TriggeredAveraging)
    return own, optimiser, other


def move(module: nn.Module, optimiser: optim.Optimizer, number: int) -> None:
    generator = Generator().manual_seed(number)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).double()
    optimiser.step()


def test_it_is_torchs_sgd_and_after_the_trigger_torchs_asgd():
    own, optimiser, other = twins()
    theirs: optim.Optimizer = optim.SGD(other.parameters(), lr=0.5, weight_decay=0.1)
    for number, loss in enumerate([5.0, 4.0, 6.0, 5.5, 9.0, 9.0, 9.0]):
        move(own, optimiser, number)
        move(other, theirs, number)
        for mine, wanted in zip(own.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-14)
        with averaged(Player(module=own, optimiser=optimiser)):
            for mine, wanted in zip(own.parameters(), other.parameters(), strict=True):
                expected = theirs.state[wanted]["ax"] if isinstance(theirs, optim.ASGD) else wanted
                torch.testing.assert_close(mine, expected, rtol=0, atol=1e-7)  # torch's ⅓ is in float32
        switched = optimiser.validated(loss)
        assert switched is (number == 3)
        assert optimiser.triggered is (number >= 3)
        if switched:
            theirs = optim.ASGD(other.parameters(), lr=0.5, t0=0, lambd=0.0, weight_decay=0.1)


def test_the_learning_rate_of_a_schedule_counts_at_once_after_the_trigger_too():
    own, optimiser, _ = twins()
    for loss in (1.0, 2.0, 2.0, 2.0):
        optimiser.validated(loss)
    assert optimiser.triggered
    for rate in (0.25, 1.0):
        before = own.weight.detach().clone()
        own.weight.grad = torch.ones_like(own.weight)
        optimiser.param_groups[0].update(lr=rate, weight_decay=0.0)
        optimiser.step()
        torch.testing.assert_close(own.weight.detach(), before - rate)


def test_it_watches_and_others_do_not():
    module = nn.Linear(1, 1)
    watching = [name for name, kind in OPTIMISERS.items() if isinstance(kind().build(module.parameters()), Watches)]
    assert watching == ["triggered_asgd"]
    with pytest.raises(ValueError, match="at least 1"):
        TriggeredAsgd(evaluations=0)


def run(folder: Path, steps: int, optimiser: Any, patience: Patience | None = None) -> tuple[Result, Bigram]:
    generator = seeded(1)
    model = Bigram(dropout=0.2)
    players = {"model": Player(module=model, optimiser=optimiser.build(model.parameters()))}
    plan = Plan(steps=steps, log_every=1, validate_every=2, checkpoint_every=5, patience=patience)
    with open_run(folder, config="", seed=1) as opened:
        result = train_run(
            opened, MaximumLikelihood(model=model), Batches(data=data(40), batch_size=4), players, plan,
            generator=generator, validation=lambda: held_out(model),
        )  # fmt: skip
    return result, model


def held_out(model: Bigram) -> dict[str, float]:
    batches = Batches(data=data(30, seed=1), batch_size=30, shuffle=False)
    return evaluate_objective(MaximumLikelihood(model=model), batches, generator=Generator())


RESTLESS = TriggeredAsgd(learning_rate=2.0, evaluations=1)


def trigger_step(folder: Path) -> int:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (step,) = (record["step"] for record in records if "averages" in record)
    return int(step)


def test_a_run_that_was_stopped_before_at_and_after_the_trigger_ends_the_same(tmp_path):
    run(tmp_path / "whole", 24, RESTLESS)
    trigger = trigger_step(tmp_path / "whole")
    assert 4 <= trigger <= 16
    for step in sorted({3, trigger - 1, trigger, trigger + 1, trigger + 3, 22, 24}):
        run(tmp_path / "parts", step, RESTLESS)
    whole, parts = kept(tmp_path / "whole"), kept(tmp_path / "parts")
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]
    last = "checkpoints/step-000000024"
    assert all(parts[f"{last}/{name}"] == whole[f"{last}/{name}"] for name in ("model.safetensors", "state.json"))
    one, other = (load(files[f"{last}/training.safetensors"]) for files in (whole, parts))
    assert set(one) == set(other)
    assert "optimiser.model.0.ax" in one
    # What checks types while the tests run draws from Python's own random numbers.
    assert all(torch.equal(one[name], other[name]) for name in one if name != "random.0.python")
    assert json.loads(parts["results.json"])["best"] == json.loads(whole["results.json"])["best"]


@pytest.mark.parametrize("optimiser", [RESTLESS, OPTIMISERS["asgd"](learning_rate=2.0)], ids=["triggered", "asgd"])
def test_the_best_weights_are_the_averages_that_were_measured(optimiser, tmp_path):
    result, last = run(tmp_path, 40, optimiser)
    if optimiser is RESTLESS:
        assert result.best.step is not None
        assert result.best.step > trigger_step(tmp_path) + 2
    loaded = Bigram(dropout=0.2).eval()
    load_best(loaded, tmp_path)
    with torch.no_grad():
        assert held_out(loaded)["loss"] == result.best.value
        assert held_out(last.eval())["loss"] != result.best.value  # what moves is elsewhere


def test_fine_tuning_stops_where_the_loss_is_above_the_best_of_all_but_the_last_few(tmp_path):
    patience = Patience(evaluations=100, excluding=2)
    best, trace = Best(), []
    for step, value in enumerate([5.0, 4.0, 6.0, 4.5, 4.6]):
        best = best.update(value, step, remember=True)
        trace.append(patience.exhausted(best))
    assert trace == [False, False, False, False, True]
    assert best.history == (5.0, 4.0, 6.0, 4.5, 4.6)
    averaging = OPTIMISERS["asgd"](learning_rate=2.0)
    result, _ = run(tmp_path / "whole", 200, averaging, patience)
    assert result.reason == "patience"
    values = result.best.history
    assert [no_longer_improves(values[: n + 1], 2) for n in range(len(values))] == [False] * (len(values) - 1) + [True]
    run(tmp_path / "parts", 5, averaging, patience)
    assert run(tmp_path / "parts", 200, averaging, patience)[0] == result
