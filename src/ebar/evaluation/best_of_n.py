"""Best of n: of n draws the one with the highest reward, as the usual alternative to a tilt by e^(r/β).

KL(best of n‖q) ≤ log n − (n − 1)/n, which is reached where no two texts have the same reward and none has a mass of its
own (Beirami et al. 2024, arXiv:2401.01879); of a discrete q it is less.
"""

import math
from bisect import bisect_right
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.bounds import Count
from ebar.errors import UserError
from ebar.maths.jackknife import half_width
from ebar.types import Estimate

GROUPS = 50  # of draws, each left out in turn for the interval


def kl_bound(n: int) -> float:
    """log n − (n − 1)/n, in nats."""
    return math.log(n) - (n - 1) / n


def n_for(kl: float) -> int:
    """The largest n whose bound is at most so many nats, 1 at least: its KL is not above."""
    return max(1, bisect_right(range(1, 2**62), kl, key=kl_bound))


def expected_best(rewards: Float[Tensor, " draws"], n: Count) -> Estimate:
    """E[the largest of n rewards] from N ≥ n independent draws: the mean over all n of them, without drawing again.

    Of the sorted rewards the i-th is the largest of C(i − 1, n − 1) of the C(N, n) choices. The interval is the
    jackknife's over groups of draws.
    """
    count = len(rewards)
    if n < 1:
        raise UserError(f"The best of n is of 1 draw or more, not {n}.")
    groups = min(GROUPS, count // (2 * n))
    if groups < 2:
        raise UserError(f"The best of {n:,} is estimated from {4 * n:,} draws or more, not {count:,}: draw more.")
    whole = _mean_of_largest(rewards, n)
    group = torch.arange(count, device=rewards.device) * groups // count
    left_out = torch.tensor([_mean_of_largest(rewards[group != one], n) for one in range(groups)], dtype=torch.float64)
    width = float(half_width((left_out - left_out.mean())[None], 0.95)[0])
    return Estimate(whole, whole - width, whole + width, float(count))


def _mean_of_largest(rewards: Float[Tensor, " draws"], n: int) -> float:
    ordered = rewards.double().sort().values
    rank = torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=ordered.device)
    # log C(i − 1, n − 1) − log C(N, n); 0 choices below i = n.
    log_share = torch.where(rank < n, -math.inf, _log_choose(rank - 1, n - 1) - _log_choose(rank[-1:], n))
    share = log_share.exp()
    return float((share * torch.where(share > 0, ordered, 0.0)).sum())


def _log_choose(of: Float[Tensor, " ranks"], k: int) -> Float[Tensor, " ranks"]:
    rest = (of - k).clamp(min=0)
    return torch.lgamma(of + 1) - torch.lgamma(rest + 1) - math.lgamma(k + 1)


class Best(NamedTuple):
    """Best of n where all texts are known."""

    log_prob: Float[Tensor, " texts"]
    kl: float  # from q, in nats
    reward: float


def exact_best(log_q: Float[Tensor, " texts"], rewards: Float[Tensor, " texts"], n: Count) -> Best:
    """Of n draws of q the best, ties going to any of them alike: q(x)·(F(r)ⁿ − F(r−)ⁿ)/(F(r) − F(r−)).

    F is the distribution of the reward under q, F(r−) the mass of lower rewards.
    """
    values, level = torch.unique(rewards.double(), return_inverse=True)
    mass = torch.zeros(len(values), dtype=torch.float64, device=log_q.device).index_add_(0, level, log_q.double().exp())
    up_to = mass.cumsum(0) / mass.sum()
    below = torch.cat([up_to.new_zeros(1), up_to[:-1]])
    share = up_to**n - below**n
    log_ratio = (share / (up_to - below)).log()
    chosen = share > 0
    return Best(
        log_q.double() + log_ratio[level],
        float((share * log_ratio)[chosen].sum()),
        float((share * values)[chosen].sum()),
    )
