"""`ebar control`: fit, sample and tune from one command each, on a random model of seventy tokens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ebar.build.export import export_run
from ebar.build.next_commands import next_commands
from ebar.build.summaries import summarise
from ebar.build.terms import absolute
from ebar.cli import dispatch
from ebar.errors import UserError
from ebar.journeys.control import controlled
from ebar.models.construction import from_pretrained
from ebar.recipes.control.tables import write_toy
from ebar.samplers.draw import draw

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
pytest.importorskip("peft", reason="needs the extra ebar[hf]")

FIT = [
    "--length", "6", "--ends", "true", "--draws", "400", "--checks", "300", "--surrogate_draws", "100", "--rows", "300",
    "--features", "expression:ab=1", "expression:c=0.5",
]  # fmt: skip
TUNE = ["--steps", "4", "--draws", "16", "--evaluate_every", "2", "--evaluation_draws", "60", "--lora_rank", "2"]


def control(words: list[str]) -> int:
    return dispatch(["control", *words])


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert control([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert control(["fit", "--runs", str(runs), "--name", "tiny", "--model", str(model), *FIT]) == 0
    return runs / "tiny"


def test_fit_leaves_lambda_figures_and_a_page(run: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads((run / "results.json").read_text())
    assert results["lambda"]["coefficients"][0] == "-inf"
    assert results["after"]["text ab"]["value"] == 1
    assert results["effective_samples_per_draw"]["looking ahead"]["value"] > 0.3
    page = (run / "report.html").read_text()
    assert "must be" in page
    assert "<svg" in page
    # Again: λ is read back; with other features it is another run.
    words = ["fit", "--runs", str(run.parent), "--name", "tiny", "--model", str(model)]
    again = answer(capsys, *words, *FIT)
    assert again["lambda"]["coefficients"] == results["lambda"]["coefficients"]
    with pytest.raises(UserError, match=f"another configuration: choose another --name, or delete {run}."):
        control([*words, *FIT[:-1]])


def test_after_a_mistake_the_name_is_free_again(model: Path, tmp_path: Path) -> None:
    words = ["fit", "--runs", str(tmp_path), "--name", "again", *FIT]
    with pytest.raises(UserError):
        control([*words, "--model", str(tmp_path / "mistyped")])
    (tmp_path / "mine.py").write_text("def never(text):\n    return False\n")
    for term in ("expression:(=1", f"predicate:{tmp_path / 'mine.py'}:never=1"):
        with pytest.raises(UserError):
            control([*words[:-2], term, "--model", str(model)])
    assert control([*words, "--model", str(model)]) == 0
    assert str(model) in (tmp_path / "again" / "config.yaml").read_text()
    # What is another command's is never taken.
    other = tmp_path / "trained"
    (other / "checkpoints" / "step-000000000").mkdir(parents=True)
    (other / "config.yaml").write_text("steps: 5\n")
    with pytest.raises(UserError, match="another kind, whose configuration has steps: choose another name"):
        control(["fit", "--runs", str(tmp_path), "--name", "trained", *FIT, "--model", str(model)])
    assert (other / "config.yaml").read_text() == "steps: 5\n"


def test_files_of_terms_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").touch()
    monkeypatch.chdir(tmp_path)
    assert absolute("predicate:mine.py:f=1") == f"predicate:{tmp_path}/mine.py:f=1"
    assert absolute("!predicate:mine.py:f=0.5") == f"!predicate:{tmp_path}/mine.py:f=0.5"
    for term in ("word:mine.py:f=1", "predicate:yours.py:f=1", "predicate"):
        assert absolute(term) == term


def test_samples_are_made_as_the_fit_was_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def drawing(sampler: Any, *arguments: Any, **options: Any) -> Any:
        built.append(sampler)
        return draw(sampler, *arguments, **options)

    monkeypatch.setattr(controlled, "draw", drawing)
    for words in (
        [],
        ["--sampler.surrogate_draws", "50"],
        ["--sampler.kind", "resampling", "--proposal", "look_ahead"],
    ):
        assert control(["sample", str(run), "--n", "2", "--compare", "false", *words]) == 0
    assert [(one.batch_size, one.surrogate_draws) for one in built[:2]] == [(300, 100), (300, 50)]
    assert built[2].batch_size == 300


def test_samples_have_what_they_must_have(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = answer(capsys, "sample", str(run), "--n", "40")
    assert len(drawn["samples"]) == 40
    assert all("ab" in one["text"] and "log_weight" in one for one in drawn["samples"])
    in_shards = answer(capsys, "sample", str(run), "--n", "40", "--backend", "process")
    assert len(in_shards["samples"]) == 40
    assert all("ab" in one["text"] and "log_weight" in one for one in in_shards["samples"])
    worth = drawn["effective_samples_per_draw"]
    assert worth["these draws"]["value"] > 2 * worth["the model"]["value"]
    other = answer(
        capsys, "sample", str(run), "--n", "5", "--sampler.kind", "resampling", "--proposal", "look_ahead",
        "--compare", "false",
    )  # fmt: skip
    assert all("ab" in one["text"] for one in other["samples"])
    assert "the model" not in other["effective_samples_per_draw"]
    capsys.readouterr()
    assert control(["sample", str(run), "--n", "3"]) == 0
    told = capsys.readouterr()
    assert all("\t" in line for line in told.out.splitlines())
    assert "effective samples per draw, the model" in told.err


def test_resampled_texts_are_worth_at_most_the_distinct_ones(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = answer(
        capsys, "sample", str(run), "--n", "20", "--sampler.kind", "resampling", "--proposal", "look_ahead",
        "--sampler.proposals_per_draw", "1",
    )  # fmt: skip
    worth = drawn["effective_samples_per_draw"]["these draws"]
    texts = [one["text"] for one in drawn["samples"]]
    assert len(set(texts)) <= worth["distinct"] <= worth["draws"] == 20
    assert worth["effective_sample_size"] <= worth["distinct"] + 1e-9
    assert worth["low"] == 0


def test_fit_prints_what_lambda_json_warns_of_and_how_many_draws(
    run: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "lambda.json"
    before = path.read_text()
    tree = json.loads(before)
    tree["warnings"] = ["λ is of too few draws"]
    tree["model_moments"][1]["warning"] = "a moment in doubt"
    path.write_text(json.dumps(tree))
    capsys.readouterr()
    words = ["fit", "--runs", str(run.parent), "--name", "tiny", "--model", str(model), *FIT, "--within", "0.01"]
    try:
        assert control(words) == 0
    finally:
        path.write_text(before)
    told = capsys.readouterr().out
    assert "⚠ λ is of too few draws" in told
    assert "a moment in doubt" in told
    assert "as asked" in before  # of the hard constraint, which is no warning
    assert "as asked" not in told
    assert "how many draws" in told
    assert "distinct of 300" in told
    budgets = json.loads((run / "results.json").read_text())["budgets"]
    assert budgets["text ab"]["draws"] == 0  # exact
    assert list(budgets) == ["log Z", "text ab", "text c"]


def test_tune_leaves_a_model_and_a_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "tune", str(run), *TUNE)
    assert found["status"] == "finished"
    assert found["steps"] == [0, 2, 4]
    assert Path(found["model"]).joinpath("model.safetensors").exists()
    assert "<svg" in (run / "tune" / "report.html").read_text()
    assert control(["tune", str(run), *TUNE]) == 0  # all of it read back
    assert "best at step" in capsys.readouterr().out
    other = [*TUNE, "--steps", "1"]
    with pytest.raises(UserError, match="another configuration: choose another --name"):
        control(["tune", str(run), *other])
    assert answer(capsys, "tune", str(run), *other, "--name", "brief")["steps"] == [0, 1]
    assert (run / "brief" / "model" / "model.safetensors").exists()
    # Exported, it is that model; and the list of the folder knows what it is.
    weights = {name: (run / name / "model" / "model.safetensors").read_bytes() for name in ("tune", "brief")}
    for place, name in ((run, "tune"), (run / "brief", "brief")):
        done = export_run(place)
        assert done.tokenizer
        assert (done.folder / "model.safetensors").read_bytes() == weights[name]
    assert from_pretrained(run / "hf").space.vocabulary > 2
    assert [(one.kind, one.state) for one in (summarise(run), summarise(run / "brief"))] == [
        ("control", "finished"), ("control tune", "finished"),
    ]  # fmt: skip
    assert next_commands(summarise(run))["use the tuned model elsewhere"] == f"ebar export {run} --to hf"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["explain"], "There is no part 'explain'"),
        (["fit"], "model"),
        (["fit", "--model", "nowhere.bin", "--features", "word:a=1", "--length", "0"], "length must be 1 or more"),
        (["sample", "nowhere"], "There is no run in nowhere"),
        (["tune", "nowhere", "--steps", "0"], "steps must be 1 or more"),
        (["tune", "nowhere", "--setps", "5"], "did you mean --steps"),
        (["tune", "nowhere", "--learning_rate", "-1"], "learning_rate must be above 0"),
        (["tune", "nowhere", "--warmup", "-1"], "warmup must be 0 or more"),
        (["tune", "nowhere", "--name", "a/b"], "must be the name of one folder"),
        (["tune", "nowhere", "--name", "checkpoints"], "choose another --name"),
    ],
)
def test_errors_are_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    runs = ["--runs", str(tmp_path)] if words[:1] == ["fit"] else []
    with pytest.raises(UserError) as raised:
        control([*words, *runs])
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value).strip()


def test_usage_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert control([]) == 0
    assert "parts:\n  check " in capsys.readouterr().out
    script = "import sys; from ebar.cli import main; main(['control']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


@pytest.mark.parametrize("action", ["", "fit", "sample", "tune"])
def test_help_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        control([*([action] if action else []), "--help"])
    assert ended.value.code == 0
    assert "example:\n  ebar control" in capsys.readouterr().out
