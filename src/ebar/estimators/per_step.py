"""The joint model's cost token by token.

    p(xₜ|x₍<t₎, C) = q(xₜ|x₍<t₎, C)·A(x₍≤t₎)/A(x₍<t₎),     A(x₍<t₎) = E[e⁻ᴱ | C, x₍<t₎]

The A that divides at one place is the A that multiplied at the place before, so that the chain telescopes to
q·e⁻ᴱ/Ẑ whatever the draws. Past the last token A is e⁻ᴱ itself; before the token that decides the sequence it is a
sum over the vocabulary. Deng et al. 2020, per-step perplexity.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.maths.importance import FEWEST_DRAWS, SMALLEST_SAMPLE, all_warnings, check_weights, diagnose
from ebar.maths.jackknife import half_width, log_mean_bounds
from ebar.maths.log_space import effective_sample_size, exponential
from ebar.models.drawing import futures
from ebar.models.stepwise import belongs
from ebar.models.tilted import measured_energy
from ebar.modes import evaluation_mode, in_evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Energy, Estimate, Sequences, Space, State, Stepwise, context_rows

BATCH = 1024  # sequences drawn and scored at a time


@torch.no_grad()
@in_evaluation_mode
def future_energies(
    q: Stepwise,
    energy: Energy[Sequences],
    stems: Int[Tensor, "stems place"],
    logits: Float[Tensor, "stems vocabulary"],
    state: State,
    context: Context | None,
    n: int,
    *,
    batch_size: int = BATCH,
    generator: Generator,
) -> Float[Tensor, "stems draws"]:
    """Energies of n sequences drawn from q for each stem; the context has a row for each stem."""
    if len(stems) == 0:
        return torch.zeros(0, n, dtype=torch.float64, device=logits.device)
    at_once, parts, space = max(1, batch_size // n), [], q.space.after(context)
    for rows in torch.split(torch.arange(len(stems), device=logits.device), at_once):
        own = None if context is None else context.select(rows)
        drawn = []
        for size in (min(batch_size, n - begun) for begun in range(0, n, batch_size)):
            x = futures(q, stems[rows], logits[rows], state.select(rows), size, space=space, generator=generator)
            drawn.append(measured_energy(energy, x, own).double().view(len(rows), size))
        parts.append(torch.cat(drawn, 1))
    return torch.cat(parts)


def one_row(context: Context | None, row: int) -> Context | None:
    """The condition of one row."""
    return None if context is None else context.select(torch.tensor([row], device=context.given.lengths.device))


class Closing(NamedTuple):
    """The token that decides a sequence, one candidate after another; a context has one row."""

    energy: Energy[Sequences]
    space: Space
    batch_size: int = BATCH

    @property
    def place(self) -> int:
        """Of that token: the last, or the last but one where the last is the end's."""
        return self.space.length - 1 if self.space.end is None else max(0, self.space.length - 2)

    def sequences(self, stem: Int[Tensor, " place"], tokens: Int[Tensor, " some"]) -> Sequences:
        """Those that a stem and each of some tokens in the closing place make."""
        space, whole = self.space, torch.cat([stem.expand(len(tokens), -1), tokens[:, None]], 1)
        if space.end is None or space.length == 1:
            return Sequences(whole, torch.full_like(tokens, space.length))
        ended = torch.cat([whole, torch.full_like(tokens, space.end)[:, None]], 1)
        return Sequences(ended, torch.where(tokens == space.end, space.length - 1, space.length))

    def energies(
        self, stem: Int[Tensor, " place"], tokens: Int[Tensor, " some"], context: Context | None
    ) -> Float[Tensor, " some"]:
        """E of the stem closed by each of the tokens."""
        parts = torch.split(tokens, self.batch_size)
        return torch.cat([measured_energy(self.energy, self.sequences(stem, some), context).double() for some in parts])

    def log_mean(
        self, stem: Int[Tensor, " place"], log_probs: Float[Tensor, " vocabulary"], context: Context | None
    ) -> Float[Tensor, ""]:
        """log Σᵥ q(v|x₍<t₎)·e⁻ᴱ over the tokens that q allows."""
        tokens = (log_probs > -math.inf).nonzero().squeeze(1)
        log_weights = -self.energies(stem, tokens, context)
        check_weights(log_weights[None])
        return torch.logsumexp(log_probs[tokens] + log_weights, 0)


LARGEST_SHARE = 0.05  # of the continuations may have doubtful weights at a place before it is said


class PositionCost(NamedTuple):
    """One place of the continuations, a mean over those that reach it. Intervals are for other prefixes too."""

    place: int
    rows: int
    base: Estimate  # perplexity of q
    joint: Estimate  # perplexity of the joint model
    difference: Estimate  # joint − base, nats, paired


