"""Whatever is in a table can be added from outside the package by one line, and is then used by its name."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ebar import testing
from ebar.backbones import BACKBONES
from ebar.cli import COMMANDS, main
from ebar.data import DATA, TOKENISERS
from ebar.energies.kinds import ENERGIES
from ebar.features import FEATURES
from ebar.features.feature import bind
from ebar.heads import HEADS
from ebar.models.ngram import Tabular
from ebar.objectives import OBJECTIVES
from ebar.recipes import RECIPES
from ebar.samplers import SAMPLERS
from ebar.tables import Table
from ebar.types import Context, Sequences, Space
from tests.cli.test_commands import answer, complaint

TABLES: list[Table[Any]] = [
    SAMPLERS, FEATURES, BACKBONES, HEADS, ENERGIES, OBJECTIVES, TOKENISERS, DATA, RECIPES, COMMANDS,
]  # fmt: skip
CONFIGURATION: dict[str, dict[str, Any]] = {
    "data": {"kind": "countdown", "size": 12},
    "backbone": {"kind": "last_token", "hidden": 4},
    "head": {"kind": "cooled", "temperature": 1.5},
    "objective": {"kind": "multiplied", "times": 3.0},
    "training": {"epochs": 2, "batch_size": 4},
}


@pytest.fixture(scope="module", autouse=True)
def plug_in() -> Iterator[Any]:
    """The tables with the entries of `tests.plug_in`, and afterwards as they were."""
    before = [dict(table) for table in TABLES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EBAR_PLUGINS", "tests.plug_in")
        yield importlib.import_module("tests.plug_in")
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
    sys.modules.pop("tests.plug_in")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the plug-in's data, backbone, head and objective, chosen in YAML."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "run.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    assert main(["train", "--runs", str(folder), "--name", "run", "--config", str(folder / "run.yaml"), "--json"]) == 0
    return folder / "run"


def test_data_backbone_head_and_objective_are_chosen_in_yaml_and_by_flags(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = yaml.safe_load((trained / "config.yaml").read_text())
    assert kept["backbone"] == {"kind": "last_token", "hidden": 4}
    flags = [
        f"--{name}.{option}={value}" for name, group in CONFIGURATION.items() for option, value in group.items()
    ]  # fmt: skip
    assert answer(capsys, "train", "--runs", str(tmp_path), "--name", "flags", *flags)["status"] == "finished"
    twins = [next((run / "checkpoints").glob("step-*/model.safetensors")) for run in (trained, tmp_path / "flags")]
    assert twins[0].read_bytes() == twins[1].read_bytes()
    line = complaint(capsys, "train", "--runs", str(tmp_path), *flags, "--head.temperature", "0")
    assert "head.temperature must be above 0" in line
    assert answer(capsys, "evaluate", str(trained), "--n", "20")["perplexity_per_token"]["value"] > 1


def test_a_sampler_and_a_feature_are_chosen_in_yaml_and_by_flags(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["estimate", str(trained), "--n", "400"]
    flags = ["--tilt", "palindrome:1=4", "--sampler.kind", "pairs", "--sampler.batch_size", "70"]
    found = answer(capsys, *words, *flags)
    assert found["tilted: mean of palindrome with 1"]["value"] > found["model: mean of palindrome with 1"]["value"]
    path = tmp_path / "estimate.yaml"
    path.write_text(yaml.safe_dump({"tilt": ["palindrome:1=4"], "sampler": {"kind": "pairs", "batch_size": 70}}))
    assert answer(capsys, *words, "--config", str(path)) == found


def test_a_tokeniser_and_an_energy_are_chosen_in_yaml_and_by_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("the cat sees a dog\n" * 30)
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump({
        "data": {"kind": "text", "train": str(tmp_path / "text.txt"), "tokeniser": "inverted", "length": 12},
        "backbone": {"kind": "last_token"}, "training": {"epochs": 1},
    }))  # fmt: skip
    runs = ["--runs", str(tmp_path)]
    answer(capsys, "train", *runs, "--name", "base", "--config", str(base))
    assert json.loads((tmp_path / "base" / "tokeniser.json").read_text()) == {"kind": "inverted"}
    assert answer(capsys, "train", *runs, "--name", "flags", "--config", str(base), "--data.tokeniser", "inverted")
    small = {
        "data": {"prefix": 6, "continuation": 3, "chunks": 8, "validation_chunks": 4},
        "training": {"epochs": 1, "batch_size": 4}, "evaluation": {"prefixes": 2, "draws": 6, "last_rows": 0},
    }  # fmt: skip
    joint = tmp_path / "joint.yaml"
    joint.write_text(
        yaml.safe_dump({"base": str(tmp_path / "base"), "energy": {"kind": "costs", "scale": 0.5}, **small})
    )
    found = answer(capsys, "residual", "train", *runs, "--name", "yaml", "--config", str(joint))
    assert found["parameters"]["energy"] == 256
    flags = ["--energy.kind", "costs", "--energy.scale", "0.5"]
    again = answer(capsys, "residual", "train", *runs, "--name", "flags-joint", "--config", str(joint), *flags)
    assert again["evaluation"]["perplexity"] == found["evaluation"]["perplexity"]


def test_a_recipe_is_run_and_listed_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--output", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    found = answer(capsys, "reproduce", "mine/squares", *places)
    assert [(row["name"], row["value"]) for row in found["rows"]] == [("sum of squares", 5.0)]
    assert answer(capsys, "reproduce", *places)["mine/squares"] == ["demo"]


def test_a_command_is_run_and_listed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "world"]) == 0
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("hello world\n")
    assert "greet      say hello" in out


def test_a_plug_in_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_plug_in.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EBAR_PLUGINS", "tests.plug_in, broken_plug_in")
    line = complaint(capsys, "doctor")
    assert "broken_plug_in that EBAR_PLUGINS names cannot be imported (ZeroDivisionError" in line


def test_another_process_imports_the_plug_ins_that_the_environment_names() -> None:
    done = subprocess.run([sys.executable, "-m", "ebar.cli", "greet", "all"], capture_output=True, text=True)
    assert done.stdout == "hello all\n", done.stderr


def test_the_laws_hold_for_every_entry(plug_in: Any) -> None:
    space = Space(3, 4, 2)
    testing.check_sampler(SAMPLERS.make("pairs", {"batch_size": 50}))
    data = DATA.make("countdown", {}).read()
    testing.check_feature(bind(FEATURES.make("palindrome", {"symbol": "1"}), data.reading), data.space)
    given = Context(Sequences(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 1])))
    for context in (None, given):
        testing.check_backbone(BACKBONES.make("last_token", {}, vocabulary=3), vocabulary=3, length=3, context=context)
    testing.check_head(HEADS.make("cooled", {}, width=4, vocabulary=3), width=4, vocabulary=3)
    testing.check_energy(ENERGIES.make("costs", {}, vocabulary=3), space)
    testing.check_tokeniser(TOKENISERS["inverted"].train([]))
    model = Tabular.random(space, generator=torch.Generator().manual_seed(0))
    testing.check_objective(OBJECTIVES.make("multiplied", {}, model=model), data.train, [model])
