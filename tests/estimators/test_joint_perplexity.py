"""The joint perplexity by hand, and when it says that nothing is established."""

import math

import pytest
import torch
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.joint_perplexity import JointPerplexity, joint_perplexity
from ebar.estimators.log_z import certified_log_z
from ebar.types import Estimate


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def of(energies: Tensor, *, energy: float = 0.0, log_q: float = -8.0, bound: float | None = None) -> JointPerplexity:
    rows = len(energies)
    return joint_perplexity(
        torch.full((rows,), log_q), torch.full((rows,), energy), energies, torch.full((rows,), 4), bound=bound
    )  # fmt: skip


def test_by_hand():
    # Weights 1, 3 and 2, 2, so T = log 2 twice. Without one draw: log 3 and log 1; log 2 and log 2.
    # J = 2T − ½(log 3 + log 1) for the first, T for the second. Tokens: 2 + 3. Cost of q: 10; of E: −1 + 3.
    found = joint_perplexity(
        torch.tensor([-4.0, -6.0]), torch.tensor([-1.0, 3.0]),
        -torch.tensor([[1.0, 3.0], [2.0, 2.0]], dtype=torch.float64).log(), torch.tensor([2, 3]),
    )  # fmt: skip
    corrected = 2 * math.log(2) - math.log(3) / 2
    assert found.base == pytest.approx(math.exp(10 / 5))
    assert found.value == pytest.approx(math.exp((12 + corrected + math.log(2)) / 5))
    assert found.difference.value == pytest.approx((2 + corrected + math.log(2)) / 5)
    assert [row.lower for row in found.log_z] == pytest.approx([math.log(2)] * 2)
    assert [row.upper for row in found.log_z] == pytest.approx([2 * corrected - math.log(2), math.log(2)])
    # From one draw to two the first T goes from 0 to log 2, the second stays.
    assert found.moved == pytest.approx(math.log(2) / 2)
    assert found.moved_most == pytest.approx(math.log(2))
    # Deviations ±½ log 3 and 0, 0: a variance of 2·(½ log 3)²·¾ over four draws; κ = 2, so 8 → 3 degrees of freedom.
    width = 3.18244630528371 * math.sqrt(2 * (math.log(3) / 2) ** 2 * 3 / 4)
    assert found.low == pytest.approx(math.exp((12 + 2 * math.log(2) - width) / 5))
    assert found.high == pytest.approx(math.exp((12 + 2 * corrected + width) / 5))
    assert not found.established
    assert found.share_light == 0.0


def test_shares_of_the_draws_are_its_first():
    energies = normal(20, 800)
    found = of(energies)
    assert [row.draws for row in found.by_draws] == [100, 200, 400, 800]
    for row in found.by_draws:
        part = of(energies[:, : row.draws])
        assert (row.low, row.value, row.high) == pytest.approx((part.low, part.value, part.high), rel=1e-12)
        assert row.log_z == pytest.approx(sum(z.lower for z in part.log_z) / 20)
        assert row.log_z_upper == pytest.approx(sum(z.upper for z in part.log_z) / 20)
    assert found.moved == pytest.approx(found.by_draws[3].log_z - found.by_draws[2].log_z)
    assert found.by_draws[0].high - found.by_draws[0].low > 1.5 * (found.high - found.low)


def test_below_and_above_need_the_whole_interval():
    energies = 0.3 * normal(50, 400)  # log Z = 0.045
    # log Z is 0.045, so E + log Z is −0.155 and 0.145 for each continuation of 4 tokens.
    below, above = of(energies, energy=-0.2), of(energies, energy=0.1)
    assert below.verdict.startswith("below by 0.0389 [")
    assert above.verdict.startswith("above by 0.0361 [")
    assert below.verdict.endswith("] nats per token, by normal approximation")
    assert below.here.value == pytest.approx(-0.155 / 4, abs=0.003)
    assert below.here.high < 0 < above.here.low
    between = of(energies, energy=-0.045)
    assert between.established
    assert between.verdict.startswith("not established: the difference may be anything from -0.0")
    assert between.perplexity.warning is None


