"""A language model under constraints, P(x) = q(x)·exp⟨λ, φ(x)⟩, as `ebar control` has it, for one request.

Or with an energy that was learnt: P(x|C) = q(x|C)·exp(−E(x, C)).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Generator as Steps
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.build.control import read_constraints
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.exact import device_of, table
from ebar.estimators.per_step import per_step
from ebar.evaluation.next_words import next_words
from ebar.features.feature import Followed
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.continuing import continued_from
from ebar.journeys.control.journey import control
from ebar.journeys.residual.journey import Residual
from ebar.maths.enumeration import all_sequences, has_at_most
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored, guided
from ebar.serve.ahead import encoded, parts_ahead, spellings
from ebar.serve.allowance import Allowance
from ebar.serve.catalogue import Opened
from ebar.serve.found import Asked, Cloud, Found, Knob, Moment, NextWord, Part, Progress, heaviest
from ebar.serve.limits import Limits, Watched, WatchedEnergy, check_automata, check_terms, rows_at_once
from ebar.training.moment_matching.newton import Newton
from ebar.types import Context, Estimate, Sequences

ENUMERATED = 2048  # texts of a space in which nothing need be drawn
Some = TypeVar("Some")
WORDS = 8  # next words, of q and of p


class Fit(NamedTuple):
    """P with its λ, and the proposal that heads for it, where an automaton follows a feature."""

    constraints: Constraints
    target: Tilted
    coefficients: Sequence[Estimate]
    ahead: Guided | None


class Measured(NamedTuple):
    """Texts of q and of P with their features."""

    q: Cloud
    q_values: Float[Tensor, "points features"]
    p: Cloud
    p_values: Float[Tensor, "others features"]


def constrained(opened: Opened, asked: Asked, limits: Limits, allowance: Allowance) -> Iterator[Progress | Found]:
    """λ, weighted draws and all that is read off them. Stops between batches, and between steps of the model."""
    length = limits.check_number(asked.length, limits.length, "Tokens of a text")
    n = limits.check_number(asked.draws, limits.draws, "Draws", least=50)
    seed = limits.check_number(asked.seed, 2**31, "Seed", least=0)
    check_terms(asked.terms, limits)
    wanted = read_constraints(asked.terms) if asked.terms else []
    if not isinstance(opened.model, Pretrained):
        length = min(length, opened.model.space.length)
    sized = continued_from(opened.model, "", opened.reading, length)
    rows = rows_at_once(sized, length, limits)
    watched = Watched(sized, allowance, rows, opened.reading)
    reading = replace(opened.reading, longest=length, before=asked.prompt if asked.reads_prompt else "")
    q = continued_from(watched, asked.prompt, reading)
    generator = Generator(device=device_of(q)).manual_seed(seed)
    if not wanted:
        yield from _unconstrained(q, reading, asked, n, rows, generator)
        return
    check_automata([feature for feature, _ in wanted], reading, watched.space.vocabulary, length, limits)
    yield Progress("finding λ")
    if has_at_most(q.space, ENUMERATED):
        fit = _fitted_exactly(q, Constraints.of(wanted, reading), n, generator)
        measured = _enumerated(fit, reading)
    else:
        found = control(
            watched, wanted, prompt=asked.prompt, reads_prompt=asked.reads_prompt, length=length, draws=2 * n,
            checks=n, surrogate_draws=n, rows=rows, seed=seed, description="playground",
        )  # fmt: skip
        yield Progress("looking ahead")
        fit = Fit(found.constraints, found.p, found.fitted.intervals, found.ahead)
        measured = yield from _drawn(fit, reading, n, rows, generator)
    yield _told(asked, fit, measured, reading, next_log_probs(q))


@torch.no_grad()
def next_log_probs(q: Any) -> Float[Tensor, " vocabulary"]:
    """q's next token."""
    return torch.log_softmax(q.start(1)[0][0].double(), -1).cpu()


def _fitted_exactly(q: Any, constraints: Constraints, n: int, generator: Generator) -> Fit:
    """λ from all texts; a proposal is made too, for what it foresees of a token."""
    wanted = torch.tensor([one.counted_moment for one in constraints], dtype=torch.float64)
    coefficients = torch.full_like(wanted, -math.inf)
    if not all(one.pointwise for one in constraints):
        method = Newton(proposal="exact", hard=True)
        coefficients = method.fit(q, constraints.counted, moments=wanted, generator=generator).coefficients
    energy = Linear(constraints.counted, coefficients.clone()).to(device_of(q))
    target = Tilted(q, energy).eval().requires_grad_(False)
    followed = any(isinstance(one.counted, Followed) for one in constraints)
    ahead = guided(target, draws=n, generator=generator) if followed else None
    return Fit(constraints, target, [Estimate.exact(value) for value in coefficients.tolist()], ahead)


