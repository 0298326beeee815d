"""Ratios of unique n-grams are counted as on paper; their intervals leave texts out exactly and cover."""

import math

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.diversity import Unique, items_of, ngrams, repeated_tokens, unique_difference, unique_ratios
from ebar.types import Context, Sequences

TEXTS = ["a b a b", "a b c", "d"]


def one(texts: list[str], n: int, **options: int) -> Unique:
    return unique_ratios({"s": texts}, orders=[n], **options)["s"][n]


def test_by_hand() -> None:
    # Words: a b a b, a b c, d: 8, of which a, b, c, d are different; within: 2/4, 3/3, 1/1.
    found = one(TEXTS, 1)
    assert (found.distinct, found.total, found.too_short) == (4, 8, 0)
    assert found.pooled.value == 0.5
    assert found.within.value == pytest.approx((0.5 + 1 + 1) / 3)
    # Pairs: ab ba ab, ab bc: 5, of which ab, ba, bc; within: 2/3, 2/2; d has none.
    found = one(TEXTS, 2)
    assert (found.distinct, found.total, found.too_short) == (3, 5, 1)
    assert found.pooled.value == 0.6
    assert found.within.value == pytest.approx((2 / 3 + 1) / 2)
    assert ngrams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]


def test_the_interval_by_hand() -> None:
    # 36 words, 9 of them different. Without an "a b c" 9/33 are, without one of the others 8/33: ±½/33 around the mean,
    # and the variance is 11/12·12·(½/33)². Student's quantile for 11 degrees of freedom is 2.201.
    found = one(["a b c"] * 6 + [f"a b {number}" for number in range(6)], 1)
    width = 2.200985 * math.sqrt(11) * 0.5 / 33
    assert found.pooled[:3] == pytest.approx((0.25, 0.25 - width, 0.25 + width), abs=1e-6)
    assert found.pooled.effective_sample_size == 12
    assert "12 contexts are few" in str(found.pooled.warning)
    # Each text's own ratio is 1, whichever is left out.
    assert found.within[:3] == (1.0, 1.0, 1.0)
    # Two texts to a context, one of either kind: without a context 8/30, always; nothing varies.
    both = one([text for number in range(6) for text in ("a b c", f"a b {number}")], 1, per_context=2)
    assert both.pooled[:3] == pytest.approx((0.25, 0.25, 0.25))
    assert both.pooled.effective_sample_size == 6


def random_texts(rows: int, generator: Generator, length: int = 12) -> Sequences:
    """Zipfian words."""
    chances = 1 / torch.arange(1.0, 201)
    tokens = torch.multinomial(chances, rows * length, replacement=True, generator=generator).view(rows, length)
    return Sequences(tokens, torch.full((rows,), length))


def test_leaving_out_is_counting_again(generator: Generator) -> None:
    x = random_texts(40, generator)
    from ebar.evaluation.diversity import _counted, _pooled

    for n, per_context in ((1, 1), (2, 1), (1, 4), (2, 4)):
        texts = items_of(x)
        value, fall = _pooled(_counted(texts, n, per_context))
        for group in range(40 // per_context):
            rest = texts[: group * per_context] + texts[(group + 1) * per_context :]
            grams = [gram for text in rest for gram in ngrams(text, n)]
            assert value + float(fall[group]) == pytest.approx(len(set(grams)) / len(grams), abs=1e-12)


def test_intervals_cover_the_mean_over_samples(generator: Generator) -> None:
    # The truth, the mean ratio of 60 texts, is that of the samples themselves; 100 intervals of 95 %.
    # At a true coverage of 95 % fewer than 87 would happen once in 2,000 runs; the seed is fixed.
    def pooled() -> tuple[float, float, float]:
        found = unique_ratios({"s": random_texts(60, generator)}, orders=[2])["s"][2].pooled
        return found.value, found.low, found.high

    drawn = [pooled() for _ in range(100)]
    truth = sum(value for value, _, _ in drawn) / len(drawn)
    covered = sum(low <= truth <= high for _, low, high in drawn)
    assert covered >= 87
    widths = sorted(high - low for _, low, high in drawn)
    spread = 2 * 1.96 * float(torch.tensor([value for value, _, _ in drawn]).std())
    assert 0.8 * spread < widths[50] < 2 * spread


def test_tokens_words_and_ends() -> None:
    x = Sequences(torch.tensor([[5, 6, 5, 9], [5, 9, 0, 0]]), torch.tensor([4, 2]))
    assert items_of(x) == [[5, 6, 5, 9], [5, 9]]
    assert items_of(x, end=9) == [[5, 6, 5], [5]]
    assert items_of(["to be  or\nnot"]) == [["to", "be", "or", "not"]]
    assert items_of([[1, 2], (3,)]) == [[1, 2], [3]]
    found = unique_ratios({"s": x}, orders=[1], end=9)["s"][1]
    assert (found.distinct, found.total) == (2, 4)
    with pytest.raises(TypeError, match=r"give \[text\]"):
        items_of("a text")


def test_what_has_been_there_before_by_hand() -> None:
    # After "1 2": 2 is in the prefix, 3 is new and then not. The second prefix is shorter, and its text ends early.
    x = Sequences(torch.tensor([[2, 3, 3], [4, 1, 7]]), torch.tensor([3, 2]))
    context = Context(Sequences(torch.tensor([[1, 2], [4, 7]]), torch.tensor([2, 1])))
    assert repeated_tokens(x, context).tolist() == [[True, False, True], [True, False, False]]
    assert repeated_tokens(x).tolist() == [[False, False, True], [False, False, False]]
    # One prefix for two texts.
    assert repeated_tokens(x, context.select(torch.tensor([1]))).tolist() == [
        [False, False, True],
        [True, False, False],
    ]
    with pytest.raises(UserError, match="without an order"):
        repeated_tokens(x, context._replace(order=torch.zeros(2, 5, dtype=torch.long)))


def test_systems_need_as_many_texts() -> None:
    with pytest.raises(UserError, match=r"as many \(q 3, joint 2\)"):
        unique_ratios({"q": TEXTS, "joint": TEXTS[:2]})
    with pytest.raises(UserError, match="not 2 for each"):
        unique_ratios({"q": TEXTS}, per_context=2)
    with pytest.raises(UserError, match="not 1 for each"):
        unique_ratios({"q": []})
    with pytest.raises(UserError, match="None of the 3 texts has 5 tokens"):
        unique_ratios({"q": TEXTS}, orders=[5])
    longer = unique_ratios({"q": TEXTS, "joint": ["a b c d e f g h i"] * 3}, orders=[1])
    assert "between 8 and 27 1-grams" in str(longer["q"][1].pooled.warning)
    assert "grams" not in str(longer["q"][1].within.warning)


def test_differences_are_paired(generator: Generator) -> None:
    x = random_texts(80, generator)
    nothing = unique_difference(x, x, 2)
    assert (nothing.value, nothing.low, nothing.high) == (0.0, 0.0, 0.0)
    other = Sequences(x.tokens.clone(), x.lengths)
    other.tokens[:20, :6] = 0
    found = unique_difference(x, other, 1)
    both = unique_ratios({"x": x, "other": other}, orders=[1])
    assert found.value == pytest.approx(both["x"][1].pooled.value - both["other"][1].pooled.value)
    assert 0 < found.high - found.low < both["x"][1].pooled.high - both["x"][1].pooled.low
    again = unique_difference(other, x, 1)
    assert (again.value, again.low, again.high) == pytest.approx((-found.value, -found.high, -found.low))
