"""How far constraints bend a model, each alone and all together, before anything is fitted or kept.

p is the nearest distribution to q that has what is wanted. Masking, as libraries for structured text do it, forbids
token by token what can no longer come true, and goes on as q does elsewhere: what it draws has what must be, but its
distribution m(x) = q(x)/Π (mass of q that the mask let through) is not p. KL(p‖m) says how far off it is, from the same
weighted draws as the rest. Here the mask also knows how many tokens are left, which is the best that masking can do.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Generator

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.effective_samples import effective_samples_of_base
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import means_by_name
from ebar.journeys.control.constraints import Wanted, pairs_of
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.journey import control
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, score
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored
from ebar.types import Estimate, Stepwise

TOGETHER = "all together"
HEADER = (
    "constraint", "wanted", "under q", "log Z", "KL(p‖q)", "KL(p‖masking)", "effective samples per draw: q", "masking",
    "looking ahead",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Bend:
    """What one constraint, or all of them together, asks of a model: divergences in nats per text."""

    constraint: str
    wanted: float | None  # None: of all together
    under_q: Estimate | None
    log_z: Estimate | None = None
    kl_from_q: Estimate | None = None
    kl_from_masking: Estimate | None = None  # None: nothing is forbidden that an automaton follows
    effective_of_q: Estimate | None = None
    effective_of_masking: Estimate | None = None
    effective_of_look_ahead: Estimate | None = None  # None: no automaton follows what is wanted
    problem: str | None = None  # why there are no figures

    def cells(self) -> list[object]:
        """A row of the table, under `HEADER`."""
        values = [getattr(self, one.name) for one in fields(self) if one.name != "problem"]
        return ["–" if value is None else value for value in values]


def bend(model: Stepwise, constraints: Wanted, *, draws: int = 4000, seed: int = 0, **options: Any) -> list[Bend]:
    """A row for each constraint and, where there are several, one for all together; `options` are those of `control`.

    A share between 0 and 1 needs its λ, which is found on as many draws as the figures are from; intervals are those of
    the figures at that λ. Where nothing was found that satisfies a constraint, its row says so in `problem`; where that
    is so of all rows, it is an error.
    """
    pairs = pairs_of(constraints)
    told = {**options, "draws": draws, "checks": draws}
    groups = [[pair] for pair in pairs] + ([pairs] if len(pairs) > 1 else [])
    rows = [_row(model, group, folded(seed, "bend", place), told) for place, group in enumerate(groups)]
    if all(row.problem is not None for row in rows):
        raise UserError(str(rows[0].problem))
    return rows


def _row(model: Any, pairs: list[tuple[Any, float | int]], seed: int, options: dict[str, Any]) -> Bend:
    made = control(model, pairs, seed=seed, at_once=False, **options)
    alone = made.constraints[0] if len(pairs) == 1 else None
    name, wanted = (TOGETHER, None) if alone is None else (alone.feature.name, alone.moment)
    generator = Generator(device=device_of(made.q)).manual_seed(folded(seed, "draws"))
    under = None
    if alone is not None:
        before = Tilted(made.q, Linear(made.features, torch.zeros(1, dtype=torch.float64)).to(device_of(made.q)))
        plain = draw_scored(
            before, made.checks, ahead=None, features=made.features, rows=made.rows, generator=generator
        )  # fmt: skip
        under = means_by_name(plain.values, made.features)[name]
    try:
        ahead = made.ahead
        drawn = made.scored(made.checks, generator, ahead=ahead)
        if not bool((drawn.log_weights > -torch.inf).any()):
            raise made.constraints.none_satisfies(made.checks, "draws", made.foresees)
    except UserError as problem:
        return Bend(constraint=name, wanted=wanted, under_q=under, problem=str(problem))
    return Bend(constraint=name, wanted=wanted, under_q=under, **_figures(made, drawn, ahead))


@torch.no_grad()
def _figures(made: Controlled, drawn: ScoredDraws, ahead: Guided | None) -> dict[str, Any]:
    """From weighted draws: those that look ahead where they can, else draws of q."""
    log_target = drawn.log_weights + drawn.log_g
    masking = None if ahead is None else ahead.masking()
    found: dict[str, Any] = {
        "log_z": log_mean(drawn.log_weights[None])[0].estimate,
        "kl_from_q": kl_to_model(drawn.log_weights, drawn.log_g, drawn.log_q),
        "effective_of_q": made.effective_samples(drawn).per_draw,
    }
    if ahead is not None:
        found["effective_of_look_ahead"] = found["effective_of_q"]
        found["effective_of_q"] = effective_samples_of_base(drawn.log_weights, log_target - drawn.log_q)
    if masking is not None:
        n = len(drawn.log_g)
        places = [torch.arange(first, min(first + made.rows, n)) for first in range(0, n, made.rows)]
        log_masked = torch.cat([score(masking, drawn.x.select(place)).double().cpu() for place in places])
        # A text of weight 0 may be one that the mask never lets through.
        log_over = torch.where(drawn.log_weights.isneginf(), -torch.inf, log_target - log_masked)
        found["kl_from_masking"] = kl_to_model(drawn.log_weights, drawn.log_g, log_masked)
        found["effective_of_masking"] = effective_samples_of_base(drawn.log_weights, log_over)
    return found
