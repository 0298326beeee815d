import math

import pytest

from ebar.errors import UserError
from ebar.evaluation.dialogue import answer_bleu


def test_precision_and_recall_worked_out_by_hand():
    # BLEU-1 against references "a b c d" and "e f": "a b" has 2/2 of the first, shorter by 4/2: e^(1 − 2); none of the
    # second. "e f" is the second. "a e" has 1/2 of each: ½·e⁻¹ and ½. Best matches of the answers: e⁻¹, 1, ½; of the
    # references: e⁻¹ and 1.
    found = answer_bleu([["a b", "e f", "a e"]], [["a b c d", "e f"]], orders=[1])
    assert found[1].precision.value == pytest.approx(100 * (math.exp(-1) + 1 + 0.5) / 3)
    assert found[1].recall.value == pytest.approx(100 * (math.exp(-1) + 1) / 2)


def test_bigrams_and_their_smoothing_worked_out_by_hand():
    # "a b x" against "a b c": 2/3 words, 1/2 pairs: BLEU-2 = √(1/3). "a x b": 2/3 words and no pair, which counts as
    # ½ of 2: √(2/3·1/4). A word alone has no pair: BLEU-2 is BLEU-1, shorter by 3/1.
    for answer, expected in (("a b x", math.sqrt(1 / 3)), ("a x b", math.sqrt(1 / 6)), ("c", math.exp(-2))):
        found = answer_bleu([[answer]], [["a b c"]], orders=[2])[2]
        assert found.precision.value == pytest.approx(100 * expected)
        assert found.recall.value == found.precision.value


def test_answers_of_several_lengths_each_have_their_own_totals():
    # Against "a b": "a" is shorter by 2/1, "a b c" has 2 of 3, "x a b y" 2 of 4; against "y": none, none, 1 of 4.
    found = answer_bleu([["a", "a b c", "x a b y"]], [["y", "a b"]], orders=[1])[1]
    assert found.precision.value == pytest.approx(100 * (math.exp(-1) + 2 / 3 + 1 / 2) / 3)
    assert found.recall.value == pytest.approx(100 * (2 / 3 + 1 / 4) / 2)


def test_a_word_counts_at_most_as_often_as_the_reference_has_it():
    assert answer_bleu([["a a a a"]], [["a b c d"]], orders=[1])[1].precision.value == pytest.approx(25)


def test_one_safe_answer_has_precision_and_no_recall():
    answers, references = [["a b c"] * 3] * 2, [["a b c", "d e f"], ["a b c", "g h i"]]
    found = answer_bleu(answers, references)
    for order in (1, 2, 3, 4):
        assert found[order].precision.value == pytest.approx(100)
        assert found[order].recall.value == pytest.approx(50)


def test_the_interval_is_over_contexts():
    # Contexts of 100 and 0, 40 times over: mean 50 and a standard error of 50/√79.
    found = answer_bleu([["a"], ["b"]] * 40, [["a"], ["a"]] * 40, orders=[1])[1].precision
    assert found.value == pytest.approx(50)
    assert 35 < found.low < 41 < 59 < found.high < 65


def test_scores_are_those_of_sacrebleu():
    sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra metrics")
    pairs = [("the cat sat on a mat", "the cat is on the mat"), ("yes", "yes I do"), ("so so so", "it is so so nice")]
    for answer, reference in pairs:
        metric = sacrebleu.metrics.bleu.BLEU(effective_order=True, tokenize="none")
        expected = metric.sentence_score(answer, [reference]).score
        assert answer_bleu([[answer]], [[reference]])[4].precision.value == pytest.approx(expected)


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="in pairs"):
        answer_bleu([["a"]], [])
    with pytest.raises(UserError, match="leave out"):
        answer_bleu([["a"], []], [["a"], ["b"]])
