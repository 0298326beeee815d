import pytest

from ebar.errors import UserError
from ebar.evaluation.answers import answer_f1, answer_scores, exact_match, matches, normalised_answer, overlap
from ebar.maths.proportions import wilson


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The Eiffel-Tower!", "eiffeltower"), (" a  b\tan c ", "b c"), ("Another theatre", "another theatre"),
     ("the", ""), ("U.S.", "us"), ("«ça»", "«ça»")],
)  # fmt: skip
def test_answers_are_compared_without_case_punctuation_articles_and_blanks(text, expected):
    assert normalised_answer(text) == expected


@pytest.mark.parametrize(
    ("predicted", "gold", "exact", "f1"),
    [
        ("the Eiffel tower.", ["Eiffel Tower"], 1, 1),
        ("in Paris France", ["Paris"], 0, 0.5),  # 1 shared word: 2·1/(3 + 1)
        ("in Paris France", ["Rome", "Paris France"], 0, 0.8),  # the best of two: 2·2/(3 + 2)
        ("one one", ["one two one"], 0, 0.8),  # each word as often as in both: 2·2/5
        ("Oslo", ["Rome"], 0, 0),
        ("", [], 1, 1),  # unanswerable, and said to be
        ("Rome", [], 0, 0),
        ("the", [], 1, 1),  # nothing is left of it
        ("", ["Rome"], 0, 0),
    ],
)  # fmt: skip
def test_answers_by_hand(predicted, gold, exact, f1):
    assert matches(predicted, gold) == exact
    assert overlap(predicted, gold) == pytest.approx(f1)


def test_means_over_questions_and_by_answerability():
    predicted = ["Rome", "in Paris France", "", "Oslo"]
    gold = [["Rome"], ["Paris"], [], []]
    assert exact_match(predicted, gold).value == 0.5
    assert (exact_match(predicted, gold).low, exact_match(predicted, gold).high) == wilson(2.0, 4.0)
    found = answer_f1(predicted, gold)
    assert found.value == pytest.approx(2.5 / 4)
    assert 0 <= found.low < found.value < found.high <= 1
    scores = {name: own.value for name, own in answer_scores(predicted, gold).items()}
    assert scores == pytest.approx({
        "exact_match": 0.5, "f1": 0.625, "exact_match_answerable": 0.5, "f1_answerable": 0.75,
        "exact_match_unanswerable": 0.5, "f1_unanswerable": 0.5,
    })  # fmt: skip
    assert set(answer_scores(predicted[:2], gold[:2])) == {"exact_match", "f1"}


def test_one_answer_for_each_question():
    for function in (exact_match, answer_f1, answer_scores):
        with pytest.raises(UserError, match="give one for each"):
            function(["a"], [["a"], ["b"]])
