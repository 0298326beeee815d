"""What a residual model came to: its perplexity interval beside the base's, log Z of each prefix, what it would say."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.energies.bounded import bound_of
from ebar.estimators.joint_perplexity import JointPerplexity, joint_perplexity
from ebar.estimators.last_step import LastStep, last_step
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.evaluation.energy_distributions import EnergyDistributions, energy_distributions
from ebar.evaluation.ngrams import Unique, unique_ratios
from ebar.journeys.residual.chunks import spread_evenly
from ebar.journeys.residual.journey import Journey
from ebar.journeys.residual.pool import Pool, draw_pool
from ebar.journeys.residual.scores import pool_energies
from ebar.journeys.residual.train_energy import Positives
from ebar.maths.randomness import folded
from ebar.models.scoring import measured_energy
from ebar.samplers.resample import flat, multinomial
from ebar.training.batches import moved
from ebar.types import Estimate, Sequences

LIGHT = ("prefixes with k̂ < 0.7", "prefixes with an effective sample size of 30")  # unbounded, bounded energies
DRAWING, CHOOSING, LAST = range(11, 14)  # what the randomness of each is folded with


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    prefixes: int = 100
    """Test prefixes, evenly spread over the text."""
    draws: int = 200
    """Of the base, for each of them."""
    last_rows: int = 20
    """Prefixes whose last token is compared."""
    last_candidates: int | None = 64
    """Tokens that are scored there one by one, the likeliest under the base; all others by a few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """One prefix, what people wrote after it, and what the base and the joint model would."""

    prefix: str
    data: str
    base: str
    joint: str
    effective_sample_size: float  # of the draws that the joint one was chosen from
    k: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All figures of one evaluation."""

    extent: Extent
    seed: int
    perplexity: JointPerplexity
    last: LastStep | None
    energies: EnergyDistributions
    unique: dict[str, dict[int, Unique]]  # of the data, the base and the joint model
    continued: list[Continued]

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing the numbers."""
        told = [("joint perplexity", self.perplexity.perplexity), ("difference", self.perplexity.difference)]
        if self.last is not None:
            told.append(("last step", self.last.difference))
        return [f"{name}: {figure.warning}" for name, figure in told if figure.warning]

    def figures(self) -> dict[str, object]:
        """For a table."""
        found = self.perplexity
        figures: dict[str, object] = {
            "perplexity of the base": found.base,
            "perplexity of the joint model": found.perplexity,
            **_certified(found),
            "difference on these prefixes, nats per token": found.here,
            "difference on others like them, nats per token": found.difference,
            "joint against base, on these prefixes": found.verdict,
            "joint against base, on others like them": found.verdict_elsewhere,
            LIGHT[found.certified is not None]: found.share_light,
            "log Z moves when draws are doubled, nats": found.moved,
        }
        if self.last is not None:
            figures |= {
                "last token, base, nats": self.last.base,
                "last token, joint, nats": self.last.joint,
                "last token, difference": self.last.difference,
            }
        figures |= {
            "energy of base − of data": self.energies.base_gap,
            "energy of joint − of data": self.energies.joint_gap,
        }
        for name, orders in self.unique.items():
            figures |= {f"unique {n}-grams, {name}": unique.pooled for n, unique in orders.items() if n > 1}
        return figures

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.perplexity
        return {
            "seed": self.seed,
            "prefixes": len(found.log_z),
            "draws": found.by_draws[-1].draws,
            "perplexity": {
                "base": found.base, "low": found.low, "value": found.value, "high": found.high,
                "difference": found.difference._asdict(), "verdict": found.verdict, "share_light": found.share_light,
                "moved": found.moved, "moved_most": found.moved_most,
                "verdict_elsewhere": found.verdict_elsewhere, "here": found.here._asdict(),
                "certified": None if found.certified is None else found.certified._asdict(),
                "by_draws": [row._asdict() for row in found.by_draws],
            },
            "log_z": [
                {**row.estimate._asdict(), "lower": row.lower, "upper": row.upper, "k": k}
                for row, k in zip(found.log_z, found.k, strict=True)
            ],
            "last_step": None if self.last is None else {
                **{name: getattr(self.last, name)._asdict() for name in ("base", "joint", "difference")},
                "rows": len(self.last.rows), "rest": self.last.rest,
            },
            "energies": {
                **{name: _distribution(getattr(self.energies, name)) for name in ("data", "base", "joint")},
                "edges": list(self.energies.edges), "base_gap": self.energies.base_gap._asdict(),
                "joint_gap": self.energies.joint_gap._asdict(),
            },
            "unique": {
                name: {str(n): {"pooled": one.pooled._asdict(), "within": one.within._asdict(),
                                "distinct": one.distinct, "total": one.total} for n, one in orders.items()}
                for name, orders in self.unique.items()
            },
            "continued": [
                {"prefix": one.prefix, "data": one.data, "base": one.base, "joint": one.joint,
                 "effective_sample_size": one.effective_sample_size, "k": one.k} for one in self.continued
            ],
            "warnings": self.warnings,
        }  # fmt: skip


