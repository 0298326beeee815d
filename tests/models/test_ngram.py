import math
from collections import Counter, defaultdict
from fractions import Fraction

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.evaluation.cross_entropy import stream_cost
from ebar.evaluation.rank import log_probability_matrix, numerical_rank, spaced_contexts
from ebar.models.ngram import NGram
from ebar.models.stepwise import token_log_probs
from ebar.testing.distributions import check_stepwise
from ebar.types import Context, Sequences, Space

TEXT = torch.tensor([0, 1, 0, 0, 1])
SPACE = Space(3, 3)


def random_text(length: int, vocabulary: int) -> Tensor:
    # Squares, so that some tokens are much more frequent than others.
    draws = torch.rand(length, generator=Generator().manual_seed(8))
    return (draws.square() * vocabulary).long()


def after(model: NGram, *history: int) -> list[float]:
    state = model.start(1)[1]
    return [float(own) for own in model.advance(torch.tensor([history]), state)[0][0, -1].exp()]


def test_a_bigram_worked_out_by_hand():
    # 01 twice, 10 and 00 once. Before 0 stand two different tokens, before 1 one: with D = ½ the unigrams are
    # 1.5/3 + ⅓·⅓ = 11/18, 0.5/3 + 1/9 = 5/18 and 1/9. After 0, seen 3 times with 2 different tokens, γ = 2·½/3 = ⅓:
    # P(0|0) = 0.5/3 + ⅓·11/18 = 20/54, P(1|0) = 1.5/3 + ⅓·5/18 = 32/54, P(2|0) = ⅓/9 = 2/54. After 1, seen once,
    # γ = ½: P(0|1) = ½ + ½·11/18 = 29/36, 5/36, 2/36. After 2, never seen, the unigrams.
    model = NGram.fit(TEXT, SPACE, order=2, discount=0.5)
    unigrams = [11 / 18, 5 / 18, 2 / 18]
    assert model.start(1)[0][0].exp().tolist() == pytest.approx(unigrams)
    assert after(model, 0) == pytest.approx([20 / 54, 32 / 54, 2 / 54])
    assert after(model, 1) == pytest.approx([29 / 36, 5 / 36, 2 / 36])
    assert after(model, 2) == pytest.approx(unigrams)
    x = Sequences(torch.tensor([[0, 1, 2]]), torch.tensor([3]))
    assert model.log_prob(x).exp().item() == pytest.approx(11 / 18 * 32 / 54 * 2 / 36)
    assert model.entries == 2 + 3


def test_a_unigram_counts_occurrences():
    # 0 three times of five, 1 twice; D = ½, two different tokens: γ = 1/5.
    model = NGram.fit(TEXT, SPACE, order=1, discount=0.5)
    assert model.start(1)[0][0].exp().tolist() == pytest.approx([0.5 + 1 / 15, 0.3 + 1 / 15, 1 / 15])


def reference(text: list[int], vocabulary: int, order: int, history: list[int], token: int) -> Fraction:
    """The definition, by counting anew, with exact fractions and D = ½."""

    def count(gram: tuple[int, ...]) -> int:
        n = len(gram)
        places = [start for start in range(len(text) - n + 1) if tuple(text[start : start + n]) == gram]
        if n == order:
            return len(places)
        return len({text[start - 1] for start in places if start > 0})

    found = Fraction(1, vocabulary)
    for n in range(1, order + 1):
        if n - 1 > len(history):
            break
        context = tuple(history[len(history) - n + 1 :])
        counts = [count((*context, own)) for own in range(vocabulary)]
        total = sum(counts)
        if total == 0:
            continue
        kept = max(Fraction(counts[token]) - Fraction(1, 2), Fraction(0))
        found = kept / total + Fraction(sum(own > 0 for own in counts), 2 * total) * found
    return found


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_every_order_agrees_with_the_definition(order):
    text = random_text(60, 4)
    model = NGram.fit(text, Space(4, 6), order=order, discount=0.5)
    for history in ([0], [3, 1], [0, 0, 1], [1, 0, 2, 0], [0, 1, 0, 0, 3]):
        expected = [float(reference(text.tolist(), 4, order, history, token)) for token in range(4)]
        assert after(model, *history) == pytest.approx(expected, rel=1e-12)


