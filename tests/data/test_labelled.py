"""Labelled data in every format, read as examples; and what is said of bad ones."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ebar
from ebar.config.reader import Manual, read, read_file, to_yaml
from ebar.data.labelled import Answer, Example, LabelledData
from ebar.errors import UserError


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def json_lines(path: Path, *rows: Any) -> Path:
    return write(path, *(json.dumps(row) for row in rows))


def examples(path: Path, **options: Any) -> list[Example]:
    """All examples of one file, nothing held out of them."""
    return LabelledData(train=path, validation=path, test=path, **options).examples()["train"]


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        LabelledData(train=path, validation=path, test=path, **options).read()
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


SQUAD_PASSAGE = "Anna lives in Rome. Ben lives in Oslo."
QUESTIONS: list[dict[str, Any]] = [
    {"id": "a", "question": "Where is Ben?", "answers": [{"text": "Oslo", "answer_start": 33}]},
    {"id": "b", "question": "Where is Carl?", "is_impossible": True, "answers": [],
     "plausible_answers": [{"text": "Rome", "answer_start": 14}]},
]  # fmt: skip


def squad(path: Path, questions: list[dict[str, Any]] = QUESTIONS) -> Path:
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": SQUAD_PASSAGE, "qas": questions}]}]}))
    return path


def race(folder: Path, answers: str = "BA") -> Path:
    found = {
        "article": "Anna likes tea.", "questions": ["What does Anna like?", "Anna likes _ ."],
        "options": [["rain", "tea"], ["tea", "rain"]], "answers": list(answers), "id": "high1.txt",
    }  # fmt: skip
    write(folder / "high" / "1.txt", json.dumps(found))
    return folder


def test_a_table_with_a_header_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "index\tsentence1\tsentence2\tlabel", '0\t"quoted" one\ttwo\tyes', "1\ta\tb\tno")
    found = examples(path)
    assert [(one.text, one.pair, one.label) for one in found] == [('"quoted" one', "two", "yes"), ("a", "b", "no")]
    assert found[1].where == f"{path}, line 3"


def test_a_table_without_a_header_is_read_by_the_places_of_its_columns(tmp_path: Path) -> None:
    single = write(tmp_path / "a.tsv", "a film\tgood", "a play\tbad", "")
    assert [(one.text, one.pair, one.label) for one in examples(single)] == [
        ("a film", None, "good"),
        ("a play", None, "bad"),
    ]
    pair = write(tmp_path / "b.tsv", "a\tb\t1.5", "c\td\t2")
    assert [(one.pair, one.label) for one in examples(pair, task="regression")] == [("b", 1.5), ("d", 2.0)]
    cola = write(tmp_path / "c.tsv", "x\t1\t\tgood one", "x\t0\t*\tone good")
    assert [(one.text, one.label) for one in examples(cola, text_column=3, label_column="1")] == [
        ("good one", "1"), ("one good", "0"),
    ]  # fmt: skip


def test_a_first_line_that_may_name_the_columns_is_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "words\tverdict", "a\tgood", "b\tbad", "c\tgood", "d\tbad")
    assert "no other line has the label 'verdict': say by data.header" in refusal(path)
    assert len(examples(path, header=True, text_column=0, label_column=1)) == 4
    assert len(examples(path, text_column="words", label_column="verdict")) == 4
    assert len(examples(path, header=False)) == 5


def test_json_lines_have_numbers_and_truth_values_for_classes_too(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "a.jsonl", {"text": "x", "label": 10}, {"text": "y", "label": 2})
    corpus = LabelledData(train=path, validation=path, test=path).read()
    assert corpus.names == ("2", "10")  # in the order of numbers
    assert corpus.train.labels.tolist() == [1, 0]
    path = json_lines(tmp_path / "b.jsonl", {"text": "x", "label": True}, {"text": "y", "label": False})
    assert [one.label for one in examples(path)] == ["true", "false"]


def test_a_dotted_name_is_a_column_within_a_column(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "a.jsonl", {"body": {"text": "x"}, "label": 1}, {"body": {"text": "y"}, "label": 0})
    assert [one.text for one in examples(path, text_column="body.text")] == ["x", "y"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_has_a_folder_or_a_file_for_each_class(tmp_path: Path, packed: bool) -> None:
    folders, files = tmp_path / "folders" / "reviews", tmp_path / "files" / "polarity"
    for label in ("pos", "neg"):
        for number in (1, 2):
            write(folders / label / f"{number}.txt", f"{label} {number}", "and more")
        write(files / f"rt-polarity.{label}", f"{label} 1", "", f"{label} 2")
    write(files / "README.txt", "not to be read")
    places = [folders.parent, files.parent]
    if packed:
        for place in places:
            with zipfile.ZipFile(place.with_suffix(".zip"), "w") as archive:
                for file in sorted(place.rglob("*.*")):
                    archive.write(file, str(file.relative_to(place)))
        places = [place.with_suffix(".zip") for place in places]
    found = examples(places[0])
    assert [one.label for one in found] == ["neg", "neg", "pos", "pos"]
    assert found[0].text == "neg 1\nand more"
    found = examples(places[1])
    assert [(one.label, one.text) for one in found] == [
        ("neg", "neg 1"), ("neg", "neg 2"), ("pos", "pos 1"), ("pos", "pos 2"),
    ]  # fmt: skip
    assert found[1].where.endswith("rt-polarity.neg, line 3")


def test_classes_that_are_named_are_the_only_ones_of_a_folder(tmp_path: Path) -> None:
    for label in ("neg", "pos", "unsup"):
        write(tmp_path / label / "1.txt", label)
    corpus = LabelledData(train=tmp_path, validation=tmp_path, test=tmp_path, classes=("pos", "neg")).read()
    assert corpus.names == ("pos", "neg")
    assert corpus.train.labels.tolist() == [0, 1]


def test_squad_has_answers_and_questions_without_one(tmp_path: Path) -> None:
    found = examples(squad(tmp_path / "a.json"), task="span")
    assert found[0].answers == (Answer("Oslo", 33),)
    assert found[1].answers == ()
    assert [one.identity for one in found] == ["a", "b"]
    said = [{**QUESTIONS[0], "is_impossible": True}]
    assert examples(squad(tmp_path / "b.json", said), task="span")[0].answers == ()
    answers = {"text": ["Rome", "in Rome"], "answer_start": [14, 11]}
    flat = json_lines(tmp_path / "a.jsonl", {"context": SQUAD_PASSAGE, "question": "Where?", "answers": answers})
    assert examples(flat, task="span")[0].answers == (Answer("Rome", 14), Answer("in Rome", 11))


def test_race_has_a_file_for_each_passage(tmp_path: Path) -> None:
    found = examples(race(tmp_path / "train"), task="choice")
    assert [(one.pair, one.options, one.label, one.subset) for one in found] == [
        ("What does Anna like?", ("rain", "tea"), 1, "high"), ("Anna likes _ .", ("tea", "rain"), 0, "high"),
    ]  # fmt: skip
    flat = json_lines(
        tmp_path / "a.jsonl",
        {"passage": "p", "question": "q", "options": ["x", "y"], "answer": "y", "id": "middle7"},
        {"passage": "p", "question": "q", "options": ["x", "y"], "answer": 0},
    )
    assert [(one.label, one.subset) for one in examples(flat, task="choice")] == [(1, "middle"), (0, "")]


def test_documents_of_one_query_are_a_group(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": f"d{at}", "grade": at} for at in range(2)]
    path = json_lines(tmp_path / "a.jsonl", *rows, {"query": "other", "document": "d", "grade": 0.5})
    corpus = LabelledData(train=path, validation=path, test=path, task="ranking").read()
    assert corpus.train.group.tolist() == [0, 0, 1]
    assert corpus.train.labels.tolist() == [0.0, 1.0, 0.5]
    assert examples(path, task="ranking", group_column="document")[0].unit == "d0"


def test_a_data_set_is_read_by_its_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"sentence": [f"text {at}" for at in range(40)], "label": [at % 2 for at in range(40)]}
    split = datasets.Dataset.from_dict(rows)
    datasets.DatasetDict({"train": split, "dev": split.select(range(6))}).save_to_disk(str(tmp_path / "set"))
    corpus = ebar.read_labelled(dataset=str(tmp_path / "set"), dataset_validation="dev", dataset_test=None)
    assert {part: len(own.labels) for part, own in corpus.parts.items()} == {"train": 36, "validation": 6, "test": 4}
    assert corpus.names == ("0", "1")
    with pytest.raises(UserError, match="has no split 'test'"):
        ebar.read_labelled(dataset=str(tmp_path / "set"), dataset_validation="dev")


BAD: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "a label nobody declared": (
        lambda folder: write(folder / "a.tsv", "a\tgood", "b\tbad", "c\tugly"),
        {"classes": ("good", "bad")},
        "a.tsv, line 3: the label 'ugly' is none of the classes good, bad: correct it, or declare it in data.classes.",
    ),
    "a span outside its text": (
        lambda folder: squad(folder / "a.json", [{**QUESTIONS[0], "answers": [{"text": "Oslo", "answer_start": 35}]}]),
        {"task": "span"},
        "a.json, question 'a': the answer 'Oslo' at characters 35 to 38 is outside its text, which has 38.",
    ),
    "a span of other characters": (
        lambda folder: squad(folder / "a.json", [{**QUESTIONS[0], "answers": [{"text": "Oslo", "answer_start": 14}]}]),
        {"task": "span"},
        "a.json, question 'a': at character 14 the text has 'Rome', not the answer 'Oslo'.",
    ),
    "answers of another form": (
        lambda folder: squad(folder / "a.json", [{**QUESTIONS[0], "answers": ["Oslo"]}]),
        {"task": "span"},
        "a.json, question 'a': the answers are not written as in SQuAD",
    ),
    "a text longer than the positions": (
        lambda folder: write(folder / "a.tsv", "a b\t1", "a b c d e\t0"),
        {"length": 6, "too_long": "error"},
        "a.tsv, line 2: 7 tokens are more than the 6 allowed, special ones counted: give a larger data.length",
    ),
    "a question longer than the positions": (
        lambda folder: squad(folder / "a.json"),
        {"task": "span", "length": 6},
        "a.json, question 'a': 7 tokens are more than the 6 allowed, special ones counted: give a larger data.length.",
    ),
    "no such column": (
        lambda folder: json_lines(folder / "a.jsonl", {"text": "x", "label": 1}, {"text": "y"}),
        {},
        "a.jsonl, line 2 has no column 'label': its columns are text.",
    ),
    "columns nobody can guess": (
        lambda folder: json_lines(folder / "a.jsonl", {"x": "x", "y": 1}),
        {},
        "a.jsonl, line 1: which columns of x, y are meant cannot be guessed for classification: give data.text_column",
    ),
    "a line with too few columns": (
        lambda folder: write(folder / "a.tsv", "text\tlabel", "a\t1", "b"),
        {},
        "a.tsv, line 3 has 1 columns where the first line has 2.",
    ),
    "an empty file": (lambda folder: write(folder / "a.tsv"), {}, "a.tsv is empty"),
    "a header alone": (lambda folder: write(folder / "a.tsv", "text\tlabel"), {}, "a.tsv has no example"),
    "no file": (lambda folder: folder / "a.tsv", {}, "There is no file"),
    "no folder": (lambda folder: folder / "a.zip", {}, "There is no folder or archive"),
    "no archive": (lambda folder: write(folder / "a.zip", "x"), {}, "neither a folder nor a zip archive"),
    "a folder of one class": (
        lambda folder: write(folder / "pos" / "1.txt", "x").parent.parent,
        {},
        "has not a folder or a file for each of two classes or more",
    ),
    "an answer that is no option": (
        lambda folder: race(folder, "BC"),
        {"task": "choice"},
        "1.txt, question 2: the answer 'C' is none of the 2 options of its question.",
    ),
    "questions without answers": (
        lambda folder: race(folder, "B"), {"task": "choice"}, "1.txt is not written as RACE is",
    ),
    "options that are no list": (
        lambda folder: json_lines(folder / "a.jsonl", {"passage": "p", "question": "q", "options": "ab", "answer": 0}),
        {"task": "choice"},
        "a.jsonl, line 1: the options of a question are a list of two texts or more, not 'ab'.",
    ),
    "a grade that is no number": (
        lambda folder: write(folder / "a.tsv", "query\tdocument\tgrade", "q\td\tgood"),
        {"task": "ranking"},
        "a.tsv, line 2: 'good' in the column 'grade' is no number.",
    ),
    "a number that is not finite": (
        lambda folder: json_lines(folder / "a.jsonl", {"text": "x", "score": "nan"}),
        {"task": "regression"},
        "a.jsonl, line 1: 'nan' in the column 'score' is no number.",
    ),
    "JSON that cannot be read": (
        lambda folder: write(folder / "a.jsonl", '{"text": "x", "label": 1}', '{"text": '),
        {},
        "a.jsonl, line 2 is no JSON that can be read",
    ),
    "JSON that is no object": (lambda folder: write(folder / "a.jsonl", "[1]"), {}, "a.jsonl, line 1 holds list"),
    "SQuAD that is none": (lambda folder: write(folder / "a.json", "{}"), {"task": "span"}, "it lacks 'data'"),
    "a class without a name": (
        lambda folder: write(folder / "a.tsv", "text\tlabel", "a\t "), {},
        "a.tsv, line 2: ' ' in the column 'label' names no class",
    ),
    "text that is none": (
        lambda folder: json_lines(folder / "a.jsonl", {"text": 3, "label": 1}), {}, "'text' holds int, no text",
    ),
    "labels in the wrong column": (
        lambda folder: write(folder / "a.tsv", *(f"{at % 2}\ttext {at}" for at in range(30))), {"header": False},
        "has another label on every line, such as 'text 0': say which column has the labels by data.label_column.",
    ),
    "a file of no known kind": (lambda folder: write(folder / "a.csv", "x"), {}, "give data.format"),
    "a limit of nothing": (
        lambda folder: write(folder / "a.tsv", "a\t1"), {"limit": 0}, "data.limit must be 1 or more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_sentence_with_its_file_and_line(name: str, tmp_path: Path) -> None:
    make, options, expected = BAD[name]
    assert expected in refusal(make(tmp_path), **options)


def test_a_label_that_only_the_validation_file_has_is_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "a\tgood", "b\tbad")
    held_out = write(tmp_path / "held.tsv", "a\tgood", "b\tugly")
    with pytest.raises(UserError, match=r"held.tsv, line 2: the label 'ugly' is none of the classes bad, good"):
        ebar.read_labelled(train, validation=held_out, test=train)


@dataclass(frozen=True, kw_only=True)
class Config:
    data: LabelledData = field(default_factory=LabelledData)


def test_it_is_a_group_of_options_on_the_command_line_and_in_yaml(tmp_path: Path) -> None:
    manual = Manual(command="finetune")
    words = ["--data.train", "/x.tsv", "--data.task", "regression", "--data.text_column", "3", "--data.limit", "5",
             "--data.classes", "[b, a]", "--data.dataset_test", "null"]  # fmt: skip
    config = read(words, manual, Config)
    assert config.data == LabelledData(
        train=Path("/x.tsv"), task="regression", text_column=3, limit=5, classes=("b", "a"), dataset_test=None
    )
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert read_file(tmp_path / "config.yaml", manual, Config) == config
    with pytest.raises(UserError, match=r"data.validation_share must be between 0 and 1"):
        read([*words, "--data.validation_share", "2"], manual, Config)


def test_it_knows_where_it_came_from(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\t1", "b\t0")
    origin = ebar.read_labelled(path, validation=str(path), test=path, classes=["1", "0"]).origin
    assert origin is not None
    assert (origin["kind"], origin["train"], origin["classes"]) == ("labelled", path, ("1", "0"))