class Steps(NamedTuple):
    """Every token's cost under q and under the joint model; 0 past a sequence's end."""

    log_q: Float[Tensor, "rows length"]
    log_joint: Float[Tensor, "rows length"]  # sums to log q − E − log Ẑ, which `log_means[:, 0]` is
    log_means: Float[Tensor, "rows places"]  # log Â before each token and after the last; −E from there on
    log_means_upper: Float[Tensor, "rows places"]  # the jackknife's upper companions; the same where Â is exact
    lengths: Int[Tensor, " rows"]
    level: float = 0.95
    doubts: tuple[str | None, ...] = ()  # of Â before each token: what is wrong with its futures' weights

    def places(self) -> list[PositionCost]:
        """Perplexity at each place."""
        return [self._place(place) for place in range(int(self.lengths.max()))]

    def _place(self, place: int) -> PositionCost:
        there = self.lengths > place
        base = -self.log_q[there, place]
        lower, upper = self.log_means[there], self.log_means_upper[there]
        middle = lower[:, place] - lower[:, place + 1]
        low = lower[:, place] - upper[:, place + 1]
        high = upper[:, place] - lower[:, place + 1]
        doubt = all_warnings(*self.doubts[place : place + 2])
        difference = _doubted(mean_between(low, middle, high, level=self.level), middle, doubt)
        joint = _doubted(mean_between(base + low, base + middle, base + high, level=self.level), middle, doubt)
        return PositionCost(
            place,
            int(there.sum()),
            mean_between(base, base, base, level=self.level).mapped(exponential),
            joint._replace(low=max(joint.low, 0.0)).mapped(exponential),  # no token has a probability above 1
            difference,
        )


def per_step(
    q: Stepwise,
    energy: Energy[Sequences],
    x: Sequences,
    context: Context | None = None,
    *,
    n: int,
    exact_last: bool = True,
    rows_at_once: int = 32,
    batch_size: int = BATCH,
    level: float = 0.95,
    generator: Generator,
) -> Steps:
    """log p(xₜ|x₍<t₎, C) for one continuation per row of the context, from n futures at each place.

    Where none of a place's futures has any weight, what the tokens beside it cost is not known: `log_joint` is NaN
    there, and the place's figures say why. The context and the tokens before a place are read once for all of the
    place's futures. With `exact_last`, the deciding token's alternatives are all scored: as many energies as there are
    tokens, for each row. `rows_at_once` and `batch_size` (futures at a time) bound the memory.
    """
    check_rows(q, x, context)
    if n < 2:
        raise UserError(f"An interval needs two futures or more at each place, not {n}.")
    length = int(x.lengths.max())
    parts = []
    with torch.no_grad(), evaluation_mode(q, energy), bar("scoring", len(x.lengths), "continuations") as progress:
        for rows in torch.split(torch.arange(len(x.lengths), device=x.lengths.device), rows_at_once):
            own = None if context is None else context.select(rows)
            parts.append(_along(q, energy, x.select(rows), own, length, n, exact_last, batch_size, generator))
            progress.advance(len(rows))
    log_q, lower, upper = (torch.cat(found) for found in list(zip(*parts, strict=True))[:3])
    futures = [[part[3][place] for part in parts if place in part[3]] for place in range(length)]
    # Past its end a row's A stays e⁻ᴱ, so that there the differences vanish.
    gains = torch.where(
        (lower[:, 1:] > -math.inf) & (lower[:, :-1] > -math.inf), lower[:, 1:] - lower[:, :-1], math.nan
    )
    doubts = tuple(futures_doubt(torch.cat(found)) if found else None for found in futures)
    return Steps(log_q, log_q + gains, lower, upper, x.lengths, level, doubts)


def futures_doubt(log_weights: Float[Tensor, "rows draws"]) -> str | None:
    """What is wrong with the weights of one place's futures: any row without weight, or more than 5 % with bad ones.

    Too few futures for a tail are judged by whether a few of them decide alone.
    """
    rows, n = log_weights.shape
    sizes = effective_sample_size(log_weights)
    silent = int((sizes == 0).sum())
    if silent:
        return (
            f"none of the {n} futures of {silent} of {rows} continuations has any weight, so that what their tokens "
            "cost there is not known: draw more futures"
        )
    if n >= FEWEST_DRAWS:
        reasons = [reason for reason in diagnose(log_weights) if reason is not None]
        return f"{len(reasons)} of {rows} continuations: {reasons[0]}" if len(reasons) > LARGEST_SHARE * rows else None
    few = max(1.5, n / 10)
    bad = int((sizes < few).sum())
    if bad <= LARGEST_SHARE * rows:
        return None
    of = f"the {n} futures of {bad} of {rows} continuations"
    return f"{of} have an effective sample size below {few:.3g}: draw more futures"


