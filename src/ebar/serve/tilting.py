"""A language model under constraints: P(x) = q(x)·exp⟨λ, φ(x)⟩, as `ebar control` has it, for one request."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.build.control import read_constraints
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.exact import device_of, table
from ebar.features.feature import Followed
from ebar.features.regular import Regular
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.journey import continued_from, control
from ebar.maths.enumeration import all_sequences, has_at_most
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored, guided
from ebar.serve.catalogue import Opened
from ebar.serve.cloud import Cloud, Knob
from ebar.serve.found import Asked, Found, Moment, Part, Progress, heaviest
from ebar.serve.limits import Allowance, Limits, Watched
from ebar.training.moment_matching.matching import Fitted
from ebar.training.moment_matching.newton import Newton
from ebar.types import Estimate, Sequences

KINDS = ("word", "expression", "whole", "motif", "starts_with")  # those that neither run code nor open files
ENUMERATED = 2048  # texts of a space in which nothing need be drawn
BATCH = 128  # draws between two looks at the clock, at most
WORDS = 8  # next words, of q and of p


def check_terms(terms: list[str], limits: Limits) -> None:
    """Constraints that a page may ask for: a file of Python is never run for one."""
    if len(terms) > limits.terms:
        raise UserError(
            f"There are {len(terms)} constraints, and at most {limits.terms} are read here: leave some out."
        )
    for term in terms:
        kind = term.removeprefix("!").partition(":")[0]
        if kind not in KINDS:
            raise UserError(
                f"The constraint {term[:60]!r} is none of {', '.join(KINDS)}: write one such as word:rabbit|bunny=1; "
                "others are for `ebar control fit`."
            )


def rows_at_once(model: Any, length: int, limits: Limits) -> int:
    """Draws that fit in the memory of a request: keys, values and logits of each."""
    kept = getattr(model, "_kept_of_a_token", None)
    each = 32 * model.space.vocabulary + length * (kept() if callable(kept) else 4096)
    fit = int(limits.memory * 2**20) // each
    if fit < 2:
        raise UserError(f"A text of {length} tokens of this model takes too much memory here: ask for shorter ones.")
    return min(BATCH, fit)


def constrained(opened: Opened, asked: Asked, limits: Limits, allowance: Allowance) -> Iterator[Progress | Found]:
    """λ, weighted draws and all that is read off them. Stops between batches, and between steps of the model."""
    length = limits.check_number(asked.length, limits.length, "Tokens of a text")
    n = limits.check_number(asked.draws, limits.draws, "Draws", least=50)
    seed = limits.check_number(asked.seed, 2**31, "Seed", least=0)
    terms = asked.terms
    check_terms(terms, limits)
    wanted = read_constraints(terms) if terms else []
    length = min(length, opened.model.space.length) if opened.model.space.end is not None else length
    sized = continued_from(opened.model, "", opened.reading, length)
    rows = rows_at_once(sized, length, limits)
    watched = Watched(sized, allowance, rows)
    reading = replace(opened.reading, longest=length, before=asked.prompt if asked.reads_prompt else "")
    q = continued_from(watched, asked.prompt, reading)
    generator = Generator(device=device_of(q)).manual_seed(seed)
    if not wanted:
        yield from _unconstrained(q, reading, asked, n, rows, generator)
        return
    check_automata([feature for feature, _ in wanted], reading, watched.space.vocabulary, length, limits)
    exact = has_at_most(q.space, ENUMERATED)
    yield Progress("finding λ")
    if exact:
        constraints = Constraints.of(wanted, reading)
        target, fitted = _fitted_exactly(q, constraints, generator)
        ahead = _ahead(target, n, generator)
    else:
        found = control(
            watched, wanted, prompt=asked.prompt, reads_prompt=asked.reads_prompt, length=length, draws=2 * n,
            checks=n, surrogate_draws=n, rows=rows, seed=seed, description="playground",
        )  # fmt: skip
        constraints, target, fitted = found.constraints, found.p, found.fitted
        yield Progress("looking ahead")
        ahead = found.ahead
    if exact:
        cloud, values = _enumerated(target, constraints, reading)
        before = cloud.log_q
        notes = [f"All {len(cloud.texts):,} texts are summed over: nothing is drawn, and every figure is exact."]
    else:
        plain = yield from _drawn(target, constraints, n, rows, None, generator, "drawing from q")
        drawn = plain
        if ahead is not None:
            drawn = yield from _drawn(target, constraints, n, rows, ahead, generator, "drawing towards p")
        if not bool((drawn.log_weights > -math.inf).any()):
            raise _nothing(constraints, n)
        cloud, values = _cloud(drawn, reading), drawn.values
        notes: list[str] = []
    moments = []
    for column, one in enumerate(constraints):
        names: Any = {"low": float(one.feature.low), "high": float(one.feature.high), "name": one.feature.name}
        if exact:
            base = cloud.mean(values[:, column], log_weights=before, **names)
        else:
            base = Cloud(plain.x, [], plain.log_q, plain.log_q, torch.zeros_like(plain.log_q)).mean(
                plain.values[:, column], **names
            )
        after = Estimate.exact(one.moment) if one.pointwise else cloud.mean(values[:, column], **names)
        coefficient = None if one.pointwise else _interval(fitted, column)
        moments.append(Moment(one.feature.name, one.moment, coefficient, base, after))
    knobs = [
        Knob(one.feature.name, values[:, column], values[:, column], float(fitted.coefficients[column]),
             float(one.feature.low), float(one.feature.high))
        for column, one in enumerate(constraints)
        if not one.pointwise
    ]  # fmt: skip
    notes += [_missed(one) for one in moments if one.wanted is not None and not one.p.low <= one.wanted <= one.p.high]
    log_q = next_log_probs(q)
    steps = None if ahead is None else partial(parts_ahead, ahead, reading)
    how = "exact" if exact else "from the first tokens of the weighted draws"
    yield Found(
        asked=asked, what=_what(constraints), words=cloud.first_tokens(log_q, spellings(reading, len(log_q)), WORDS),
        words_from=how, log_z=cloud.log_z(), effective=cloud.effective(), moments=moments, knobs=knobs, cloud=cloud,
        parts=None if steps is None else lambda text, _: steps(encoded(reading, text)), candidates=heaviest(cloud, steps),
        parts_mean="how much likelier each token makes what is wanted, as the look-ahead foresees it",
        notes=notes,
    )  # fmt: skip


def check_automata(features: list[Any], reading: Reading, vocabulary: int, length: int, limits: Limits) -> None:
    """Refuses constraints whose automata would take too much memory, before they are made over the vocabulary."""
    together = length + 1
    for feature in features:
        if not isinstance(feature, Regular):
            continue
        alphabet = None if feature.over_bytes else reading.characters
        states = feature.language(alphabet).states
        together *= states
        if max(states * vocabulary, together) > limits.numbers // 4:
            raise UserError(
                f"The constraint {feature.name!r} needs tables of {max(states * vocabulary, together):,} numbers, more "
                "than a request may have: simplify the constraints, or leave some out."
            )


@torch.no_grad()
def next_log_probs(q: Any) -> Float[Tensor, " vocabulary"]:
    """q's next token."""
    return torch.log_softmax(q.start(1)[0][0].double(), -1).cpu()


