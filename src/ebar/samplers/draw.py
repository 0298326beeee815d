"""What every sampler shares: propose, weigh, share n draws out into batches, gather the batches again.

Draws and weights carry no gradient. What turns gradients off are the functions that compute, never the generators
that stream: between two batches the caller's own mode is in force.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.errors import UserError
from ebar.models.scoring import measured_energy, score
from ebar.models.tilted import Tilted
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.shapes import of_shape
from ebar.types import (
    Context,
    Distribution,
    DrawsSampler,
    Sampler,
    SamplesWithLogProb,
    Sequences,
    Target,
    Weighted,
    WeightedSampler,
    context_rows,
)


def proposal_for(target: Target, proposal: Distribution | None) -> Distribution:
    """The proposal given, or the target's base, or the target itself where it can be sampled from."""
    if proposal is not None:
        return proposal
    if isinstance(target, Tilted):
        return target.base
    if isinstance(target, Distribution):
        return target
    raise UserError("This target has no base distribution to propose from: give a proposal.")


@torch.no_grad()
@in_evaluation_mode
def propose(
    proposal: Distribution, n: int, context: Context | None, generator: Generator
) -> tuple[Sequences, Float[Tensor, " batch"]]:
    """n draws for each row of the context, and their log-probability, from the drawing itself where it is known."""
    if isinstance(proposal, SamplesWithLogProb):
        x, log_q = proposal.sample_with_log_prob(n, context, generator=generator)
    else:
        x = proposal.sample(n, context, generator=generator)
        log_q = score(proposal, x, context)
    drawn = (context_rows(context) * n,)
    of_shape(x.lengths, drawn, f"The lengths of {n} draws for each context")
    return x, of_shape(log_q, drawn, f"The log-probabilities of {n} draws for each context")


@torch.no_grad()
@in_evaluation_mode
def log_weights(
    target: Target, proposal: Distribution, x: Sequences, log_q: Float[Tensor, " batch"], context: Context | None
) -> Float[Tensor, " batch"]:
    """log P(x|C) − log proposal(x|C), for x from the proposal.

    When the proposal is the target's own base this is −E and the base is not evaluated at all.
    """
    if target is proposal:
        return torch.zeros_like(log_q)
    if isinstance(target, Tilted):
        log_w = -measured_energy(target.energy, x, context)
        if target.base is not proposal:
            log_w = score(target.base, x, context) + log_w - log_q
    else:
        log_w = score(target, x, context) - log_q
    bad = log_w.isnan() | (log_w == torch.inf)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise UserError(f"The weight of the sequence {x.prefix(row)} is {float(log_w[row])}: check the energy there.")
    return log_w


def shares(n: int, context: Context | None, batch_size: int, *, proposals_per_draw: int = 1) -> list[int]:
    """n draws for each row of the context, as even parts of at most `batch_size` proposals over all rows."""
    if n < 1:
        raise UserError(f"At least one draw must be asked for, not {n}.")
    rows = context_rows(context)
    most = batch_size // (rows * proposals_per_draw)
    if most < 1:
        raise UserError(
            f"A batch_size of {batch_size} cannot hold one draw for each of {rows} contexts: "
            f"make it at least {rows * proposals_per_draw}, or give fewer contexts at a time."
        )
    parts = -(-n // most)
    return [n // parts + (part < n % parts) for part in range(parts)]


def gather(batches: Sequence[Sequences], rows: int) -> Sequences:
    """Batches that are each context-major, as one that is."""
    width = max(batch.tokens.shape[1] for batch in batches)
    padded = [F.pad(batch.tokens, (0, width - batch.tokens.shape[1])).view(rows, -1, width) for batch in batches]
    lengths = [batch.lengths.view(rows, -1) for batch in batches]
    return Sequences(torch.cat(padded, 1).flatten(0, 1), torch.cat(lengths, 1).flatten())


def first(x: Sequences, rows: int, n: int) -> Sequences:
    """The first n draws of each row of the context."""
    draws = len(x.lengths) // rows
    if draws == n:
        return x
    tokens = x.tokens.view(rows, draws, -1)[:, :n].flatten(0, 1)
    return Sequences(tokens, x.lengths.view(rows, draws)[:, :n].flatten())


def independent_batches(
    sampler: WeightedSampler,
    target: Target,
    n: int,
    *,
    proposal: Distribution | None = None,
    context: Context | None = None,
    generator: Generator,
    fewest: int = 20,
) -> Iterator[Weighted]:
    """n draws or a few more, in enough batches for an interval over batches where draws depend on one another."""
    calls = 1 if sampler.independent else fewest
    share = max(2, -(-n // calls))
    with bar("sampling", context_rows(context) * share * calls, "draws") as progress:
        for _ in range(calls):
            for batch in sampler.stream(target, share, proposal=proposal, context=context, generator=generator):
                yield batch
                progress.advance(len(batch.x.lengths))


@overload
def draw(
    sampler: WeightedSampler,
    target: Target,
    n: int,
    *,
    proposal: Distribution | None = None,
    context: Context | None = None,
    generator: Generator,
) -> Weighted: ...


@overload
def draw(
    sampler: DrawsSampler,
    target: Target,
    n: int,
    *,
    proposal: Distribution | None = None,
    context: Context | None = None,
    generator: Generator,
) -> Sequences: ...


def draw(
    sampler: Sampler,
    target: Target,
    n: int,
    *,
    proposal: Distribution | None = None,
    context: Context | None = None,
    generator: Generator,
) -> Weighted | Sequences:
    """Exactly n draws for each row of the context, with a progress bar where bars are shown.

    All of them are held in memory at once: what needs only sums should read the sampler's `stream`.
    """
    rows = context_rows(context)
    xs: list[Sequences] = []
    weights: list[Tensor] = []
    batches: Iterable[Weighted | Sequences] = sampler.stream(
        target,
        n,
        proposal=proposal,
        context=context,
        generator=generator,
    )
    with bar("sampling", rows * n, "draws") as progress:
        for batch in batches:
            if isinstance(batch, Weighted):
                weights.append(batch.log_weights)
            xs.append(batch.x if isinstance(batch, Weighted) else batch)
            progress.advance(len(xs[-1].lengths))
    x = first(gather(xs, rows), rows, n)
    return Weighted(x, torch.cat(weights, 1)[:, :n]) if weights else x
