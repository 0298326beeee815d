"""The inputs of pretraining: pieces of a long text, what is to be predicted of them, and what sees what.

An input of a column has two parts, the reused one and a pair of texts (Yang et al. 2019):

    [ reuse tokens of the column | A … SEP B … SEP CLS ]

A goes on where the reused part ends. With chance ½ B is what follows A, otherwise it begins at a sentence drawn at
random from the text, though not near the input. The next input of the column begins `reuse` tokens further on, and the
memory holds reused parts only. So the reused part never sees the pair, whose first tokens come again, to be predicted.

All is a function of (seed, epoch, number of the input, column): asked for again, an input is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.random import Generator, Philox
from torch import Tensor

from ebar.data.specials import Specials
from ebar.data.targets import corrupt, draw_ranks, draw_targets, hidden_by_order, share_targets
from ebar.data.text import windows
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.types import Sequences

Predict = Literal["permutation", "denoising", "left_to_right"]
SPECIAL = 3  # SEP, SEP and CLS


class PretrainingBatch(NamedTuple):
    """The next inputs of several columns; rows first in all tensors, so that parts of a batch can be taken."""

    tokens: Int[Tensor, "rows length"]
    segments: Int[Tensor, "rows length"]
    hidden_from: Bool[Tensor, "rows length length"]  # [r, i, j]: place i may not see place j
    targets: Int[Tensor, "rows predicted"]  # places, in the order of the text
    labels: Int[Tensor, "rows predicted"]  # what stands there
    backwards: Bool[Tensor, " rows"]  # whether the text runs from right to left
    follows: Bool[Tensor, " rows"]  # whether B follows A in the text
    begins: Bool[Tensor, " rows"]  # whether nothing of what was read before belongs to the same document
    column: Int[Tensor, " rows"]
    reuse: Int[Tensor, " rows"]  # how many first places are remembered, the same in all rows
    corrupted: Bool[Tensor, " rows"]  # whether targets are hidden in the tokens themselves: predict from the content


@dataclass(frozen=True, kw_only=True)
class Form:
    """What inputs look like, and what is predicted of them."""

    length: int = 128
    reuse: int = 64
    predict: Predict = "permutation"
    partial: int = 6  # one token in so many is predicted
    spans: bool = True
    block: int | None = None  # places that are shuffled; the same shuffle in each block of them
    bidirectional: bool = True

    def __post_init__(self) -> None:
        if self.pair < 2:
            raise UserError(
                f"An input of {self.length:,} tokens of which {self.reuse:,} are reused has no room for two texts and "
                f"{SPECIAL} special tokens: give a larger data.length or a smaller data.reuse."
            )
        if 2 * self.reuse > self.length:
            raise UserError(
                f"Of {self.length:,} tokens at most half can be reused, not {self.reuse:,}: the pair of texts needs "
                "the rest, so give a larger data.length or a smaller data.reuse."
            )

    @property
    def pair(self) -> int:
        """Tokens of A and B together."""
        return self.length - self.reuse - SPECIAL

    @property
    def advance(self) -> int:
        """Tokens from one input of a column to the next; without reuse, as many as A and B have."""
        return self.reuse or self.pair


@dataclass(frozen=True, kw_only=True)
class PretrainingText:
    """A long text as tokens, and where its words, sentences and documents begin."""

    tokens: Int[np.ndarray, " tokens"]
    words: Bool[np.ndarray, " tokens"]  # whether a word begins with this token
    sentences: Int[np.ndarray, " sentences"]  # places, the first of which is 0
    documents: Int[np.ndarray, " documents"]  # likewise
    specials: Specials
    size: int  # of the tokeniser: what a random token is drawn from
    form: Form

    def inputs(self, columns: int) -> int:
        """How many inputs one of so many columns has; what is left over at its end is dropped."""
        return max(0, (len(self.tokens) // columns - self.form.length) // self.form.advance + 1)

    def part(self, begin: int, end: int) -> "PretrainingText":
        """The tokens from `begin` to `end`."""
        places = (_within(where, begin, end) for where in (self.sentences, self.documents))
        sentences, documents = places
        return replace(
            self, tokens=self.tokens[begin:end], words=self.words[begin:end], sentences=sentences, documents=documents
        )

    def up_to(self, limit: int | None) -> "PretrainingText":
        """At most so many tokens, from the beginning on."""
        return self if limit is None else self.part(0, min(limit, len(self.tokens)))

    def backwards(self) -> "PretrainingText":
        """Read from right to left: what ended before begins, but a word's first token is still where it begins."""
        total = len(self.tokens)
        places = (np.append(0, total - where[:0:-1]) for where in (self.sentences, self.documents))
        sentences, documents = places
        return replace(self, tokens=self.tokens[::-1], words=self.words[::-1], sentences=sentences, documents=documents)