def test_discounts_are_those_of_chen_and_goodman():
    # Of a unigram text: counts of counts n₁ = 4, n₂ = 3, n₃ = 2, n₄ = 1: Y = 4/10, D₁ = 1 − 2·0.4·3/4 = 0.4,
    # D₂ = 2 − 3·0.4·2/3 = 1.2, D₃ = 3 − 4·0.4·1/2 = 2.2.
    counts = [1, 1, 1, 1, 2, 2, 2, 3, 3, 4]
    text = torch.arange(10).repeat_interleave(torch.tensor(counts))
    model = NGram.fit(text, Space(10, 4), order=1)
    taken = {1: 0.4, 2: 1.2, 3: 2.2, 4: 2.2}
    rest = sum(taken[count] for count in counts) / 20
    expected = [(count - taken[count]) / 20 + rest / 10 for count in counts]
    assert model.start(1)[0][0].exp().tolist() == pytest.approx(expected)


def test_it_is_a_stepwise_distribution():
    model = NGram.fit(random_text(300, 4), Space(4, 3), order=3)
    check_stepwise(model)
    context = Context(Sequences(torch.tensor([[0, 99, 99], [1, 0, 2]]), torch.tensor([1, 3])))
    check_stepwise(model, context)
    check_stepwise(model, Context(Sequences(torch.zeros(1, 0).long(), torch.zeros(1).long())))


def test_a_context_is_read_as_what_comes_before():
    model = NGram.fit(random_text(300, 4), Space(4, 3), order=3)
    context = Context(Sequences(torch.tensor([[2, 1, 99], [1, 0, 2], [0, 99, 99]]), torch.tensor([2, 3, 1])))
    logs = model.start(3, context)[0].exp()
    assert logs[2].tolist() == pytest.approx(after(model, 0))  # not as if a token stood before it
    assert after(model, 0) != pytest.approx(after(model, 0, 0))
    assert logs[0].tolist() == pytest.approx(after(model, 2, 1))
    assert logs[1].tolist() == pytest.approx(after(model, 0, 2))


def test_single_tokens_agree_with_whole_rows_and_rows_sum_to_1():
    model = NGram.fit(random_text(2000, 30), Space(30, 12), order=5)
    x = model.sample(40, generator=Generator().manual_seed(0))
    assert torch.allclose(model.token_log_probs(x), token_log_probs(model, x), atol=1e-12)
    rows = model.advance(x.tokens, model.start(40)[1])[0].exp().sum(-1)
    assert torch.allclose(rows, torch.ones_like(rows), rtol=0, atol=1e-12)
    short = Sequences(torch.tensor([[3, 1, 4, 99]]), torch.tensor([3]))
    assert model.token_log_probs(short)[0, 3] == 0
    assert model.log_prob(short).item() == -math.inf  # not as long as a window


def test_a_long_text_costs_less_by_longer_ngrams_and_the_rank_is_not_bounded():
    # Each token is the sum of the two before it, modulo 7, but for one in ten.
    generator = Generator().manual_seed(2)
    text = torch.randint(7, (4000,), generator=generator)
    noisy = torch.rand(4000, generator=generator) < 0.1
    for place in range(2, 4000):
        if not bool(noisy[place]):
            text[place] = (text[place - 1] + text[place - 2]) % 7
    costs = [
        stream_cost(NGram.fit(text[:3000], Space(7, 20), order=order), text[3000:], stride=10).total
        for order in (1, 2, 3)
    ]
    assert costs[2] < 0.6 * costs[1] < costs[0]
    model = NGram.fit(text, Space(7, 20), order=3)
    assert numerical_rank(log_probability_matrix(model, spaced_contexts(text, 60, 2))).rank == 7


def test_counts_are_those_of_a_counter():
    text = random_text(500, 6)
    model = NGram.fit(text, Space(6, 4), order=4, discount=0.5)
    sizes = [len(Counter(zip(*(text.tolist()[shift:] for shift in range(n)), strict=False))) for n in (1, 2, 3, 4)]
    assert model.entries == sum(sizes)
    followers: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for start in range(497):
        followers[tuple(text[start : start + 3].tolist())].add(int(text[start + 3]))
    level = model._level(4)
    assert (level.offsets.diff() > 0).sum() == len(followers)


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="longer one"):
        NGram.fit(TEXT, SPACE, order=6)
    with pytest.raises(UserError, match="discount"):
        NGram.fit(TEXT, SPACE, discount=1.0)
    with pytest.raises(UserError, match="outside the vocabulary"):
        NGram.fit(TEXT, Space(1, 3), order=2)
    with pytest.raises(ValueError, match="no end"):
        NGram.fit(TEXT, Space(3, 3, end=2), order=2)