def measure(journey: Journey, extent: Extent, *, seed: int = 0, shown: int = 10) -> Measured:
    """Everything about the joint model on test prefixes; draws and energies are on disk as soon as they are made."""
    data = spread_evenly(journey.chunks.test, extent.prefixes)
    place = journey.folder / "evaluation" / f"{len(data.x.lengths)}-{extent.draws}-{seed}"
    pool = draw_pool(
        place / "draws", journey.base.q, data.context, extent.draws, seed=folded(seed, DRAWING),
        at_once=journey.residual.negatives.at_once,
    )  # fmt: skip
    draws = pool_energies(place / "energies", journey.energy, pool, data.context)
    device = journey.residual.device
    x, context = moved((data.x, data.context), device)
    with torch.no_grad():
        own = measured_energy(journey.energy, x, context).double().cpu()
    log_q = -negative_log_scores(journey.base.q, x, context).cpu()
    chosen = multinomial(-draws, 1, Generator().manual_seed(folded(seed, CHOOSING)))
    systems = {
        "data": data.x,
        "base": pool.fetch(torch.arange(len(pool)), draws=torch.tensor([0])),
        "joint": _chosen(pool, chosen),
    }
    perplexity = joint_perplexity(log_q, own, draws, data.x.lengths, bound=bound_of(journey.energy))
    return Measured(
        extent=extent,
        seed=seed,
        perplexity=perplexity,
        last=_last(journey, data, extent, seed),
        energies=energy_distributions(own, draws),
        unique=unique_ratios(systems, end=journey.base.q.space.end, orders=_orders(data)),
        continued=[_continued(journey, data, systems, perplexity, row) for row in range(min(shown, len(pool)))],
    )


def _chosen(pool: Pool, chosen: Tensor) -> Sequences:
    """One draw for each prefix, by its number."""
    everything = pool.fetch(torch.arange(len(pool)))
    return everything.select(flat(chosen, pool.draws))


def _orders(data: Positives) -> list[int]:
    return [n for n in (1, 2, 3, 4) if n <= int(data.x.lengths.max())]


def _last(journey: Journey, data: Positives, extent: Extent, seed: int) -> LastStep | None:
    if extent.last_rows < 1:
        return None
    some = spread_evenly(data, extent.last_rows)
    device = journey.residual.device
    x, context = moved((some.x, some.context), device)
    generator = Generator(device=device).manual_seed(folded(seed, LAST))
    return last_step(
        journey.base.q, journey.energy, x, context, candidates=extent.last_candidates, generator=generator,
        batch_size=256,
    )  # fmt: skip


def _continued(
    journey: Journey, data: Positives, systems: dict[str, Sequences], perplexity: JointPerplexity, row: int
) -> Continued:
    prefix = data.context.given.prefix(row)
    texts = {name: journey.base.spell(prefix, x.prefix(row)) for name, x in systems.items()}
    return Continued(
        prefix=journey.base.tokeniser.decode(prefix),
        **texts,
        effective_sample_size=perplexity.log_z[row].estimate.effective_sample_size,
        k=perplexity.k[row],
    )


def _certified(found: JointPerplexity) -> dict[str, object]:
    """The perplexity's certified interval, where there is one."""
    if found.certified is None:
        return {}
    low, high = (math.exp(end) for end in found.certified.cost)
    return {f"the same, certified for these prefixes (|E| ≤ {found.certified.bound:g})": f"{low:.6g} to {high:.6g}"}


def _distribution(one: Any) -> dict[str, Any]:
    mean: Estimate = one.mean
    return {
        "mean": mean._asdict(), "deviation": one.deviation, "quantiles": list(one.quantiles),
        "shares": list(one.shares),
    }  # fmt: skip
