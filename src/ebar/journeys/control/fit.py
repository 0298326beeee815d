"""λ for what is to be true of the text, and what that came to.

lambda.json     λ, with intervals
results.json    moments before and after, effective samples per draw, how far p is from q
report.html     the same for people
"""

import json
import math
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.config.control import ControlConfig, read_control
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.effective_samples import (
    Budget,
    EffectiveSamples,
    budget_or_reason,
    effective_samples,
    effective_samples_of_base,
    mean_influence,
    same_draws,
)
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Features, Followed
from ebar.journeys.control.subject import Subject, load, subject_of
from ebar.journeys.control.terms import Constraint, read_terms
from ebar.maths.importance import all_warnings, unseen_side
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.loading import Loaded
from ebar.models.tilted import Tilted
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import guided
from ebar.samplers.resample import multinomial
from ebar.samplers.scored_draws import ScoredDraws, draw_scored
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving, to_json
from ebar.training.moment_matching import Fitted, Newton
from ebar.training.moment_matching.newton import UnsatisfiedError
from ebar.training.moment_matching.search import Pilot, Search
from ebar.types import Estimate

FITTING, LOOKING, CHECKING, SEEKING = range(4)  # what a stage's random numbers are folded with
PILOT = 1000  # draws of q, to see whether it shows what is wanted


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """P(x) = q(x)·exp⟨λ, φ(x)⟩, q a language model and φ what is wanted of its text."""

    control: ControlConfig
    subject: Subject
    constraints: list[Constraint]
    fitted: Fitted
    loaded: Loaded | None = None  # what q was read from, where it is to be written again

    @cached_property
    def features(self) -> Features:
        """As they were asked for."""
        return Features([constraint.feature for constraint in self.constraints])

    @cached_property
    def target(self) -> Tilted:
        """P itself, which learns no more."""
        counted = Features([constraint.counted for constraint in self.constraints])
        energy = Linear(counted, self.fitted.coefficients.clone()).to(self.subject.device)
        return Tilted(self.subject.model, energy).eval().requires_grad_(False)

    @property
    def foresees(self) -> bool:
        """Whether an automaton follows any of it, so that looking ahead is possible."""
        return any(isinstance(constraint.counted, Followed) for constraint in self.constraints)

    @cached_property
    def ahead(self) -> Guided | None:
        """q steered towards P, made from the seed; None where no automaton follows what is wanted."""
        if not self.foresees:
            return None
        return guided(self.target, draws=self.control.surrogate_draws, generator=self.generator(LOOKING))

    def generator(self, *stage: int) -> Generator:
        return Generator(device=self.subject.device).manual_seed(folded(self.control.seed, *stage))


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What fresh draws say of a controlled model."""

    before: dict[str, Estimate]  # moments of q
    steered: dict[str, Estimate] | None  # of draws that look ahead, as they come
    after: dict[str, Estimate]  # of p
    worth: dict[str, EffectiveSamples]  # of draws of q, and looking ahead
    log_z: Estimate
    divergence: Estimate  # KL(p‖q)
    texts: dict[str, list[str]]
    budgets: dict[str, Budget | str] | None = None  # draws for a wanted half-width, or why that cannot be said

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "before": _plain(self.before),
            "steered": None if self.steered is None else _plain(self.steered),
            "after": _plain(self.after),
            "effective_samples_per_draw": {name: one.to_dict() for name, one in self.worth.items()},
            "log_z": self.log_z._asdict(),
            "kl_of_p_from_model": self.divergence._asdict(),
            "texts": self.texts,
            "budgets": None
            if self.budgets is None
            else {name: one if isinstance(one, str) else one._asdict() for name, one in self.budgets.items()},
        }


def fit(control: ControlConfig, folder: Path) -> Controlled:
    """λ by Newton's method, read back where the folder has it."""
    loaded = load(control)
    subject = subject_of(control, loaded)
    return fitted_to(control, subject, folder, loaded=loaded)