def _enumerated(fit: Fit, reading: Reading) -> Measured:
    """Every text with its weight."""
    target, x = fit.target, all_sequences(fit.target.space)
    with torch.no_grad():
        log_q, energy = (
            table(function, target.space, device=device_of(target.base))[0].double().cpu()
            for function in (lambda x: score(target.base, x), lambda x: measured_energy(target.energy, x))
        )
    texts, values = [reading.text(row) for row in x.rows()], fit.constraints.features(x).double()
    p = Cloud(x, texts, log_q, energy, log_q - energy, exact=True)
    return Measured(Cloud(x, texts, log_q, energy, log_q, exact=True), values, p, values)


def _drawn(fit: Fit, reading: Reading, n: int, rows: int, generator: Generator) -> Steps[Progress, None, Measured]:
    """n draws of q and, where there is a proposal, n of that."""
    plain = yield from _batches(fit, n, rows, None, generator, "drawing from q")
    drawn = plain
    if fit.ahead is not None:
        drawn = yield from _batches(fit, n, rows, fit.ahead, generator, "drawing towards p")
    if not bool((drawn.log_weights > -math.inf).any()):
        names = ", ".join(f"“{one.feature.name}”" for one in fit.constraints if one.pointwise)
        raise UserError(f"None of the {n:,} draws has what is wanted ({names}): ask for more draws or longer texts.")
    q, p = (
        Cloud(one.x, [reading.text(row) for row in one.x.rows()], one.log_q, one.log_q - one.log_g - weights, weights)
        for one, weights in ((plain, torch.zeros_like(plain.log_q)), (drawn, drawn.log_weights))
    )
    return Measured(q, plain.values, p, drawn.values)


def _in_parts(n: int, rows: int, words: str, some: Callable[[int], Some]) -> Steps[Progress, None, list[Some]]:
    """n draws, at most so many rows of them at a time."""
    parts, done = list[Some](), 0
    for size in shares(n, None, rows):
        yield Progress(words, done, n)
        parts.append(some(size))
        done += size
    return parts


def _batches(
    fit: Fit, n: int, rows: int, ahead: Guided | None, generator: Generator, words: str
) -> Steps[Progress, None, ScoredDraws]:  # fmt: skip
    some = partial(
        draw_scored, fit.target, ahead=ahead, features=fit.constraints.features, rows=rows, generator=generator
    )
    parts = yield from _in_parts(n, rows, words, some)
    columns = zip(*(part[1:] for part in parts), strict=True)
    return ScoredDraws(Sequences.join([part.x for part in parts]), *(torch.cat(column) for column in columns))


def _told(asked: Asked, fit: Fit, measured: Measured, reading: Reading, log_q: Float[Tensor, " vocabulary"]) -> Found:
    """All figures."""
    cloud, steps = measured.p, None if fit.ahead is None else partial(parts_ahead, fit.ahead, reading)
    moments, knobs = [], []
    for column, one in enumerate(fit.constraints):
        name, low, high = one.feature.name, float(one.feature.low), float(one.feature.high)
        before = measured.q.mean(measured.q_values[:, column], low=low, high=high, name=name)
        if one.pointwise:
            moments.append(Moment(name, one.moment, None, before, Estimate.exact(one.moment)))
            continue
        values, coefficient = measured.p_values[:, column], fit.coefficients[column]
        after = cloud.mean(values, low=low, high=high, name=name)
        moments.append(Moment(name, one.moment, coefficient, before, after))
        knobs.append(Knob(name, values, values, coefficient.value, low, high))
    notes = [_missed(one) for one in moments if one.wanted is not None and not _near(one.p, one.wanted)]
    if cloud.exact:
        notes.append(f"All {len(cloud.texts):,} texts are summed over: nothing is drawn, and every figure is exact.")
    return Found(
        asked=asked,
        what=_what(fit.constraints),
        words=cloud.first_tokens(log_q, spellings(reading, len(log_q)), WORDS),
        words_from="exact" if cloud.exact else "from the first tokens of the weighted draws",
        log_z=cloud.log_z(),
        effective=cloud.effective(),
        moments=moments,
        knobs=knobs,
        cloud=cloud,
        parts=None if steps is None else lambda text, _: steps(encoded(reading, text)),
        parts_mean="how much likelier each token makes what is wanted, as the look-ahead foresees it",
        candidates=heaviest(cloud, steps),
        notes=notes,
    )


def _unconstrained(
    q: Any, reading: Reading, asked: Asked, n: int, rows: int, generator: Generator
) -> Iterator[Progress | Found]:
    """P is q itself."""
    parts = yield from _in_parts(n, rows, "drawing from q", lambda size: propose(q, size, None, generator))
    x = Sequences.join([part[0] for part in parts])
    log_q = torch.cat([part[1].double().cpu() for part in parts])
    nothing = torch.zeros_like(log_q)
    cloud = Cloud(x, [reading.text(row) for row in x.rows()], log_q, nothing, nothing)
    log_next = next_log_probs(q)
    words = cloud.first_tokens(log_next, spellings(reading, len(log_next)), WORDS)
    words = [word._replace(p=Estimate.exact(word.q)) for word in sorted(words, key=lambda one: (one.token < 0, -one.q))]
    yield Found(
        asked=asked, what="There is no constraint, so p is q itself.", words=words, words_from="exact",
        log_z=Estimate.exact(0.0), effective=cloud.effective(), moments=[], knobs=[], cloud=cloud, parts=None,
        parts_mean="", candidates=heaviest(cloud),
    )  # fmt: skip


