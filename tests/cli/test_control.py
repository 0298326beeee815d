"""`ebar control`: fit, sample and tune from one command each, on a random model of seventy tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebar.cli import control
from ebar.errors import UserError
from ebar.recipes.control.toy import write_toy

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
pytest.importorskip("peft", reason="needs the extra ebar[hf]")

FIT = [
    "--length", "6", "--ends", "true", "--draws", "400", "--checks", "300", "--surrogate_draws", "100", "--rows", "300",
    "--features", "expression:ab=1", "expression:c=0.5",
]  # fmt: skip
TUNE = ["--steps", "4", "--draws", "16", "--evaluate_every", "2", "--evaluation_draws", "60", "--lora_rank", "2"]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert control.main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert control.main(["fit", "--runs", str(runs), "--name", "tiny", "--model", str(model), *FIT]) == 0
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
    with pytest.raises(UserError, match="another configuration"):
        control.main([*words, *FIT[:-1]])


def test_samples_have_what_they_must_have(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = answer(capsys, "sample", str(run), "--n", "40")
    assert len(drawn["samples"]) == 40
    assert all("ab" in one["text"] and "log_weight" in one for one in drawn["samples"])
    worth = drawn["effective_samples_per_draw"]
    assert worth["these draws"]["value"] > 2 * worth["the model"]["value"]
    other = answer(
        capsys, "sample", str(run), "--n", "5", "--sampler.kind", "resampling", "--proposal", "look_ahead",
        "--compare", "false",
    )  # fmt: skip
    assert all("ab" in one["text"] for one in other["samples"])
    assert "the model" not in other["effective_samples_per_draw"]
    capsys.readouterr()
    assert control.main(["sample", str(run), "--n", "3"]) == 0
    told = capsys.readouterr()
    assert all("\t" in line for line in told.out.splitlines())
    assert "effective samples per draw, the model" in told.err


def test_tune_leaves_a_model_and_a_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "tune", str(run), *TUNE)
    assert found["status"] == "finished"
    assert found["steps"] == [0, 2, 4]
    assert Path(found["model"]).joinpath("model.safetensors").exists()
    assert "<svg" in (run / "tune" / "report.html").read_text()
    assert control.main(["tune", str(run), *TUNE]) == 0  # all of it read back
    assert "best at step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Say what to do"),
        (["explain"], "action"),
        (["fit"], "model"),
        (["fit", "--model", "nowhere.bin", "--features", "word:a=1", "--length", "0"], "length must be 1 or more"),
        (["sample", "nowhere"], "no folder of `ebar control fit`"),
        (["tune", "nowhere", "--steps", "0"], "steps must be 1 or more"),
        (["tune", "nowhere", "--setps", "5"], "did you mean --steps"),
    ],
)
def test_errors_are_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    runs = ["--runs", str(tmp_path)] if words[:1] == ["fit"] else []
    with pytest.raises(UserError) as raised:
        control.main([*words, *runs])
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value).strip()


@pytest.mark.parametrize("action", ["", "fit", "sample", "tune"])
def test_help_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        control.main([*([action] if action else []), "--help"])
    assert ended.value.code == 0
    assert "example:\n  ebar control" in capsys.readouterr().out