def fitted_to(control: ControlConfig, subject: Subject, folder: Path, *, loaded: Loaded | None = None) -> Controlled:
    """The same for any model."""
    constraints = read_terms(control.features, subject)
    path = folder / "lambda.json"
    kept = path.exists()
    fitted = (
        Fitted.from_dict(json.loads(path.read_text(encoding="utf-8"))) if kept else match(control, subject, constraints)
    )
    controlled = Controlled(control=control, subject=subject, constraints=constraints, fitted=fitted, loaded=loaded)
    if not kept:
        if fitted.effective_sample_size == 0:
            _seek(controlled)  # before anything is kept: a folder with λ is not given to another configuration
        with saving(str(path)):
            replace_file(path, to_json(fitted.to_dict(), indent=1))
    return controlled


def match(control: ControlConfig, subject: Subject, constraints: list[Constraint]) -> Fitted:
    """λ: −∞ for what is forbidden and, where there is more, Newton's method for the rest.

    On draws of q and, where q seldom or never shows what is wanted, of a look-ahead proposal as well.
    """
    began = time.monotonic()
    counted = Features([constraint.counted for constraint in constraints])
    wanted = torch.tensor([constraint.counted_moment for constraint in constraints], dtype=torch.float64)
    hard = torch.tensor([constraint.pointwise for constraint in constraints])
    generator = Generator(device=subject.device).manual_seed(folded(control.seed, FITTING))
    search = Search(
        draws=min(PILOT, control.draws // 2, control.rows),
        surrogate_draws=control.surrogate_draws,
        batch_size=control.rows,
    )
    pilot = search.pilot(subject.model, counted, wanted, hard, generator=generator)
    if bool(hard.all()):
        return _forbidding(pilot, time.monotonic() - began)
    ahead = search.proposal(pilot, generator=generator)
    method = Newton(draws=control.draws, hard=True, proposal="base", batch_size=control.rows)
    try:
        fitted = method.fit(subject.model, counted, moments=wanted, proposal=ahead, generator=generator)
    except UnsatisfiedError:
        raise _none_satisfies(constraints, control.draws, "draws", any(pilot.followed)) from None
    _check_shown(constraints, fitted)
    return fitted


def _check_shown(constraints: list[Constraint], fitted: Fitted) -> None:
    """Of what all draws have, or none, nothing is known of λ: 0 would be a wrong answer."""
    for constraint, moment in zip(constraints, fitted.model_moments, strict=True):
        if constraint.pointwise or 1e-12 < moment.value < 1 - 1e-12:
            continue
        which, wanted = ("None", "commoner") if moment.value < 0.5 else ("Every one", "rarer")
        other = f"a {wanted} word" if isinstance(constraint.counted, Followed) else f"something {wanted}"
        raise UserError(
            f"{which} of the {fitted.draws:,} draws has {constraint.feature.name!r}: give more --draws, or {other}."
        )


def _none_satisfies(constraints: list[Constraint], n: int, option: str, foresees: bool) -> UserError:
    """`option` is the one that more draws come from."""
    must = [repr(constraint.feature.name) for constraint in constraints if constraint.moment == 1]
    never = [repr(constraint.feature.name) for constraint in constraints if constraint.moment == 0]
    has = [f"has what must be in every text ({', '.join(must)})"] if must else []
    lacks = [f"lacks what must be in none ({', '.join(never)})"] if never else []
    blind = "" if foresees else ", and no automaton can look ahead to it"
    return UserError(
        f"None of the {n:,} draws {' and '.join(has + lacks)}{blind}: give more --{option}, or a share between 0 and 1."
    )


def _seek(controlled: Controlled) -> None:
    """Where the first draws have nothing of P: whether others do, looking ahead if that is possible."""
    control, generator = controlled.control, controlled.generator(SEEKING)
    for size in shares(control.draws, None, control.rows):
        found = draw_scored(
            controlled.target, size, ahead=controlled.ahead, features=controlled.features, rows=control.rows,
            generator=generator,
        )  # fmt: skip
        if bool((found.log_weights > -math.inf).any()):
            return
    raise _none_satisfies(controlled.constraints, control.draws, "draws", controlled.foresees)


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


def open_controlled(folder: Path) -> Controlled:
    """What `fit` left in a folder."""
    control = read_control(folder)
    if not (folder / "lambda.json").exists():
        raise UserError(f"{folder} has no λ yet: finish `ebar control fit` first.")
    return fit(control, folder)


SHOWN = 8  # texts of each kind


def check(controlled: Controlled, *, within: float | None = None) -> Checked:
    """Moments and worth on draws that λ was not found by; and how many draws make them known `within` a half-width."""
    control, target, features = controlled.control, controlled.target, controlled.features
    generator = controlled.generator(CHECKING)
    plain = draw_scored(target, control.checks, ahead=None, features=features, rows=control.rows, generator=generator)
    ahead = controlled.ahead
    drawn = plain
    if ahead is not None:
        drawn = draw_scored(
            target, control.checks, ahead=ahead, features=features, rows=control.rows, generator=generator
        )
    if not bool((drawn.log_weights > -math.inf).any()):
        raise _none_satisfies(controlled.constraints, control.checks, "checks", controlled.foresees)
    gains = {"the model": _worth_of_model(controlled, plain, None if ahead is None else drawn)}
    if ahead is not None:
        gains["looking ahead"] = effective_samples(
            drawn.log_weights, same_draws(drawn.x), unseen=unseen(controlled, drawn)
        )
    moments_of_p, log_z = after(controlled, drawn), log_mean(drawn.log_weights[None])[0].estimate
    return Checked(
        before=means_by_name(plain.values, features),
        steered=None if ahead is None else means_by_name(drawn.unforced, features),
        after=moments_of_p,
        worth=gains,
        log_z=log_z,
        divergence=kl_to_model(drawn.log_weights, drawn.log_g, drawn.log_q),
        budgets=None if within is None else _budgets(drawn, log_z, moments_of_p, within),
        texts={
            "the model": controlled.subject.text(plain.x.select(torch.arange(min(SHOWN, control.checks)))),
            "controlled": resampled_text(controlled, drawn, SHOWN, generator),
        },
    )


def _budgets(
    drawn: ScoredDraws, log_z: Estimate, moments_of_p: dict[str, Estimate], within: float
) -> dict[str, Budget | str]:
    draws, log_weights = len(drawn.log_weights), drawn.log_weights
    found = {"log Z": budget_or_reason(log_z, mean_influence(log_weights), draws, within=within)}
    for column, (name, moment) in enumerate(moments_of_p.items()):
        influence = mean_influence(log_weights, drawn.values[:, column])
        found[name] = budget_or_reason(moment, influence, draws, within=within)
    return found


def unseen(controlled: Controlled, drawn: ScoredDraws) -> str | None:
    """What the draws never showed of p: a side of a feature that some texts are to have, and not all."""
    return all_warnings(
        *(
            unseen_side(
                constraint.feature.name, float(column.min()), float(column.max()),
                float(constraint.feature.low), float(constraint.feature.high),
            )
            for constraint, column in zip(controlled.constraints, drawn.values.T, strict=True)
            if not constraint.pointwise
        )
    )  # fmt: skip


def _worth_of_model(controlled: Controlled, plain: ScoredDraws, ahead: ScoredDraws | None) -> EffectiveSamples:
    """Of draws of q. Where they do not show all that p has, draws that look ahead tell what they are worth."""
    missing = unseen(controlled, plain)
    own = effective_samples(plain.log_weights, same_draws(plain.x), unseen=missing)
    if missing is None or ahead is None:
        return own
    told = effective_samples_of_base(ahead.log_weights, ahead.log_weights + ahead.log_g - ahead.log_q)
    warning = all_warnings(f"{missing}; so this is from draws that look ahead", told.warning)
    return own._replace(per_draw=told._replace(warning=warning))


def after(controlled: Controlled, drawn: ScoredDraws) -> dict[str, Estimate]:
    """Moments of p; a pointwise one is what it has to be, however few were drawn."""
    found = means_by_name(drawn.values, controlled.features, drawn.log_weights)
    for constraint in controlled.constraints:
        if constraint.pointwise:
            found[constraint.feature.name] = Estimate.exact(constraint.moment)
    return found


def resampled_text(controlled: Controlled, drawn: ScoredDraws, n: int, generator: Generator) -> list[str]:
    """Texts of p: some of the draws, as often as their weights say."""
    if not bool((drawn.log_weights > -torch.inf).any()):
        return []
    rows = multinomial(drawn.log_weights[None].to(generator.device), n, generator)[0]
    return controlled.subject.text(drawn.x.select(rows.to(drawn.x.tokens.device)))


def _plain(column: dict[str, Estimate]) -> dict[str, Any]:
    return {name: figure._asdict() for name, figure in column.items()}
