"""Rules of whole texts from the command line, on a pretrained model that is tiny."""

import json
import re
from pathlib import Path

import pytest

from ebar.cli import main


def run(folder: Path, *words: str) -> int:
    return main(["control", "grammar", "--model", str(folder), "--length", "6", "--draws", "60", "--n", "4", *words])


def test_an_expression_shows_figures_and_whole_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--expression", "(a|b){1,3}", "--json", "true") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["texts"]) == 4
    assert all(re.fullmatch("[ab]{1,3}", text) for text in found["texts"])
    figures = found["figures"]
    assert figures["log_z"]["low"] < figures["log_z"]["value"] < 0
    assert 0 <= figures["share cut off"]["low"] <= figures["share cut off"]["high"] <= 1
    assert run(folder, "--expression", "(a|b){1,3}") == 0
    assert "share cut off" in capsys.readouterr().out


def test_a_schema_and_a_grammar_are_read_from_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    (tmp_path / "rule.lark").write_text('start: "a" start "b" | "a"')
    assert run(folder, "--grammar", str(tmp_path / "rule.lark"), "--json", "true") == 0
    for text in json.loads(capsys.readouterr().out)["texts"]:
        assert re.fullmatch("a+b*", text)
        assert text.count("a") == text.count("b") + 1
    (tmp_path / "schema.json").write_text('{"enum": [1]}')
    assert run(folder, "--json_schema", str(tmp_path / "schema.json")) == 2
    assert "No text of this model's tokens satisfies the grammar" in capsys.readouterr().err


def test_mistakes_are_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder) == 2
    assert "Give one of --grammar FILE, --json_schema FILE and --expression EXPRESSION." in capsys.readouterr().err
    assert run(folder, "--grammar", "nowhere.lark") == 2
    assert "nowhere.lark cannot be read" in capsys.readouterr().err
