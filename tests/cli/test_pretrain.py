"""Pretraining from the text to a loaded model, on the command line and in Python; and what cannot be."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import ebar
from ebar.cli import main
from ebar.journeys.train import Trained
from ebar.training.course import Training
from tests.cli.test_commands import complaint

SMALL = ["--data.length", "24", "--data.reuse", "10", "--data.vocabulary", "280", "--backbone.layers", "1",
         "--backbone.hidden", "8", "--backbone.heads", "2", "--training.batch_size", "4"]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = random.Random(1).choices(["the", "a", "cat", "mat", "sat", "on", "Then", "runs", "."], k=750)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(" ".join(words[place : place + 15]) + "\n" for place in range(0, 750, 15)))
    return path


def pretrain(text: Path, runs: Path, name: str, *more: str) -> None:
    words = ["pretrain", "--name", name, "--runs", str(runs), "--data.train", str(text), *SMALL]
    assert main([*words, "--training.epochs", "2", "--json", *more]) == 0


WAYS: dict[str, list[str]] = {
    "permutation": ["--backbone.memory", "12"],
    "denoising": ["--data.predict", "denoising", "--objective.next_sentence", "true", "--backbone.memory", "12"],
    "left_to_right": ["--data.predict", "left_to_right", "--data.bidirectional", "false"],
    "plain": ["--data.spans", "false", "--data.reuse", "0", "--data.block", "4", "--head.tied", "false"],
}


@pytest.mark.parametrize("name", WAYS)
def test_a_run_is_loaded_with_its_tokeniser(name, text, tmp_path, capsys):
    pretrain(text, tmp_path, name, *WAYS[name])
    best = json.loads(capsys.readouterr().out)["best"]["value"]
    opened = ebar.load(tmp_path / name)
    assert isinstance(opened, Trained)
    assert isinstance(opened.data.tokeniser, ebar.Unigram)
    assert opened.model.space.vocabulary == opened.data.tokeniser.size + 4
    assert min(value for _, value in opened.history.curve("validation.loss")) == pytest.approx(best)
    losses = [value for _, value in opened.history.curve("validation.nll_per_target")]
    assert losses[-1] < 5.6  # log 284 = 5.65 is that of chance
    config = yaml.safe_load((tmp_path / name / "config.yaml").read_text())
    assert config["objective"]["kind"] == "pretraining"
    assert config["head"]["tied"] == (name != "plain")
    drawn = opened.data.text(opened.data.train.select(slice(1)))
    assert drawn[0][:3] in text.read_text()


def test_three_lines_of_python_are_the_command(text, tmp_path):
    """The same folder, weights and figures, but for the order in which weights are drawn and data read."""
    data = ebar.read_pretraining(text, length=24, reuse=10, vocabulary=280)
    model = ebar.xlnet(data, layers=1, hidden=8, heads=2)
    run: Any = ebar.pretrain(
        model, data, training=Training(epochs=2, batch_size=4, clip=1.0), folder=tmp_path / "mine", seed=0
    )
    assert run.result is not None
    assert run.result.reason == "epochs"
    pretrain(text, tmp_path, "theirs")
    mine, theirs = (yaml.safe_load((tmp_path / name / "config.yaml").read_text()) for name in ("mine", "theirs"))
    for part in ("data", "backbone", "head", "objective", "optimiser", "schedule"):
        ours = {key: str(value) for key, value in _flat(mine[part]).items()}
        assert ours == {key: str(value) for key, value in _flat(theirs[part]).items()}, part
    assert torch.equal(ebar.load(tmp_path / "mine").model.backbone.embedding, run.model.backbone.embedding)
    again: Any = ebar.pretrain(
        ebar.xlnet(data, layers=1, hidden=8, heads=2), data, training=Training(epochs=2, batch_size=4, clip=1.0),
        folder=tmp_path / "mine", seed=0,
    )  # fmt: skip
    assert torch.equal(again.model.backbone.embedding, run.model.backbone.embedding)  # it was finished


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in tree.items() if key != "options"}, **tree.get("options", {})}


def test_a_loaded_run_does_not_need_its_text(text, tmp_path):
    copied = tmp_path / "copied.txt"
    copied.write_text(text.read_text())
    pretrain(copied, tmp_path, "alone")
    copied.unlink()
    opened = ebar.load(tmp_path / "alone")
    assert opened.data.tokeniser.decode(opened.data.tokeniser.encode("the cat")) == "the cat"
    with pytest.raises(ebar.UserError, match="There is no file"):
        _ = opened.data.train


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.reuse", "20"], "no room for two texts and 3 special tokens"),
        (["--data.reuse", "13"], "at most half can be reused, not 13"),
        (["--training.batch_size", "4000"], "fewer than one batch of 4,000 columns of 24"),
        (["--data.reuse", "0", "--backbone.memory", "8"], "give data.reuse, or no memory"),
        (["--objective.kind", "maximum_likelihood"], "choose objective pretraining"),
        (["--training.batch_tokens", "100"], "give their number as training.batch_size"),
        (["--data.vocabulary", "100"], "a size of 100 is too small"),
        (["--data.partial", "0"], "data.partial must be 1 or more"),
        (["--training.maximal_length", "9"], "leave out training.maximal_length"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, message, text, tmp_path, capsys):
    command = ["pretrain", "--name", "x", "--runs", str(tmp_path), "--data.train", str(text), *SMALL, *words]
    assert message in complaint(capsys, *command)


def test_other_backbones_and_other_data_are_refused(text, tmp_path, capsys):
    lstm = ["pretrain", "--runs", str(tmp_path), "--data.train", str(text), "--backbone.kind", "lstm"]
    assert "Lstm does not predict tokens in any order: choose xlnet" in complaint(
        capsys, *lstm, "--data.vocabulary", "280", "--head.tied", "false"
    )
    lines = ["train", "--runs", str(tmp_path), "--data.motif", "11", "--data.length", "5", "--data.size", "20"]
    small = ["--backbone.hidden", "4", "--backbone.layers", "1", "--backbone.heads", "2"]
    assert "choose data of kind pretraining" in complaint(
        capsys, *lines, "--backbone.kind", "xlnet", "--objective.kind", "pretraining", *small
    )


def test_a_changed_memory_is_refused_when_it_goes_on(text, tmp_path, capsys):
    pretrain(text, tmp_path, "x", "--backbone.memory", "8")
    words = ["pretrain", "--name", "x", "--runs", str(tmp_path), "--data.train", str(text), *SMALL]
    message = complaint(
        capsys, *words, "--backbone.memory", "9", "--training.epochs", "3", "--replace_config", "true"
    )  # fmt: skip
    assert "carries another memory" in message
