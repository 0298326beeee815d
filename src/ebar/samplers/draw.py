"""What every sampler shares: propose, weigh, share n draws out into batches, gather the batches again.

Draws and weights carry no gradient. What turns gradients off are the functions that compute, never the generators
that stream: between two batches the caller's own mode is in force.

Where the walkers of Markov chains stand, and what a move of theirs is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from ebar.errors import UserError
from ebar.maths.randomness import default_generator
from ebar.maths.rows import take
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.shapes import shown
from ebar.shards import Workers, run_shards, shard_seed
from ebar.types import Context, Distribution, Sampler, Sequences, Target, Weighted, X, context_rows


@runtime_checkable
class Bounded(Protocol):
    """An energy with a known floor: −E(x, C) ≤ log_bound for every x and C."""

    def log_bound(self) -> float: ...


@runtime_checkable
class RatioBounded(Protocol):
    """A proposal that knows how far above it a target can rise: log P(x|C) − log proposal(x|C) ≤ bound."""

    def log_ratio_bound(self, target: Target[Any]) -> float | None:
        """None where it does not know."""


@runtime_checkable
class Foresighted(Protocol):
    """A stepwise proposal that guesses from a prefix what the finished sequence's importance weight will be."""

    def expected_log_weight(self, state: Any) -> Float[Tensor, " rows"]:
        """log [base(x≤t) · ψ(x≤t) / proposal(x≤t)], where ψ guesses E_base[exp(−E) | x≤t].

        Any finite guess keeps sequential Monte Carlo exact; −inf only where no continuation has P > 0.
        """


