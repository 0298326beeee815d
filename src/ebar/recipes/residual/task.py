"""A corpus cut into prefixes and continuations, in the tokens of the language model that is to be improved."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from ebar.data.bpe import Bpe
from ebar.data.continuations import continuations, read_stream
from ebar.data.text import Texts, texts_of
from ebar.data.tokenisers import Bytes, Tokeniser, decode_after
from ebar.models.loading import load_causal
from ebar.models.pretrained import Pretrained
from ebar.recipes.earm import toys
from ebar.recipes.earm.files import file_of
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.models import path_of
from ebar.types import Context, Sequences, Space

Chunks = tuple[Sequences, Context]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What there is to train on and to measure with."""

    tokeniser: Tokeniser
    pretrained: Pretrained | None  # the language model, where it is not to be trained
    space: Space  # of the continuations
    train: Chunks
    validation: Chunks
    test: Chunks

    def spell(self, before: list[int], tokens: list[int]) -> str:
        """What tokens add to the text of those before them."""
        return decode_after(self.tokeniser, before, tokens)


def task_of(cell: Cell) -> Task:
    """Chunks spread evenly over each part of the corpus, as many as are asked for."""
    pretrained = None
    if cell["base"] == "transformer":
        tokeniser: Tokeniser = Bytes() if cell["corpus"] == "toy" else _trained(cell)
    else:
        loaded = load_causal(path_of(cell["base"]), length=cell["continuation"])
        tokeniser, pretrained = loaded.tokeniser, loaded.model
    parts = [
        _chunks(read_stream(_texts(cell, split), tokeniser), cell, cell[f"{split}_chunks"])
        for split in ("train", "valid", "test")
    ]
    vocabulary = tokeniser.size if pretrained is None else pretrained.space.vocabulary
    return Task(
        tokeniser=tokeniser,
        pretrained=pretrained,
        space=Space(vocabulary, cell["continuation"]),
        train=parts[0],
        validation=parts[1],
        test=parts[2],
    )


def spaced(chunks: Chunks, most: int) -> Chunks:
    """At most so many of the chunks, evenly spread."""
    x, context = chunks
    rows = torch.linspace(0, len(x.lengths) - 1, min(most, len(x.lengths))).round().long()
    return x.select(rows), context.select(rows)


def joined(chunks: Chunks) -> Sequences:
    """Prefixes and continuations of one length each, as one sequence."""
    x, context = chunks
    return Sequences(torch.cat([context.given.tokens, x.tokens], 1), context.given.lengths + x.lengths)


def _trained(cell: Cell) -> Tokeniser:
    return Bpe.train(texts_of(_path(cell, "train")), cell["vocabulary"])


def _texts(cell: Cell, split: str) -> Texts:
    if cell["corpus"] == "toy":
        return [toys.text(400, ("train", "valid", "test").index(split))]
    return _path(cell, split)


def _path(cell: Cell, split: str) -> Path:
    return file_of(f"{cell['corpus']}/{split}.txt.xz")


def _chunks(stream: Int[Tensor, " tokens"], cell: Cell, most: int) -> Chunks:
    return spaced(continuations(stream, prefix=cell["prefix"], continuation=cell["continuation"]), most)
