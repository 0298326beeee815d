"""One run of a language-modelling experiment: a Transformer and E-ARM twins that share its history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ebar.backbones.transformer import Transformer
from ebar.data.bpe import Bpe
from ebar.data.text import read_tokens, texts_of, windows
from ebar.data.tokenisers import Bytes, Tokeniser
from ebar.evaluation.cross_entropy import cross_entropy, cross_entropy_difference
from ebar.heads.softmax import Softmax
from ebar.journeys.forked import Branch, Fork, train_forked
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.recipes.earm import toys
from ebar.recipes.earm.files import file_of
from ebar.recipes.recipe import Cell
from ebar.training import Batches
from ebar.training.optimisers import Adam
from ebar.training.schedules import Cosine, InverseSquareRoot
from ebar.types import Objective, Sequences, Space


@dataclass(frozen=True, kw_only=True)
class Task:
    """A corpus cut into windows."""

    space: Space
    train: Sequences
    validation: Sequences
    test: Sequences
    tokens_per_word: float | None  # of the test text, to turn a token's cost into a word's


def task_of(cell: Cell) -> Task:
    """The first `tokens` tokens of the training text, and of the held-out texts as many as `held_out`."""
    tokeniser, streams, words = _streams(cell)
    parts = [
        windows(stream[:most], cell["window"])
        for stream, most in zip(streams, (cell["tokens"], cell["held_out"], cell["held_out"]), strict=True)
    ]
    space = Space(tokeniser.size, cell["window"], None)
    train, validation, test = parts
    return Task(space=space, train=train, validation=validation, test=test, tokens_per_word=words)


def _streams(cell: Cell) -> tuple[Tokeniser, list[torch.Tensor], float | None]:
    if cell["corpus"] == "toy":
        return Bytes(), [read_tokens([toys.text(200, seed)], Bytes()) for seed in range(3)], None
    if cell["corpus"] == "enwik8-10m":
        files = [file_of(f"enwik8-10m/{split}.bin.xz") for split in ("train", "valid", "test")]
        return Bytes(), [read_tokens(file, Bytes()) for file in files], None
    files = [file_of(f"{cell['corpus']}/{split}.txt.xz") for split in ("train", "valid", "test")]
    tokeniser = Bpe.train(texts_of(files[0]), cell["vocabulary"])
    streams = [read_tokens(file, tokeniser) for file in files]
    words = sum(len(text.split()) + 1 for text in texts_of(files[2]))  # the end of a line is a word, as in WikiText
    return tokeniser, streams, len(streams[2]) / words


Objectives = Mapping[str, Callable[[Autoregressive], Objective]]


def plain(model: Autoregressive) -> Objective:
    """Cross-entropy alone."""
    return MaximumLikelihood(model=model)


def run_twins(cell: Cell, folder: Path, twins: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The base and its twins, each with its own E-ARM options, trained and measured."""
    task = task_of(cell)

    def twin(options: Mapping[str, Any]) -> Callable[[Autoregressive], Objective]:
        return lambda model: Earm(model=model, **options)

    objectives = {"base": plain, **{name: twin(options) for name, options in twins.items()}}
    branches = train_branches(cell, task, folder, plain, objectives)
    return {name: measured(branch, task, branches["base"]) for name, branch in branches.items()}


def train_branches(
    cell: Cell, task: Task, folder: Path, trunk: Callable[[Autoregressive], Objective], branches: Objectives
) -> dict[str, Branch]:
    """Branches of one trunk, chosen by their held-out likelihood."""
    batches = Batches(data=task.train, batch_size=cell["rows"], seed=cell["seed"], drop_last=True)
    cosine = Cosine(steps=cell["epochs"] * len(batches), warmup=cell["warmup"])
    fork = Fork(
        epochs=cell["epochs"],
        at=cell["start_epoch"],
        seed=cell["seed"],
        optimiser=Adam(learning_rate=cell["learning_rate"], weight_decay=cell["weight_decay"]),
        schedule=cosine if cell["schedule"] == "cosine" else InverseSquareRoot(warmup=cell["warmup"]),
        checkpoint_every=500,
    )
    validation = Batches(data=task.validation, batch_size=64, shuffle=False)
    return train_forked(
        folder, fork, lambda: build(cell, task), trunk, branches, batches, lambda model: (plain(model), validation)
    )


def build(cell: Cell, task: Task) -> Autoregressive:
    """The model of a cell, its weights drawn from torch's own state."""
    backbone = Transformer(
        task.space.vocabulary, layers=cell["layers"], hidden=cell["hidden"], heads=cell["heads"],
        feedforward=cell["feedforward"], dropout=cell["dropout"],
    )  # fmt: skip
    return Autoregressive(backbone, Softmax(backbone.width, task.space.vocabulary), task.space)


def measured(branch: Branch, task: Task, base: Branch) -> dict[str, Any]:
    """Test figures of a branch, how far they are from the base's, and its curves."""
    costs = cross_entropy(branch.module, task.test).pooled_per_token
    return {
        "nats_per_token": costs._asdict(),
        "difference": cross_entropy_difference(branch.module, base.module, task.test)._asdict(),
        "nats_per_word": None if task.tokens_per_word is None else costs.value * task.tokens_per_word,
        "curves": {
            "training": branch.curve("nll_per_token"),
            "validation": branch.curve("validation.loss"),
            "effective_share": branch.curve("effective_share"),
            "gap": branch.curve("log_partition_gap"),
        },
    }