def proposal_for(target: Target[X], proposal: Distribution[X, Any] | None) -> Distribution[X, Any]:
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
def log_weights(
    target: Target[X], proposal: Distribution[X, Any], x: X, log_q: Float[Tensor, " batch"], context: Context | None
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
        raise UserError(f"The weight of {shown(x, row)} is {float(log_w[row])}: check the energy there.")
    return log_w


class Setting(NamedTuple, Generic[X]):
    """What is drawn from, with the help of which proposal, in which context."""

    target: Target[X]
    given: Distribution[X, Any] | None  # the proposal, where one was given
    context: Context | None
    generator: Generator

    @property
    def proposal(self) -> Distribution[X, Any]:
        """The one given, or the target's base, or the target itself where it can be sampled from."""
        return proposal_for(self.target, self.given)

    @property
    def rows(self) -> int:
        return context_rows(self.context)

    def propose(self, n: int) -> tuple[X, Float[Tensor, " batch"]]:
        """n proposals for each row of the context, and their log-probabilities."""
        return propose(self.proposal, n, self.context, self.generator)

    def log_weights(self, x: X, log_q: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        return log_weights(self.target, self.proposal, x, log_q, self.context)


class BatchSampler(ABC):
    """A sampler that draws in batches: `stream` of the protocol `Sampler`, from the batches that a subclass gives."""

    __slots__ = ()
    weighted: ClassVar[bool] = True

    def stream(
        self, target: Target[X], n: int, *, proposal: Distribution[X, Any] | None = None,
        context: Context | None = None, generator: Generator,
    ) -> Iterator[Weighted[X]]:  # fmt: skip
        return self.batches(Setting(target, proposal, context, generator), n)

    @abstractmethod
    def batches(self, setting: Setting[Any], n: int) -> Iterator[Weighted[Any]]:
        """At least n draws for each row of the context."""


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


GROUPS = 20  # independent ones, for an interval where the draws of a group depend on one another
SMALLEST_GROUP = 10  # draws: below 200 draws there are fewer groups, not smaller ones


def group_size(n: int) -> int:
    """Draws in a group, so that n draws make GROUPS of them."""
    return max(SMALLEST_GROUP, -(-n // GROUPS))


def numbered(batches: Iterable[Weighted[X]]) -> Iterator[Weighted[X]]:
    """The batches of a stream, each with groups of its own."""
    first = 0
    for batch in batches:
        assert batch.groups is not None
        yield batch._replace(groups=batch.groups + first)
        first += int(batch.groups.max()) + 1


def stream(
    sampler: Sampler,
    target: Target[X],
    n: int,
    *,
    proposal: Distribution[X, Any] | None = None,
    context: Context | None = None,
    generator: Generator | None = None,
) -> Iterator[Weighted[X]]:
    """The sampler's own stream, whose batches know what they are drawn from, with a progress bar."""
    generator = default_generator() if generator is None else generator
    with bar("sampling", context_rows(context) * n, "draws") as progress:
        for batch in sampler.stream(target, n, proposal=proposal, context=context, generator=generator):
            yield batch._replace(target=target, context=context)
            progress.advance(batch.log_weights.numel())


def draw(
    sampler: Sampler,
    target: Target[X],
    n: int,
    *,
    proposal: Distribution[X, Any] | None = None,
    context: Context | None = None,
    generator: Generator | None = None,
    workers: Workers | None = None,
    shard_size: int = 500,
) -> Weighted[X]:
    """Exactly n draws for each row of the context, with a progress bar where bars are shown.

    Without a generator, randomness comes from torch's own state. All draws are held in memory at once: what needs only
    sums should read `stream`. With `workers`, shards of `shard_size` draws are made by them, each from a seed of its
    own: who makes them makes no difference. A proposal that the sampler has to find is then found anew in each shard.
    """
    if workers is None:
        batches = list(stream(sampler, target, n, proposal=proposal, context=context, generator=generator))
        return Weighted.join(batches, one_stream=True).select(slice(n))
    generator = default_generator() if generator is None else generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    common = _Drawing(sampler, target, proposal, context, seed, str(generator.device))
    jobs = [(number, min(shard_size, n - first)) for number, first in enumerate(range(0, n, shard_size))]
    parts = []
    with bar("drawing", n, "draws") as progress:
        for number, part in run_shards(_shard, common, jobs, workers=workers, in_order=True):
            parts.append(part)
            progress.advance(jobs[number][1])
    return Weighted.join(parts)._replace(target=target, context=context)


class _Drawing(NamedTuple):
    """What all shards have in common."""

    sampler: Sampler
    target: Target[Any]
    proposal: Distribution[Any, Any] | None
    context: Context | None
    seed: int
    device: str  # of random numbers


def _shard(common: _Drawing, job: tuple[int, int]) -> Weighted[Any]:
    number, n = job
    generator = Generator(common.device).manual_seed(shard_seed(common.seed, number))
    found = draw(
        common.sampler, common.target, n, proposal=common.proposal, context=common.context, generator=generator
    )  # fmt: skip
    return found._replace(target=None)  # each process has its own, which is not sent back


class Walkers(NamedTuple, Generic[X]):
    """Where each walker stands, context-major."""

    x: X  # sequences as wide as the space is long
    log_q: Float[Tensor, " walkers"]
    log_weight: Float[Tensor, " walkers"]  # log P − log q

    def select(self, rows: Int[Tensor, " selected"]) -> "Walkers[X]":
        found: Walkers[X] = take(self, rows)
        return found


# A move returns where it would go, x′, and log [q(x)·K(x→x′)]⁻¹·[q(x′)·K(x′→x)]: the part of the Hastings ratio
# that does not depend on w.
Move = Callable[[Walkers[Any], Setting[Any]], tuple[Walkers[Any], Float[Tensor, " walkers"]]]


def walkers_at(setting: Setting[X], x: X, log_q: Float[Tensor, " walkers"]) -> Walkers[X]:
    """Walkers that stand at x, with their weights."""
    wide: Any = x
    if isinstance(x, Sequences):
        inside = torch.where(x.mask(), x.tokens, 0)  # padding may hold anything
        length = setting.proposal.space.after(setting.context).length
        wide = Sequences(F.pad(inside, (0, length - x.tokens.shape[1])), x.lengths)
    return Walkers(wide, log_q, setting.log_weights(wide, log_q))


def begin(setting: Setting[X], walkers: int) -> Walkers[X]:
    """`walkers` for each row of the context, each at a draw from the proposal."""
    return walkers_at(setting, *setting.propose(walkers))
