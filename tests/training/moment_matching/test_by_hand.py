"""Steps of moment matching small enough for paper."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.features.starts_with import StartsWith
from ebar.models.tabular import Tabular
from ebar.samplers.look_ahead import guided
from ebar.training.moment_matching import newton
from ebar.training.moment_matching.conclusion import conclude
from ebar.training.moment_matching.diagnosis import ends
from ebar.training.moment_matching.first_order import Schedule, _descend, _Scale
from ebar.training.moment_matching.newton import Newton, _Guess, _half_added
from ebar.training.moment_matching.pool import Pool
from ebar.training.moment_matching.uncertainty import bound_at_the_end
from ebar.training.moment_matching.wanted import Wanted
from ebar.types import Sequences, Space


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
    found = bound_at_the_end(pool, wanted, torch.tensor([-6.0], dtype=torch.float64), 0, ridge=0.0, level=0.95)
    assert found == pytest.approx(math.log(share / (1 - share)) - math.log(0.3 / 0.7), abs=1e-6)


def test_steps_shrink_as_one_over_the_epoch():
    """One update an epoch, gaps 0.4, 0.2 and 0.1: λ = 10·0.4 + 5·0.2 + 10/3·0.1."""
    goal = torch.tensor([0.6], dtype=torch.float64)
    gaps = iter([0.4, 0.2, 0.1])

    def moments(coefficients: Tensor, first: bool) -> Tensor:
        return goal - next(gaps)

    scale = _Scale(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    end = _descend(Schedule(updates=1, max_epochs=3), Wanted(goal, None, None), scale, moments)
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
        method="snis", features=Features([StartsWith(prefix="1", alphabet="01", end=2)]),
        wanted=Wanted(data.mean(0), len(data), data), pool=pool, coefficients=torch.zeros(1, dtype=torch.float64),
        ridge=0.01, level=0.95, trace=(0.2,), draws=100, seconds=0.0, decided="the schedule", iterative=iterative,
    )  # fmt: skip
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
    features = Features([StartsWith(prefix="1", alphabet="01", end=2)])
    (found,) = ends(features, wanted, pool, torch.zeros(1, dtype=torch.float64), decided="the prior")
    assert ("cannot be matched" in found.sentence) == unmet
    assert ("but 0 in all draws" in found.sentence) == unmet
    assert (found.open_low, found.open_high) == (True, True)
