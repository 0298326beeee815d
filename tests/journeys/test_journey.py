"""A GAM from objects on short strings: what each stage leaves, and that stopping it anywhere changes nothing."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ebar.backbones.lstm import Lstm
from ebar.build.gam import base_settings
from ebar.config.gam import GamConfig
from ebar.data.corpus import Corpus, LanguageData
from ebar.errors import Interrupted, UserError
from ebar.features.regular import Motif, StartsWith
from ebar.heads.softmax import Softmax
from ebar.journeys import train as train_module
from ebar.journeys.gam import cyclical as cyclical_module
from ebar.journeys.gam import journey as journey_module
from ebar.journeys.gam.journey import Gam, gam
from ebar.journeys.gam.settings import FLOOR, Distillation, Phase
from ebar.models.construction import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.training.course import Training
from ebar.training.distillation import distil
from ebar.training.moment_matching.newton import Newton
from ebar.training.optimisers import Adam
from ebar.types import Clock
from tests.forked import Ended, in_a_process_of_its_own

DATA = LanguageData(motif="1011", length=8, size=60, test_size=100).read()
FEATURES = [Motif("1011", absent=True), StartsWith("1", absent=True)]
PHASE = Phase(epochs=2, batch_size=30, learning_rate=1e-2)


def lstm(hidden: int = 8) -> Autoregressive:
    vocabulary = DATA.space.vocabulary
    return Autoregressive(
        Lstm(vocabulary, layers=1, hidden=hidden, dropout=0.0), Softmax(hidden, vocabulary), DATA.space
    )


@pytest.fixture(scope="module")
def base() -> Autoregressive:
    torch.manual_seed(0)
    training = Training(epochs=3, batch_size=20)
    return train_module.train(lstm(), DATA, training=training, optimiser=Adam(learning_rate=1e-2), seed=0).model


def made(base: Autoregressive, folder: Path | None = None, data: Corpus = DATA, **more: Any) -> Gam:
    settings: dict[str, Any] = {
        "matching": Newton(draws=500),
        "distillation": Distillation(size=150, validation=40),
        "student": PHASE,
        "continuation": PHASE,
        "refinement": Phase(epochs=2, batch_size=20, learning_rate=1e-2),
        "cycle": Phase(epochs=3, batch_size=20, learning_rate=1e-2),
        "seed": 0,
    }
    return gam(base, FEATURES, data, folder=folder, **{**settings, **more})


def weights(found: Gam) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in found.pi.state_dict().items()}


def assert_same(one: Gam, other: Gam) -> None:
    assert one.fitted.coefficients.tolist() == other.fitted.coefficients.tolist()
    again = weights(other)
    assert all(torch.equal(value, again[name]) for name, value in weights(one).items())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two_rounds(base: Autoregressive, place: Path) -> Gam:
    return made(base, place, rounds=2)


def test_every_stage_leaves_its_files(two_rounds: Gam, place: Path) -> None:
    names = {path.relative_to(place).as_posix() for path in place.rglob("*")}
    for stage in ("round-1/pi", "round-1/refined", "round-2/pi"):
        assert {f"{stage}/{name}" for name in ("config.yaml", "results.json", "metrics.jsonl", "header.json")} <= names
    assert {"config.yaml", "environment.json", "round-1/header.json", "round-1/lambda.json"} <= names
    assert "round-2/refined/config.yaml" not in names  # the last round ends with what it distilled
    texts = {name for name in names if name.endswith(".txt")}
    assert texts == {f"round-{n}/{name}.txt" for n in (1, 2) for name in ("distilled", "distilled-validation")}
    lines = (place / "round-1" / "distilled.txt").read_text().splitlines()
    assert len(lines) == 150
    assert set("".join(lines)) == {"0", "1"}
    assert DATA.text(two_rounds.rounds[0].draws) == lines
    assert set(two_rounds.seconds) == {"round-1", "round-1/pi", "round-1/refined", "round-2", "round-2/pi"}


def test_the_student_learns_from_the_draws_and_the_data_together(
    base: Autoregressive, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noted(model: Any, data: Corpus, **options: Any) -> Any:
        seen.append(data)
        return train_module.train(model, data, **options)

    monkeypatch.setattr(journey_module, "train", noted)
    found = made(base)
    assert DATA.text(seen[0].train) == DATA.text(found.rounds[0].draws) + DATA.text(DATA.train)
    assert len(seen[0].validation.lengths) == 40 + len(DATA.validation.lengths)
    assert torch.equal(seen[0].test.tokens, DATA.test.tokens)


def test_the_second_round_tilts_the_refined_student(two_rounds: Gam, base: Autoregressive) -> None:
    first, second = two_rounds.rounds
    assert first.base is two_rounds.base is base
    refined: Any = second.base
    student: Any = first.student
    assert any(not torch.equal(refined.state_dict()[name], value) for name, value in student.state_dict().items())
    assert second.student is two_rounds.pi
    assert second.fitted is two_rounds.fitted
    assert two_rounds.p.base is second.base


def test_samples_of_p_have_the_motif_more_often_than_r_and_as_often_as_the_data(two_rounds: Gam) -> None:
    fitted = two_rounds.rounds[0].fitted
    assert fitted.data_moments[0] == 0.0  # all of D has it
    assert fitted.base_moments[0].low > 0.2
    assert two_rounds.rounds[0].distilled.moments["no motif 1011"].value < 0.05


def test_a_finished_journey_is_read_back_not_made_again(two_rounds: Gam, base: Autoregressive, place: Path) -> None:
    watched = [path for path in place.rglob("*") if path.suffix in {".safetensors", ".txt"}]
    before = {path: path.stat().st_mtime_ns for path in watched}
    again = made(base, place, rounds=2)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert_same(two_rounds, again)


def test_without_a_folder_the_same_comes_of_it_in_memory(two_rounds: Gam, base: Autoregressive) -> None:
    assert_same(two_rounds, made(base, rounds=2))


def test_without_a_seed_torchs_own_state_decides(base: Autoregressive) -> None:
    found = []
    for state in (1, 1, 2):
        torch.manual_seed(state)
        found.append(made(base, seed=None))
    assert_same(found[0], found[1])
    assert found[0].fitted.coefficients.tolist() != found[2].fitted.coefficients.tolist()


def test_a_folder_of_another_base_or_other_data_is_refused(two_rounds: Gam, base: Autoregressive, place: Path) -> None:
    with pytest.raises(UserError, match=r"\(what differs: base\)"):
        made(lstm(), place, rounds=2)
    other = LanguageData(motif="1011", length=8, size=60, test_size=100).read(seed=1)
    with pytest.raises(UserError, match=r"\(what differs: data.digest\)"):
        made(base, place, data=other, rounds=2)


def test_a_folder_of_an_earlier_version_is_refused_in_a_sentence(base: Autoregressive, tmp_path: Path) -> None:
    (tmp_path / "round-1").mkdir()
    (tmp_path / "round-1" / "lambda.json").write_text("{}")
    with pytest.raises(UserError, match="holds files, and no header that says of what: delete it"):
        made(base, tmp_path)


def test_the_page_is_written_where_it_is_wanted(base: Autoregressive, tmp_path: Path) -> None:
    page = made(base).report(tmp_path / "page.html").read_text()
    assert "no motif 1011" in page
    assert "KL(p‖π)" in page


def test_stopped_in_every_stage_it_comes_to_the_same(
    two_rounds: Gam, base: Autoregressive, place: Path, tmp_path: Path
) -> None:
    """Every run of training and every distillation is asked to stop once, soon after it began."""
    stopped: set[Any] = set()

    def stopping(kind: Any, key: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            where = key(arguments, options)
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
        patch.setattr(journey_module, "train", stopping(train_module.train, lambda given, options: options["folder"]))
        patch.setattr(journey_module, "distil", stopping(distil, lambda given, options: given[2]))
        interruptions = 0
        for _ in range(20):
            try:
                found = made(base, tmp_path, rounds=2)
                break
            except KeyboardInterrupt:
                interruptions += 1
    finally:
        patch.undo()
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGTERM, at_other_times)
    assert interruptions > 0
    assert_same(two_rounds, found)
    for name in ("round-1/distilled.txt", "round-2/distilled.txt"):
        assert (tmp_path / name).read_bytes() == (place / name).read_bytes()


# What a user writes; killed while π is trained where a folder is given.
SCRIPT = """
import os, signal
import torch
from ebar.training.metrics import Lines
import ebar
from ebar.data.corpus import LanguageData
from ebar.journeys.gam.settings import Distillation, Phase
from ebar.journeys.train import train
from ebar.training.course import Training

