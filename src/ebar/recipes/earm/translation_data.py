"""Parallel corpora for the translation experiments."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, nn

from ebar.data.bpe import Bpe
from ebar.data.parallel import pairs as read_pairs
from ebar.data.tokenisers import encode_many
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.recipes.earm import toys
from ebar.recipes.earm.files import file_of
from ebar.recipes.recipe import Cell
from ebar.types import Context, Sequences, Space

Pairs = list[tuple[str, str]]  # source, target


@dataclass(frozen=True, kw_only=True)
class Task:
    """A corpus ready for a model."""

    tokeniser: Bpe  # of both sides
    space: Space
    train: tuple[Sequences, Context]
    validation: tuple[Sequences, Context]
    test: tuple[Sequences, Context]
    sources: list[str]
    references: list[str]

    def text(self, x: Sequences) -> list[str]:
        """Sentences, their ends left out."""
        rows = (x.prefix(row) for row in range(len(x.lengths)))
        return [self.tokeniser.decode([token for token in row if token != self.space.end]) for row in rows]


def task_of(cell: Cell) -> Task:
    """The data of a cell; the training pairs are drawn anew for each seed where not all are taken."""
    splits = {name: _pairs(cell, name) for name in ("train", "valid", "test")}
    train = splits["train"]
    if cell["pairs"] is not None and cell["pairs"] < len(train):
        order = torch.randperm(len(train), generator=Generator().manual_seed(folded(cell["seed"], 1)))
        train = [train[row] for row in order[: cell["pairs"]].tolist()]
    if cell["test_pairs"] is not None:  # every so-many-th, as sentences are sorted by length
        step = max(1, len(splits["test"]) // cell["test_pairs"])
        splits["test"] = splits["test"][::step][: cell["test_pairs"]]
        splits["valid"] = splits["valid"][::step][: cell["test_pairs"]]
    tokeniser = Bpe.train((side for pair in train for side in pair), cell["vocabulary"])
    space = Space(tokeniser.size + 1, cell["maximal_length"], tokeniser.size)
    return Task(
        tokeniser=tokeniser,
        space=space,
        train=_encoded(train, tokeniser, cell["longest"]),
        validation=_encoded(splits["valid"], tokeniser, cell["longest"]),
        test=_encoded(splits["test"], tokeniser, space.length),
        sources=[source for source, _ in splits["test"]],
        references=[target for _, target in splits["test"]],
    )


def _pairs(cell: Cell, split: str) -> Pairs:
    source, target = cell["direction"].split("→")
    if cell["corpus"] == "toy":
        found = toys.pairs(cell["pairs"] if split == "train" else 40, seed=("train", "valid", "test").index(split))
        return found if source == "de" else [(english, german) for german, english in found]
    if cell["corpus"] == "tatoeba":
        columns = {"en": 0, "de": 1}
        path = file_of(f"tatoeba-deu-eng/{split}.tsv.xz")
        return list(read_pairs(path, source_column=columns[source], target_column=columns[target]))
    # IWSLT14 and WMT16 as fairseq's scripts leave them: one file for each language and split.
    sides = [file_of(f"{cell['corpus']}/{split}.{language}") for language in (source, target)]
    return list(read_pairs((sides[0], sides[1])))


def _encoded(pairs: Pairs, tokeniser: Bpe, longest: int) -> tuple[Sequences, Context]:
    """Both sides with their end; pairs with more tokens than `longest` are left out."""
    sides = [encode_many(tokeniser, [pair[side] for pair in pairs]) for side in (0, 1)]
    kept = [(source, target) for source, target in zip(*sides, strict=True) if max(len(source), len(target)) < longest]
    if not kept:
        raise UserError(f"No pair has fewer than {longest} tokens.")
    return _padded([target for _, target in kept], tokeniser.size), Context(
        _padded([source for source, _ in kept], tokeniser.size)
    )


def _padded(rows: Sequence[Sequence[int]], end: int) -> Sequences:
    ended = [torch.tensor([*row, end]) for row in rows]
    lengths = torch.tensor([len(row) for row in ended])
    return Sequences(nn.utils.rnn.pad_sequence(ended, batch_first=True), lengths)
