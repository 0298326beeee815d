"""Labelled examples as they are written, before any tokeniser: texts, labels, answers, and where each one stands.

Rows come from files of any format (`rows`, `folders`); here the columns of a row become an example of the task.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ebar.errors import UserError

Task = Literal["classification", "regression", "span", "ranking", "choice"]
Row = Mapping[str, Any]
Column = int | str | None


class Answer(NamedTuple):
    """One gold answer of a question about a passage."""

    text: str
    first: int  # the character of the passage that it begins with


class Example(NamedTuple):
    """One labelled example as it stands in its file."""

    where: str  # the file and line, for messages
    text: str  # the text; the first of a pair; the passage (span, choice); the query (ranking)
    pair: str | None = None  # the second of a pair; the question (span, choice); the document (ranking)
    options: tuple[str, ...] = ()  # choice
    label: str | float | int | None = None  # a class's name; a number; the right option's place; None: not known
    answers: tuple[Answer, ...] = ()  # span; none: the passage does not answer
    identity: str = ""  # what the file calls it
    subset: str = ""  # such as middle and high
    unit: str = ""  # examples of one unit (a query, a passage) are held out together


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a row mean what; those not given are guessed by their names."""

    text: Column = None
    pair: Column = None
    label: Column = None
    options: Column = None
    group: Column = None


PAIRS = [
    ("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("question", "sentence"),
    ("text_a", "text_b"), ("text", "text_pair"), ("text1", "text2"), ("#1 string", "#2 string"),
]  # fmt: skip
PASSAGES = [(passage, "question") for passage in ("context", "passage", "article", "text")]
QUERIES = [("query", document) for document in ("document", "passage", "text", "title")]
SINGLE = ["text", "sentence", "review", "content", "comment", "document", "phrase"]
CLASSES = ["label", "gold_label", "class", "category", "is_duplicate", "quality", "sentiment", "polarity", "target"]
NUMBERS = ["score", "similarity", "label", "rating", "stars", "target"]
GRADES = ["grade", "relevance", "label", "score", "rating"]
ANSWERS = ["answer", "label", "correct"]
OPTIONS = ["options", "choices", "endings"]
GROUPS = ["query_id", "qid"]
TEXTS: dict[str, list[tuple[str, str]]] = {
    "classification": PAIRS, "regression": PAIRS, "span": PASSAGES, "choice": PASSAGES, "ranking": QUERIES,
}  # fmt: skip
LABELS: dict[str, list[str]] = {
    "classification": CLASSES, "regression": NUMBERS, "span": ["answers"], "choice": ANSWERS, "ranking": GRADES,
}  # fmt: skip


def guessed(names: Sequence[str], task: Task, given: Columns) -> Columns | None:
    """The columns by name, those given as they are; None where a text or a label is not to be found."""
    own = {name.lower(): name for name in reversed(names)}
    text, pair, label = given.text, given.pair, given.label
    if text is None and pair is None:
        text, pair = next(((own[a], own[b]) for a, b in TEXTS[task] if a in own and b in own), (None, None))
        if text is None and task in ("classification", "regression"):
            text = next((own[name] for name in SINGLE if name in own), None)
    if label is None:
        label = next((own[name] for name in LABELS[task] if name in own), None)
    if text is None or (pair is None and task in ("span", "choice", "ranking")):
        return None
    if label is None and task != "span":
        return None
    group = next((own[name] for name in GROUPS if name in own), None) if given.group is None else given.group
    options = next((own[name] for name in OPTIONS if name in own), None) if given.options is None else given.options
    return Columns(text=text, pair=pair, label=label, options=options, group=group)


def by_place(width: int, task: Task, given: Columns) -> Columns | None:
    """The columns of a table without names: a text, the second of a pair where there are three, and the label last."""
    if given.text is not None and given.label is not None:
        return given
    if any(column is not None for column in (given.text, given.pair, given.label)):
        return None
    if width == 2 and task != "ranking":
        return Columns(text=0, label=1, group=given.group)
    return Columns(text=0, pair=1, label=2, group=given.group) if width == 3 else None


def examples_of(rows: Iterable[tuple[str, Row]], task: Task, given: Columns) -> Iterator[Example]:
    """Rows, each with the place where it stands, as examples of a task."""
    columns: Columns | None = None
    for number, (where, row) in enumerate(rows):
        if columns is None:
            columns = _columns(where, row, task, given)
        yield MAKERS[task](where, row, columns, number)


def _columns(where: str, row: Row, task: Task, given: Columns) -> Columns:
    names = list(row)
    unnamed = names == [str(place) for place in range(len(names))]
    found = by_place(len(names), task, given) if unnamed else guessed(names, task, given)
    if found is None:
        wanted = {
            "classification": "text_column and data.label_column", "regression": "text_column and data.label_column",
            "span": "text_column and data.pair_column", "choice": "text_column, data.pair_column and data.label_column",
            "ranking": "text_column, data.pair_column and data.label_column",
        }[task]  # fmt: skip
        raise UserError(
            f"{where}: which columns of {', '.join(names)} are meant cannot be guessed for {task}: give data.{wanted}."
        )
    return found


def value_of(where: str, row: Row, column: Column) -> Any:
    """What stands in a column, by its name, a dotted name (`answers.text`) or its number counted from 0."""
    name = str(column)
    if name in row:
        return row[name]
    names = list(row)
    if name.isdigit() and int(name) < len(names):
        return row[names[int(name)]]
    found: Any = row
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise UserError(f"{where} has no column {name!r}: its columns are {', '.join(names)}.")
        found = found[part]
    return found


def _text(where: str, row: Row, column: Column) -> str:
    value = value_of(where, row, column)
    if not isinstance(value, str):
        raise UserError(f"{where}: the column {column!r} holds {type(value).__name__}, no text.")
    return value


def _number(where: str, row: Row, column: Column) -> float:
    value = value_of(where, row, column)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise UserError(f"{where}: {value!r} in the column {column!r} is no number.")
    return number


def _class(where: str, row: Row, column: Column) -> str:
    value = value_of(where, row, column)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int) or not str(value).strip():
        raise UserError(f"{where}: {value!r} in the column {column!r} names no class: a class is a word or a number.")
    return str(value).strip()