@dataclass(frozen=True)
class PretrainingPart:
    """A part of a corpus, whose text is read when it is first used.

    Asked for rows, as what knows no pretraining does, it gives windows of `form.length` tokens.
    """

    name: str
    texts: Callable[[], dict[str, PretrainingText]] = field(repr=False)  # all parts, read once

    @property
    def text(self) -> PretrainingText:
        return self.texts()[self.name]

    def __len__(self) -> int:
        return len(self.text.tokens) // self.text.form.length

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        return torch.full((len(self),), self.text.form.length)

    def fetch(self, rows: Int[Tensor, " selected"]) -> Sequences:
        return windows(torch.from_numpy(self.text.tokens).long(), self.text.form.length).select(rows.cpu())


def _within(places: Int[np.ndarray, " places"], begin: int, end: int) -> Int[np.ndarray, " within"]:
    inside = places[(places > begin) & (places < end)] - begin
    return np.append(0, inside)


class Pairs(NamedTuple):
    """Inputs before anything of them is to be predicted."""

    tokens: Int[np.ndarray, "rows length"]
    segments: Int[np.ndarray, "rows length"]
    words: Bool[np.ndarray, "rows length"]
    follows: Bool[np.ndarray, " rows"]
    begins: Bool[np.ndarray, " rows"]


def read_inputs(
    text: PretrainingText, backwards: PretrainingText, columns: int, number: int, *, seed: int, epoch: int
) -> PretrainingBatch:
    """Input `number` of each column, counted from 0.

    Half of the columns run backwards where the form is bidirectional; in the next epoch it is the other half.
    """
    form, column = text.form, np.arange(columns)
    generator = Generator(Philox(folded(seed, "pretraining", epoch, number)))
    coins = generator.random((columns, 3))
    turned = (column + epoch) % 2 == 1 if form.bidirectional else np.zeros(columns, bool)
    forth = compose(text, column[~turned], columns, number, coins[~turned])
    # Of the text read backwards the first column is the last one.
    back = compose(backwards, columns - 1 - column[turned], columns, number, coins[turned])
    pairs = Pairs(*(_merged(turned, *both) for both in zip(forth, back, strict=True)))
    functional = np.isin(pairs.tokens, (text.specials.separator, text.specials.classification))
    targets = _targets(form, pairs, functional, turned, generator)
    tokens, hidden = pairs.tokens, _hidden(form, targets, functional, generator)
    if form.predict == "denoising":
        tokens = corrupt(tokens, targets, mask=text.specials.mask, size=text.size, generator=generator)
    places = np.nonzero(targets)[1].reshape(columns, -1)  # each row has as many
    return PretrainingBatch(
        tokens=torch.from_numpy(tokens),
        segments=torch.from_numpy(pairs.segments),
        hidden_from=torch.from_numpy(hidden),
        targets=torch.from_numpy(places),
        labels=torch.from_numpy(np.take_along_axis(pairs.tokens, places, 1)),
        backwards=torch.from_numpy(turned),
        follows=torch.from_numpy(pairs.follows),
        begins=torch.from_numpy(pairs.begins),
        column=torch.from_numpy(column),
        reuse=torch.full((columns,), form.reuse),
        corrupted=torch.full((columns,), form.predict == "denoising"),
    )


def compose(
    text: PretrainingText, column: Int[np.ndarray, " rows"], columns: int, number: int,
    coins: Float[np.ndarray, "rows 3"],
) -> Pairs:  # fmt: skip
    """Input `number` of some columns.

    Both texts begin and end at sentences, as far as there is room: A ends at one of the sentences' ends in it, drawn
    evenly, and what is too long is cut from the right of the longer. Where no sentence ends early enough, A fills
    its half or more and B is drawn at random.
    """
    form, each = text.form, len(text.tokens) // columns
    first, last = column * each, column * each + each
    begin = first + number * form.advance
    a_begin, pair = begin + form.reuse, form.pair
    low = np.searchsorted(text.sentences, a_begin, "right")
    high = np.searchsorted(text.sentences, a_begin + pair, "left")
    end = np.minimum(np.append(text.sentences, len(text.tokens))[high], last)
    cuts = high - low
    cut = text.sentences[np.minimum(low + (coins[:, 0] * cuts).astype(int), len(text.sentences) - 1)]
    follows = (cuts > 0) & (coins[:, 1] < 0.5)
    a_end = np.where(cuts > 0, cut, end)
    wanted = np.maximum(1, pair - (a_end - a_begin))
    drawn, least = elsewhere(begin, len(text.tokens), form, coins[:, 2])
    sentence = text.sentences[np.searchsorted(text.sentences, drawn, "right") - 1]
    b_begin = np.where(follows, a_end, np.maximum(sentence, least))
    after = np.append(text.sentences, len(text.tokens))[np.searchsorted(text.sentences, drawn + wanted, "left")]
    b_end = np.where(follows, end, after)
    a_size = trimmed(a_end - a_begin, b_end - b_begin, pair)
    place = np.arange(pair + SPECIAL)
    in_a = place < a_size[:, None]
    where = np.where(in_a, a_begin[:, None] + place, b_begin[:, None] + place - a_size[:, None] - 1)
    where = np.hstack([begin[:, None] + np.arange(form.reuse), np.minimum(where, len(text.tokens) - 1)])
    tokens, words = text.tokens[where].astype(np.int64), text.words[where]
    separators = np.stack([form.reuse + a_size, np.full_like(a_size, form.length - 2)], 1)
    np.put_along_axis(tokens, separators, text.specials.separator, 1)
    np.put_along_axis(words, separators, False, 1)
    tokens[:, -1], words[:, -1] = text.specials.classification, False
    segments = (np.arange(form.length) > separators[:, :1]).astype(np.int64)
    segments[:, -1] = 2
    document = np.searchsorted(text.documents, (begin, begin - form.advance), "right")
    begins = np.full(len(column), number == 0) | (document[0] != document[1])
    return Pairs(tokens, segments, words, follows, begins)


