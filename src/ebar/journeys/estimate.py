"""What an energy makes of a model: log Z, moments and divergences, with intervals."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError, choose
from ebar.estimators.divergences import ScoredShare, compared, draw_share, known_divergence, sampled, sources_for
from ebar.estimators.draws import Portion, Range, Units, read_portion, units_of
from ebar.estimators.effective_samples import Budget, budget_or_reason, mean_influence
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_z_of
from ebar.estimators.moments import moments_of
from ebar.features.feature import Feature, Features
from ebar.maths.divergences import DIVERGENCES
from ebar.maths.randomness import default_generator, folded
from ebar.models.tilted import Tilted, bound_features
from ebar.progress import bar
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.shards import Workers, keep_parts, part_name, run_shards
from ebar.shards.workers import on_threads
from ebar.store.stages import open_stage
from ebar.training.run import packed
from ebar.types import Distribution, Estimate, Sampler, Weighted

Figure = Estimate | float | Budget | str
MODEL, TILTED = "model", "tilted"  # what is drawn, besides the draws of each divergence


def estimate(
    target: Tilted,
    n: int = 10_000,
    *,
    features: Sequence[Feature] = (),
    sampler: Sampler = Importance(),  # noqa: B008 — immutable
    proposal: Distribution | None = None,
    divergences: Sequence[str] = ("kl",),
    within: float | None = None,
    generator: Generator | None = None,
    shard_size: int = 2000,
    workers: Workers = Workers(),  # noqa: B008
    folder: Path | None = None,
) -> dict[str, Figure]:
    """log Z with the jackknife's bounds; the mean of the energy's features and of `features` under the base and
    under p = P/Z; how far p is from the base. With `within`, also how many draws would make log Z and the means known
    within ± that.

    Shards of `shard_size` draws are made, each from a seed of its own, here or by several `workers`: the figures are
    the same. With a folder shards are kept there, and the same call goes on after it was stopped.
    """
    if not sampler.weighted:
        raise UserError(
            f"The sampler {type(sampler).__name__} gives draws without weights, which say nothing of Z: choose another."
        )
    if n < 1 or shard_size < 1:
        raise UserError(f"At least one draw must be asked for, not {min(n, shard_size)}.")
    generator = default_generator() if generator is None else generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    own: list[Feature] = []
    forbidden: set[str] = set()
    if isinstance(target.energy, Linear):
        own = list(target.energy.features.features)
        coefficients = zip(target.energy.features.names, target.energy.coefficients.tolist(), strict=True)
        forbidden = {name for name, coefficient in coefficients if coefficient == -math.inf}
    all_features = Features([*own, *bound_features(features, target).features])
    for kind in divergences:
        choose(DIVERGENCES, kind, "divergence")
    known = {
        kind: None if proposal is not None else known_divergence(kind, target, target.base) for kind in divergences
    }
    with on_threads(workers.threads):
        if isinstance(sampler, LookAhead) and proposal is None:
            proposal = sampler.proposal(target, n=n, generator=generator)
    plan = _Plan(target, sampler, proposal, all_features, seed)
    sizes = [min(shard_size, n - start) for start in range(0, n, shard_size)]
    drawn = [MODEL, TILTED, *(kind for kind in divergences if known[kind] is None)]
    jobs = [_Job(what, number, size) for what in drawn for number, size in enumerate(sizes)]
    made = _made(plan, jobs, {"n": n, "shard_size": shard_size, "divergences": list(divergences)}, workers, folder)
    shards = {what: [one for job, one in zip(jobs, made, strict=True) if job.what == what] for what in drawn}
    plain = units_of([_portion(one) for one in shards[MODEL]], features=all_features)
    units = units_of([_portion(one) for one in shards[TILTED]], features=all_features, target=target)
    figures = _figures(plain, units, all_features, forbidden, within)
    for kind in divergences:
        found = known[kind]
        if found is None:
            pool = compared([_share(one) for one in shards[kind]], (target, target.base))
            found = sampled(kind, pool, normalised=(False, True))
        figures[f"{kind} of tilted from model"] = found[0]
    return figures


class _Plan(NamedTuple):
    """What all shards have in common."""

    target: Tilted
    sampler: Sampler
    proposal: Distribution | None
    features: Features
    seed: int


class _Job(NamedTuple):
    """One shard."""

    what: str  # MODEL, TILTED, or a divergence
    number: int
    size: int


def _made(
    plan: _Plan, jobs: list[_Job], about: dict[str, Any], workers: Workers, folder: Path | None
) -> list[dict[str, Tensor]]:
    """The shards of all jobs, in their order."""
    found: dict[int, bytes] = {}
    with bar("drawing", sum(job.size for job in jobs), "draws") as progress:
        if folder is None:
            for number, content in run_shards(_draw, plan, jobs, workers=workers):
                found[number] = content
                progress.advance(jobs[number].size)
        else:
            description = {**plan._asdict(), **about, **workers.description}
            with open_stage(folder, description, seed=plan.seed) as stage:
                parts = range(len(jobs))
                for number in keep_parts(stage, _draw, plan, parts, workers=workers, job=lambda part: jobs[part]):
                    progress.advance(jobs[number].size)
                found = {number: stage.read(part_name(number)) for number in parts}
    return [load(found[number]) for number in range(len(jobs))]


def _draw(plan: _Plan, job: _Job) -> bytes:
    target, proposal = plan.target, plan.proposal
    generator = Generator(device_of(target.base)).manual_seed(folded(plan.seed, job.what, job.number))
    if job.what == MODEL:
        return _kept(Importance().stream(target.base, job.size, generator=generator), plan.features, None)
    if job.what == TILTED:
        stream = plan.sampler.stream(target, job.size, proposal=proposal, generator=generator)
        return _kept(stream, plan.features, target)
    sources = sources_for(job.what, target, target.base, proposal)
    share = draw_share(sources, (target, target.base), job.size, generator=generator)
    tensors = {name: getattr(share, name) for name in ScoredShare._fields[:3]}
    for side, seen in enumerate(share.ranges):
        tensors |= _ends(seen, str(side))
    return packed(tensors)


def _kept(stream: Any, features: Features, target: Tilted | None) -> bytes:
    portion = read_portion(stream, features=features, target=target)
    drawn = portion.drawn
    tensors = {"log_weights": drawn.log_weights, "values": portion.values, **_ends(portion.range)}
    tensors |= {name: one for name in ("groups", "strata") if (one := getattr(drawn, name)) is not None}
    words = json.dumps({"estimates_z": drawn.estimates_z, "doubt": drawn.doubt}).encode()
    tensors["about"] = torch.from_numpy(np.frombuffer(words, np.uint8).copy())
    return packed(tensors)


def _portion(tensors: dict[str, Tensor]) -> Portion:
    weights = tensors["log_weights"]
    about = json.loads(tensors["about"].numpy().tobytes())
    drawn: Weighted[Any] = Weighted(
        weights.new_empty(weights.numel(), 0), weights, tensors.get("groups"), tensors.get("strata"), **about
    )
    return Portion(drawn, tensors["values"], _range(tensors))


def _share(tensors: dict[str, Tensor]) -> ScoredShare:
    logs = [tensors[name] for name in ScoredShare._fields[:3]]
    return ScoredShare(logs[0], logs[1], logs[2], (_range(tensors, "0"), _range(tensors, "1")))


def _ends(seen: Range, side: str = "") -> dict[str, Tensor]:
    return {} if seen is None else {f"smallest{side}": seen[0], f"largest{side}": seen[1]}


def _range(tensors: dict[str, Tensor], side: str = "") -> Range:
    return (tensors[f"smallest{side}"], tensors[f"largest{side}"]) if f"smallest{side}" in tensors else None


def _figures(
    plain: Units, units: Units, all_features: Features, forbidden: set[str], within: float | None
) -> dict[str, Figure]:
    """log Z and the means."""
    found = log_z_of(units)[0]
    figures: dict[str, Figure] = {"log_z": found.estimate, "log_z_lower": found.lower, "log_z_upper": found.upper}
    means = moments_of(plain, all_features)[0], moments_of(units, all_features)[0]
    for name, before, after in zip(all_features.names, *means, strict=True):
        figures[f"model: mean of {name}"] = before
        # What −∞ forbids has a mean of exactly 0, whether or not it was ever drawn.
        figures[f"tilted: mean of {name}"] = Estimate.exact(0.0) if name in forbidden else after
    if within is not None:
        known = {"log_z": mean_influence(units.log_weights[0])}
        for column, name in enumerate(all_features.names):
            known[f"tilted: mean of {name}"] = mean_influence(units.log_weights[0], units.values[0, :, column])
        for name, influence in known.items():
            pilot = figures[name]
            assert isinstance(pilot, Estimate)
            figures[f"draws for {name}"] = budget_or_reason(pilot, influence, units.draws, within=within)
    return figures