def test_heavy_tails_are_not_established_however_low_the_perplexity():
    heavy = 0.9 * torch.log(torch.rand(40, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    found = of(heavy, energy=-9.0)
    assert found.high < found.base
    assert found.share_light < 0.5
    assert found.verdict.startswith("not established: k̂ < 0.7 for only")
    assert isinstance(found.perplexity, Estimate)
    assert found.perplexity.warning is not None


def test_a_log_z_that_still_moves_is_not_established():
    energies = torch.cat([0.3 * normal(30, 200), 0.3 * normal(30, 200, seed=2) - 0.2], 1)
    found = of(energies, energy=-3.0)
    assert found.share_light > 0.95
    assert found.moved == pytest.approx(0.1, abs=0.02)
    assert found.verdict.startswith("not established: doubling the draws moves log Z by 0.1")


def test_tied_weights_are_judged_by_their_effective_size():
    rare = torch.zeros(1, 400, dtype=torch.float64)
    rare[0, 0] = -9.0  # one draw in 400 carries everything; k̂ has no tail to fit
    even = torch.zeros(1, 400, dtype=torch.float64)
    even[0, ::2] = -1.0
    assert math.isnan(of(rare).k[0])
    assert of(rare).share_light == 0.0
    assert math.isnan(of(even).k[0])
    assert of(even).share_light == 1.0
    assert of(even[:, :80]).share_light == 0.0  # too few draws say nothing of a tail
    assert of(even[:, :80]).verdict.startswith("not established: 80 draws for each prefix are too few to judge by")


def test_draws_without_weight_leave_the_interval_open():
    energies = torch.zeros(2, 200, dtype=torch.float64)
    energies[0] = math.inf
    found = of(energies)
    assert found.high == math.inf
    assert found.low < found.base
    assert not found.established


def test_what_cannot_be_scored_is_said():
    good = torch.zeros(2, dtype=torch.float64)
    draws, lengths = torch.zeros(2, 5, dtype=torch.float64), torch.tensor([3, 3])
    with pytest.raises(UserError, match="at least one prefix"):
        joint_perplexity(good[:0], good[:0], draws[:0], lengths[:0])
    with pytest.raises(UserError, match="at least one token"):
        joint_perplexity(good, good, draws, torch.tensor([3, 0]))
    with pytest.raises(UserError, match="energy of continuation 1 is nan"):
        joint_perplexity(good, torch.tensor([0.0, math.nan]).double(), draws, lengths)
    bad = draws.clone()
    bad[1, 2] = -math.inf
    with pytest.raises(UserError, match="log-weight of draw 2 in row 1"):
        joint_perplexity(good, good, bad, lengths)


def test_these_prefixes_and_others_like_them_are_two_statements():
    """Four prefixes, two that gain and two that lose: below on these, and no word about others."""
    energies = 0.1 * normal(4, 400)
    own = torch.tensor([-2.0, -2.0, 0.5, 0.5], dtype=torch.float64)
    found = joint_perplexity(torch.full((4,), -8.0), own, energies, torch.full((4,), 4))
    assert found.verdict.startswith("below by 0.18")
    assert found.difference.low < 0 < found.difference.high
    assert found.verdict_elsewhere == "not established: 4 prefixes are too few to speak for others"
    many = joint_perplexity(
        torch.full((40,), -8.0), own.repeat(10), 0.1 * normal(40, 400), torch.full((40,), 4)
    )  # fmt: skip
    assert many.verdict_elsewhere.startswith("below by 0.186 [")
    assert many.verdict_elsewhere.endswith("by normal approximation")


def test_a_difference_carries_the_doubt_about_its_weights():
    heavy = 0.9 * torch.log(torch.rand(40, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    found = of(heavy, energy=-9.0)
    assert found.difference.warning == found.perplexity.warning
    assert found.verdict_elsewhere.startswith("not established: k̂ < 0.7 for only")
    assert of(0.3 * normal(50, 400)).difference.warning is None


def lumps(prefixes: int, draws: int, share: float = 0.1, seed: int = 3) -> Tensor:
    """A saturated network: energies near −2.7 and 2.7."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(prefixes, draws, dtype=torch.float64, generator=generator) < share
    return torch.where(low, -2.7, 2.7) + 0.05 * normal(prefixes, draws, seed=seed + 1).clamp(-4, 4)


def test_bounded_weights_are_certified_where_a_tail_was_seen():
    """Two lumps: k̂ takes the upper for a tail, and the bound knows better."""
    energies = lumps(60, 400)
    plain, bounded = of(energies, energy=-2.7), of(energies, energy=-2.7, bound=3.0)
    assert plain.verdict.startswith("not established: k̂ < 0.7 for only")
    assert bounded.share_light == 1.0
    assert bounded.certified is not None
    low, high = bounded.certified.difference
    truth = (-2.7 + math.log(0.1 * math.exp(2.7) + 0.9 * math.exp(-2.7))) / 4
    assert low < truth < high < 0
    assert bounded.verdict.startswith("below by 0.5")
    assert bounded.verdict.endswith("certified")
    assert (bounded.here.low, bounded.here.high) == pytest.approx((low, high))
    assert bounded.here.warning is None
    assert math.exp(bounded.certified.cost[1]) < bounded.base
    # The normal interval lies inside, and is what is shown as the perplexity's.
    assert math.log(bounded.high / bounded.base) < high
    assert bounded.certified.elsewhere is not None
    assert bounded.certified.elsewhere[0] < low
    assert bounded.certified.elsewhere[1] > high


def test_a_difference_that_the_certified_interval_cannot_tell_may_be_told_by_the_normal_one():
    energies = 0.3 * normal(50, 400).clamp(-9, 9)
    found = of(energies, energy=-0.0505, bound=3.0)
    assert found.certified is not None
    assert found.certified.difference[0] < 0 < found.certified.difference[1]
    assert found.verdict.endswith("by normal approximation")


def test_a_bound_that_is_not_one_is_refused():
    with pytest.raises(UserError, match="outside \\[-2, 2\\]"):
        of(lumps(3, 20), bound=2.0)
    with pytest.raises(UserError, match="An energy or log-weight of -9"):
        of(torch.zeros(3, 20, dtype=torch.float64), energy=-9.0, bound=3.0)


def test_unequal_lengths_are_certified_for_these_prefixes_only():
    found = joint_perplexity(
        torch.full((2,), -8.0), torch.zeros(2), torch.zeros(2, 50, dtype=torch.float64), torch.tensor([3, 4]), bound=1.0
    )
    assert found.certified is not None
    assert found.certified.elsewhere is None
    # No weight but 1 was drawn: log Z is 0 but for what fifty draws cannot exclude.
    assert found.certified.difference[0] < 0 < found.certified.difference[1]


def test_log_z_of_each_row_is_certified_by_itself():
    """Fifty draws of one row and of another that weighs twice as much: the limits move by log 2."""
    one = lumps(1, 50, share=0.4)
    rows = torch.cat([-one, -one + math.log(2)])
    found = certified_log_z(rows, highest=4.0, lowest=-4.0)
    alone = certified_log_z(rows[:1], highest=4.0, lowest=-4.0)[0]
    assert found[0] == pytest.approx(alone)
    assert found[1].value == pytest.approx(found[0].value + math.log(2))
    for row in found:
        assert -4 < row.low < row.value < row.high < 4
        assert row.warning is None
    with pytest.raises(UserError, match="outside"):
        certified_log_z(rows, highest=2.0)