def elsewhere(
    begin: Int[np.ndarray, " rows"], total: int, form: Form, coins: Float[np.ndarray, " rows"]
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """A place of the text for a random B, and the least place that it may begin at.

    Not within two inputs of `begin`, where its tokens would stand in view as a copy of what is to be predicted, unless
    the text is so short that there is nowhere else.
    """
    left = np.maximum(begin - 2 * form.length - form.pair, 0)
    right = np.minimum(begin + 2 * form.length, total - form.pair)
    room = left + np.maximum(total - form.pair - right, 0)
    number = (coins * np.where(room > 0, room, max(1, total - form.pair))).astype(int)
    behind = (room > 0) & (number >= left)
    return np.where(behind, right + number - left, number), np.where(behind, right, 0)


def trimmed(a: Int[np.ndarray, " rows"], b: Int[np.ndarray, " rows"], total: int) -> Int[np.ndarray, " rows"]:
    """What is left of a where the longer of both loses a token, b where they are equal, until they have `total`."""
    left: Int[np.ndarray, " rows"] = np.minimum(a, np.maximum(total - b, (total + 1) // 2))
    return left


def _merged(turned: Bool[np.ndarray, " rows"], forth: np.ndarray, back: np.ndarray) -> np.ndarray:
    found = np.empty((len(turned), *forth.shape[1:]), forth.dtype)
    found[~turned], found[turned] = forth, back
    return found


def _targets(
    form: Form, pairs: Pairs, functional: Bool[np.ndarray, "rows length"], turned: Bool[np.ndarray, " rows"],
    generator: Generator,
) -> Bool[np.ndarray, "rows length"]:  # fmt: skip
    """As many in each row; of the reused part and of the pair, each by itself."""
    if form.predict == "left_to_right":
        return ~functional
    halves = []
    for number, part in zip(share_targets(form.length, form.reuse, form.partial), _halves(form), strict=True):
        chosen = draw_targets(
            _flipped(pairs.words[:, part], turned), _flipped(functional[:, part], turned), number,
            context=form.partial if form.spans else None, generator=generator,
        )  # fmt: skip
        halves.append(_flipped(chosen, turned))
    return np.hstack(halves)


def _hidden(
    form: Form, targets: Bool[np.ndarray, "rows length"], functional: Bool[np.ndarray, "rows length"],
    generator: Generator,
) -> Bool[np.ndarray, "rows length seen"]:  # fmt: skip
    rows, length = targets.shape
    hidden = np.zeros((rows, length, length), bool)
    hidden[:, : form.reuse, form.reuse :] = True
    if form.predict == "left_to_right":
        hidden[:] = np.triu(np.ones((length, length), bool))
    elif form.predict == "permutation":
        for part in _halves(form):
            ranks = draw_ranks(rows, part.stop - part.start, form.block, generator)
            hidden[:, part, part] = hidden_by_order(ranks, targets[:, part], functional[:, part])
    return hidden


def _halves(form: Form) -> tuple[slice, slice]:
    return slice(0, form.reuse), slice(form.reuse, form.length)


def _flipped(
    flags: Bool[np.ndarray, "rows places"], turned: Bool[np.ndarray, " rows"]
) -> Bool[np.ndarray, "rows places"]:
    """Rows that run backwards, turned round."""
    return np.where(turned[:, None], flags[:, ::-1], flags)
