"""λ of a controlled model: −∞ for what is forbidden, moment matching for the rest."""

import math
import time
from typing import Any

import torch
from torch import Generator

from ebar.errors import UserError
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Followed
from ebar.journeys.control.constraints import Constraints
from ebar.maths.log_space import effective_sample_size
from ebar.training.moment_matching.matching import Fitted
from ebar.training.moment_matching.newton import Newton, UnsatisfiedError
from ebar.training.moment_matching.search import Pilot, Search
from ebar.types import Estimate

PILOT = 1000  # draws of q, to see whether it shows what is wanted


def find_coefficients(
    q: Any, constraints: Constraints, *, draws: int, surrogate_draws: int, rows: int, generator: Generator
) -> Fitted:
    """λ: −∞ for what is forbidden and, where there is more, Newton's method for the rest.

    On draws of q and, where q seldom or never shows what is wanted, of a look-ahead proposal as well.
    """
    began = time.monotonic()
    counted = constraints.counted
    wanted = torch.tensor([one.counted_moment for one in constraints], dtype=torch.float64)
    hard = torch.tensor([one.pointwise for one in constraints])
    search = Search(draws=min(PILOT, draws // 2, rows), surrogate_draws=surrogate_draws, batch_size=rows)
    pilot = search.pilot(q, counted, wanted, hard, generator=generator)
    if bool(hard.all()):
        return _forbidding(pilot, time.monotonic() - began)
    ahead = search.proposal(pilot, generator=generator)
    method = Newton(draws=draws, hard=True, proposal="base", batch_size=rows)
    try:
        fitted = method.fit(q, counted, moments=wanted, proposal=ahead, generator=generator)
    except UnsatisfiedError:
        raise constraints.none_satisfies(draws, "draws", constraints.foreseen) from None
    for one, moment in zip(constraints, fitted.model_moments, strict=True):
        # Of what all draws have, or none, nothing is known of λ: 0 would be a wrong answer.
        if one.pointwise or 1e-12 < moment.value < 1 - 1e-12:
            continue
        which, other = ("None", "commoner") if moment.value < 0.5 else ("Every one", "rarer")
        other = f"a {other} word" if isinstance(one.counted, Followed) else f"something {other}"
        raise UserError(
            f"{which} of the {fitted.draws:,} draws has {one.feature.name!r}: give more --draws, or {other}."
        )
    return fitted


def _forbidding(pilot: Pilot, seconds: float) -> Fitted:
    """P = q·1[…] where every constraint is pointwise: there is no λ to find."""
    count = len(pilot.features)
    never = torch.full((count,), -math.inf, dtype=torch.float64)
    return Fitted(
        method="forbidding",
        names=tuple(pilot.features.names),
        coefficients=never,
        covariance=None,
        data_moments=(0.0,) * count,
        model_moments=(Estimate.exact(0.0),) * count,
        base_moments=tuple(means_by_name(pilot.values, pilot.features).values()),
        distance=0.0,
        effective_sample_size=float(effective_sample_size(pilot.log_weights)),
        log_z=log_mean(pilot.log_weights[None])[0].estimate,
        draws=len(pilot.log_weights),
        seconds=seconds,
        intervals=tuple(Estimate.exact(value) for value in never.tolist()),
    )
