"""Held-out figures."""

from torch import Generator

from ebar.maths.rows import share
from ebar.training import distributed
from ebar.training.batches import Source
from ebar.types import Clock, Objective


def measure(
    objective: Objective,
    batches: Source,
    *,
    generator: Generator,
    clock: Clock = Clock(0, 0),  # noqa: B008
) -> dict[str, float]:
    """The objective's losses and metrics over one epoch, Σ w·L / Σ w: exact over tokens where w counts tokens.

    Each process takes its share of each batch. It neither changes modes nor stops gradients: `evaluating` does.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for batch in batches.at(0, 0):
        for part, counted in share(batch, rank=distributed.rank(), ranks=distributed.world_size(), parts=1):
            for loss in objective.losses(part, clock, generator=generator):
                weight = counted * loss.weight
                name = "" if loss.player == "model" else f"{loss.player}."
                for key, value in {"loss": float(loss.value.detach()), **loss.metrics}.items():
                    sums[name + key] = sums.get(name + key, 0.0) + (weight * value if weight else 0.0)
                    weights[name + key] = weights.get(name + key, 0.0) + weight
    totals = distributed.add([*sums.values(), *weights.values()])
    return {name: totals[at] / totals[at + len(sums)] for at, name in enumerate(sums)}