write = Lines.write
def dying(lines, record):
    write(lines, record)
    if kill and record["step"] >= 5:
        os.kill(os.getpid(), signal.SIGKILL)
Lines.write = dying

kill = False
data = LanguageData(motif="11", length=5, size=40, test_size=40).read()
vocabulary = data.space.vocabulary
torch.manual_seed(0)
q = ebar.Autoregressive(ebar.Lstm(vocabulary, layers=1, hidden=4, dropout=0.1), ebar.Softmax(4, vocabulary), data.space)
r = train(q, data, training=Training(epochs=2), folder=f"{folder}/r")
kill = to_be_killed
gam = ebar.gam(
    r.model, [ebar.Expression("0(0|1)0")], data, matching=ebar.Newton(draws=200),
    distillation=Distillation(size=60, validation=20), continuation=Phase(epochs=8, batch_size=20, learning_rate=1e-2),
    folder=f"{folder}/gam",
)
print(gam.fitted.coefficients.tolist(), [value.sum().item() for value in gam.pi.state_dict().values()])
"""


def test_killed_while_the_student_learns_the_same_script_goes_on_to_the_same_model(tmp_path: Path) -> None:
    def run(folder: str, kill: bool) -> Ended:
        given = {"folder": tmp_path / folder, "to_be_killed": kill}
        return in_a_process_of_its_own(lambda: exec(SCRIPT, given))

    assert run("killed", True).code == -signal.SIGKILL
    assert (tmp_path / "killed" / "gam" / "round-1" / "pi" / "metrics.jsonl").exists()
    killed, whole = run("killed", False), run("whole", False)
    assert killed.code == whole.code == 0, killed.error + whole.error
    assert killed.out == whole.out != ""


def test_figures_stand_beside_the_truth(two_rounds: Gam) -> None:
    found = two_rounds.measure(exact=True, draws=2000)
    assert list(found.models) == ["language", "r", "P_λ", "π", "P_λ 2", "π 2"]
    assert found.entropy is not None
    for name in ("r", "π", "π 2"):
        exact, on_test = found.models[name]["exact_cross_entropy"], found.models[name]["cross_entropy"]
        assert exact.value > found.entropy  # no model beats the language
        assert on_test.low - 0.05 < exact.value < on_test.high + 0.05
    exact_of = {name: found.models[name]["exact_cross_entropy"].value for name in ("r", "P_λ")}
    assert found.entropy < exact_of["P_λ"] < exact_of["r"]
    assert found.moments["language"]["no motif 1011"].value == 0.0
    assert found.divergence.value > 0
    assert any("best λ is −inf" in words for words in found.warnings)


def test_a_fresh_student_may_have_another_backbone(base: Autoregressive) -> None:
    found = made(base, fresh=lambda: lstm(hidden=5))
    assert found.pi.backbone.width == 5
    assert base.backbone.width == 8


@pytest.mark.parametrize(
    ("features", "rounds", "words"),
    [
        ([], 1, "needs features"),
        ([Motif("1"), Motif("1")], 1, "given twice: motif 1"),
        ([Motif("1")], 0, "at least one round"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    features: list[Any], rounds: int, words: str, base: Autoregressive, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        gam(base, features, DATA, rounds=rounds, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_phase_lowers_its_rate_to_the_end_of_its_training() -> None:
    schedule = PHASE.arguments()["schedule"]
    assert schedule.for_steps(14).steps == 14
    assert schedule.floor == FLOOR
    constant = Phase(epochs=2, batch_size=25, learning_rate=1.0, schedule="constant")
    assert constant.arguments()["schedule"].factor(Clock(13, 1)) == 1.0
    assert base_settings(GamConfig(features=("motif:1",))).schedule.options == {"floor": FLOOR, "warmup": 0}
    assert base_settings(GamConfig(features=("motif:1",), base=constant)).schedule.kind == "constant"


# Cyclical training, Algorithm 1.


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cyclical_module, "ROUND", 30)
    monkeypatch.setattr(cyclical_module, "PATIENCE", 2)


def test_cyclical_training_draws_from_its_own_student(base: Autoregressive, short_rounds: None, tmp_path: Path) -> None:
    found = made(base, tmp_path, regime="cyclical")
    rounds = sorted((tmp_path / "round-1" / "cycle" / "rounds").glob("*.json"))
    assert len(rounds) == 5  # 150 sequences, 30 at a time
    rates = [json.loads(path.read_text())["acceptance_rate"] for path in rounds]
    assert all(0 < rate <= 1 for rate in rates)
    distilled = found.rounds[0].distilled
    assert distilled.n == 150
    assert distilled.acceptance_rate is not None
    assert distilled.acceptance_rate.value == pytest.approx(5 / sum(1 / rate for rate in rates))
    assert distilled.moments["no motif 1011"].value < 0.1
    coefficients = [json.loads(path.read_text())["coefficients"] for path in rounds]
    assert coefficients[0] != coefficients[1]  # λ is fitted anew to each round's π


def test_p_of_cyclical_training_tilts_the_model_that_lambda_was_fitted_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """r hardly ever starts with 1, as half the data do; π learns it, and λ fitted to π is then too small for r."""
    monkeypatch.setattr(cyclical_module, "ROUND", 30)
    torch.manual_seed(0)
    base: Any = lstm()
    with torch.no_grad():
        base.head.linear.bias += torch.tensor([3.0, 0.0, 0.0])
    fast = Phase(epochs=3, batch_size=20, learning_rate=0.3)
    found, again = (
        gam(
            base, [StartsWith("1")], DATA, regime="cyclical", matching=Newton(draws=4000), seed=0, folder=tmp_path,
            distillation=Distillation(size=150, validation=40), cycle=fast, continuation=PHASE,
        )
        for _ in range(2)
    )  # fmt: skip
    assert found.base is base
    wanted, generator = found.fitted.data_moments[0], torch.Generator().manual_seed(1)

    def mean(target: Tilted) -> float:
        drawn = draw(Importance(), target, 4000, generator=generator)
        return float(torch.softmax(drawn.log_weights[0].double(), 0) @ found.features(drawn.x)[:, 0].double())

    assert mean(found.p) == pytest.approx(wanted, abs=0.05)
    assert mean(found.fitted.tilted(base, found.features)) != pytest.approx(wanted, abs=0.2)
    assert torch.equal(found.p.log_score(DATA.test), again.p.log_score(DATA.test))  # read back, it is the same
    figures = found.measure(exact=True, draws=4000).models["P_λ"]
    assert figures["exact_cross_entropy"].value == pytest.approx(figures["cross_entropy"].value, rel=0.1)


def test_a_cycle_stopped_between_rounds_comes_to_the_same(
    base: Autoregressive, short_rounds: None, tmp_path: Path
) -> None:
    whole = made(base, tmp_path / "whole", regime="cyclical")
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
                made(base, tmp_path / "stopped", regime="cyclical")
        stopped = made(base, tmp_path / "stopped", regime="cyclical")
    finally:
        patch.undo()
    for name in ("distilled.txt", "lambda.json"):
        first, second = (tmp_path / which / "round-1" / name for which in ("whole", "stopped"))
        if name == "lambda.json":
            one, other = (json.loads(path.read_text()) for path in (first, second))
            assert one["coefficients"] == other["coefficients"]
        else:
            assert first.read_bytes() == second.read_bytes()
    assert_same(whole, stopped)


def test_a_cycle_whose_rate_no_longer_improves_keeps_its_best(
    base: Autoregressive, short_rounds: None, tmp_path: Path
) -> None:
    """Patience of one round: after the first that is no better, λ stays that of the best."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cyclical_module, "PATIENCE", 1)
    try:
        made(base, tmp_path, regime="cyclical", distillation=Distillation(size=240, validation=30))
    finally:
        patch.undo()
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "round-1/cycle/rounds").glob("*.json"))]
    rates = [one["acceptance_rate"] for one in found]
    worse = next(place for place in range(1, 8) if rates[place] <= max(rates[:place]))
    best = max(range(worse + 1), key=lambda place: rates[place])
    for later in found[worse + 1 :]:
        assert later["coefficients"] == found[best]["coefficients"]


def test_cyclical_training_needs_a_sampler_that_accepts(base: Autoregressive) -> None:
    with pytest.raises(UserError, match="rejection or quasi_rejection"):
        made(base, regime="cyclical", sampler=Importance())