def spellings(reading: Reading, vocabulary: int) -> list[str]:
    """Each token as text."""
    found = [reading.text([token]) if token != reading.end else "(end)" for token in range(vocabulary)]
    if reading.spellings is None:
        return found
    spelt = [None if one is None else one.decode(errors="replace") for one in reading.spellings]
    return [spelt[token] or found[token] for token in range(vocabulary)]


def parts_ahead(ahead: Guided, reading: Reading, tokens: list[int]) -> list[Part]:
    """log h after each token less log h before it: over a whole x they sum to −E(x) − log h₀ where all is followed.

    h is what the look-ahead expects e⁻ᴱ to come to. −∞: after this token nothing that is wanted can come true.
    """
    states, tokens = ahead.states, tokens[: ahead.states.space.length]
    state, before, found = 0, float(ahead.log_ahead[0, 0]), []
    for place, token in enumerate(tokens):
        if token == reading.end:
            after = float(ahead.log_final[state])
        else:
            state = int(states.successor[state, int(states.class_of[token])])
            after = float(ahead.log_ahead[place + 1, state])
        value = after - before if before > -math.inf else 0.0
        found.append(Part(_spelt(reading, tokens, place), value))
        before = after
    return found


def encoded(reading: Reading, text: str) -> list[int]:
    """A text that goes on from the prompt, in the model's tokens; a tokeniser may put a blank of its own before it."""
    if reading.encode is None:
        raise UserError("Nothing is known of how this model's tokens encode a text.")
    ways = [reading.encode(text), reading.encode(text.removeprefix(" "))]
    return next((way for way in ways if reading.text(way) == text), ways[0])


