"""distinct-n and self-BLEU: by hand, against sacreBLEU, and with references that are a subsample."""

import math

import numpy as np
import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.diversity import _scores, _table, distinct, items_of, self_bleu
from ebar.types import Sequences

ODD = ["the cat sat on the mat", "the cat is on the mat", "the the the", "a", "", "on the mat on the mat on", "a dog"]


def random_texts(rows: int, generator: Generator) -> list[str]:
    """1 to 14 words out of nine."""
    lengths = torch.randint(1, 15, (rows,), generator=generator).tolist()
    return [" ".join(f"w{int(word)}" for word in torch.randint(9, (n,), generator=generator)) for n in lengths]


def test_distinct_by_hand() -> None:
    # a b a b, a b c: 7 tokens; a, b, c; ab, ba, bc; aba, bab, abc.
    assert distinct(["a b a b", "a b c"], orders=[1, 2, 3]) == {1: 3 / 7, 2: 3 / 7, 3: 3 / 7}
    assert distinct(Sequences(torch.tensor([[1, 1, 9]]), torch.tensor([3])), orders=[1, 2], end=9) == {1: 0.5, 2: 0.5}
    with pytest.raises(UserError, match="no token"):
        distinct(["", " "])


def test_self_bleu_by_hand() -> None:
    # Each against the other: 5 of 6 words, 3 of 5 pairs, 1 of 4 triples, no 4-gram of 3 (smoothed to ½).
    found = self_bleu(ODD[:2])
    assert found.score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25)
    assert (found.references, found.left_out) == (1, 0)
    assert "2 texts are few" in str(found.score.warning)
    # "a b" against "a b c": all match, the brevity penalty is exp(1 − 3/2); back: 2/3 and 1/2, its triple ½ of 1.
    forth, back = 100 * math.exp(-0.5), 100 * (2 / 3 * 1 / 2 * 0.5) ** (1 / 3)
    assert self_bleu(["a b", "a b c"]).score.value == pytest.approx((forth + back) / 2)
    assert self_bleu(["a b c", "d e f"]).score.value == 0
    assert self_bleu(["x y z x y z"] * 3).score.value == pytest.approx(100)


@pytest.mark.parametrize("order", [2, 4, 5])
def test_each_score_is_sacrebleus(order: int, generator: Generator) -> None:
    bleu = pytest.importorskip("sacrebleu.metrics.bleu", reason="needs the extra metrics")
    metric = bleu.BLEU(tokenize="none", effective_order=True, max_ngram_order=order)
    for texts in (ODD, random_texts(25, generator)):
        expected = [metric.sentence_score(text, texts[:row] + texts[row + 1 :]).score for row, text in enumerate(texts)]
        read = items_of(texts)
        block = np.zeros(len(texts), dtype=np.int64)
        tables = [_table(read, block, n) for n in range(1, order + 1)]
        lengths = np.array([len(text) for text in read])
        found = _scores(tables, lengths, block, order, np.ones(len(texts), dtype=bool))
        assert found.tolist() == pytest.approx(expected, abs=1e-9)
        assert self_bleu(texts, order=order).score.value == pytest.approx(sum(expected) / len(texts), abs=1e-9)


def test_leaving_texts_out_is_scoring_the_others(generator: Generator) -> None:
    texts = random_texts(12, generator)
    read, block = items_of(texts), np.arange(12) // 4
    tables = [_table(read, block, n) for n in range(1, 5)]
    lengths = np.array([len(text) for text in read])
    kept = np.arange(12) != 5
    found = _scores(tables, lengths, block, 4, kept)
    parts = [texts[:4], [texts[4], *texts[6:8]], texts[8:]]
    expected = sum(self_bleu(part).score.value * len(part) for part in parts) / 11
    assert found.mean() == pytest.approx(expected)


def test_references_that_are_a_subsample(generator: Generator) -> None:
    texts = random_texts(47, generator)
    found = self_bleu(texts, references=4, seed=3)
    assert (found.references, found.left_out) == (4, 2)
    shuffled = torch.randperm(47, generator=Generator().manual_seed(3))[:45].tolist()
    blocks = [[texts[row] for row in shuffled[first : first + 5]] for first in range(0, 45, 5)]
    assert found.score.value == pytest.approx(sum(self_bleu(block).score.value for block in blocks) / 9)
    assert self_bleu(texts, references=4, seed=3) == found
    assert self_bleu(texts, references=4, seed=4).score.value != found.score.value
    # One block that is not all of the texts.
    assert self_bleu(texts, references=30).left_out == 16
    # More references, more alike.
    assert self_bleu(texts).score.value > found.score.value
    for wanted in (47, 0):
        with pytest.raises(UserError, match="cannot each be compared"):
            self_bleu(texts, references=wanted)
    with pytest.raises(UserError, match="give more texts"):
        self_bleu(["alone"])


@pytest.mark.parametrize("references", [None, 1])
def test_intervals_cover_the_mean_over_samples(references: int | None, generator: Generator) -> None:
    # 80 intervals of 95 %: at a true coverage of 95 % fewer than 69 would happen once in 1,600 runs; the seed is fixed.
    drawn = [self_bleu(random_texts(60, generator), references=references).score for _ in range(80)]
    truth = sum(each.value for each in drawn) / len(drawn)
    assert sum(each.low <= truth <= each.high for each in drawn) >= 69
    spread = 2 * 1.96 * float(torch.tensor([each.value for each in drawn]).std())
    assert 0.7 * spread < sorted(each.high - each.low for each in drawn)[40] < 2.5 * spread
