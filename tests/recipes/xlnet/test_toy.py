"""The made-up labelled data is what its formats say, the same every time, and can be learnt."""

from pathlib import Path
from typing import Any

import pytest

from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.errors import UserError
from ebar.recipes.xlnet.toy import EXAMPLES, KINDS, toy_labelled

OPTIONS: dict[str, dict[str, Any]] = {
    "acceptability": {"text_column": 3, "label_column": 1},
    "similarity": {"task": "regression"},
    "squad": {"task": "span", "tokeniser": "characters", "length": 150},
    "race": {"task": "choice"},
    "ranking": {"task": "ranking"},
}


def corpus(name: str, folder: Path) -> LabelledCorpus:
    train, validation, test = (toy_labelled(name, part, folder) for part in EXAMPLES)
    return LabelledData(train=train, validation=validation, test=test, **OPTIONS.get(name, {})).read()


@pytest.mark.parametrize("name", KINDS)
def test_each_is_read_in_its_format_and_is_the_same_every_time(name: str, tmp_path: Path) -> None:
    one, other = corpus(name, tmp_path / "one"), corpus(name, tmp_path / "other")
    assert {part: len(own) for part, own in one.written.items()} == EXAMPLES
    for part in EXAMPLES:
        assert [own._replace(where="") for own in one.written[part]] == [
            own._replace(where="") for own in other.written[part]
        ]
    assert [own.text for own in one.written["train"]][:24] != [own.text for own in one.written["test"]]


def test_what_is_asked_can_be_told_from_the_text(tmp_path: Path) -> None:
    questions = corpus("squad", tmp_path)
    for row, (first, last) in enumerate(questions.test.labels.tolist()):
        example = questions.written["test"][int(questions.test.group[row])]
        name = (example.pair or "").split()[2]
        assert bool(example.answers) == (name in example.text)
        found = questions.answer("test", row, first, last)
        assert found == (example.answers[0].text if example.answers else "")
    choices = corpus("race", tmp_path)
    assert {own.subset for own in choices.written["test"]} == {"middle", "high"}
    for own in choices.written["test"]:
        assert isinstance(own.label, int)
        assert f"likes {own.options[own.label]}." in own.text
    for own in corpus("similarity", tmp_path).written["test"]:
        same = [a == b for a, b in zip(own.text.split(), (own.pair or "").split(), strict=True)]
        assert sum(same) == own.label


def test_an_unknown_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no made-up labelled data called 'glue'"):
        toy_labelled("glue", "train", tmp_path)
