"""From labelled examples to the tensors that a task model reads: [A SEP CLS], [A SEP B SEP CLS], windows for spans."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ebar.data.labelled.examples import Example, Task
from ebar.data.labelled.offsets import Located, located
from ebar.data.specials import Specials
from ebar.data.tokenisers import Tokeniser, encode_lines
from ebar.errors import UserError

TooLong = Literal["cut", "error"]
Text = str | tuple[str, ...]


class Inputs(NamedTuple):
    """What a task model reads. Each row has one choice, except where the task is multiple choice."""

    tokens: Int[Tensor, "rows choices length"]  # right-padded
    segments: Int[Tensor, "rows choices length"]  # 0: A and its SEP, 1: B and its SEP, 2: CLS, the last real place
    lengths: Int[Tensor, "rows choices"]  # 0: an option that this row has not


class Labelled(NamedTuple):
    """One part of labelled data, rows first in all."""

    inputs: Inputs
    # Classification, choice: Int["rows"], −1 not known. Regression, ranking: Float["rows"]. Span: Int["rows 2"], first
    # and last place of the answer, −1 −1 where the row does not have it.
    labels: Tensor
    group: Int[Tensor, " rows"]  # ranking: which query; span: which question; otherwise 0, 1, 2 …


class Encoded(NamedTuple):
    """Examples as tensors."""

    labelled: Labelled
    # Span only: the first character of the passage that a place has, and the one after its last; −1 −1 where the place
    # is none of the passage's, so it can be no end of an answer.
    characters: Int[Tensor, "rows length 2"] | None


class _Row(NamedTuple):
    tokens: list[int]
    segments: list[int]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How examples of a task become tensors: the tokeniser, its special tokens, and the room there is."""

    task: Task
    tokeniser: Tokeniser
    specials: Specials
    length: int  # most places, special tokens counted
    names: tuple[str, ...] = ()  # of the classes, in the order of their numbers
    stride: int = 128  # span: by how many tokens the next window of a long passage moves on
    too_long: TooLong = "cut"

    def encode(self, examples: Sequence[Example]) -> Encoded:
        """Examples as rows: one each, but for long passages of spans, which have several windows."""
        if self.task == "span":
            return self._windows(examples)
        rows = self._choices(examples) if self.task == "choice" else self._texts(examples)
        labels = [self._label(example) for example in examples]
        kind = torch.long if self.task in ("classification", "choice") else torch.float32
        group = self._queries(examples) if self.task == "ranking" else torch.arange(len(examples))
        return Encoded(Labelled(self._inputs(rows), torch.tensor(labels, dtype=kind), group), None)

    def texts(self, texts: Sequence[Text]) -> Encoded:
        """Texts without labels: a string, a pair, (passage, question) of spans, (passage, question, *options)."""
        examples = []
        for number, one in enumerate(texts):
            first, second, *options = (one, None) if isinstance(one, str) else (*one, None) if len(one) == 1 else one
            example = Example(f"text {number}", str(first), second, options=tuple(map(str, options)), unit=str(first))
            if second is None and self.task in ("span", "ranking", "choice"):
                raise UserError(f"Text {number} has no second text, which {self.task} needs: give tuples of texts.")
            if self.task == "choice" and len(options) < 2:
                raise UserError(f"Text {number} has {len(options)} options: give (passage, question, option, option).")
            examples.append(example)
        return self.encode(examples)

    def _label(self, example: Example) -> int | float:
        label = example.label
        if self.task != "classification":
            missing = -1 if self.task == "choice" else math.nan
            return missing if label is None or isinstance(label, str) else label
        if label is not None and label not in self.names:
            raise UserError(
                f"{example.where}: the label {label!r} is none of the classes {', '.join(self.names)}: correct it, "
                "or declare it in data.classes."
            )
        return -1 if label is None else self.names.index(str(label))

    @staticmethod
    def _queries(examples: Sequence[Example]) -> Int[Tensor, " rows"]:
        numbers: dict[str, int] = {}
        return torch.tensor([numbers.setdefault(example.unit, len(numbers)) for example in examples])

    def _tokens(self, examples: Sequence[Example], texts: Sequence[str]) -> list[list[int]]:
        return encode_lines(self.tokeniser, texts, 0, lambda number: examples[number].where)

    def _texts(self, examples: Sequence[Example]) -> list[list[_Row]]:
        first = self._tokens(examples, [example.text for example in examples])
        second = self._tokens(examples, [example.pair or "" for example in examples])
        keep = "first" if self.task == "ranking" else "longest"
        return [
            [self._joined(example, a, None if example.pair is None else b, keep)]
            for example, a, b in zip(examples, first, second, strict=True)
        ]

    def _choices(self, examples: Sequence[Example]) -> list[list[_Row]]:
        passages = self._tokens(examples, [example.text for example in examples])
        found = []
        for example, passage in zip(examples, passages, strict=True):
            asked = [_asked(example.pair or "", option) for option in example.options]
            tokens = self._tokens([example] * len(asked), asked)
            found.append([self._joined(example, passage, own, "second") for own in tokens])
        return found

    def _joined(self, example: Example, a: list[int], b: list[int] | None, keep: str) -> _Row:
        """A and B with their special tokens, cut where they are too long: the one of them that is not kept."""
        room = self.length - (2 if b is None else 3)
        if len(a) + len(b or []) > room:
            fixed = {"first": len(a), "second": len(b or []), "longest": 0}[keep]
            if self.too_long == "error" or fixed > room - (fixed > 0) or room < 1:
                total = len(a) + len(b or []) + self.length - room
                way = "a larger data.length" + (" or data.too_long cut" if self.too_long == "error" else "")
                raise UserError(
                    f"{example.where}: {total} tokens are more than the {self.length} allowed, special ones counted: "
                    f"give {way}."
                )
            a, b = _cut(a, b, room, keep)
        separator, classification = self.specials.separator, self.specials.classification
        tokens, segments = [*a, separator], [0] * (len(a) + 1)
        if b is not None:
            tokens, segments = [*tokens, *b, separator], [*segments, *[1] * (len(b) + 1)]
        return _Row([*tokens, classification], [*segments, 2])

    def _windows(self, examples: Sequence[Example]) -> Encoded:
        rows: list[list[_Row]] = []
        labels: list[tuple[int, int]] = []
        group: list[int] = []
        ranges: list[list[tuple[int, int]]] = []
        passages: dict[str, Located] = {}
        questions = self._tokens(examples, [example.pair or "" for example in examples])
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            if example.text not in passages:
                passages = {example.text: self._located(example)}  # questions about one passage follow one another
            passage = passages[example.text]
            room = self.length - 3 - len(question)
            if room < 1 or (self.too_long == "error" and len(passage.tokens) > room):
                total = len(question) + 3 + (len(passage.tokens) if room >= 1 else 1)
                raise UserError(
                    f"{example.where}: {total} tokens are more than the {self.length} allowed, special ones counted: "
                    "give a larger data.length."
                )
            answer = (-1, -1)
            if example.answers:
                own = example.answers[0]
                answer = passage.covering(own.first, own.first + len(own.text))
            for start in _starts(len(passage.tokens), room, self.stride):
                end = min(start + room, len(passage.tokens))
                inside = example.answers and start <= answer[0] and answer[1] < end
                rows.append([self._joined(example, passage.tokens[start:end], question, "second")])
                labels.append((answer[0] - start, answer[1] - start) if inside else (-1, -1))
                ranges.append(passage.characters[start:end])
                group.append(number)
        inputs = self._inputs(rows)
        characters = torch.full((len(rows), inputs.tokens.shape[2], 2), -1, dtype=torch.int32)
        for row, own_ranges in enumerate(ranges):
            if own_ranges:
                characters[row, : len(own_ranges)] = torch.tensor(own_ranges, dtype=torch.int32)
        return Encoded(Labelled(inputs, torch.tensor(labels).view(-1, 2), torch.tensor(group)), characters)

    def _located(self, example: Example) -> Located:
        try:
            return located(self.tokeniser, example.text)
        except UserError as error:
            raise UserError(f"{example.where}: {error}") from None

    def _inputs(self, rows: list[list[_Row]]) -> Inputs:
        choices = max((len(row) for row in rows), default=1)
        longest = max((len(own.tokens) for row in rows for own in row), default=1)
        tokens = torch.full((len(rows), choices, longest), self.specials.padding)
        segments = torch.zeros(len(rows), choices, longest, dtype=torch.long)
        lengths = torch.zeros(len(rows), choices, dtype=torch.long)
        for at, row in enumerate(rows):
            for choice, own in enumerate(row):
                size = len(own.tokens)
                tokens[at, choice, :size] = torch.tensor(own.tokens)
                segments[at, choice, :size] = torch.tensor(own.segments)
                lengths[at, choice] = size
        return Inputs(tokens, segments, lengths)


def _cut(a: list[int], b: list[int] | None, room: int, keep: str) -> tuple[list[int], list[int] | None]:
    """From the right: the text that is not kept or, of a pair, as if tokens were dropped one by one from the longer."""
    if b is None:
        return a[:room], None
    half = room // 2
    if keep == "first" or (keep == "longest" and len(a) <= room - half):
        return a, b[: room - len(a)]
    if keep == "second" or len(b) <= half:
        return a[: room - len(b)], b
    return a[: room - half], b[:half]


def _asked(question: str, option: str) -> str:
    """The option in the gap of the question, where it has one, else after it."""
    return question.replace("_", option, 1) if "_" in question else f"{question} {option}"


def _starts(tokens: int, room: int, stride: int) -> list[int]:
    """Where windows of a passage begin: each moves on by `stride`, no token is left out."""
    step = min(stride, room)
    return [0, *range(step, max(0, tokens - room) + step, step)]
