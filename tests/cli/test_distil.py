"""`ebar distil` writes a file that `ebar train` reads."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ebar.cli import main, tilted
from ebar.training import distillation
from tests.cli.test_commands import answer, complaint

TILT = ["--tilt", "!motif:11=-4"]


def test_lines_have_what_the_tilt_wants_and_a_model_can_be_trained_on_them(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "lines.txt"
    words = ["distil", str(trained), *TILT, "--n", "400", "--output", str(path), "--round_size", "150"]
    found = answer(capsys, *words)
    lines = path.read_text().splitlines()
    assert len(lines) == found["n"] == 400
    absent = sum("11" not in line for line in lines) / 400
    assert found["moments"]["no motif 11"]["value"] == pytest.approx(absent)
    assert found["acceptance_rate"]["value"] == 400 / found["proposed"]
    plain = answer(capsys, "sample", str(trained), "--n", "400")["samples"]
    assert absent < 0.5 * sum("11" not in one["text"] for one in plain) / 400
    assert answer(capsys, *words) == found  # finished: told again, not drawn again
    assert main(words) == 0
    assert "400 lines in" in capsys.readouterr().out
    more = ["--data.kind", "lines", "--data.train", str(path), "--backbone.hidden", "4", "--training.epochs", "1"]
    assert main(["train", "--runs", str(tmp_path), "--name", "student", *more, "--json"]) == 0


@pytest.mark.parametrize("kind", ["rejection", "importance", "metropolis", "look_ahead"])
def test_every_kind_of_sampler_fills_the_file(
    kind: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["distil", str(trained), *TILT, "--n", "30", "--output", str(tmp_path / "x"), "--sampler.kind", kind]
    answer(capsys, *words, "--proposal", "look_ahead" if kind == "look_ahead" else "base")
    assert len((tmp_path / "x").read_text().splitlines()) == 30


def test_interrupted_it_says_so_and_the_same_command_goes_on(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(name: str) -> list[str]:
        return ["distil", str(trained), *TILT, "--n", "90", "--round_size", "30", "--output", str(tmp_path / name)]

    assert main(words("whole")) == 0
    real, calls = distillation.distil, 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        def decode(tokens: list[int]) -> str:
            nonlocal calls
            calls += 1
            if calls == 40:
                os.kill(os.getpid(), signal.SIGINT)
            return str(options["decode"](tokens))

        return real(*arguments, **{**options, "decode": decode})

    monkeypatch.setattr(tilted, "distil", interrupted)
    capsys.readouterr()
    assert main(words("cut")) == 130
    assert "interrupted after 60 lines: run the same command to go on" in capsys.readouterr().out
    assert json.loads((tmp_path / "cut.json").read_text())["state"]["lines"] == 60
    assert main(words("cut")) == 0
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_mistakes_are_told_in_a_sentence(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.txt"
    words = ["distil", str(trained), "--n", "20", "--output", str(path)]
    assert "give --tilt" in complaint(capsys, *words)
    assert "output" in complaint(capsys, "distil", str(trained), *TILT)
    assert "propose from the base" in complaint(capsys, *words, "--tilt", "length:=-0.1")
    assert "gains nothing by looking ahead" in complaint(capsys, *words, *TILT, "--sampler.kind", "rejection")
    assert "no sampler called" in complaint(capsys, *words, *TILT, "--sampler.kind", "nothing")
    assert "token by token" in complaint(capsys, *words, *TILT, "--sampler.kind", "ancestral", "--proposal", "base")
    assert not path.exists()
    assert "is not a plain file" in complaint(capsys, *words[:-1], str(tmp_path), *TILT)
    path.write_text("mine\n")
    assert "is no distillation" in complaint(capsys, *words, *TILT)
    path.unlink()
    assert main([*words, *TILT]) == 0
    assert "(what differs: target.energy.weights, tilt)" in complaint(capsys, *words, "--tilt", "!motif:11=-5")
    assert "(what differs: seed)" in complaint(capsys, *words, *TILT, "--seed", "1")