def _along(
    q: Stepwise, energy: Energy[Sequences], x: Sequences, context: Context | None, length: int, n: int,
    exact_last: bool, batch_size: int, generator: Generator,
) -> tuple[Tensor, Tensor, Tensor, dict[int, Tensor]]:  # fmt: skip
    """log q, T and 2J − T at every place of some rows, and the log-weights of the futures of each place."""
    own = measured_energy(energy, x, context).double()
    check_own(own)
    weights: dict[int, Tensor] = {}
    lower = -own[:, None].repeat(1, length + 1)
    upper = lower.clone()
    log_q = torch.zeros(len(own), length, dtype=torch.float64, device=own.device)
    closing = Closing(energy, q.space.after(context), batch_size)
    logits, state = q.start(len(own), context)
    alive = torch.arange(len(own), device=own.device)
    for place in range(int(x.lengths.max())):
        if place > 0:
            logits, state, alive = _read(q, x, state, alive, place - 1)
        log_probs = torch.log_softmax(logits.double(), -1)
        log_q[alive, place] = log_probs.gather(1, x.tokens[alive, place][:, None]).squeeze(1)
        some = None if context is None else context.select(alive)
        stems = x.tokens[alive, :place]
        if place == closing.place and exact_last:
            exact = [closing.log_mean(stems[row], log_probs[row], one_row(some, row)) for row in range(len(alive))]
            lower[alive, place] = upper[alive, place] = torch.stack(exact)
        elif place <= closing.place:  # past it nothing is left to chance
            energies = future_energies(
                q, energy, stems, logits, state, some, n, batch_size=batch_size, generator=generator
            )
            check_weights(-energies)
            weights[place] = -energies
            bounds = log_mean_bounds(-energies)
            lower[alive, place], upper[alive, place] = bounds.lower, bounds.upper
    return log_q, lower, upper, weights


def check_own(energies: Float[Tensor, " rows"]) -> None:
    """A continuation that the energy forbids has probability 0, and there is nothing to compare."""
    check_weights(-energies[:, None])
    if bool((energies == math.inf).any()):
        row = int((energies == math.inf).nonzero()[0])
        raise UserError(
            f"The energy of continuation {row} is inf, so that the joint model gives it probability 0 and its cost is "
            "infinite: leave it out, or check the energy."
        )


def check_rows(q: Stepwise, x: Sequences, context: Context | None) -> None:
    """One sequence of the space for each row of the context."""
    if len(x.lengths) == 0:
        raise UserError("There is no continuation to score: give at least one.")
    if context is not None and context_rows(context) != len(x.lengths):
        raise UserError(f"{len(x.lengths)} continuations need as many prefixes, not {context.rows}.")
    space = q.space.after(context)
    wrong = ~belongs(x, space)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UserError(f"Continuation {row} ({x.prefix(row)[:8]} …) is no sequence of {space}: cut it to length.")


def _read(q: Stepwise, x: Sequences, state: State, alive: Tensor, place: int) -> tuple[Tensor, State, Tensor]:
    """One more token of every row that goes on after it."""
    going_on = (x.lengths[alive] > place + 1).nonzero().squeeze(1)
    if len(going_on) < len(alive):
        state, alive = state.select(going_on), alive[going_on]
    logits, state = q.advance(x.tokens[alive, place][:, None], state)
    return logits[:, 0], state, alive


def mean_between(
    low: Float[Tensor, " rows"], middle: Float[Tensor, " rows"], high: Float[Tensor, " rows"], *, level: float = 0.95
) -> Estimate:
    """A mean over rows: from the lower confidence limit of one estimate of it to the upper of another."""
    n = len(middle)
    if n == 1:
        return Estimate(float(middle), -math.inf, math.inf, 1.0, "one prefix cannot speak for others", level)
    widths = [float(half_width(values.double() / (n - 1), level)) for values in (low, high)]
    few = f"{n} prefixes are too few to speak for others" if n < SMALLEST_SAMPLE else None
    return Estimate(
        float(middle.mean()), float(low.mean()) - widths[0], float(high.mean()) + widths[1], float(n), few, level
    )


def _doubted(figure: Estimate, values: Float[Tensor, " rows"], doubt: str | None) -> Estimate:
    """With the doubt about its futures; not known where that of some row is not."""
    if not bool(values.isfinite().all()):
        figure = figure._replace(value=math.nan, low=-math.inf, high=math.inf)
    return figure._replace(warning=all_warnings(doubt, figure.warning))
