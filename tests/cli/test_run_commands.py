"""`list`, `show`, `help`, `compare`, `export`: what one has, what it is, what to do next."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebar.build.runs import OPENERS
from ebar.build.summaries import LOOKS, list_runs, summarise
from ebar.cli import main
from ebar.config.kinds import OPTIONS
from tests.cli.conftest import TINY
from tests.cli.test_commands import answer, complaint, contents


@pytest.fixture(scope="module")
def runs(trained: Path, continues: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one on text, one that was interrupted, and three folders that are none."""
    place = tmp_path_factory.mktemp("all")
    shutil.copytree(trained, place / "tiny")
    shutil.copytree(continues, place / "letters")
    words = ["train", "--runs", str(place), "--name", "late", *TINY, "--training.max_minutes", "1e-9", "--json"]
    assert main(words) == 130
    (place / "nothing").mkdir()
    (place / "no-yaml").mkdir()
    (place / "no-yaml" / "config.yaml").write_text("{")
    shutil.copytree(trained, place / "torn")
    (place / "torn" / "results.json").write_text("{")
    (place / "file.txt").write_text("no folder")
    return place


def test_list_has_a_line_for_every_folder_whatever_is_in_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(runs)
    found = {Path(run["folder"]).name: run for run in _list(runs, capsys)}
    assert contents(runs) == before
    assert sorted(found) == ["late", "letters", "no-yaml", "nothing", "tiny", "torn"]
    tiny, late, letters = found["tiny"], found["late"], found["letters"]
    assert (tiny["kind"], tiny["data"], tiny["model"], tiny["state"]) == (
        "train", "language motif 11", "lstm", "finished",
    )  # fmt: skip
    best = json.loads((runs / "tiny" / "results.json").read_text())["best"]
    assert tiny["figure"] == f"validation loss, nats per token, {best['value']:.4f} at step {best['step']}"
    assert (late["state"], late["step"], late["figure"]) == ("interrupted", 1, "")
    assert (letters["data"], letters["model"]) == ("text text.txt (characters)", "transformer")
    reasons = {"no-yaml": "config.yaml cannot be read", "nothing": "no config.yaml", "torn": "results.json"}
    for name, reason in reasons.items():
        assert found[name]["state"] == "broken"
        assert reason in found[name]["problem"]
    capsys.readouterr()
    assert main(["list", str(runs)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in found)
    assert "has no runs" in complaint(capsys, "list", str(runs / "nowhere"))


def _list(runs: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["list", str(runs), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_every_kind_of_run_has_its_line() -> None:
    assert set(OPENERS) < set(LOOKS) == set(OPTIONS)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_list_imports_nothing_heavy(runs: Path, more: list[str]) -> None:
    code = (
        "import sys, ebar.cli; ebar.cli.main(sys.argv[1:]); assert not {'torch', 'numpy', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, "list", str(runs), *more], check=True, capture_output=True)


@pytest.mark.parametrize("damage", ["[1, 2]", "seed: 0\n", "data: 3\nobjective: 4\n", "\0", "a: &a [*a]\n"])
def test_no_configuration_makes_list_fail(damage: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(damage)
    (run,) = list_runs(tmp_path)
    assert run.folder == tmp_path / "run"


@pytest.mark.parametrize("name", ["tiny", "letters"])
def test_what_show_proposes_runs_as_it_stands(
    name: str, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
    monkeypatch.chdir(runs.parent)
    found = answer(capsys, "show", str(runs / name))
    assert len(found["next"]) == 4
    page = Path(found["page"]).read_text()
    assert "<svg" in page
    assert "ebar evaluate" in page
    for command in found["next"].values():
        program, *words = shlex.split(command)
        assert program == "ebar"
        assert main(words) == 0, command
    assert main(["show", str(runs / name)]) == 0
    assert str(runs / name / "overview.html") in capsys.readouterr().out


def test_show_goes_on_with_what_was_interrupted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(runs / "late", runs / "later")
    try:
        (command,) = answer(capsys, "show", str(runs / "later"))["next"].values()
        assert main(shlex.split(command)[1:]) == 0
        assert summarise(runs / "later").state == "finished"
        assert (runs / "later" / "metrics.jsonl").read_bytes() == (runs / "tiny" / "metrics.jsonl").read_bytes()
    finally:
        shutil.rmtree(runs / "later")
    assert "cannot be shown: it has no config.yaml" in complaint(capsys, "show", str(runs / "nothing"))


def test_a_time_limit_is_said_and_no_part_of_the_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "max_minutes" not in yaml.safe_load((runs / "late" / "config.yaml").read_text())["training"]
    copy = runs.parent / "limited"
    shutil.copytree(runs / "late", copy / "late")
    words = ["train", "--runs", str(copy), "--name", "late", *TINY, "--training.max_minutes", "1e-9"]
    capsys.readouterr()
    assert main(words) in (0, 130)
    out = capsys.readouterr().out
    assert re.match("the time is up, and saved in .*late: run the same command to go on|finished", out)


def test_the_backbone_that_suits_the_data_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--runs", str(tmp_path), "--data.kind", "text", "--data.train", str(tmp_path / "missing.txt")]
    main(words)
    said = "backbone transformer, for data of kind text: --backbone.kind chooses another"
    assert capsys.readouterr().err.splitlines()[0] == said
    main([*words, "--backbone.kind", "lstm"])
    assert "--backbone.kind" not in capsys.readouterr().err


def test_a_missing_device_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--runs", str(tmp_path), "--name", "far", *TINY, "--device"]
    assert "no device called 'gpu'" in complaint(capsys, *words, "gpu")
    assert not (tmp_path / "far").exists()


@pytest.mark.parametrize("name", ["train", "residual generate", "control"])
def test_help_of_a_command_is_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", *name.split()])
    said = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    assert said == capsys.readouterr().out
    assert "usage: ebar" in said


def test_help_without_a_command_lists_them_and_a_wrong_one_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert "commands:" in capsys.readouterr().out
    assert "did you mean train" in complaint(capsys, "help", "trian")
    assert "its parts are train, evaluate" in complaint(capsys, "help", "residual", "trian")


def test_compare_says_which_is_better_or_that_nothing_tells(
    runs: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--runs", str(tmp_path), "--name", "longer", "--json", *TINY, "--optimiser.learning_rate", "0.1"]
    assert main(words) == 0
    found = answer(capsys, "compare", str(tmp_path / "longer"), str(trained))
    assert found["unit"] == "nats per token"
    assert found["over"] == "40 test items"
    difference = found["difference"]
    assert difference["value"] == pytest.approx(found["first"]["value"] - found["second"]["value"])
    assert difference["low"] < difference["value"] < difference["high"]
    assert found["better"] == str(tmp_path / "longer")
    assert main(["compare", str(trained), str(trained)]) == 0
    assert "do not tell which is better" in capsys.readouterr().out
    said = complaint(capsys, "compare", str(trained), str(runs / "letters"))
    assert "different test data" in said
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "config.yaml").write_text("features: [motif:11]\nrounds: 2\n")
    assert f"is a GAM, and its model is {tmp_path / 'g' / 'round-2' / 'pi'}" in complaint(
        capsys, "compare", str(tmp_path / "g"), str(trained)
    )


def test_export_says_what_can_be_exported(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "export", str(trained), "--output", str(tmp_path / "hf"))
    assert "network is Lstm" in said
    assert "any other as safetensors" in said
    for _ in range(2):  # again in place of the first
        found = answer(capsys, "export", str(trained), "--to", "safetensors", "--output", str(tmp_path / "weights"))
        assert found["tokenizer"] is False
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {"model.safetensors", "config.yaml"}
    assert "is a run of its own" in complaint(
        capsys, "export", str(trained), "--to", "safetensors", "--output", str(trained)
    )