def _second(where: str, row: Row, columns: Columns) -> str | None:
    return None if columns.pair is None else _text(where, row, columns.pair)


def _identity(row: Row, number: int) -> str:
    return str(row.get("id", row.get("example_id", number)))


def _classified(where: str, row: Row, columns: Columns, number: int) -> Example:
    return Example(
        where, _text(where, row, columns.text), _second(where, row, columns), label=_class(where, row, columns.label),
        identity=_identity(row, number), subset=str(row.get("subset", "")), unit=str(number),
    )  # fmt: skip


def _measured(where: str, row: Row, columns: Columns, number: int) -> Example:
    return Example(
        where, _text(where, row, columns.text), _second(where, row, columns), label=_number(where, row, columns.label),
        identity=_identity(row, number), unit=str(number),
    )  # fmt: skip


def _ranked(where: str, row: Row, columns: Columns, number: int) -> Example:
    query = _text(where, row, columns.text)
    return Example(
        where, query, _text(where, row, columns.pair), label=_number(where, row, columns.label),
        identity=_identity(row, number),
        unit=query if columns.group is None else str(value_of(where, row, columns.group)),
    )  # fmt: skip


def _spanned(where: str, row: Row, columns: Columns, number: int) -> Example:
    passage = _text(where, row, columns.text)
    answers = [] if row.get("is_impossible") else _answers(where, row, columns.label)
    for answer in answers:
        if answer.first < 0 or answer.first + len(answer.text) > len(passage):
            last = answer.first + len(answer.text) - 1
            raise UserError(
                f"{where}: the answer {answer.text!r} at characters {answer.first} to {last} is outside its text, "
                f"which has {len(passage)}."
            )
        there = passage[answer.first : answer.first + len(answer.text)]
        if there != answer.text:
            raise UserError(
                f"{where}: at character {answer.first} the text has {there!r}, not the answer {answer.text!r}."
            )
    return Example(
        where, passage, _text(where, row, columns.pair), answers=tuple(answers), identity=_identity(row, number),
        unit=passage,
    )  # fmt: skip


def _answers(where: str, row: Row, column: Column) -> list[Answer]:
    """A list of {text, answer_start}, or, as data sets have it, {text: [...], answer_start: [...]}."""
    found = [] if column is None else value_of(where, row, column)
    try:
        if isinstance(found, Mapping):
            pairs = list(zip(found["text"], found["answer_start"], strict=True))
        else:
            pairs = [(one["text"], one["answer_start"]) for one in found]
        return [Answer(str(text), int(first)) for text, first in pairs if text]
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{where}: the answers are not written as in SQuAD: each needs a text and an answer_start."
        ) from None


def _chosen(where: str, row: Row, columns: Columns, number: int) -> Example:
    options = _options(where, row, columns)
    answer = value_of(where, row, columns.label)
    passage, identity = _text(where, row, columns.text), _identity(row, number)
    subset = str(row.get("subset", "")) or next((own for own in ("middle", "high") if identity.startswith(own)), "")
    return Example(
        where, passage, _text(where, row, columns.pair), options=options, label=_place(where, answer, options),
        identity=identity, subset=subset, unit=passage,
    )  # fmt: skip


def _options(where: str, row: Row, columns: Columns) -> tuple[str, ...]:
    if columns.options is None:
        endings = [name for name in row if name.startswith(("ending", "option")) and name[6:].isalnum()]
        found: Any = [row[name] for name in sorted(endings)]
    else:
        found = value_of(where, row, columns.options)
    if not isinstance(found, list | tuple) or len(found) < 2 or not all(isinstance(one, str) for one in found):
        raise UserError(f"{where}: the options of a question are a list of two texts or more, not {found!r}.")
    return tuple(found)


def _place(where: str, answer: Any, options: tuple[str, ...]) -> int:
    """An answer as a letter (A, B …), as a place counted from 0, or as the text of the option."""
    if isinstance(answer, str) and answer in options:
        return options.index(answer)
    if isinstance(answer, str) and len(answer) == 1 and answer.isalpha():
        place = ord(answer.upper()) - ord("A")
    else:
        try:
            place = -1 if isinstance(answer, bool) else int(answer)
        except (TypeError, ValueError):
            place = -1
    if not 0 <= place < len(options):
        raise UserError(f"{where}: the answer {answer!r} is none of the {len(options)} options of its question.")
    return place


MAKERS = {
    "classification": _classified, "regression": _measured, "ranking": _ranked, "span": _spanned, "choice": _chosen,
}  # fmt: skip
