"""The journey of a GAM on short strings: what each stage leaves, and that stopping it anywhere changes nothing."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ebar.build.train import train_as
from ebar.config.gam import GamConfig
from ebar.config.reader import Chosen
from ebar.errors import Interrupted, UserError
from ebar.journeys.gam import cyclical as cyclical_module
from ebar.journeys.gam import journey as journey_module
from ebar.journeys.gam.journey import Journey, travel
from ebar.journeys.gam.measure import measure
from ebar.journeys.gam.phases import FLOOR, base_settings, in_phase
from ebar.journeys.gam.settings import Distillation, Phase
from ebar.training.distillation import distil

LSTM = {"layers": 1, "hidden": 8, "dropout": 0.0, "embedding": None, "compiled": False}
DATA = {"motif": "1011", "expression": None, "alphabet": "01", "length": 8, "presence": 1.0, "stop": None,
        "size": 60, "test_size": 100}  # fmt: skip


def gam(**more: Any) -> GamConfig:
    settings: dict[str, Any] = {
        "data": Chosen(kind="language", options=DATA),
        "features": ("!motif:1011", "!starts_with:1"),
        "backbone": Chosen(kind="lstm", options=LSTM),
        "base": Phase(epochs=3, batch_size=20, learning_rate=1e-2),
        "matching": Chosen(kind="newton", options={"draws": 500}),
        "distillation": Distillation(size=150, validation=40),
        "student": Phase(epochs=2, batch_size=30, learning_rate=1e-2),
        "continuation": Phase(epochs=2, batch_size=30, learning_rate=1e-2),
        "refinement": Phase(epochs=2, batch_size=20, learning_rate=1e-2),
    }
    return GamConfig(**{**settings, **more})


def weights(journey: Journey) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in journey.student.state_dict().items()}


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return travel(gam(rounds=2), tmp_path_factory.mktemp("two"))


def test_every_stage_leaves_its_files(two_rounds: Journey) -> None:
    names = {path.relative_to(two_rounds.folder).as_posix() for path in two_rounds.folder.rglob("*")}
    for stage in ("r", "round-1/pi", "round-1/refined", "round-2/pi"):
        assert {f"{stage}/config.yaml", f"{stage}/results.json", f"{stage}/metrics.jsonl"} <= names
    assert {"round-1/lambda.json", "round-1/distilled.txt", "round-2/lambda.json", "seconds.json"} <= names
    assert "round-2/refined/config.yaml" not in names  # the last round ends with what it distilled
    lines = (two_rounds.folder / "round-1" / "distilled.txt").read_text().splitlines()
    assert len(lines) == 150
    assert set("".join(lines)) == {"0", "1"}
    together = (two_rounds.folder / "round-1" / "student.txt").read_text().splitlines()
    assert together[:150] == lines
    assert len(together) == 150 + 60  # distilled ∪ D


def test_the_second_round_tilts_the_refined_student(two_rounds: Journey) -> None:
    first, second = two_rounds.rounds
    assert first.base is two_rounds.base
    refined = second.base.state_dict()
    assert any(not torch.equal(refined[name], value) for name, value in first.student.state_dict().items())
    assert second.student is two_rounds.student


def test_samples_of_p_have_the_motif_more_often_than_r_and_as_often_as_the_data(two_rounds: Journey) -> None:
    fitted = two_rounds.rounds[0].fitted
    assert fitted.data_moments[0] == 0.0  # all of D has it
    assert fitted.base_moments[0].low > 0.2
    assert two_rounds.rounds[0].distilled.moments["no motif 1011"].value < 0.05


def test_a_finished_journey_is_read_back_not_made_again(two_rounds: Journey) -> None:
    watched = [path for path in two_rounds.folder.rglob("*") if path.suffix in {".safetensors", ".txt"}]
    before = {path: path.stat().st_mtime_ns for path in watched}
    again = travel(gam(rounds=2), two_rounds.folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all(torch.equal(value, again.student.state_dict()[name]) for name, value in weights(two_rounds).items())


def test_stopped_in_every_stage_it_comes_to_the_same(two_rounds: Journey, tmp_path: Path) -> None:
    """Every run of training and every distillation is asked to stop once, soon after it began."""
    stopped: set[Any] = set()

    def stopping(kind: Any, key: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            where = key(arguments)
            if where not in stopped:
                stopped.add(where)
                signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                return kind(*arguments, **options)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)

        return run

    def outside_a_stage(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    at_other_times = signal.signal(signal.SIGTERM, outside_a_stage)
    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(journey_module, "train_as", stopping(train_as, lambda given: given[1]))
        patch.setattr(journey_module, "distil", stopping(distil, lambda given: given[2]))
        interruptions = 0
        for _ in range(20):
            try:
                journey = travel(gam(rounds=2), tmp_path)
                break
            except KeyboardInterrupt:
                interruptions += 1
    finally:
        patch.undo()
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGTERM, at_other_times)
    assert interruptions > 0
    assert all(torch.equal(value, journey.student.state_dict()[name]) for name, value in weights(two_rounds).items())
    for name in ("round-1/distilled.txt", "round-2/distilled.txt"):
        assert (tmp_path / name).read_bytes() == (two_rounds.folder / name).read_bytes()


def test_figures_stand_beside_the_truth(two_rounds: Journey) -> None:
    found = measure(two_rounds, seed=0, exact=True, pool=2000)
    assert list(found.models) == ["r", "P", "π", "P 2", "π 2"]
    assert found.entropy is not None
    for name in ("r", "π", "π 2"):
        exact = found.models[name].exact
        assert exact is not None
        assert exact.value > found.entropy  # no model beats the language
        on_test = found.models[name].cross_entropy
        assert on_test.low - 0.05 < exact.value < on_test.high + 0.05
    tilted = found.models["P"].exact
    assert tilted is not None
    assert found.models["r"].exact is not None
    assert found.entropy < tilted.value < found.models["r"].exact.value
    assert found.true_moments is not None
    assert found.true_moments["no motif 1011"] == 0.0
    assert found.divergence.value > 0
    assert set(found.seconds) >= {"r", "π, round 1", "refined, round 1", "π, round 2"}
    assert any("best λ is −inf" in words for words in found.warnings)


def test_a_fresh_student_may_have_another_backbone(tmp_path: Path) -> None:
    journey = travel(gam(fresh=True, student_backbone={"hidden": 5}), tmp_path)
    assert journey.student.backbone.width == 5
    assert journey.base.backbone.width == 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": ()}, "needs features"),
        ({"features": ("motif:1", "motif:1")}, "given twice: motif:1"),
        ({"rounds": 0}, "at least one round"),
        ({"student_backbone": {"hidden": 3}}, "ask for a fresh one"),
    ],
)
def test_what_cannot_be_is_told_before_any_work(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        travel(gam(**change), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_phase_lowers_its_rate_over_all_of_its_steps() -> None:
    run = base_settings(gam())
    assert run.schedule.options == {"steps": 9, "floor": FLOOR, "warmup": 0}  # 3 epochs of 60/20 steps
    dropped = in_phase(run, Phase(epochs=2, batch_size=25, learning_rate=1.0, drop_last=True), 60)
    assert dropped.schedule.options["steps"] == 4
    constant = in_phase(run, Phase(epochs=2, batch_size=25, learning_rate=1.0, schedule="constant"), 60)
    assert constant.schedule.kind == "constant"


# Cyclical training, Algorithm 1.


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cyclical_module, "ROUND", 30)
    monkeypatch.setattr(cyclical_module, "PATIENCE", 2)


def test_cyclical_training_draws_from_its_own_student(short_rounds: None, tmp_path: Path) -> None:
    journey = travel(gam(regime="cyclical"), tmp_path)
    rounds = sorted((tmp_path / "round-1" / "cycle" / "rounds").glob("*.json"))
    assert len(rounds) == 5  # 150 sequences, 30 at a time
    rates = [json.loads(path.read_text())["acceptance_rate"] for path in rounds]
    assert all(0 < rate <= 1 for rate in rates)
    distilled = journey.rounds[0].distilled
    assert distilled.n == 150
    assert distilled.acceptance_rate is not None
    assert distilled.acceptance_rate.value == pytest.approx(5 / sum(1 / rate for rate in rates))
    assert distilled.moments["no motif 1011"].value < 0.1
    coefficients = [json.loads(path.read_text())["coefficients"] for path in rounds]
    assert coefficients[0] != coefficients[1]  # λ is fitted anew to each round's π


def test_a_cycle_stopped_between_rounds_comes_to_the_same(short_rounds: None, tmp_path: Path) -> None:
    whole = travel(gam(regime="cyclical"), tmp_path / "whole")
    stop = {1, 3}
    write = cyclical_module._Rounds._write

    def writing(self: Any, number: int, *rest: Any) -> None:
        write(self, number, *rest)
        if number in stop:
            stop.remove(number)
            os.kill(os.getpid(), signal.SIGTERM)

    patch = pytest.MonkeyPatch()
    patch.setattr(cyclical_module._Rounds, "_write", writing)
    try:
        for _ in range(2):
            with pytest.raises(Interrupted):
                travel(gam(regime="cyclical"), tmp_path / "stopped")
        stopped = travel(gam(regime="cyclical"), tmp_path / "stopped")
    finally:
        patch.undo()
    for name in ("distilled.txt", "lambda.json"):
        first, second = (tmp_path / which / "round-1" / name for which in ("whole", "stopped"))
        if name == "lambda.json":
            one, other = (json.loads(path.read_text()) for path in (first, second))
            assert one["coefficients"] == other["coefficients"]
        else:
            assert first.read_bytes() == second.read_bytes()
    assert all(torch.equal(value, stopped.student.state_dict()[name]) for name, value in weights(whole).items())


def test_a_cycle_whose_rate_no_longer_improves_keeps_its_best(short_rounds: None, tmp_path: Path) -> None:
    """Patience of one round: after the first that is no better, λ stays that of the best."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cyclical_module, "PATIENCE", 1)
    try:
        small = replace(gam(regime="cyclical"), distillation=Distillation(size=240, validation=30))
        travel(small, tmp_path)
    finally:
        patch.undo()
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "round-1/cycle/rounds").glob("*.json"))]
    rates = [one["acceptance_rate"] for one in found]
    worse = next(place for place in range(1, 8) if rates[place] <= max(rates[:place]))
    best = max(range(worse + 1), key=lambda place: rates[place])
    for later in found[worse + 1 :]:
        assert later["coefficients"] == found[best]["coefficients"]


def test_cyclical_training_needs_a_sampler_that_accepts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rejection or quasi_rejection"):
        travel(gam(regime="cyclical", sampler=Chosen(kind="importance", options={})), tmp_path)
