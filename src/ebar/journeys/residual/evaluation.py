"""A residual model on test prefixes: its perplexity interval beside the base's, log Z of each prefix, and its text."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.data.chunks import Positives
from ebar.energies.linear import bound_of
from ebar.errors import UserError
from ebar.estimators.joint_perplexity import JointPerplexity, joint_perplexity
from ebar.estimators.last_step import LastStep, last_step
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.evaluation.diversity import Unique, unique_ratios
from ebar.evaluation.energy_distributions import EnergyDistributions, energy_distributions
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.negatives import Negatives, draw_negatives, energies_of
from ebar.journeys.residual.settings import Measuring
from ebar.maths.randomness import folded
from ebar.models.tilted import measured_energy
from ebar.samplers.joint import chosen_by_energy
from ebar.shards import Workers
from ebar.store.writing import plain
from ebar.training.batches import to_device
from ebar.types import Context, Sequences

LIGHT = ("prefixes with k̂ < 0.7", "prefixes with an effective sample size of 30")  # unbounded, bounded energies


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """One prefix with the continuations of the data, of the base and of the joint model."""

    prefix: str
    data: str
    base: str
    joint: str
    effective_sample_size: float  # of the draws that the joint one was chosen from
    k: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All figures of one evaluation, and the energies and texts that they were made from."""

    how: Measuring
    seed: int
    data: Positives
    drawn: Negatives
    of_data: Float[Tensor, " prefixes"]
    of_draws: Float[Tensor, "prefixes draws"]
    generator: Generator  # that the random numbers came from, to go on with
    systems: dict[str, Sequences]  # a continuation of each prefix: the data's, the base's, the joint model's
    perplexity: JointPerplexity
    last: LastStep | None
    energies: EnergyDistributions
    unique: dict[str, dict[int, Unique]]  # of the data, the base and the joint model
    continued: list[Continued]

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt the figures."""
        figures = [("joint perplexity", self.perplexity.perplexity), ("difference", self.perplexity.difference)]
        if self.last is not None:
            figures.append(("last step", self.last.difference))
        return [f"{name}: {figure.warning}" for name, figure in figures if figure.warning]

    def figures(self) -> dict[str, object]:
        """For a table."""
        found = self.perplexity
        figures: dict[str, object] = {
            "perplexity of the base": found.base,
            "perplexity of the joint model": found.perplexity,
        }
        if found.certified is not None:
            low, high = (math.exp(end) for end in found.certified.cost)
            name = f"the same, certified for these prefixes (|E| ≤ {found.certified.bound:g})"
            figures[name] = f"{low:.6g} to {high:.6g}"
        figures |= {
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
        named = ("base", "low", "value", "high", "difference", "here", "verdict", "verdict_elsewhere", "established",
                 "certified", "share_light", "moved", "moved_most", "by_draws")  # fmt: skip
        return {
            "seed": self.seed,
            "prefixes": len(found.log_z),
            "draws": found.by_draws[-1].draws,
            "perplexity": {name: plain(getattr(found, name)) for name in named},
            "log_z": [
                {**plain(row.estimate), "lower": row.lower, "upper": row.upper, "k": k}
                for row, k in zip(found.log_z, found.k, strict=True)
            ],
            "last_step": None if self.last is None else {
                **{name: plain(getattr(self.last, name)) for name in ("base", "joint", "difference", "rest")},
                "rows": len(self.last.rows),
            },
            "energies": plain(self.energies),
            "unique": plain(self.unique),
            "continued": [asdict(one) for one in self.continued],
            "warnings": self.warnings,
        }  # fmt: skip


def evaluate(
    base: Base, energy: nn.Module, data: Positives, how: Measuring, folder: Path, *, seed: int = 0, at_once: int = 256,
    shown: int = 10, workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Evaluation:  # fmt: skip
    """Compares the joint model with its base on prefixes and their continuations.

    Draws of the base and their energies are stored in `folder` as they are made: an interrupted evaluation can be
    repeated.
    """
    data, own = data.spread(how.prefixes), seed if how.seed is None else how.seed
    if data.context is None:
        raise UserError("Figures prefix by prefix need prefixes: of whole sequences ask the perplexity.")
    place = folder / f"{len(data.x.lengths)}-{how.draws}-{seed}"
    stage = f"{folder.name}/{place.name}"
    drawn = draw_negatives(
        how.folder or place / "draws", base.q, data.context, how.draws, seed=folded(own, "evaluation/draws"),
        at_once=at_once, stage=f"{stage}/draws", workers=workers,
    )  # fmt: skip
    of_draws = energies_of(place / "energies", energy, drawn, data.context, stage=f"{stage}/energies", workers=workers)
    x, context = to_device(data, base.device)
    with torch.no_grad():
        of_data = measured_energy(energy, x, context).double().cpu()
    log_q = -negative_log_scores(base.q, x, context).cpu()
    generator = Generator(device=base.device).manual_seed(folded(own, "evaluation/choice"))
    rows, texts = torch.arange(len(drawn)), 0 if base.tokeniser is None else shown
    chosen = chosen_by_energy(of_draws.to(base.device), generator).cpu()
    systems = {"data": data.x, "base": drawn.fetch(rows, draws=torch.tensor([0])), "joint": drawn.one_each(chosen)}
    perplexity = joint_perplexity(log_q, of_data, of_draws, data.x.lengths, bound=bound_of(energy))
    orders = [n for n in (1, 2, 3, 4) if n <= int(data.x.lengths.max())]
    return Evaluation(
        how=how, seed=seed, data=data, drawn=drawn, of_data=of_data, of_draws=of_draws, generator=generator,
        systems=systems, perplexity=perplexity, last=_last(base, energy, data, how, generator),
        energies=energy_distributions(of_data, of_draws),
        unique=unique_ratios(systems, end=base.q.space.end, orders=orders),
        continued=[_continued(base, data.context, systems, perplexity, row) for row in range(min(texts, len(drawn)))],
    )  # fmt: skip


def _last(base: Base, energy: nn.Module, data: Positives, how: Measuring, generator: Generator) -> LastStep | None:
    if how.last_rows < 1:
        return None
    x, context = to_device(data.spread(how.last_rows), base.device)
    return last_step(base.q, energy, x, context, candidates=how.last_candidates, generator=generator, batch_size=256)


def _continued(
    base: Base, context: Context, systems: dict[str, Sequences], perplexity: JointPerplexity, row: int
) -> Continued:
    before = context.given.prefix(row)
    texts = {name: base.spell(before, x.prefix(row)) for name, x in systems.items()}
    found, k = perplexity.log_z[row].estimate, perplexity.k[row]
    return Continued(prefix=base.spell([], before), **texts, effective_sample_size=found.effective_sample_size, k=k)
