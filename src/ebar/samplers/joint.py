"""Draws of q·e⁻ᴱ for a prefix: candidates of the base, some of them chosen by energy. Deng et al. 2020, Algorithm 1.

With a truncated base the draws follow q_topk·e⁻ᴱ, not q·e⁻ᴱ: what truncation removes no energy can restore.

Top-K energy resampling: some candidates, one of them chosen by its energy. Wang et al. 2022, §4.3 and D.4.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.energies.linear import OwnLogits, Reading
from ebar.errors import UserError
from ebar.maths.importance import FEWEST_DRAWS, all_warnings, check_weights, diagnose, pareto_k
from ebar.maths.log_space import effective_sample_size, normalised
from ebar.models.drawing import draw_tokens
from ebar.models.tilted import Tilted, measured_energy, propose
from ebar.models.truncated import Truncation
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.samplers import SAMPLERS
from ebar.samplers.beam import alike, beam_search, restored
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance, flat_indices, multinomial
from ebar.samplers.rejection import QuasiRejection
from ebar.shards import Workers, run_shards, shard_seed
from ebar.tables import Table
from ebar.types import Context, Distribution, Energy, Sampler, Sequences, Stepwise, Weighted, context_rows

# How draws are chosen. `joint` is Algorithm 1: importance sampling from the base, then a choice by weight.
WAYS: Table[type[Sampler]] = Table(
    "sampler",
    {
        "joint": Importance,
        **{name: SAMPLERS[name] for name in ("rejection", "quasi_rejection", "metropolis", "smc", "annealed")},
    },
)
TRIES = 8  # sets of candidates, of which one must hold a weight
CHOSEN_BY_WEIGHT = ("joint", "smc", "annealed")


class Continuations(NamedTuple):
    """Sequences with their energy and their log-probability under the base."""

    x: Sequences
    energy: Float[Tensor, " rows"]
    log_q: Float[Tensor, " rows"]  # without truncation


class Generated(NamedTuple):
    """Draws for one prefix, and the candidates from which their weights are judged."""

    drawn: Continuations
    weights: Float[Tensor, " drawn"]  # normalised over the candidates; NaN where draws are not chosen among them
    candidates: Continuations
    candidate_weights: Float[Tensor, " candidates"]  # normalised
    effective_sample_size: float  # of the candidates
    k: float  # Pareto k̂ of their weights; NaN where they are too few
    distinct: int  # different sequences among the drawn
    warning: str | None


def chosen_by_energy(energies: Float[Tensor, "rows candidates"], generator: Generator) -> Int[Tensor, " rows"]:
    """One candidate of each row, in proportion to e⁻ᴱ."""
    empty = (energies == math.inf).all(1)
    if bool(empty.any()):
        row = int(empty.nonzero()[0])
        raise UserError(f"None of the draws for prefix {row} has any weight under the energy: draw more of them.")
    return draw_tokens(torch.log_softmax(-energies, 1), generator)


def generate_each(
    q: Stepwise,
    energy: Energy[Sequences],
    contexts: Iterable[Context | None],
    *,
    generator: Generator,
    workers: Workers | None = None,
    **options: Any,
) -> Iterator[Generated]:
    """`generate`, with its options, for each prefix; with `workers`, each is a shard with random numbers of its own."""
    if workers is None:
        for context in contexts:
            yield generate(q, energy, context, generator=generator, **options)
        return
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    common = (q, energy, options, seed, str(generator.device))
    for _, made in run_shards(_shard, common, enumerate(contexts), workers=workers, in_order=True):
        yield made


def _shard(common: tuple[Stepwise, Energy[Sequences], dict[str, Any], int, str], job: tuple[int, Any]) -> Generated:
    (q, energy, options, seed, device), (number, context) = common, job
    return generate(q, energy, context, generator=Generator(device).manual_seed(shard_seed(seed, number)), **options)


@torch.no_grad()
def generate(
    q: Stepwise,
    energy: Energy[Sequences],
    context: Context | None,
    *,
    count: int = 1,
    candidates: int = 8,
    way: str = "joint",
    sampler: Sampler | None = None,
    truncation: Truncation | None = None,
    generator: Generator,
) -> Generated:
    """`count` draws for one prefix, chosen in one of the `WAYS`, and `candidates` of the base to judge the weights by.

    Candidates that all weigh nothing are drawn anew, up to `TRIES` times; a draw of probability 0 is never returned.
    """
    if count < 1 or candidates < 1:
        raise UserError(f"At least one draw from at least one candidate, not {count} from {candidates}.")
    if context is not None and context.rows != 1:
        raise ValueError(f"one prefix at a time, not {context.rows}")
    base = (truncation or Truncation()).of(q)
    target = Tilted(base, energy)
    sampler = sampler or WAYS[way]()
    chosen_by_weight = way in CHOSEN_BY_WEIGHT
    proposing = sampler if chosen_by_weight else Importance()
    tries = 0
    while True:
        tries += 1
        pool = draw(proposing, target, candidates, context=context, generator=generator)
        log_weights = pool.log_weights.double().cpu()
        check_weights(log_weights)
        if bool((log_weights > -math.inf).any()):
            break
        if tries == TRIES:
            raise UserError(
                f"None of {TRIES * candidates:,} candidates has any weight under the energy for this prefix, so that "
                "there is nothing to choose from: ask for more candidates, or give another prefix."
            )
    if chosen_by_weight:
        chosen = multinomial(log_weights, count, _beside(generator))[0]
        x = pool.x.select(chosen.to(pool.x.lengths.device))
        weights = normalised(log_weights)[0][chosen]
    else:
        if isinstance(sampler, QuasiRejection) and sampler.log_beta is None:
            # As high as the candidates reach: a pilot of its own would cost more than they did.
            sampler = replace(sampler, log_beta=float(log_weights.max()))
        found = draw(sampler, target, count, context=context, generator=generator)
        x = found.x if isinstance(found, Weighted) else found
        weights = torch.full((count,), math.nan, dtype=torch.float64)
    drawn = _scored(q, energy, x, context)
    if bool((drawn.energy == math.inf).any()):
        raise UserError(
            f"The sampler {way} ended in a text of probability 0: take another way to choose, such as joint."
        )
    distinct = len({tuple(x.prefix(row)) for row in range(count)})
    return Generated(
        drawn,
        weights,
        _scored(q, energy, pool.x, context),
        normalised(log_weights)[0],
        float(effective_sample_size(log_weights)[0]),
        float(pareto_k(log_weights)[0]),
        distinct,
        all_warnings(_again(tries, candidates), _warning(log_weights), _repeated(count, distinct)),
    )


def _again(tries: int, candidates: int) -> str | None:
    if tries == 1:
        return None
    return f"{(tries - 1) * candidates:,} candidates before these had no weight at all: ask for more candidates"


def _repeated(count: int, distinct: int) -> str | None:
    return None if distinct == count else f"the {count:,} draws hold only {distinct:,} different texts"


def _scored(q: Stepwise, energy: Energy[Sequences], x: Sequences, context: Context | None) -> Continuations:
    return Continuations(x, measured_energy(energy, x, context).double().cpu(), q.log_prob(x, context).double().cpu())


def _warning(log_weights: Float[Tensor, "rows draws"]) -> str | None:
    """Few candidates have no tail to fit: then only a single dominant one is reported."""
    if log_weights.shape[1] >= FEWEST_DRAWS:
        return diagnose(log_weights)[0]
    size = float(effective_sample_size(log_weights)[0])
    if log_weights.shape[1] > 1 and size < 1.5:
        return f"of {log_weights.shape[1]} candidates one alone decides (effective sample size {size:.1f}): draw more"
    return None


def _beside(generator: Generator) -> Generator:
    """A generator on the CPU, where the weights are, that goes on with the given one."""
    if generator.device.type == "cpu":
        return generator
    return Generator().manual_seed(int(torch.randint(2**62, (), generator=generator, device=generator.device)))


COLLAPSED = 1.5  # effective candidates of a context, below which one of them decides


class Resampled(NamedTuple):
    """Draws, and the candidates they were chosen from."""

    x: Sequences  # rows × n, context-major
    candidates: Weighted  # rows × K with their log-weights, which say nothing of Z where candidates are distinct
    effective_sample_size: Float[Tensor, " rows"]  # of K

    @property
    def warning(self) -> str | None:
        """What is wrong with the weights, if anything is."""
        candidates, size = self.candidates.log_weights.shape[1], self.effective_sample_size
        collapsed = float((size < COLLAPSED).double().mean())
        if candidates == 1 or collapsed < 0.5:
            return None
        return (
            f"of {candidates} candidates one alone decides in {collapsed:.0%} of the contexts "
            f"(mean effective sample size {float(size.mean()):.1f}): the draws follow the energy's largest values"
        )


@torch.no_grad()
@in_evaluation_mode
def energy_resampling(
    model: Stepwise, context: Context | None = None, *, n: int = 1, candidates: int = 10, weights: Reading = "lse",
    proposal: Distribution | None = None, distinct: bool = False, batch: int = 128, generator: Generator,
) -> Resampled:  # fmt: skip
    """n of `candidates` sequences for each row of the context, chosen with replacement by the model's own energy E.

    The candidates are draws of `proposal` (unless given, the model itself) and chosen in proportion to e⁻ᴱ: as their
    number grows the draws tend to proposal·e⁻ᴱ, normalised. With the model itself and `lse` that is p_θ at each
    length, with `last_logit` q·exp(last logit); see `OwnLogits`. A truncated proposal keeps its own smaller support.
    With `distinct`, the candidates are those of a beam that wide, all different, chosen in proportion to q·e⁻ᴱ: exact
    where the beam holds every sequence.
    """
    if candidates < 1 or n < 1:
        raise UserError(f"At least one draw from at least one candidate, not {n} from {candidates}.")
    if distinct and proposal is not None:
        raise UserError("Distinct candidates come from a beam of the model itself: leave the proposal out.")
    energy = OwnLogits(model, weights)
    parts, order = [], []
    with bar("decoding", context_rows(context), "contexts") as progress:
        for rows, own in alike(context, batch):
            if distinct:
                beams = beam_search(model, own, width=candidates, length_penalty=0.0, best=candidates)
                pool = _filled(beams.x, candidates)
                log_weights = beams.log_probs - measured_energy(energy, pool, own).double().view_as(beams.log_probs)
            else:
                pool, _ = propose(model if proposal is None else proposal, candidates, own, generator)
                log_weights = -measured_energy(energy, pool, own).double().view(len(rows), candidates)
            check_weights(log_weights)
            chosen = multinomial(log_weights, n, generator)
            parts.append((pool.select(flat_indices(chosen, candidates)), pool, log_weights))
            order.append(rows)
            progress.advance(len(rows))
    back = torch.cat(order).argsort()
    log_weights = torch.cat([part[2] for part in parts])[back]
    pool = restored(Sequences.join([part[1] for part in parts]), back, candidates)
    return Resampled(
        restored(Sequences.join([part[0] for part in parts]), back, n),
        Weighted(pool, log_weights, estimates_z=not distinct),
        effective_sample_size(log_weights),
    )


def _filled(x: Sequences, each: int) -> Sequences:
    """Where the space holds fewer sequences than the beam is wide, the best stands in, with no weight."""
    best = torch.arange(len(x.lengths), device=x.lengths.device) // each * each
    absent = x.lengths == 0
    return Sequences(
        torch.where(absent[:, None], x.tokens[best], x.tokens), torch.where(absent, x.lengths[best], x.lengths)
    )
