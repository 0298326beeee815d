"""Moment matching in contexts: by hand on coins, and against exact numbers where all sequences can be enumerated."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.training.moment_matching.conditional import match_in_contexts
from ebar.training.moment_matching.newton import Newton
from ebar.types import Context, Sequences, Space, context_rows
from tests.models.examples import three_contexts

COIN = Space(vocabulary=2, length=1)
HEADS = Features([Motif(motif="1", alphabet="01", end=None)])
SIGMAS = 4.5  # two-sided: one false alarm in 150,000 runs


class Tossed:
    """A coin whose tosses are settled: one for each context, in their order."""

    def __init__(self, heads: list[int]):
        self.space, self.heads = COIN, heads

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return torch.full((len(x.lengths),), math.log(0.5), dtype=torch.float64)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        assert n * context_rows(context) == len(self.heads)
        return tossed(self.heads)


def tossed(heads: list[int]) -> Sequences:
    return Sequences(torch.tensor(heads)[:, None], torch.ones(len(heads), dtype=torch.long))


def contexts(rows: list[int]) -> Context:
    return Context(tossed(rows))


def fit(base: Any, data: list[int], given: list[int], generator: Generator, **options: Any) -> Any:
    method = Newton(draws=len(data), ridge=0.0, **options)
    return match_in_contexts(
        base, HEADS, tossed(data), contexts(given), method=method, per_context=1, generator=generator
    )  # fmt: skip


def test_a_fair_and_a_bent_coin_share_one_coefficient_by_hand(generator: Generator) -> None:
    """p has 3/4 and 1/2 heads where r has 1/2 and 1/4: the odds are three times as large in both, λ = log 3.

    Of 16 pairs of a datum of p and a draw of r, (heads, tails) are 6 under either coin and (tails, heads) 2. Only these
    say anything, and log σ(λ) three times as often as log σ(−λ) is largest at λ = log 3. Pooled, r would have 3/8 and p
    5/8 heads, and λ would be log (25/9).
    """
    fair = [(1, 0)] * 6 + [(0, 1)] * 2 + [(1, 1)] * 6 + [(0, 0)] * 2
    bent = [(1, 0)] * 6 + [(0, 1)] * 2 + [(1, 1)] * 2 + [(0, 0)] * 6
    data, draws = (list(side) for side in zip(*fair, *bent, strict=True))
    found = fit(Tossed(draws), data, [0] * 16 + [1] * 16, generator)
    assert float(found.coefficients) == pytest.approx(math.log(3), abs=1e-9)
    assert found.data_moments == (20 / 32,)
    assert found.base_moments[0].value == pytest.approx(12 / 32)
    # The sandwich: the Hessian is the mean of σ(1−σ) = 3/16 over the half of pairs that differ, so 3/32; the squared
    # residuals are 1/16 twelve times and 9/16 four times.
    squares = (12 / 16 + 4 * 9 / 16) / 32
    assert float(found.covariance) == pytest.approx(squares / (3 / 32) ** 2 / 31, rel=1e-9)
    [interval] = found.intervals
    assert interval.low < math.log(3) < interval.high


def test_what_all_data_have_leaves_its_coefficient_open_upwards(generator: Generator) -> None:
    data, draws = [1] * 20, [0, 1] * 10
    found = match_in_contexts(
        Tossed(draws), HEADS, tossed(data), contexts([0] * 20), method=Newton(draws=20), per_context=1,
        generator=generator,
    )  # fmt: skip
    [interval] = found.intervals
    assert interval.high == math.inf
    assert 0 < interval.low < interval.value
    # One in 20 others would be missed with probability 0.05 at a share s = 1 − 0.05^(1/20); half of the pairs differ.
    share = 1 - 0.05 ** (1 / 20)
    bound = math.log((0.5 - share) / share)
    assert interval.low == pytest.approx(bound, abs=0.05)  # the prior pulls it a little towards 0
    assert "same in all data" in found.warnings[0]


def test_the_coefficient_is_the_true_one_within_its_error_where_everything_is_known(generator: Generator) -> None:
    space = Space(vocabulary=3, length=4)
    base = Tabular.random(space, conditions=3, generator=Generator().manual_seed(1))
    features = Features([Motif(motif="01", alphabet="012", end=None), Motif(motif="2", alphabet="012", end=None)])
    truth = torch.tensor([1.2, -0.7], dtype=torch.float64)
    model = Tilted(base, Linear(features, truth))
    three = three_contexts()
    chances = exact.log_probabilities(model, three).exp()
    which = torch.arange(3).repeat(400)
    chosen = torch.cat([torch.multinomial(chances[row], 1, generator=generator) for row in which.tolist()])
    x, context = all_sequences(space).select(chosen), three.select(which)
    found = match_in_contexts(
        base, features, x, context, method=Newton(draws=1200 * 4), per_context=4, generator=generator
    )  # fmt: skip
    assert found.covariance is not None
    errors = found.covariance.diagonal().sqrt()
    assert ((found.coefficients - truth).abs() < SIGMAS * errors).all()  # with four draws for each, too
    assert (errors < 0.2).all()
    assert found.distance < 0.2
    wanted = torch.einsum("rx,xf->rf", chances, features(all_sequences(space)).double()).mean(0)
    assert (torch.tensor([one.value for one in found.base_moments]) - wanted).abs().max() > 0.05  # r itself is far off


def test_what_cannot_be_fitted_is_said(generator: Generator) -> None:
    with pytest.raises(ValueError, match="need as many contexts"):
        match_in_contexts(Tossed([1]), HEADS, tossed([1, 0]), contexts([0]), generator=generator)
    with pytest.raises(UserError, match="no feature to match"):
        match_in_contexts(Tossed([1]), Features([]), tossed([1]), contexts([0]), generator=generator)
    found = fit(Tossed([0, 0]), [1, 1], [0, 0], generator, max_iterations=1)
    assert "nothing is known of its λ" in found.warnings[0]