def _what(constraints: Constraints) -> str:
    shares_of = {1.0: "every text", 0.0: "no text"}
    said = [
        f"“{one.feature.name}” in {shares_of.get(one.moment, f'{one.moment:.0%} of the texts')}" for one in constraints
    ]
    return f"p is the distribution nearest to q that has {', '.join(said)}."


def _near(found: Estimate, wanted: float) -> bool:
    return found.low - 1e-3 <= wanted <= found.high + 1e-3


def _missed(one: Moment) -> str:
    return (
        f"The mean of “{one.name}” under p misses what was wanted, as its λ was found on few draws: ask for more, or "
        "turn λ below."
    )


FUTURES = 16  # of each next word, and at each token of a text


def watched(residual: Residual, allowance: Allowance, rows: int) -> Residual:
    """The same, stopped as soon as the allowance is used up."""
    q = Watched(residual.base.q, allowance, rows)
    return replace(
        residual, base=replace(residual.base, q=q), energy=WatchedEnergy(residual.energy, allowance), at_once=rows
    )


def energised(residual: Residual, asked: Asked, limits: Limits, allowance: Allowance) -> Iterator[Progress | Found]:
    """Next words, weighted draws and all that is read off them."""
    if asked.terms:
        raise UserError("This run has an energy of its own: leave the constraints empty, or pick another model.")
    n = limits.check_number(asked.draws, limits.draws, "Draws", least=50)
    seed = limits.check_number(asked.seed, 2**31, "Seed", least=0)
    length = residual.base.q.space.length
    if length > limits.length:
        raise UserError(f"This run's texts have {length} tokens, and at most {limits.length} are drawn here.")
    rows = rows_at_once(residual.base.q, length, limits)
    own = watched(residual, allowance, rows)
    q, context = own.base.q, own.base.context_of(asked.prompt)
    generator = Generator(device=own.base.device).manual_seed(seed)
    yield Progress("next words")
    words = next_words(q, own.energy, context, candidates=2 * WORDS, n=FUTURES, batch_size=rows, generator=generator)
    before = own.base.encode(asked.prompt) if asked.prompt else []
    listed = [NextWord(one.token, own.base.spell(before, [one.token]), one.base, one.joint) for one in words.words]
    if words.rest is not None:
        listed.append(NextWord(-1, "all others", words.rest.base, words.rest.joint))

    def some(size: int) -> tuple[Sequences, Tensor, Tensor]:
        x, log_q = propose(q, size, context, generator)
        return x, log_q.double().cpu(), measured_energy(own.energy, x, context).detach().double().cpu()

    parts = yield from _in_parts(n, rows, "drawing from q", some)
    x = Sequences.join([part[0] for part in parts])
    log_q, energy = torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])
    cloud = Cloud(x, own.texts(x, asked.prompt), log_q, energy, -energy)
    plain = Cloud(x, cloud.texts, log_q, energy, torch.zeros_like(log_q))  # the same draws as those of q
    knob = Knob("energy E", -energy, energy, 1.0)
    yield Found(
        asked=asked, what="p is q·exp(−E)/Z: q's texts, those of low energy preferred.", words=listed,
        words_from=f"from {FUTURES} futures of each, as `ebar residual explain` has them", log_z=cloud.log_z(),
        effective=cloud.effective(),
        moments=[Moment("energy E", None, None, plain.mean(energy, name="energy"), cloud.mean(energy, name="energy"))],
        knobs=[knob], cloud=cloud,
        parts=lambda text, spare: parts_joint(residual, asked.prompt, text, rows, seed, spare),
        parts_mean="how much likelier each token is under p than under q", candidates=heaviest(cloud),
    )  # fmt: skip


def parts_joint(residual: Residual, prompt: str, text: str, rows: int, seed: int, allowance: Allowance) -> list[Part]:
    """log p − log q of each token, from futures at every place: they sum to −E(x) − log Ẑ."""
    own = watched(residual, allowance, rows)
    context: Context | None = own.base.context_of(prompt)
    x = own.base.continuation_of(prompt, text)
    generator = Generator(device=own.base.device).manual_seed(seed)
    steps = per_step(
        own.base.q, own.energy, x, context, n=FUTURES, exact_last=False, batch_size=rows, generator=generator
    )
    before, tokens = own.base.encode(prompt) if prompt else [], x.prefix(0)
    gains = (steps.log_joint - steps.log_q)[0].tolist()
    return [
        Part(own.base.spell([*before, *tokens[:place]], [token]), gain if math.isfinite(gain) else math.nan)
        for place, (token, gain) in enumerate(zip(tokens, gains, strict=False))
    ]
