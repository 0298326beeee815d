"""Small made-up labelled data in the formats of the real ones, for scale demo: a few dozen examples that can be learnt.

| name | format | what it is like |
|---|---|---|
| `sentiment` | table with a header | sentences and their sentiment, SST-2 |
| `acceptability` | table without a header | sentences in or out of order, CoLA |
| `entailment` | table with a header, pairs | whether one sentence follows from the other, RTE |
| `similarity` | table with a header, pairs | numbers from 0 to 5, STS-B |
| `polarity` | zip archive with a file for each class | sentence polarity of Pang & Lee |
| `squad` | JSON | SQuAD 2.0, some questions unanswerable |
| `race` | folder of JSON files | RACE, middle and high |
| `ranking` | JSON lines | queries and graded documents |
"""

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebar.errors import choose

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
TOWNS = ("Berlin", "Paris", "Rome", "Oslo", "Vienna", "Lisbon")
THINGS = ("tea", "bread", "chess", "music", "rain", "cats")
SUBJECTS = ("the film", "this story", "her song", "the ending", "the play")
GOOD = ("wonderful", "funny", "moving", "clever")
BAD = ("dull", "silly", "tedious", "awful")
MANNERS = ("really", "quite", "rather", "simply")
EXAMPLES = {"train": 60, "validation": 24, "test": 24}


def toy_labelled(name: str, part: str, folder: Path) -> Path:
    """The file or folder of a part (train, validation, test), written if it is not there yet."""
    suffix, write = choose(KINDS, name, "made-up labelled data")
    path = folder / name / f"{part}{suffix}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, random.Random(f"{name} {part}"), choose(EXAMPLES, part, "part"))
    return path


def _sentence(draw: random.Random, good: bool) -> str:
    return f"{draw.choice(SUBJECTS)} was {draw.choice(MANNERS)} {draw.choice(GOOD if good else BAD)}"


def _fact(name: str, town: str) -> str:
    return f"{name} lives in {town}"


def _table(path: Path, rows: list[list[Any]], header: list[str] | None) -> None:
    lines = ["\t".join(map(str, row)) for row in ([header, *rows] if header else rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _sentiment(path: Path, draw: random.Random, count: int) -> None:
    _table(path, [[_sentence(draw, at % 2 == 1), at % 2] for at in range(count)], ["sentence", "label"])


def _acceptability(path: Path, draw: random.Random, count: int) -> None:
    rows = []
    for at in range(count):
        words = _sentence(draw, at % 4 < 2).split()
        rows.append(["toy", at % 2, "" if at % 2 else "*", " ".join(words if at % 2 else reversed(words))])
    _table(path, rows, None)


def _entailment(path: Path, draw: random.Random, count: int) -> None:
    rows = []
    for at in range(count):
        name, (town, other) = draw.choice(NAMES), draw.sample(TOWNS, 2)
        label = "not_entailment" if at % 2 else "entailment"
        rows.append([at, f"{_fact(name, town)} with a cat", _fact(name, other if at % 2 else town), label])
    _table(path, rows, ["index", "sentence1", "sentence2", "label"])


def _similarity(path: Path, draw: random.Random, count: int) -> None:
    rows = []
    for at in range(count):
        same = at % 6
        first = [draw.choice(NAMES) for _ in range(5)]
        others = [draw.choice(TOWNS) for _ in range(5)]
        second = [a if place < same else b for place, (a, b) in enumerate(zip(first, others, strict=True))]
        rows.append([at, " ".join(first), " ".join(second), f"{same:.3f}"])
    _table(path, rows, ["index", "sentence1", "sentence2", "score"])


def _polarity(path: Path, draw: random.Random, count: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, good in (("neg", False), ("pos", True)):
            text = "".join(f"{_sentence(draw, good)} .\n" for _ in range(count // 2))
            archive.writestr(zipfile.ZipInfo(f"polarity/rt-polarity.{name}"), text)


def _squad(path: Path, draw: random.Random, count: int) -> None:
    articles = []
    for at in range(count // 3):
        people, towns = draw.sample(NAMES, 4), draw.sample(TOWNS, 3)
        passage = ". ".join(_fact(*pair) for pair in zip(people, towns, strict=False)) + "."
        asked = [_question(passage, people[0], towns[0]), _question(passage, people[2], towns[2])]
        asked.append(_question(passage, people[3], None))
        questions = [{**one, "id": f"{path.stem}-{at}-{place}"} for place, one in enumerate(asked)]
        articles.append({"title": f"Town {at}", "paragraphs": [{"context": passage, "qas": questions}]})
    path.write_text(json.dumps({"version": "v2.0", "data": articles}, indent=1), encoding="utf-8")


def _question(passage: str, name: str, town: str | None) -> dict[str, Any]:
    answers = [] if town is None else [{"text": town, "answer_start": passage.index(town)}]
    return {"question": f"Where does {name} live?", "answers": answers, "is_impossible": town is None}


def _race(path: Path, draw: random.Random, count: int) -> None:
    for at in range(count // 2):
        subset = ("middle", "high")[at % 2]
        people, things = draw.sample(NAMES, 2), draw.sample(THINGS, 4)
        article = " ".join(f"{name} likes {thing}." for name, thing in zip(people, things, strict=False))
        options = [draw.sample(things, 4) for _ in people]
        answers = ["ABCD"[own.index(thing)] for own, thing in zip(options, things, strict=False)]
        questions = [f"What does {people[0]} like?", f"{people[1]} likes _ ."]
        (path / subset).mkdir(parents=True, exist_ok=True)
        found = {"article": article, "questions": questions, "options": options, "answers": answers}
        text = json.dumps({"id": f"{subset}{at}.txt", **found})
        (path / subset / f"{at}.txt").write_text(text, encoding="utf-8")


def _ranking(path: Path, draw: random.Random, count: int) -> None:
    lines = []
    for query in range(count // 4):
        (town, *towns), (thing, *things) = draw.sample(TOWNS, 3), draw.sample(THINGS, 3)
        documents = [(f"{thing} in {town}", 2), (f"{thing} in {towns[0]}", 1), (f"{things[0]} in {town}", 1)]
        documents.append((f"{things[1]} in {towns[1]}", 0))
        for document, grade in draw.sample(documents, 4):
            lines.append({"query_id": query, "query": f"{thing} {town}", "document": document, "grade": grade})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


KINDS: dict[str, tuple[str, Callable[[Path, random.Random, int], None]]] = {
    "sentiment": (".tsv", _sentiment),
    "acceptability": (".tsv", _acceptability),
    "entailment": (".tsv", _entailment),
    "similarity": (".tsv", _similarity),
    "polarity": (".zip", _polarity),
    "squad": (".json", _squad),
    "race": ("", _race),
    "ranking": (".jsonl", _ranking),
}
