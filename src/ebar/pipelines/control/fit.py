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
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.build.pretrained import Loaded
from ebar.config.control import Control, read_control
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.log_z import log_mean
from ebar.features.feature import Features, Followed
from ebar.maths.log_space import effective_sample_size
from ebar.models.tilted import Tilted
from ebar.pipelines.control.draws import Drawn, divergence_of, draw, joined, moments, worth
from ebar.pipelines.control.subject import Subject, load, subject_of
from ebar.pipelines.control.terms import Constraint, read_terms
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import guided
from ebar.training.batches import folded
from ebar.training.moment_matching import Fitted, Newton
from ebar.training.storage import replace as replace_file
from ebar.training.storage import saving, to_json
from ebar.types import Estimate

FITTING, LOOKING, CHECKING = range(3)  # what a stage's random numbers are folded with
PILOT = 1000  # draws of q, to see whether it shows what is wanted
ENOUGH = 0.2  # effective draws per draw of q, below which it is worth looking ahead


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """P(x) = q(x)·exp⟨λ, φ(x)⟩, q a language model and φ what is wanted of its text."""

    control: Control
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
    worth: dict[str, Estimate]  # effective samples per draw, of q and looking ahead
    log_z: Estimate
    divergence: Estimate  # KL(p‖q)
    texts: dict[str, list[str]]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "before": _plain(self.before),
            "steered": None if self.steered is None else _plain(self.steered),
            "after": _plain(self.after),
            "effective_samples_per_draw": _plain(self.worth),
            "log_z": self.log_z._asdict(),
            "kl_of_p_from_model": self.divergence._asdict(),
            "texts": self.texts,
        }


def fit(control: Control, folder: Path) -> Controlled:
    """λ by Newton's method, read back where the folder has it."""
    loaded = load(control)
    subject = subject_of(control, loaded)
    return fitted_to(control, subject, folder, loaded=loaded)


def fitted_to(control: Control, subject: Subject, folder: Path, *, loaded: Loaded | None = None) -> Controlled:
    """The same for any model."""
    constraints = read_terms(control.features, subject)
    path = folder / "lambda.json"
    if path.exists():
        fitted = Fitted.from_dict(json.loads(path.read_text(encoding="utf-8")))
    else:
        fitted = match(control, subject, constraints)
        with saving(str(path)):
            replace_file(path, to_json(fitted.to_dict(), indent=1))
    return Controlled(control=control, subject=subject, constraints=constraints, fitted=fitted, loaded=loaded)


