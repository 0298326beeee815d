"""Training-1 on languages small enough that the exact λ is known, and what it says when there is none."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.features.counts import NgramCount
from ebar.features.feature import Feature, Features
from ebar.features.functions import Predicate
from ebar.features.regular import Motif, StartsWith
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.models.tilted import Tilted
from ebar.samplers.look_ahead import guided
from ebar.store.writing import to_json
from ebar.training.moment_matching import MATCHING, match_moments
from ebar.training.moment_matching.conclusion import _larger
from ebar.training.moment_matching.first_order import CoefficientSchedule, ImportanceMoments, RejectionMoments
from ebar.training.moment_matching.matching import Fitted
from ebar.training.moment_matching.newton import Newton
from ebar.types import Context, Sequences, Space
from tests.models.examples import lstm

END = 2
QUICK: dict[str, Any] = {
    "newton": Newton(draws=4000),
    "rs": RejectionMoments(schedule=CoefficientSchedule(max_epochs=20), proposals=500, buffer=10_000),
    "snis": ImportanceMoments(schedule=CoefficientSchedule(max_epochs=20), samples=500, buffer=10_000),
}


def motif(string: str, absent: bool = True) -> Motif:
    return Motif(motif=string, alphabet="01", end=END, absent=absent)


def starts(string: str) -> StartsWith:
    return StartsWith(prefix=string, alphabet="01", end=END)


def language(length: int, seed: int = 0, scale: float = 0.5) -> Tabular:
    return Tabular.random(Space(3, length + 1, end=END), scale=scale, generator=Generator().manual_seed(seed))


def number_of_ones(longest: int) -> NgramCount:
    return NgramCount(ngram="1", alphabet="01", longest=longest, end=END)


def data_with(base: Tabular, feature: Feature, value: float, n: int, generator: Generator) -> Sequences:
    x = base.sample(40_000, generator=generator)
    rows = (feature(x) == value).nonzero().squeeze(1)[:n]
    assert len(rows) == n
    return x.select(rows)


@pytest.mark.parametrize("length", [3, 8, 11])
def test_given_the_exact_expectation_newton_reaches_the_exact_lambda(length: int, generator):
    base, features = language(length, seed=length), Features([motif("11"), starts("0"), number_of_ones(length + 1)])
    true = torch.tensor([-1.3, 0.7, 0.2], dtype=torch.float64)
    target = Tilted(base, Linear(features, true.clone()))
    wanted = exact.moments(target, features)[0].detach()
    found = Newton(proposal="exact").fit(base, features, moments=wanted, generator=generator)
    assert len(found.trace) - 1 <= 20
    torch.testing.assert_close(found.coefficients, true, atol=1e-5, rtol=0)
    reached = exact.moments(found.tilted(base, features), features)[0].detach()
    assert float((reached - wanted).abs().max()) < 1e-6
    assert all(estimate.is_exact for estimate in (*found.model_moments, *found.intervals, found.log_z))
    assert found.log_z.value == pytest.approx(float(exact.log_z(found.tilted(base, features)).detach()))
    assert found.warnings == ()


def test_by_hand_one_binary_feature(generator):
    # r starts with 0 with probability ¼; ¾ is wanted: λ = logit ¾ − logit ¼ = 2 log 3.
    logits = torch.tensor([[[0.25, 0.5, 0.25], [0, 0, 1], [0, 0, 1], [0, 0, 1]]], dtype=torch.float64).log()
    base, features = Tabular(Space(3, 2, end=END), logits), Features([starts("0")])
    found = match_moments(
        base, features, moments=torch.tensor([0.75]), method=Newton(proposal="exact"), generator=generator
    )
    assert float(found.coefficients) == pytest.approx(2 * math.log(3), abs=1e-6)
    assert found.base_moments[0].value == pytest.approx(0.25)
    # Data of 30 with 0 first and 10 without: H = 3/16, so the variance of λ is 1/(40·3/16), with 39 for 40.
    data = Sequences(torch.tensor([[0, 2]] * 30 + [[1, 2]] * 10), torch.full((40,), 2))
    found = Newton(proposal="exact", ridge=0.0).fit(base, features, data=data, generator=generator)
    assert found.covariance is not None
    assert float(found.covariance) == pytest.approx(1 / (39 * 3 / 16))
    # And with n draws: (1/H²)·Σp²(φ−μ)², for weights 1 and 9 in shares ¾ and ¼: p = w/(3n).
    drawn = Newton(draws=20_000, proposal="base").fit(base, features, moments=torch.tensor([0.75]), generator=generator)
    expected = (0.75 / 9 * 0.75**2 + 0.25 * 81 / 9 * 0.25**2) / 20_000 / (3 / 16) ** 2
    assert drawn.monte_carlo_covariance is not None
    assert drawn.data_covariance is None
    assert float(drawn.monte_carlo_covariance) == pytest.approx(expected, rel=0.05)
    low, high = drawn.intervals[0].low, drawn.intervals[0].high
    assert (high - low) / 2 == pytest.approx(1.96 * expected**0.5, rel=0.05)


@pytest.mark.parametrize("method", MATCHING)
def test_every_method_says_that_a_feature_is_constant_in_the_data(method: str, generator):
    base = language(6)
    features = Features([motif("11"), starts("0")])
    data = data_with(base, features.features[0], 0.0, 100, generator)
    found = QUICK[method].fit(base, features, data=data, generator=generator)
    said = [warning for warning in found.warnings if "'no motif 11' is 0 in all 100 of the data" in warning]
    assert len(said) == 1
    assert "−inf" in said[0]
    assert ("the prior" if method == "newton" else "the schedule") in said[0]
    interval = found.intervals[0]
    assert interval.low == -math.inf
    assert interval.value <= interval.high < 0
    assert math.isfinite(found.intervals[1].low)
    assert math.isfinite(found.intervals[1].high)
    assert -30 < float(found.coefficients[0]) < -2


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("method", [*MATCHING, "exact"])
def test_what_does_not_vary_in_the_data_is_no_reason_for_certainty(method: str, size: int, generator):
    """All data have two 1s. At an end λ of the interval the chance of data as far out is 2.5 % on either side.

    It is worked out for one datum, and for five by convolution; data just as far out count by half. λ by draws or by
    the document's schedule has an error of its own.
    """
    base, features = language(6), Features([number_of_ones(7)])
    data = Sequences(torch.tensor([[0, 1, 1, 2]] * size), torch.full((size,), 4))
    way = Newton(proposal="exact") if method == "exact" else QUICK[method]
    found = way.fit(base, features, data=data, generator=generator)
    (interval,) = found.intervals
    with torch.no_grad():
        everything = all_sequences(base.space)
        counts = torch.zeros(8, dtype=torch.float64)
        counts.index_add_(0, features(everything)[:, 0].long(), base.log_prob(everything).exp())
    for end, outer in ((interval.low, slice(2 * size + 1, None)), (interval.high, slice(0, 2 * size))):
        one = torch.softmax(counts.log() + end * torch.arange(8), 0)
        total = torch.ones(1, dtype=torch.float64)
        for _ in range(size):
            total = torch.nn.functional.conv1d(total[None, None], one.flip(0)[None, None], padding=7)[0, 0]
        chance = float(total[outer].sum() + total[2 * size] / 2)
        assert (0.018 < chance < 0.035) if method == "exact" else (chance < 0.12)
    assert interval.effective_sample_size <= size
    said = "'count of 1' is 2 in " + ("the only datum" if size == 1 else "all 5 of the data")
    assert any(said in warning and "the interval of λ supposes" in warning for warning in found.warnings)
    assert found.data_covariance is not None
    # Fisher's information: 1/(|D|·Var_λ φ).
    fitted = torch.softmax(counts.log() + found.coefficients * torch.arange(8), 0)
    variance = float(fitted @ torch.arange(8).double().square() - (fitted @ torch.arange(8).double()) ** 2)
    assert float(found.data_covariance) == pytest.approx(1 / (size * variance), rel=0.01 if method == "exact" else 0.2)


def test_the_larger_of_two_covariances_is_so_in_every_direction(generator):
    one, other = (torch.randn(3, 9, generator=generator, dtype=torch.float64) for _ in range(2))
    one, other = one @ one.T, other @ other.T
    both = _larger(one, other)
    for less in (one, other):
        assert float(torch.linalg.eigvalsh(both - less).min()) > -1e-9
    torch.testing.assert_close(_larger(3 * other, other), 3 * other)
    torch.testing.assert_close(_larger(other / 3, other), other)
    torch.testing.assert_close(_larger(torch.zeros(3, 3).double(), other), other)
    flat = torch.diag(torch.tensor([2.0, 0.0])).double()
    torch.testing.assert_close(_larger(torch.eye(2).double(), flat), flat)


def test_a_hard_constraint_is_an_option(generator):
    base = language(6)
    features = Features([motif("11"), starts("0")])
    data = data_with(base, features.features[0], 0.0, 100, generator)
    soft = Newton(proposal="exact").fit(base, features, data=data, generator=generator)
    found = Newton(proposal="exact", hard=True).fit(base, features, data=data, generator=generator)
    assert float(found.coefficients[0]) == -math.inf
    assert found.intervals[0].low == -math.inf
    assert found.intervals[0].high == pytest.approx(soft.intervals[0].high, abs=0.3)
    moments = exact.moments(found.tilted(base, features), features)[0].detach()
    torch.testing.assert_close(moments, features(data).mean(0), atol=1e-3, rtol=0)
    assert any("−inf as asked" in warning for warning in found.warnings)
    again = Fitted.from_dict(json.loads(to_json(found.to_dict())))
    assert float(again.coefficients[0]) == -math.inf
    assert again.to_dict() == found.to_dict()


def test_a_present_feature_in_all_data_has_a_lambda_without_an_upper_end(generator):
    base, features = language(6), Features([motif("11", absent=False)])
    data = data_with(base, features.features[0], 1.0, 100, generator)
    found = Newton(proposal="exact").fit(base, features, data=data, generator=generator)
    assert found.intervals[0].high == math.inf
    assert 0 < found.intervals[0].low < found.intervals[0].value
    assert any("+inf" in warning for warning in found.warnings)


def test_looking_ahead_finds_what_r_hardly_shows(generator):
    # The motif fills 7 of 8 places: r has it with a probability of some 1e-3, so 2,000 draws show it twice or never.
    base, features = language(8, seed=3), Features([motif("1011010"), starts("0")])
    assert float(exact.moments(base, features)[0, 0].detach()) > 0.99
    wanted = torch.tensor([0.1, 0.4], dtype=torch.float64)
    truth = Newton(proposal="exact").fit(base, features, moments=wanted, generator=generator)
    ahead = Newton(draws=4000).fit(base, features, moments=wanted, generator=generator)
    plain = Newton(draws=4000, proposal="base").fit(base, features, moments=wanted, generator=generator)
    assert ahead.effective_sample_size > 10 * plain.effective_sample_size
    assert ahead.covariance is not None
    # Each within 4.5 standard errors: a false alarm in 70,000.
    gap = (ahead.coefficients - truth.coefficients).abs() / ahead.covariance.diagonal().sqrt()
    assert float(gap.max()) < 4.5
    assert ahead.log_z.low - 0.05 < truth.log_z.value < ahead.log_z.high + 0.05
    given = guided(truth.tilted(base, features), generator=generator)
    for method in (Newton(draws=4000), QUICK["snis"]):
        found = method.fit(base, features, moments=wanted, proposal=given, generator=generator)
        assert found.covariance is not None
        gap = (found.coefficients - truth.coefficients).abs() / found.covariance.diagonal().sqrt()
        assert float(gap.max()) < 4.5


def test_rejection_gives_up_where_r_never_shows_the_motif(generator):
    base, features = language(8, seed=3), Features([motif("1011010")])
    method = RejectionMoments(proposals=500, max_proposals=1500)
    with pytest.raises(UserError, match="newton, or snis with a proposal that looks ahead"):
        method.fit(base, features, moments=torch.tensor([0.0]), generator=generator)
    with pytest.raises(UserError, match="leave the proposal out"):
        method.fit(base, features, moments=torch.tensor([0.0]), proposal=base, generator=generator)


def test_collinear_features_are_named(generator):
    features = Features([motif("11"), starts("0"), motif("11", absent=False)])
    found = Newton(draws=2000).fit(language(6), features, moments=torch.tensor([0.4, 0.5, 0.6]), generator=generator)
    (said,) = [warning for warning in found.warnings if "determine one another" in warning]
    assert "'no motif 11', 'motif 11'" in said
    assert "starts" not in said
    assert found.intervals[0].low == -math.inf
    assert found.intervals[0].high == math.inf
    assert math.isfinite(found.intervals[1].high)
    # Only the difference of the two λ is known; the smallest pair is an opposite one.
    assert float(found.coefficients[0]) == pytest.approx(-float(found.coefficients[2]), abs=1e-6)


def test_contradictory_moments_are_told(generator):
    features = Features([motif("11", absent=False), motif("111", absent=False)])
    found = Newton(proposal="exact").fit(language(6), features, moments=torch.tensor([0.3, 0.6]), generator=generator)
    assert any("contradict each other" in warning for warning in found.warnings)
    assert found.distance > 0.1


def test_moments_together_at_the_rim_are_told(generator):
    # 111 as often as 11: λ pushes against 11 without 111 for ever.
    features = Features([motif("11", absent=False), motif("111", absent=False)])
    found = Newton(proposal="exact").fit(language(6), features, moments=torch.tensor([0.4, 0.4]), generator=generator)
    assert any("together at the rim" in warning for warning in found.warnings)
    assert found.intervals[0].low == -math.inf
    assert found.intervals[1].high == math.inf


def test_a_side_never_seen_is_told(generator):
    never = Predicate(name="never", function=lambda tokens: False, end=END)
    features = Features([never, starts("0")])
    found = Newton(draws=1000).fit(language(6), features, moments=torch.tensor([0.5, 0.5]), generator=generator)
    assert any("'never' is to have a mean of 0.5 but 0 in all draws" in warning for warning in found.warnings)
    assert float(found.coefficients[0]) == 0
    assert found.intervals[0].low == -math.inf
    assert found.intervals[0].high == math.inf


def test_few_effective_draws_are_told(generator):
    base, features = language(10, seed=1, scale=0.1), Features([number_of_ones(11)])
    found = Newton(draws=100).fit(base, features, moments=torch.tensor([8.0]), generator=generator)
    assert found.effective_sample_size < 30
    assert any("Under P_λ" in warning for warning in found.warnings)


def test_what_cannot_be_asked_is_refused(generator):
    base, features = language(3), Features([starts("0")])
    fit = Newton(draws=100).fit
    with pytest.raises(UserError, match="either data or moments"):
        fit(base, features, generator=generator)
    with pytest.raises(UserError, match=r"No model has a mean of 1\.5"):
        fit(base, features, moments=torch.tensor([1.5]), generator=generator)
    with pytest.raises(UserError, match="one for each"):
        fit(base, features, moments=torch.tensor([0.5, 0.5]), generator=generator)
    with pytest.raises(UserError, match="at least one"):
        fit(base, Features([]), moments=torch.tensor([]), generator=generator)
    with pytest.raises(UserError, match="too many to enumerate"):
        Newton(proposal="exact").fit(lstm(Space(3, 40, end=END)), features, moments=torch.tensor([0.5]),
                                     generator=generator)  # fmt: skip


class Counted:
    """Counts how often it is asked about a sequence."""

    name, low, high = "counted", 0.0, 1.0

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        self.asked += len(x.lengths)
        return (x.tokens[:, 0] == 0).double()


@pytest.mark.parametrize("proposal", ["base", "look_ahead"])
def test_each_draw_is_asked_once(proposal: Any, generator):
    counted = Counted()
    features = Features([counted, motif("11")])
    found = Newton(draws=999, proposal=proposal).fit(
        language(5), features, moments=torch.tensor([0.5, 0.5]), generator=generator
    )
    assert counted.asked == found.draws == 999


def test_r_is_drawn_from_without_its_dropout_and_keeps_its_mode(generator):
    features = Features([starts("0"), motif("11")])
    found = []
    for training in (True, False):
        model: Autoregressive = lstm(Space(3, 6, end=END)).train(training)
        method = Newton(draws=300, proposal="look_ahead")
        wanted = torch.tensor([0.5, 0.5])
        found.append(method.fit(model, features, moments=wanted, generator=Generator().manual_seed(1)))
        assert model.training is training
    torch.testing.assert_close(found[0].coefficients, found[1].coefficients)


def test_the_documents_first_step_is_ten_times_the_gap(generator):
    # One update from λ = 0: λ = 10·(m − E_r[φ]), the moments being the buffer's.
    base, features = language(4), Features([starts("0")])
    once = CoefficientSchedule(max_epochs=1, updates=1)
    wanted = torch.tensor([0.9], dtype=torch.float64)
    for method in (ImportanceMoments(schedule=once), RejectionMoments(schedule=once)):
        found = method.fit(base, features, moments=wanted, generator=generator)
        assert float(found.coefficients) == pytest.approx(10 * (0.9 - found.base_moments[0].value), abs=1e-9)
        assert found.draws == 1000
        assert found.trace[0] == pytest.approx(abs(0.9 - found.base_moments[0].value), abs=1e-9)


def test_an_epoch_is_one_update_for_each_batch_of_data_and_patience_ends_it(generator):
    base, features = language(4), Features([starts("0")])
    data = base.sample(1250, generator=generator)
    method = ImportanceMoments(
        schedule=CoefficientSchedule(max_epochs=3, patience=10), samples=100, buffer=250, reset=True
    )
    found = method.fit(base, features, data=data, generator=generator)
    assert found.draws == 3 * 2 * 100
    still = ImportanceMoments(
        schedule=CoefficientSchedule(max_epochs=50, patience=2, learning_rate=0.0), samples=10, reset=True
    )
    assert len(still.fit(base, features, moments=torch.tensor([0.5]), generator=generator).trace) < 50


def test_rejection_knows_its_bound_where_lambda_is_positive(generator):
    # Without log β = max(0, λ) everything would be accepted, E_λ would be E_r and λ would run away, by 10 and more.
    base, features = language(4), Features([starts("0")])
    wanted = torch.tensor([0.8], dtype=torch.float64)
    truth = Newton(proposal="exact").fit(base, features, moments=wanted, generator=generator)
    found = QUICK["rs"].fit(base, features, moments=wanted, generator=generator)
    assert float(truth.coefficients) > 0.5
    assert float(found.coefficients) == pytest.approx(float(truth.coefficients), abs=0.5)
    assert found.distance < 0.1


def test_what_a_single_datum_shows_and_no_draw_does_not_drive_lambda_away(generator):
    # r gives 00, 01 and 10 only; one of 200 data is 11, which has both features, and all others are 10.
    one = Predicate(name="one", function=lambda tokens: tokens[:1] == [1], end=END)
    two = Predicate(name="two", function=lambda tokens: tokens[-1:] == [1], end=END)
    logits = torch.full((1, 13, 3), -math.inf, dtype=torch.float64)
    logits[0, 0, :2] = torch.tensor([0.0, -3.0])
    logits[0, 1, :2] = logits[0, 2, 0] = 0.0  # 00, 01 or 10, then the end
    logits[0, 4:, END] = 0.0
    base = Tabular(Space(3, 3, end=END), logits)
    data = Sequences(torch.tensor([[1, 0, 2]] * 199 + [[1, 1, 2]]), torch.full((200,), 3))
    found = Newton(proposal="exact").fit(base, Features([one, two]), data=data, generator=generator)
    assert float(found.coefficients.abs().max()) < 30
    assert any("'two' has a mean of 0.005 in no mixture" in warning for warning in found.warnings)
    assert found.data_moments == pytest.approx((1.0, 0.005))


@pytest.mark.parametrize("seed", range(3))
def test_what_r_never_shows_is_searched_for_with_ever_larger_coefficients(seed: int) -> None:
    """A first guess of λ, from a thousand draws without the motif, is far too small for a proposal to show it."""
    space = Space(2, 10)
    logits = torch.tensor([5.0, 0.0], dtype=torch.float64).expand(1, number_of_prefixes(space), 2)
    base, features = Tabular(space, logits.clone()), Features([Motif("11111", alphabet="01", end=None)])
    chance = exact.moments(base, features).item()
    assert chance < 1e-9
    fitted = Newton(draws=1000).fit(
        base, features, moments=torch.tensor([0.5]), generator=Generator().manual_seed(seed)
    )
    # λ of a single feature is a difference of log-odds; 250 draws show the motif. Seeds are fixed.
    assert fitted.coefficients.item() == pytest.approx(-math.log(chance), abs=0.5)
    assert fitted.effective_sample_size > 50
