"""A run on a stream from its training to its draws, on the command line and in Python."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ebar
from ebar.cli import main
from ebar.training.course import Training

SIZES = {
    "lstm": ["--backbone.hidden", "8", "--backbone.layers", "1"],
    "transformer": ["--backbone.hidden", "8", "--backbone.layers", "1", "--backbone.heads", "2"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    (folder / "text.txt").write_text("abcab cabab\n" * 60)
    for kind, sizes in SIZES.items():
        options = [
            "--data.kind", "stream", "--data.train", str(folder / "text.txt"), "--data.tokeniser", "characters",
            "--data.length", "8", "--backbone.kind", kind, *sizes, "--training.epochs", "2", "--training.batch_size",
            "4",
        ]  # fmt: skip
        assert main(["train", "--runs", str(folder), "--name", kind, "--json", *options]) == 0
    return folder


def output(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", SIZES)
def test_it_is_evaluated_by_segments(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(output(["evaluate", str(folder / kind), "--columns", "2", "--json"], capsys))
    per_token, bits = found["cross_entropy_per_token"]["value"], found["bits_per_character"]["value"]
    assert bits == found["bits_per_byte"]["value"] == pytest.approx(per_token / 0.6931471805599453)
    other = json.loads(output(["evaluate", str(folder / kind), "--columns", "2", "--segment", "3", "--json"], capsys))
    same = other["cross_entropy_per_token"]["value"] == pytest.approx(per_token, abs=1e-6)
    assert same == (kind == "lstm")  # a Transformer sees its segment alone
    assert main(["evaluate", str(folder / kind), "--memory", "5"]) == 2
    assert "no memory whose length could be chosen" in capsys.readouterr().err


def test_a_run_on_windows_of_64_writes_2000_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "long.txt").write_text("abcab cabab\n" * 300)
    options = ["--data.kind", "text", "--data.train", str(folder / "long.txt"), "--data.tokeniser", "characters",
               "--data.length", "64", "--backbone.kind", "transformer", *SIZES["transformer"], "--training.epochs",
               "1"]  # fmt: skip
    assert main(["train", "--runs", str(folder), "--name", "windows", "--json", *options]) == 0
    words = ["sample", str(folder / "windows"), "--n", "1", "--maximal_length", "2000", "--json"]
    assert [len(sample["text"]) for sample in json.loads(output(words, capsys))["samples"]] == [2000]


@pytest.mark.parametrize("kind", SIZES)
def test_it_writes_more_than_its_segments_hold(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sample", str(folder / kind), "--n", "2", "--maximal_length", "300", "--json"]
    found = json.loads(output(words, capsys))
    assert [len(sample["text"]) for sample in found["samples"]] == [300, 300]


def test_it_is_loaded_and_trained_in_python(folder: Path) -> None:
    loaded = ebar.load(folder / "lstm")
    assert loaded.data.source.kind == "stream"
    data = ebar.read_stream(folder / "text.txt", length=8, tokeniser="characters")
    trained = ebar.train(
        ebar.lstm(data, hidden=8, layers=1), data, training=Training(epochs=2, batch_size=4), folder=folder / "python"
    )
    again = ebar.load(folder / "python")
    x = data.test
    with torch.no_grad():
        assert torch.equal(again.model.log_prob(x), trained.model.log_prob(x))
    found: Any = ebar.evaluate(again.model, data).figures["perplexity_per_token"]
    assert found.value < 5  # of five characters


def test_a_stream_shorter_than_a_batch_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--runs", str(folder), "--name", "short", "--data.kind", "stream"]
    assert (
        main(
            [*words, "--data.train", str(folder / "text.txt"), "--data.tokeniser", "characters", "--data.length", "60"]
        )
        == 2
    )
    assert "fewer than one batch of 64 columns of 60" in capsys.readouterr().err
    assert main([*words, "--data.train", str(folder / "text.txt"), "--data.length", "8", "--training.batch_size", "4",
                 "--data.clean", "soap"]) == 2  # fmt: skip
    assert "soap" in capsys.readouterr().err


def test_it_is_the_base_of_a_residual_model_and_is_controlled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    words = ["residual", "train", "--runs", str(folder), "--base", str(folder / "lstm"), "--name", "residual",
             "--energy.kind", "unit", "--data.prefix", "9", "--data.continuation", "4", "--data.chunks", "16",
             "--data.validation_chunks", "4", "--training.epochs", "1", "--training.batch_size", "8",
             "--evaluation.prefixes", "2", "--evaluation.draws", "10", "--json"]  # fmt: skip
    assert main(words) == 0  # an LSTM reads further than its segments of 8
    other = [*words[:5], str(folder / "transformer"), "--name", "other", *words[8:]]
    assert main(other) == 2
    assert "trained on windows of 8" in capsys.readouterr().err
    words = ["control", "fit", "--runs", str(folder), "--name", "ruled", "--model", str(folder / "lstm"), "--features",
             "motif:ca=0.9", "--draws", "200", "--checks", "50", "--length", "8", "--json"]  # fmt: skip
    assert main(words) == 0
