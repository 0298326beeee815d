"""Files with one labelled example after another, as rows: JSON lines, tables with tabs, SQuAD's JSON, data sets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ebar.data.corpus import numbered_lines, readable
from ebar.data.hub import HubSplit
from ebar.data.labelled.examples import Columns, Row, Task, guessed
from ebar.errors import UserError

Rows = Iterator[tuple[str, Row]]


def json_lines(path: Path) -> Rows:
    """One JSON object per line."""
    for number, line in numbered_lines(path):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, json_object(where, line)


def json_object(where: str, text: str | bytes) -> dict[str, Any]:
    """A JSON object from text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is no JSON that can be read: {error}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{where} holds {type(found).__name__} where a JSON object with named columns is wanted.")
    return found


def table(path: Path, task: Task, columns: Columns, header: bool | None) -> Rows:
    """Columns with tabs between them, taken as they stand: quotation marks mean nothing.

    Columns are called by the first line where there is a header, else by their numbers from 0. Without being told,
    the first line is a header if its columns have names that can be told to be text and label.
    """
    names: list[str] | None = None
    for number, line in numbered_lines(path):
        cells, where = line.split("\t"), f"{path}, line {number}"
        if names is None:
            if header is None:
                header = _named(columns) or guessed(cells, task, Columns()) is not None
            names = cells if header else [str(place) for place in range(len(cells))]
            if header:
                continue
        if not line:
            continue
        if len(cells) < len(names):
            raise UserError(f"{where} has {len(cells)} columns where the first line has {len(names)}.")
        yield where, dict(zip(names, cells, strict=False))


def _named(columns: Columns) -> bool:
    given = (columns.text, columns.pair, columns.label, columns.group)
    return any(column is not None and not str(column).isdigit() for column in given)


def squad(path: Path) -> Rows:
    """The questions of a file in SQuAD's format, versions 1.1 and 2.0."""
    with readable(path, lambda: "its beginning") as file:
        text = file.read()
    if not text.strip():
        raise UserError(f"{path} is empty: it needs the JSON of SQuAD.")
    found = json_object(str(path), text)
    try:
        for article in found["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    row = {"context": paragraph["context"], "answers": [], **question}
                    yield f"{path}, question {question.get('id', question['question'])!r}", row
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not written as SQuAD is (data, paragraphs, qas): it lacks {error}.") from None


def hub_rows(split: HubSplit) -> Rows:
    """The rows of a data set that `datasets` reads."""
    for number, row in enumerate(split.rows(), 1):
        yield f"{split.name}, {split.split}, row {number}", row
