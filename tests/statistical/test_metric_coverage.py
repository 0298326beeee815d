"""Intervals of metrics cover the truth as often as they say.

REPEATS data sets are drawn and each interval either covers or does not. An interval whose coverage is 0.93 or more
(nominal 0.95, at these small sizes) falls below the bound, 4.5 standard deviations lower, once in 300,000 runs; one
whose coverage is 0.97 or less covers every time once in 200,000 runs.
"""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator

from ebar.evaluation.answers import answer_f1
from ebar.evaluation.correlation import matthews_correlation, pearson_correlation, spearman_correlation
from ebar.evaluation.retrieval import expected_reciprocal_rank, ndcg
from ebar.types import Estimate

REPEATS = 400
LEAST = 0.93 * REPEATS - 4.5 * math.sqrt(REPEATS * 0.93 * 0.07)
CORRELATION = 0.7
Draw = Callable[[Generator], Estimate]


def normal(generator: Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x, noise = torch.randn(2, 60, generator=generator, dtype=torch.float64)
    return x, CORRELATION * x + math.sqrt(1 - CORRELATION**2) * noise


def pearson(generator: Generator) -> Estimate:
    return pearson_correlation(*normal(generator))


def pearson_of_skewed(generator: Generator) -> Estimate:
    """Sums of exponential variables that share one of two: a correlation of ½ of numbers far from normal."""
    shared, one, other = torch.empty(3, 200, dtype=torch.float64).exponential_(generator=generator)
    return pearson_correlation(shared + one, shared + other)


def spearman(generator: Generator) -> Estimate:
    return spearman_correlation(*normal(generator))


TABLE = torch.tensor([[0.5, 0.1, 0.0], [0.05, 0.2, 0.05], [0.0, 0.02, 0.08]], dtype=torch.float64)


def matthews(generator: Generator) -> Estimate:
    cells = torch.multinomial(TABLE.flatten(), 120, replacement=True, generator=generator)
    return matthews_correlation(cells % 3, cells // 3)


def true_matthews() -> float:
    truth, predicted = TABLE.sum(1), TABLE.sum(0)
    covariance = TABLE.trace() - (truth * predicted).sum()
    return float(covariance / ((1 - truth.square().sum()) * (1 - predicted.square().sum())).sqrt())


ANSWERS = ["red", "red car", "blue", "red fast car", "fast red car"]
GOLD = ["fast car red"]


def f1(generator: Generator) -> Estimate:
    drawn = torch.randint(len(ANSWERS), (50,), generator=generator).tolist()
    return answer_f1([ANSWERS[at] for at in drawn], [GOLD] * 50)


def true_f1() -> float:
    # One, two, none, three and three of the three gold words.
    return (2 / 4 + 4 / 5 + 0 + 1 + 1) / 5


GRADES = torch.tensor([2.0, 1.0, 0.0])


def ranked(metric: Callable[..., Estimate]) -> Draw:
    def draw(generator: Generator) -> Estimate:
        scores = torch.rand(40, 3, generator=generator)
        return metric(scores.flatten(), GRADES.repeat(40), torch.arange(40).repeat_interleave(3))

    return draw


def true_ranked(metric: Callable[..., Estimate]) -> float:
    one = torch.zeros(3, dtype=torch.long)
    orders = [torch.tensor(order) for order in itertools.permutations([1.0, 2.0, 3.0])]
    return sum(metric(order, GRADES, one).value for order in orders) / len(orders)


CASES: dict[str, tuple[Draw, float]] = {
    "Pearson": (pearson, CORRELATION),
    "Pearson, skewed": (pearson_of_skewed, 0.5),
    "Spearman": (spearman, 6 / math.pi * math.asin(CORRELATION / 2)),
    "Matthews": (matthews, true_matthews()),
    "F1": (f1, true_f1()),
    "NDCG": (ranked(ndcg), true_ranked(ndcg)),
    "ERR": (ranked(expected_reciprocal_rank), true_ranked(expected_reciprocal_rank)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_interval_covers_as_often_as_it_says(name: str, generator: Generator) -> None:
    draw, truth = CASES[name]
    found = [draw(generator) for _ in range(REPEATS)]
    covered = sum(own.low <= truth <= own.high for own in found)
    print(name, covered / REPEATS)
    assert LEAST <= covered < REPEATS
