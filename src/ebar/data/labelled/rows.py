"""Files with one labelled example after another, as rows: JSON lines, tables with tabs, SQuAD's JSON, data sets.

Folders and zip archives of labelled texts: a folder or a file for each class, and RACE's JSON for each passage.
"""

import json
import zipfile
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


NO_TEXT = ("readme", "license", "licence", "__macosx", ".")  # how the names begin of what is no data


def opened(path: Path) -> Any:
    """A folder, or the inside of a zip archive, which can be walked like one."""
    if path.is_dir():
        return path
    if not path.exists():
        raise UserError(f"There is no folder or archive {path}.")
    try:
        return zipfile.Path(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError):
        raise UserError(f"{path} is neither a folder nor a zip archive that can be read.") from None


def by_class(path: Path, classes: tuple[str, ...] | None) -> Rows:
    """A folder of text files for each class, or a file for each class with one text per line.

    The class is the name of the folder, or what tells the name of a file from the others: `neg` and `pos` of
    rt-polarity.neg and rt-polarity.pos. With `classes`, nothing else is read.
    """
    entries = _entries(opened(path))
    while len(entries) == 1 and entries[0].is_dir():  # an archive often has one folder around all
        entries = _entries(entries[0])
    folders, files = [one for one in entries if one.is_dir()], [one for one in entries if not one.is_dir()]
    names = [one.name for one in folders] if folders else _telling([one.name for one in files])
    found = dict(zip(names, folders or files, strict=True))
    wanted = list(found) if classes is None else [name for name in classes if name in found]
    if len(found) < 2 or not wanted:
        raise UserError(f"{path} has not a folder or a file for each of two classes or more: it has {names or 'none'}.")
    for name in wanted:
        if folders:
            for file in _entries(found[name]):
                yield str(file), {"text": _read(file).strip(), "label": name, "id": f"{name}/{file.name}"}
        else:
            for number, line in enumerate(_read(found[name]).split("\n"), 1):
                if line.strip():
                    yield f"{found[name]}, line {number}", {"text": line.strip(), "label": name}


def race(path: Path) -> Rows:
    """The questions of a folder in RACE's format: JSON files, each with an article, questions, options and answers.

    The folder that a file is in (middle, high) is the subset of its questions.
    """
    root = opened(path)
    files = list(_files(root, ""))
    if not files:
        raise UserError(f"{path} has no file: RACE has a JSON file for each passage.")
    for subset, file in files:
        found = json_object(str(file), _read(file))
        try:
            together = list(zip(found["questions"], found["options"], found["answers"], strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{file} is not written as RACE is, with as many questions as options and answers: {error}."
            ) from None
        for number, (question, options, answer) in enumerate(together, 1):
            yield (
                f"{file}, question {number}",
                {
                    "article": found.get("article", ""), "question": question, "options": options, "answer": answer,
                    "id": f"{found.get('id', file.name)}, {number}", "subset": subset,
                },
            )  # fmt: skip


def _files(folder: Any, subset: str) -> Iterator[tuple[str, Any]]:
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _files(entry, entry.name)
        else:
            yield subset, entry


def _entries(folder: Any) -> list[Any]:
    found = [entry for entry in folder.iterdir() if not entry.name.lower().startswith(NO_TEXT)]
    return sorted(found, key=lambda entry: str(entry.name))


def _read(file: Any) -> str:
    data: bytes = file.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: byte {error.start + 1} of the file is not UTF-8.") from None


def _telling(names: list[str]) -> list[str]:
    """What is left of names when the parts between dots that all begin or end with are taken away."""
    parts = [name.split(".") for name in names]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while len(parts) > 1 and min(map(len, parts)) > 1 and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return [".".join(part) for part in parts]
