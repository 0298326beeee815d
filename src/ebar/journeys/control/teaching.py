"""What π learns from: how draws are weighed (policy gradient), or what they would choose (distillation)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.distilling import Distillation, FreshDraws
from ebar.maths.log_space import log_mean_exp
from ebar.models.tilted import Tilted
from ebar.objectives import PolicyGradient
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws
from ebar.types import Distribution

RATES = (1e-4, 3e-4, 1e-3, 3e-3)  # tried by a pilot
PILOT_STEPS = 12  # with each of them


def distillation(
    target: Tilted, policy: Any, tuning: Any, ahead: Guided | None, drawn: ScoredDraws, *, rows: int, seed: int
) -> tuple[Distillation, FreshDraws]:
    """From draws that look ahead or, if the model is to propose, of the model; Z is that of given draws."""
    if tuning.proposal == "policy":
        raise UserError("Distillation needs draws that find p from the start: use --proposal look_ahead or model.")
    log_z = float(log_mean_exp(drawn.log_weights))
    if log_z == -math.inf:
        count = len(drawn.log_weights)
        raise UserError(f"None of {count:,} draws is a text of p: give more --evaluation_draws, or fit with --rounds.")
    ahead = ahead if tuning.proposal == "look_ahead" else None
    given = tuning.draws if ahead is None else max(1, round((1 - tuning.own) * tuning.draws))
    return (
        Distillation(model=policy, ahead=ahead, log_z=log_z, own=tuning.draws / given - 1),
        FreshDraws(target=target, ahead=ahead, batch_size=given, rows=rows, seed=seed),
    )


def policy_gradient(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Any, ahead: Guided | None
) -> PolicyGradient:
    """A baseline is unbiased only where draws can be anything that π can make: a proposal that looks ahead never goes
    where it is forbidden. π itself, once it is the proposal, goes there, and what it must not make pushes it away: near
    p that has far less variance than the likelihood of p's texts.
    """
    forbids = any(one.pointwise for one in constraints)
    proposals: dict[str, Distribution | None] = {"look_ahead": ahead, "model": target.base, "policy": None}
    return PolicyGradient(
        target=target,
        model=policy,
        proposal=proposals[tuning.proposal],
        divergence=tuning.divergence,
        baseline="once_replaced" if forbids and tuning.proposal == "look_ahead" else "automatic",
        replace=tuning.replace and tuning.proposal != "policy",
    )


def searched_rate(
    policy: nn.Module, drawn: ScoredDraws, batch_size: int, seed: int, *, rates: Sequence[float] = RATES,
    steps: int = PILOT_STEPS,
) -> float:  # fmt: skip
    """The learning rate with which a few steps of Adam bring π nearest to p, from the same weights each time.

    Half of the draws are learnt from, by likelihood, and the other half tells how near: the mean of −log π under p.
    The smallest rate where none helps. π is left as it was.
    """
    learns = [weight for weight in policy.parameters() if weight.requires_grad]
    first = [weight.detach().clone() for weight in learns]
    half = len(drawn.log_weights) // 2
    model: Any = policy
    shares = torch.softmax(drawn.log_weights, 0)

    @torch.no_grad()
    def distance() -> float:
        place = torch.arange(half, len(shares))
        own = shares[half:] / shares[half:].sum()
        values = [model.log_prob(drawn.x.select(part)).double().cpu() for part in torch.split(place, batch_size)]
        log_policy = torch.cat(values)
        return float(-torch.where(own > 0, own * log_policy, 0.0).sum())

    if not (bool((shares[:half] > 0).any()) and bool((shares[half:] > 0).any())):
        return min(rates)
    best, found = distance(), min(rates)
    for rate in rates:
        generator = Generator().manual_seed(seed)
        optimiser = torch.optim.Adam(learns, lr=rate)
        for _ in range(steps):
            chosen = torch.multinomial(shares[:half], batch_size, replacement=True, generator=generator)
            loss = -model.log_prob(drawn.x.select(chosen.to(drawn.x.lengths.device))).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learns, 1.0)
            optimiser.step()
        if math.isfinite(reached := distance()) and reached < best:
            best, found = reached, rate
        with torch.no_grad():
            for weight, was in zip(learns, first, strict=True):
                weight.copy_(was)
                weight.grad = None
    return found