def match(control: Control, subject: Subject, constraints: list[Constraint]) -> Fitted:
    """λ: −∞ for what is forbidden and, where there is more, Newton's method for the rest.

    On draws of q and, where q seldom shows what is wanted, of q looking ahead as well.
    """
    began = time.monotonic()
    counted = Features([constraint.counted for constraint in constraints])
    generator = Generator(device=subject.device).manual_seed(folded(control.seed, FITTING))
    pilot = subject.model.sample(min(PILOT, control.draws // 2, control.rows), generator=generator)
    target = _guess(subject, constraints, counted, counted(pilot).double())
    nothing = torch.zeros(len(pilot.lengths), dtype=torch.float64, device=subject.device)
    plain = joined([Drawn(pilot, nothing, nothing, -target.energy(pilot), counted(pilot))])
    if all(constraint.pointwise for constraint in constraints):
        return _forbidding(counted, plain, time.monotonic() - began)
    can = any(isinstance(constraint.counted, Followed) for constraint in constraints)
    ahead = None
    if can and worth(plain.log_weights).value < ENOUGH:
        ahead = guided(target, draws=control.surrogate_draws, generator=generator)
    wanted = torch.tensor([constraint.counted_moment for constraint in constraints], dtype=torch.float64)
    method = Newton(draws=control.draws, hard=True, proposal="base", batch_size=control.rows)
    return method.fit(subject.model, counted, moments=wanted, proposal=ahead, generator=generator)


def _guess(
    subject: Subject, constraints: list[Constraint], counted: Features, values: Float[Tensor, "draws features"]
) -> Tilted:
    """P with λ as if each feature were alone, to look ahead to; half a draw is added on either side of each."""
    guess = []
    for constraint, frequency in zip(constraints, ((values.sum(0) + 0.5) / (len(values) + 1)).tolist(), strict=True):
        if constraint.pointwise:
            guess.append(-math.inf)
        else:
            odds = [math.log(share) - math.log1p(-share) for share in (constraint.moment, frequency)]
            guess.append(odds[0] - odds[1])
    energy = Linear(counted, torch.tensor(guess, dtype=torch.float64)).to(subject.device)
    return Tilted(subject.model, energy).requires_grad_(False)


def _forbidding(counted: Features, plain: Drawn, seconds: float) -> Fitted:
    """P = q·1[…] where every constraint is pointwise: there is no λ to find."""
    never = torch.full((len(counted),), -math.inf, dtype=torch.float64)
    return Fitted(
        method="forbidding",
        names=tuple(counted.names),
        coefficients=never,
        covariance=None,
        data_moments=(0.0,) * len(counted),
        model_moments=(Estimate.exact(0.0),) * len(counted),
        base_moments=tuple(moments(plain, counted, weighted=False).values()),
        distance=0.0,
        effective_sample_size=float(effective_sample_size(plain.log_weights)),
        log_z=log_mean(plain.log_weights[None])[0].estimate,
        draws=len(plain.log_weights),
        seconds=seconds,
        intervals=tuple(Estimate.exact(value) for value in never.tolist()),
    )


def open_controlled(folder: Path) -> Controlled:
    """What `fit` left in a folder."""
    control = read_control(folder / "config.yaml")
    if not (folder / "lambda.json").exists():
        raise UserError(f"{folder} has no λ yet: finish `ebar control fit` first.")
    return fit(control, folder)


SHOWN = 8  # texts of each kind


def check(controlled: Controlled) -> Checked:
    """Moments and worth on draws that λ was not found by."""
    control, target, features = controlled.control, controlled.target, controlled.features
    generator = controlled.generator(CHECKING)
    plain = draw(target, control.checks, ahead=None, features=features, rows=control.rows, generator=generator)
    ahead = controlled.ahead
    drawn = plain
    if ahead is not None:
        drawn = draw(target, control.checks, ahead=ahead, features=features, rows=control.rows, generator=generator)
    gains = {"the model": worth(plain.log_weights)}
    if ahead is not None:
        gains["looking ahead"] = worth(drawn.log_weights)
    return Checked(
        before=moments(plain, features, weighted=False),
        steered=None if ahead is None else moments(drawn, features, weighted=False),
        after=after(controlled, drawn),
        worth=gains,
        log_z=log_mean(drawn.log_weights[None])[0].estimate,
        divergence=divergence_of(drawn, drawn.log_q),
        texts={
            "the model": controlled.subject.text(plain.x.select(torch.arange(min(SHOWN, control.checks)))),
            "controlled": resampled_text(controlled, drawn, SHOWN, generator),
        },
    )


def after(controlled: Controlled, drawn: Drawn) -> dict[str, Estimate]:
    """Moments of p; a pointwise one is what it has to be, however few were drawn."""
    found = moments(drawn, controlled.features, weighted=True)
    for constraint in controlled.constraints:
        if constraint.pointwise:
            found[constraint.feature.name] = Estimate.exact(constraint.moment)
    return found


def resampled_text(controlled: Controlled, drawn: Drawn, n: int, generator: Generator) -> list[str]:
    """Texts of p: some of the draws, as often as their weights say."""
    if not bool((drawn.log_weights > -torch.inf).any()):
        return []
    shares = torch.softmax(drawn.log_weights, 0)
    rows = torch.multinomial(shares.to(generator.device), n, replacement=True, generator=generator)
    return controlled.subject.text(drawn.x.select(rows.to(drawn.x.tokens.device)))


def _plain(column: dict[str, Estimate]) -> dict[str, Any]:
    return {name: figure._asdict() for name, figure in column.items()}
