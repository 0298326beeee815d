"""Steps of moment matching small enough for paper."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.features.regular import StartsWith
from ebar.models.ngram import Tabular
from ebar.samplers.look_ahead import guided
from ebar.training.moment_matching import newton
from ebar.training.moment_matching.conclusion import _about_weights, bound_at_the_end, conclude
from ebar.training.moment_matching.diagnosis import ends, nearest
from ebar.training.moment_matching.first_order import (
    CoefficientSchedule,
    ImportanceMoments,
    RejectionMoments,
    _descend,
    _Scale,
)
from ebar.training.moment_matching.matching import Pool, Solution, Wanted
from ebar.training.moment_matching.newton import Newton, _Guess, _half_added
from ebar.types import Context, Sequences, Space


def solution(
    pool: Pool, wanted: Wanted, coefficient: float = 0.0, *, ridge: float = 0.0, decided: str = "the prior"
) -> Solution:
    """Of one feature."""
    features = Features([StartsWith(prefix="1", alphabet="01", end=2)])
    coefficients = torch.tensor([coefficient], dtype=torch.float64)
    return Solution(features, wanted, pool, coefficients, ridge, 0.95, decided)


def test_the_rule_of_three_bounds_a_feature_that_no_datum_has():
    """r has it with probability 0.3, none of 20 data has: a share s with (1 − s)²⁰ = 5 % might still go unseen, and
    the λ that gives s is logit s − logit 0.3. Nothing was drawn, so nothing is added."""
    pool = Pool(
        torch.tensor([[0.0], [1.0]], dtype=torch.float64),
        torch.tensor([1.4, 0.6], dtype=torch.float64).log(),
        torch.zeros(2, dtype=torch.long),
        True,
    )
    wanted = Wanted(torch.zeros(1, dtype=torch.float64), 20, torch.zeros(20, 1, dtype=torch.float64))
    share = 1 - 0.05 ** (1 / 20)
    assert share == pytest.approx(0.139, abs=1e-3)
    found = bound_at_the_end(solution(pool, wanted, -6.0), 0)
    assert found == pytest.approx(math.log(share / (1 - share)) - math.log(0.3 / 0.7), abs=1e-6)


def test_steps_shrink_as_one_over_the_epoch():
    """One update an epoch, gaps 0.4, 0.2 and 0.1: λ = 10·0.4 + 5·0.2 + 10/3·0.1."""
    goal = torch.tensor([0.6], dtype=torch.float64)
    gaps = iter([0.4, 0.2, 0.1])

    def moments(coefficients: Tensor, first: bool) -> Tensor:
        return goal - next(gaps)

    scale = _Scale(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    end = _descend(CoefficientSchedule(updates=1, max_epochs=3), Wanted(goal, None, None), scale, moments)
    assert end.trace == pytest.approx((0.4, 0.2, 0.1))
    assert float(end.coefficients) == pytest.approx(4.0 + 1.0 + 1 / 3)


@pytest.mark.parametrize(("share", "size"), [(0.0, 9), (0.25, 4), (1.0, 1)])
def test_half_a_draw_is_added_to_either_side(share: float, size: int):
    assert _half_added(share, size) == pytest.approx((share * size + 0.5) / (size + 1))
    assert _half_added(share, size) + _half_added(1 - share, size) == pytest.approx(1.0)


@pytest.mark.parametrize("iterative", [False, True])
def test_what_an_early_end_leaves_undone_is_in_the_covariance(iterative: bool):
    """E_λ[φ] = 0.3 at λ = 0 where 0.5 is wanted: a last step of Newton would be 0.2/(0.21 + ρ), an error of that size.
    Where λ is the optimum of the draws there is no such step to speak of."""
    values = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat_interleave(torch.tensor([70, 30]), 0)
    pool = Pool(values, torch.zeros(100, dtype=torch.float64), torch.zeros(100, dtype=torch.long))
    data = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(20, 1)
    fitted = conclude(
        "snis",
        solution(pool, Wanted(data.mean(0), len(data), data), ridge=0.01, decided="the schedule"),
        trace=(0.2,),
        draws=100,
        iterative=iterative,
    )
    assert fitted.covariance is not None
    assert fitted.monte_carlo_covariance is not None
    assert fitted.data_covariance is not None
    beyond = fitted.covariance - fitted.monte_carlo_covariance - fitted.data_covariance
    step = 0.2 / (0.21 + 0.01)
    assert float(beyond) == pytest.approx(step**2 if iterative else 0.0)
    half = (fitted.intervals[0].high - fitted.intervals[0].low) / 2
    assert (half > 1.9 * step) == iterative


@pytest.mark.parametrize(("good", "made"), [(True, 1), (False, 3)])
def test_a_proposal_is_made_anew_until_it_is_good(good: bool, made: int, monkeypatch: pytest.MonkeyPatch):
    times = 0

    def counting(*arguments: object, **options: object) -> object:
        nonlocal times
        times += 1
        return guided(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(newton, "guided", counting)
    guess = _Guess(torch.tensor([0.5], dtype=torch.float64), False, good)
    monkeypatch.setattr(Newton, "_guess", lambda *arguments: guess)
    base = Tabular.random(Space(3, 4, end=2), generator=Generator().manual_seed(1))
    features = Features([StartsWith(prefix="1", alphabet="01", end=2)])
    data = Sequences(torch.tensor([[1, 2], [0, 2]]), torch.tensor([2, 2]))
    method = Newton(draws=60, rounds=3, proposal="look_ahead")
    method.fit(base, features, data=data, generator=Generator().manual_seed(2))
    assert times == made


@pytest.mark.parametrize(("moment", "unmet"), [(0.0, False), (0.5, True)])
def test_a_feature_that_no_draw_varies_cannot_be_matched_unless_it_is_so_in_the_data(moment: float, unmet: bool):
    pool = Pool(torch.zeros(9, 1, dtype=torch.float64), torch.zeros(9, dtype=torch.float64), torch.zeros(9).long())
    wanted = Wanted(torch.tensor([moment], dtype=torch.float64), None, None)
    (found,) = ends(solution(pool, wanted))
    assert ("cannot be matched" in found.sentence) == unmet
    assert ("but 0 in all draws" in found.sentence) == unmet
    assert (found.open_low, found.open_high) == (True, True)


class Far:
    """A feature whose values lie far from 0 and close together."""

    name, low, high = "far", 1000.0, 1001.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        return 1000.0 + x.tokens[:, 0].double()


def test_how_near_the_end_is_depends_on_the_range_and_not_on_where_it_lies():
    pool = Pool(
        torch.tensor([[1000.0], [1001.0]], dtype=torch.float64),
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(2).long(),
    )
    for gap, at_end in ((1e-10, True), (1e-7, False)):
        wanted = Wanted(torch.tensor([1000.0 + gap], dtype=torch.float64), None, None)
        found = ends(solution(pool, wanted)._replace(features=Features([Far()])))
        assert [finding.open_low for finding in found] == [True] * at_end


def test_moments_that_contradict_each_other_move_onto_the_hull():
    """Draws show (1, 0) and (0, 1) only, and (1, 1) is wanted: the nearest moments sum to 1, one of them unmoved."""
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    pool = Pool(values, torch.zeros(2, dtype=torch.float64), torch.zeros(2).long())
    ones = torch.ones(2, dtype=torch.float64)
    dear = torch.tensor([0.1, 1.0], dtype=torch.float64)  # a small spread makes the first one dear to change
    assert nearest(pool, ones, dear).tolist() == pytest.approx([1.0, 0.0])
    assert nearest(pool, ones / 2, dear).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "method",
    [
        ImportanceMoments(schedule=CoefficientSchedule(max_epochs=1, updates=1), samples=200),
        RejectionMoments(schedule=CoefficientSchedule(max_epochs=1, updates=1), proposals=200),
    ],
    ids=["snis", "rs"],
)
def test_methods_that_stop_early_say_by_how_much(method: ImportanceMoments | RejectionMoments):
    base = Tabular.random(Space(3, 4, end=2), generator=Generator().manual_seed(1))
    features = Features([StartsWith(prefix="1", alphabet="01", end=2)])
    data = Sequences(torch.tensor([[1, 2]] * 9 + [[0, 2]]), torch.full((10,), 2))
    fitted = method.fit(base, features, data=data, generator=Generator().manual_seed(2))
    gap = fitted.data_moments[0] - fitted.model_moments[0].value
    assert abs(gap) > 0.01
    assert fitted.covariance is not None
    assert fitted.monte_carlo_covariance is not None
    assert fitted.data_covariance is not None
    variance = fitted.model_moments[0].value * (1 - fitted.model_moments[0].value) + 1 / (100 * 10)
    beyond = float(fitted.covariance - fitted.monte_carlo_covariance - fitted.data_covariance)
    assert beyond == pytest.approx((gap / variance) ** 2, rel=1e-6)


def test_weights_are_spoken_of_where_they_are_bad_and_only_there():
    """Of 200 draws one carries all of r, or all of P, or none does."""
    even = torch.zeros(200, dtype=torch.float64)
    one = torch.where(torch.arange(200) == 0, 0.0, -40.0).double()

    def said(under_r: Tensor, under_p: Tensor) -> list[str]:
        pool = Pool(torch.zeros(200, 1, dtype=torch.float64), under_r, torch.zeros(200).long())
        return [" ".join(sentence.split()[:2]) for sentence in _about_weights(pool, under_p)]

    assert said(even, even) == []
    assert said(one, even) == ["Under r"]
    assert said(even, one) == ["Under P_λ"]
    assert said(one, one) == ["Under P_λ", "Under r"]
