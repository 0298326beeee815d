"""`ebar train` on text, pairs and images, with each objective, interrupted and resumed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Generator

from ebar.build.train import build_corpus, load_model
from ebar.cli import main
from ebar.config.train import read_train
from ebar.training.run import Checkpoints
from ebar.types import Context
from tests.build.runs import text, words_for

KINDS = ("text", "parallel", "images")


def trained(folder: Path, words: list[str], epochs: int = 1, *more: str) -> Path:
    where = ["--runs", str(folder.parent), "--name", folder.name, "--training.epochs", str(epochs)]
    assert main(["train", "--json", *where, "--training.patience", "9", *words, *more]) == 0
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = Checkpoints(folder / "checkpoints").newest()
    assert checkpoint is not None
    return checkpoint.weights["model"]


def logged(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["maximum_likelihood", "earm"])
def test_a_run_is_the_same_however_often_it_was_stopped(tmp_path, kind, objective, capsys):
    words = [*words_for(kind, tmp_path), "--objective.kind", objective]
    words += ["--objective.start_epoch", "1", "--objective.ramp", "5"] if objective == "earm" else []
    straight = trained(tmp_path / "straight", words, 3)
    stopped = trained(tmp_path / "stopped", words, 1)
    trained(stopped, words, 2, "--replace_config")
    trained(stopped, words, 3, "--replace_config")
    one, other = weights(straight), weights(stopped)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len([line for line in logged(straight) if "validation.loss" in line]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_run_needs_its_folder_alone(tmp_path, kind, capsys):
    words = words_for(kind, tmp_path)
    folder = trained(tmp_path / "run", words)
    run = read_train(folder)
    if kind == "text":
        text(tmp_path).write_text("other words\n" * 40)
    corpus = build_corpus(run, folder)
    model = load_model(run, folder, corpus.space)
    source = corpus.sources("test")
    assert (source is not None) == (kind == "parallel")
    context = None if source is None else Context(source.given.select(torch.tensor([0])))
    drawn = model.sample(2, context, generator=Generator().manual_seed(0))
    assert len(corpus.text(drawn)) == 2


def test_held_out_data_is_measured_by_plain_cross_entropy(tmp_path, capsys):
    words = words_for("text", tmp_path)
    smooth = trained(tmp_path / "smooth", words, 1, "--objective.label_smoothing", "0.3")
    contrasted = trained(tmp_path / "contrasted", words, 1, "--objective.kind", "earm", "--objective.weight", "0.5")
    for folder in (smooth, contrasted):
        (held_out,) = [line for line in logged(folder) if "validation.loss" in line]
        assert held_out["validation.loss"] == held_out["validation.nll_per_token"]


def test_training_from_disk_is_training_from_memory(tmp_path, capsys):
    words = [*words_for("text", tmp_path), "--data.validation", str(text(tmp_path, "valid.txt"))]
    memory = trained(tmp_path / "memory", words)
    disk = trained(tmp_path / "disk", words, 1, "--data.cache", str(tmp_path / "cache"))
    one, other = weights(memory), weights(disk)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_may_begin_with_the_weights_and_the_tokeniser_of_another(tmp_path, capsys):
    words = [*words_for("text", tmp_path), "--data.tokeniser", "words", "--data.length", "4"]
    first = trained(tmp_path / "first", words)
    shutil.copy(text(tmp_path), tmp_path / "again.txt")
    more = ["--data.train", str(tmp_path / "again.txt"), "--data.tokeniser_file", str(first / "tokeniser.json")]
    second = trained(tmp_path / "second", words, 1, *more, "--training.start", str(first))
    assert (second / "tokeniser.json").read_text() == (first / "tokeniser.json").read_text()
