"""A sweep loses no trial and counts none twice, however often it is killed; weak trials are given up."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebar.cli import main
from ebar.config.sweep import read_over, with_values
from ebar.errors import UserError
from ebar.journeys.sweep.journey import read_sweep, sweep
from ebar.journeys.sweep.report import write_sweep_page
from ebar.journeys.sweep.search import Between, Halving, OneOf, Search
from ebar.journeys.sweep.trials import Swept, Trial
from ebar.store.store import open_store
from ebar.store.writing import replace, to_json
from ebar.training.loop import Position
from ebar.training.metrics import Sink
from ebar.training.stopping import Best
from ebar.training.train import Result
from tests.store.disk import Dead, failing

pytest.importorskip("optuna", reason="optuna is not installed")

EVALUATIONS = 16
SEARCH = Search(over={"x": Between(low=0.0, high=1.0), "kind": OneOf(("plain", "steep"))}, startup=4)


def parabola(config: Mapping[str, Any], folder: Path, sinks: Sequence[Sink]) -> Result:
    """Evaluations of (x − 0.3)² that come nearer and nearer; below 0.05 it has no loss."""
    if config["x"] < 0.05:
        raise UserError("The loss is not finite at step 1.")
    folder.mkdir(exist_ok=True)
    scale = 2.0 if config["kind"] == "steep" else 1.0
    lines: list[bytes] = []
    for step in range(1, EVALUATIONS + 1):
        figures = {"validation.loss": scale * (config["x"] - 0.3) ** 2 + 1 / step}
        lines.append(to_json({"step": step, "epoch": step, **figures}))
        replace(folder / "metrics.jsonl", b"".join(lines))
        for sink in sinks:
            sink.write(step, figures)
    return Result("finished", "epochs", Position(), Best())


def run(folder: Path, trials: int = 20, search: Search = SEARCH) -> Swept:
    with open_store(folder, description={"over": repr(search.over)}, seed=0) as store:
        return sweep(parabola, dict, search, trials, store)


def test_killed_twice_and_more_often_it_ends_in_the_trials_that_it_would_have_had(tmp_path: Path) -> None:
    with failing() as disk:
        whole = run(tmp_path / "whole")
    assert [one.number for one in whole.trials] == list(range(20))
    states = {one.state for one in whole.trials}
    assert states == {"complete", "pruned", "failed"}
    killed = tmp_path / "killed"
    for at in (disk.count // 5, disk.count // 3, 7):
        with pytest.raises(Dead), failing(at):
            run(killed)
    assert run(killed).trials == whole.trials
    assert read_sweep(killed).trials == whole.trials
    more = run(killed, trials=22)
    assert more.trials[:20] == whole.trials
    assert len(more.trials) == 22
    best = whole.best
    assert best is not None
    assert best.figure == min(one.figure for one in whole.trials if one.state == "complete")  # type: ignore[type-var]
    page = write_sweep_page(whole, SEARCH, "ebar train --name best").read_text()
    assert "<svg" in page
    assert "The loss is not finite at step 1." in page
    assert "ebar train --name best" in page


def test_what_is_tried_depends_on_the_trials_number_and_on_those_before_it() -> None:
    search = Search(
        over={"rate": Between(low=1e-4, high=1e-2, log=True), "rows": Between(low=2.0, high=9.0, whole=True)}
    )
    first = [search.suggest(number, []) for number in range(30)]
    assert first == [search.suggest(number, []) for number in range(30)]
    assert len({one["rate"] for one in first}) == 30
    assert all(1e-4 <= float(one["rate"]) <= 1e-2 and one["rows"] in range(2, 10) for one in first)
    assert 5 <= sum(float(one["rate"]) < 1e-3 for one in first) <= 25  # of a half, binomial: one false alarm in 3,000
    told = [Trial(n, one, "complete", abs(math.log(float(one["rate"]) / 2e-4))) for n, one in enumerate(first[:15])]
    near = [search.suggest(number, told) for number in range(15, 30)]
    assert sum(float(one["rate"]) < 1e-3 for one in near) > sum(float(one["rate"]) < 1e-3 for one in first[15:])


def test_halving_by_hand() -> None:
    halving = Halving(factor=2, least=1)
    assert halving.rungs(9) == [1, 2, 4, 8]
    assert not halving.gives_up([5.0], [])  # the first of all
    assert halving.gives_up([5.0], [[4.0]])  # one of two goes on: the other
    assert not halving.gives_up([3.0], [[4.0], [5.0]])
    assert not halving.gives_up([9.0, 8.0, 7.0], [[1.0], [2.0]])  # no rung after three
    assert halving.gives_up([3.0, 2.0], [[4.0, 1.0], [5.0]])  # at the second, of two that came so far
    assert not halving.gives_up([3.0, 2.0], [[1.0, 2.5], [1.0]])
    assert halving.gives_up([math.nan], [])
    assert not Halving(factor=1).gives_up([9.0], [[1.0]])


def test_words_become_ranges() -> None:
    found = read_over(
        ("a.b=1e-4..1e-2:log", "c=1..8", "--d=0.5..2", "e=lstm,transformer", "f=1,2.5,1e-3", "g=true,false")
    )
    assert found == {
        "a.b": Between(low=1e-4, high=1e-2, log=True), "c": Between(low=1.0, high=8.0, whole=True),
        "d": Between(low=0.5, high=2.0), "e": OneOf(("lstm", "transformer")), "f": OneOf((1, 2.5, 1e-3)),
        "g": OneOf((True, False)),
    }  # fmt: skip
    assert with_values({"a": {"b": 1, "c": 2}}, {"a.b": 3, "d.e": 4}) == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}
    for words, said in {
        "a": "does not say", "a=1": "no range and no list", "a=2..1": "smaller number to a larger",
        "a=0..1:log": "begins above 0", "a=x..y": "are no numbers", "a=1,1": "nothing to choose",
        "a=1..2:cube": "no range",
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=said):
            read_over((words,))
    with pytest.raises(UserError, match="given twice"):
        read_over(("a=1..2", "a=1,2"))


def test_a_finished_trial_is_the_run_of_its_own_command_and_one_that_diverges_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = {
        "data": {"kind": "language", "motif": "1011", "length": 8, "size": 40},
        "backbone": {"kind": "lstm", "hidden": 4, "layers": 1}, "training": {"epochs": 2, "batch_size": 20},
    }  # fmt: skip
    Path("run.yaml").write_text(yaml.safe_dump(tree))
    words = ["sweep", "run.yaml", "--over", "optimiser.learning_rate=0.01,1e37", "--trials", "4", "--factor", "1"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    states = {one["number"]: one["state"] for one in found["trials"]}
    assert set(states.values()) == {"complete", "failed"}
    assert "finite" in next(one["problem"] for one in found["trials"] if one["state"] == "failed")
    number = next(number for number, state in states.items() if state == "complete")
    assert found["best"]["number"] == number
    trial = Path("runs/sweep") / f"trial-{number:04d}"
    assert main(found["command"].split()[1:]) == 0
    capsys.readouterr()
    for name in ("metrics.jsonl", "config.yaml"):
        assert (trial / name).read_bytes() == (Path("runs/best") / name).read_bytes()
    assert main(["list", "runs"]) == 0
    assert "sweep" in capsys.readouterr().out
    for over, said in {
        "optimiser.learning_rat=1..2": "did you mean --optimiser.learning_rate",
        "training.batch_size=0..2": "batch_size must be 1 or more",
    }.items():
        assert main(["sweep", "run.yaml", "--over", over]) == 2
        assert said in capsys.readouterr().err