def _spelt(reading: Reading, tokens: list[int], place: int) -> str:
    """What a token adds to the text before it."""
    if tokens[place] == reading.end:
        return "[end]"
    before, after = reading.text(tokens[:place]), reading.text(tokens[: place + 1])
    return after[len(before) :] if after.startswith(before) else reading.text([tokens[place]])


def _fitted_exactly(q: Any, constraints: Constraints, generator: Generator) -> tuple[Tilted, Fitted]:
    wanted = torch.tensor([one.counted_moment for one in constraints], dtype=torch.float64)
    method = Newton(proposal="exact", hard=True)
    fitted = method.fit(q, constraints.counted, moments=wanted, generator=generator)
    energy = Linear(constraints.counted, fitted.coefficients.clone()).to(device_of(q))
    return Tilted(q, energy).eval().requires_grad_(False), fitted


def _ahead(target: Tilted, n: int, generator: Generator) -> Guided | None:
    features = target.energy.features.features  # type: ignore[attr-defined]
    if not any(isinstance(feature, Followed) for feature in features):
        return None
    return guided(target, draws=n, generator=generator)


def _enumerated(
    target: Tilted, constraints: Constraints, reading: Reading
) -> tuple[Cloud, Float[Tensor, "texts features"]]:
    x, device = all_sequences(target.space), device_of(target.base)
    with torch.no_grad():
        log_q, energy = (
            table(function, target.space, device=device)[0].double().cpu()
            for function in (lambda x: score(target.base, x), lambda x: measured_energy(target.energy, x))
        )
    texts = [reading.text(row) for row in x.rows()]
    return Cloud(x, texts, log_q, energy, log_q - energy, exact=True), constraints.features(x).double()


def _drawn(
    target: Tilted, constraints: Constraints, n: int, rows: int, ahead: Guided | None, generator: Generator, words: str
) -> Iterator[Any]:
    parts: list[ScoredDraws] = []
    for size in shares(n, None, max(rows, 2)):
        yield Progress(words, sum(len(part.log_q) for part in parts), n)
        parts.append(
            draw_scored(target, size, ahead=ahead, features=constraints.features, rows=rows, generator=generator)
        )
    columns = zip(*(part[1:] for part in parts), strict=True)
    return ScoredDraws(Sequences.join([part.x for part in parts]), *(torch.cat(column) for column in columns))


def _cloud(drawn: ScoredDraws, reading: Reading) -> Cloud:
    energy = drawn.log_q - drawn.log_g - drawn.log_weights
    texts = [reading.text(row) for row in drawn.x.rows()]
    return Cloud(drawn.x, texts, drawn.log_q, energy, drawn.log_weights)


def _unconstrained(
    q: Any, reading: Reading, asked: Asked, n: int, rows: int, generator: Generator
) -> Iterator[Progress | Found]:
    """P is q itself."""
    parts = []
    for size in shares(n, None, max(rows, 2)):
        yield Progress("drawing from q", sum(len(part[1]) for part in parts), n)
        parts.append(propose(q, size, None, generator))
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
    said = [
        f"“{one.feature.name}” in every text" if one.moment == 1
        else f"“{one.feature.name}” in no text" if one.moment == 0
        else f"“{one.feature.name}” in {one.moment:.0%} of the texts"
        for one in constraints
    ]  # fmt: skip
    return f"p is the distribution nearest to q that has {', '.join(said)}."


def _interval(fitted: Fitted, column: int) -> Estimate:
    value = float(fitted.coefficients[column])
    return fitted.intervals[column] if column < len(fitted.intervals) else Estimate.exact(value)


def _missed(one: Moment) -> str:
    return (
        f"The mean of “{one.name}” under p misses what was wanted, as its λ was found on few draws: ask for more, or "
        "turn λ below."
    )


def _nothing(constraints: Constraints, n: int) -> UserError:
    names = ", ".join(f"“{one.feature.name}”" for one in constraints if one.pointwise)
    return UserError(f"None of the {n:,} draws has what is wanted ({names}): ask for more draws or longer texts.")
