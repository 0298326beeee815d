"""`ebar dynamic` on a run and on a pretrained model's folder."""

import json
import math
from pathlib import Path

import pytest

from ebar.cli import main


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, float]]:
    capsys.readouterr()
    assert main(["dynamic", *words, "--json"]) == 0
    found: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out)
    return found


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["dynamic", *words]) == 2
    return capsys.readouterr().err


def test_a_run_learns_from_a_text_of_its_own_alphabet(
    continues: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.txt").write_text("aaab\n" * 40)
    words = [str(continues), "--text", str(tmp_path / "new.txt"), "--segment", "4", "--rows", "4"]
    weights = {path: path.read_bytes() for path in continues.rglob("model.safetensors")}
    found = answer([*words, "--learning_rate", "0.01"], capsys)
    assert found["perplexity, dynamic over static"]["high"] < 1
    static = found["cross_entropy_per_token, static"]["value"]
    assert found["perplexity_per_token, static"]["value"] == pytest.approx(math.exp(static))
    assert found["bits_per_byte, static"]["value"] == pytest.approx(static / math.log(2))
    assert weights == {path: path.read_bytes() for path in continues.rglob("model.safetensors")}
    assert "dynamic_evaluation" in json.loads((continues / "results.json").read_text())
    # The same static figures by plain gradient descent, and the rates of the older code converted.
    plain = answer([*words, "--plain", "--learning_rate", "0.1", "--tokens", "100"], capsys)
    assert plain["perplexity_per_token, dynamic"]["value"] < plain["perplexity_per_token, static"]["value"]
    old = answer([*words, "--old_scaling", "--learning_rate", "0.1", "--batches", "9"], capsys)
    assert old["learning_rate"] == pytest.approx(0.1 / 3)


def test_a_run_has_texts_of_its_own(continues: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dynamic", str(continues), "--segment", "8", "--rows", "2", "--blocks", "4"]) == 0
    assert "perplexity, dynamic over static" in capsys.readouterr().out


def test_what_cannot_be_is_said_in_a_sentence(
    continues: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "running text" in complaint([str(trained)], capsys)
    assert "converts" in complaint([str(continues), "--plain", "--old_scaling"], capsys)
    assert "fewer rows" in complaint([str(continues), "--rows", "200"], capsys)
    (tmp_path / "short.txt").write_text("ab\n")
    assert "too few" in complaint([str(continues), "--text", str(tmp_path / "short.txt"), "--rows", "2"], capsys)


def test_a_pretrained_folder_and_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="needs the extra hf")
    from ebar.recipes.control.tables import write_toy

    folder = write_toy(tmp_path / "toy")
    (tmp_path / "text.txt").write_text("the rabbit ran\n" * 20)
    (tmp_path / "training.txt").write_text("she saw the rabbit\n" * 20)
    words = [str(folder), "--window", "16", "--segment", "4", "--rows", "2", "--batches", "5"]
    assert "--text" in complaint(words, capsys)
    words += ["--text", str(tmp_path / "text.txt")]
    found = answer([*words, "--training", str(tmp_path / "training.txt"), "--learning_rate", "0.002"], capsys)
    assert found["perplexity, dynamic over static"]["high"] < 1
    plain = answer([*words, "--learning_rate", "0"], capsys)
    assert plain["perplexity, dynamic over static"]["value"] == 1
    assert plain["perplexity_per_token, static"] == found["perplexity_per_token, static"]
