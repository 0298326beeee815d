"""Which examples are held out and which are used: the same whatever the run's seed, by class, by query and passage."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebar.data.labelled import Example, LabelledData
from ebar.data.labelled.parts import held_out_limit, hold_out, limit
from ebar.errors import UserError


def classified(**sizes: int) -> list[Example]:
    labels = [label for label, size in sizes.items() for _ in range(size)]
    return [Example(str(at), f"text {at}", label=label, unit=str(at)) for at, label in enumerate(labels)]


def labels(examples: list[Example]) -> dict[str, int]:
    return dict(Counter(str(one.label) for one in examples))


def test_classes_are_held_out_in_proportion() -> None:
    examples = classified(a=60, b=30, c=10)
    found = hold_out(examples, "classification", {"test": 0.2, "validation": 0.1}, 0, "x")
    assert labels(found["test"]) == {"a": 12, "b": 6, "c": 2}
    assert labels(found["validation"]) == {"a": 6, "b": 3, "c": 1}
    assert sorted(one.unit for own in found.values() for one in own) == sorted(one.unit for one in examples)


def test_what_does_not_come_out_even_goes_to_the_largest_remainders() -> None:
    # 5 of 15: 2⅓, 1⅔ and 1.
    found = hold_out(classified(a=7, b=5, c=3), "classification", {"test": 1 / 3}, 0, "x")
    assert labels(found["test"]) == {"a": 2, "b": 2, "c": 1}


@given(a=st.integers(1, 20), b=st.integers(0, 20), share=st.floats(0.01, 0.4), seed=st.integers(0, 5))
def test_every_example_is_in_one_part(a: int, b: int, share: float, seed: int) -> None:
    examples = classified(a=a + 9, b=b)
    found = hold_out(examples, "classification", {"test": share, "validation": share}, seed, "x")
    assert sorted(one.unit for own in found.values() for one in own) == sorted(one.unit for one in examples)
    assert len(found["test"]) == max(1, round(share * len(examples)))
    for label in "ab":  # within one of its share
        own = labels(found["test"]).get(label, 0)
        assert abs(own - len(found["test"]) * labels(examples).get(label, 0) / len(examples)) < 1


def test_documents_of_a_query_stay_together() -> None:
    examples = [Example(str(at), f"q{at % 10}", "d", label=1.0, unit=f"q{at % 10}") for at in range(40)]
    found = hold_out(examples, "ranking", {"test": 0.2}, 0, "x")
    queries = {part: {one.unit for one in own} for part, own in found.items()}
    assert len(queries["test"]) == 2
    assert not queries["test"] & queries["train"]
    assert len(limit(examples, "ranking", 3, 0)) == 12
    assert len(held_out_limit(examples, "ranking", 2)) == 8


def test_questions_about_a_passage_are_held_out_together_and_limited_one_by_one() -> None:
    examples = [Example(str(at), f"p{at % 10}", "q", unit=f"p{at % 10}") for at in range(40)]
    found = hold_out(examples, "span", {"test": 0.2}, 0, "x")
    assert not {one.unit for one in found["test"]} & {one.unit for one in found["train"]}
    assert len(limit(examples, "span", 7, 0)) == 7


def test_a_limit_takes_as_many_of_each_class_as_can_be() -> None:
    examples = classified(a=50, b=30, c=4)
    assert labels(limit(examples, "classification", 30, 0)) == {"a": 13, "b": 13, "c": 4}
    assert labels(limit(examples, "classification", 9, 0)) == {"a": 3, "b": 3, "c": 3}
    assert limit(examples, "classification", 84, 0) == examples
    fewer, more = (set(limit(examples, "classification", most, 3)) for most in (10, 25))
    assert fewer < more
    assert set(limit(examples, "classification", 10, 4)) != fewer


def test_the_run_s_seed_draws_what_is_used_and_nothing_that_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"text {at}\t{at % 2}\n" for at in range(100)))
    one, other = (LabelledData(train=path, limit=20, header=False).examples(seed) for seed in (0, 1))
    assert one["train"] != other["train"]
    assert (one["validation"], one["test"]) == (other["validation"], other["test"])
    assert LabelledData(train=path, split_seed=1).examples()["test"] != one["test"]
    assert [len(own) for own in LabelledData(train=path).examples().values()] == [80, 10, 10]
    assert not set(one["train"]) & set(one["test"])


def test_a_class_that_the_limit_leaves_out_is_still_a_class(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"text {at}\t{at % 3}\n" for at in range(60)))
    corpus = LabelledData(train=path, limit=2).read()
    assert corpus.names == ("0", "1", "2")
    assert len(corpus.train.labels) == 2


def test_parts_without_files_and_without_shares(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"text {at}\t{at % 2}\n" for at in range(40)))
    found = LabelledData(train=path, test_share=0.0).examples()
    assert found["test"] == found["validation"]
    assert len(found["train"]) == 36
    assert len(LabelledData(train=path, held_out_limit=2, validation=path).examples()["validation"]) == 2
    with pytest.raises(UserError, match="There are no validation examples"):
        LabelledData(train=path, validation_share=0.0).examples()
    path.write_text("a\t1\nb\t0\n")
    with pytest.raises(UserError, match="has too few examples"):
        LabelledData(train=path).examples()


REVIEWS = Path(os.environ.get("EBAR_DATA", "nowhere")) / "pang-lee-reviews"


@pytest.mark.skipif(not REVIEWS.exists(), reason="EBAR_DATA has no pang-lee-reviews")
@pytest.mark.parametrize(
    ("name", "classes", "examples"),
    [("sentence_polarity", ("neg", "pos"), 10662), ("subjectivity", ("plot", "quote"), 10000),
     ("movie_reviews", ("neg", "pos"), 2000)],
)  # fmt: skip
def test_the_reviews_of_pang_and_lee(name: str, classes: tuple[str, str], examples: int) -> None:
    corpus = LabelledData(train=REVIEWS / f"{name}.zip", limit=100).read()
    assert corpus.names == classes
    assert corpus.train.labels.bincount().tolist() == [50, 50]
    held_out = corpus.test.labels.bincount().tolist()
    assert held_out == [round(examples / 20)] * 2 == corpus.validation.labels.bincount().tolist()
    assert int(corpus.train.inputs.lengths.max()) <= 128
