"""An adversarial game of a generator and a discriminator that is an energy, and of an inference network if need be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.bounds import Amount, Natural, NonNegative
from ebar.maths.rows import evenly
from ebar.objectives.adversarial_costs import Costs, EnergyGap
from ebar.objectives.entropy_terms import EntropyTerm, NeighbourEntropy
from ebar.tables import Table
from ebar.types import Clock, Loss

ROWS = 128  # of which distances are measured, to see whether samples collapse


@runtime_checkable
class Control(Protocol):
    """Decides who moves."""

    @property
    def first(self) -> float:
        """The gap before the first step."""
        ...

    def movers(self, gap: float, clock: Clock) -> tuple[bool, bool]:
        """Whether the discriminator moves, and whether the generator does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Both players move in every step."""

    first: ClassVar[float] = 0.0

    def movers(self, gap: float, clock: Clock) -> tuple[bool, bool]:
        return True, True


@dataclass(frozen=True, slots=True, kw_only=True)
class GapControl:
    """Who moves, by the gap of the step before: E_data[c] − E_gen[c], or what it is with a margin.

    Both where it is between the bounds; the discriminator alone where it is above `high`, for it does not tell data
    from samples yet; else the generator alone. Public code of Dai et al. 2017a.
    """

    low: float = -10.0
    """Where the gap is this or less, the generator moves alone."""
    high: float = 0.1
    """Where the gap is above this, the discriminator moves alone."""
    first: float = 1.0
    """The gap before the first step."""
    together: Natural = 0
    """Epochs at the beginning in which both always move."""

    def movers(self, gap: float, clock: Clock) -> tuple[bool, bool]:
        if clock.epoch < self.together or self.low < gap < self.high:
            return True, True
        return (True, False) if gap > self.high else (False, True)


# A line here puts a control in the configuration and on the command line.
CONTROLS: Table[Any] = Table("control", {"gap": GapControl, "together": Together})


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRule:
    """When a game has failed and training stops."""

    largest_energy: Amount = 1e5
    """An energy beyond this, of a datum or of a sample: they have run away."""
    collapse: NonNegative = 0.01
    """Samples nearer to one another on average than this share of the data's mean distance, having been farther apart
    before: they have collapsed. 0 never stops for it."""
    grace: Natural = 5000
    """Steps after which samples must have spread so far at least once."""


class GameMemory(nn.Module):
    """What a game remembers from step to step, as buffers, so that checkpoints keep it."""

    gap: Tensor
    steps: Tensor
    spread_out: Tensor

    def __init__(self, first: float):
        super().__init__()
        self.register_buffer("gap", torch.tensor(first, dtype=torch.float64))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("spread_out", torch.tensor(0))


@dataclass(frozen=True, kw_only=True)
class EnergyGan:
    """max_c min_G E_gen[c] − E_data[c] + α·K(p_gen), or with other costs: both players step from where both stood.

    A batch is (data, noise). The generator's gradient is taken at its samples before the discriminator moves, and
    carried through the generator afterwards, so that the order of the steps does not matter, as in the public code.
    Players: `discriminator`, `generator`, with a variational entropy `inference`, and `memory`, which nobody moves.
    Dai et al. 2017a.
    """

    generator: Any
    energy: Any
    inference: Any = None
    costs: Costs = field(default_factory=EnergyGap)
    entropy: EntropyTerm = field(default_factory=NeighbourEntropy)
    control: Control = field(default_factory=GapControl)
    halt: HaltRule = field(default_factory=HaltRule)
    smoothness: float = 0.0  # of E_data[c²] + E_gen[c²] in the discriminator's cost
    memory: GameMemory = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", GameMemory(self.control.first))

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        data, noise = batch
        moves = self.control.movers(float(self.memory.gap), clock)
        samples: Tensor = self.generator(noise)
        points = samples.detach().requires_grad_()
        of_data, of_samples = self.energy(data), self.energy(points)
        cost = self.costs.discriminator(of_data, of_samples)
        metrics = self._metrics(data, points.detach(), of_data.detach(), of_samples.detach(), cost.detach())
        # Before anybody moves: what the samples feel of both players.
        entropy = self.entropy.surrogate(points, noise, self.inference) if moves[1] else cost.new_zeros(())
        whole = self.costs.generator(of_samples) + self.entropy.weight * entropy
        pull = torch.autograd.grad(whole, points, retain_graph=True)[0] if moves[1] else points
        if moves[0]:
            if self.smoothness:
                cost = cost + self.smoothness * (of_data.square().mean() + of_samples.square().mean())
            yield Loss(cost, "discriminator", metrics)
        if moves[1]:
            if self.entropy.infers:
                yield Loss(entropy, "inference")
            through = (pull * samples).sum()  # its gradient is the one taken above; its value is put right
            value = through - through.detach() + whole.detach()
            yield Loss(value, "generator", {**({} if moves[0] else metrics), "entropy_term": float(entropy.detach())})

    def _metrics(
        self, data: Tensor, samples: Tensor, of_data: Tensor, of_samples: Tensor, cost: Tensor
    ) -> dict[str, float]:
        gap = cost if isinstance(self.costs, EnergyGap) else of_data.mean() - of_samples.mean()
        return {
            "gap": float(gap),
            "energy_data": float(of_data.mean()),
            "energy_samples": float(of_samples.mean()),
            "largest_energy": float(torch.cat([of_data, of_samples]).abs().max()),
            "spread": mean_distance(samples) / mean_distance(data),
        }

    def after_step(self, metrics: Mapping[str, float]) -> str | None:
        """Remembers the gap; says what has failed, if something has."""
        found = {name.partition(".")[2]: value for name, value in metrics.items()}
        rule, memory = self.halt, self.memory
        memory.gap.fill_(found["gap"])
        memory.steps.add_(1)
        if found["largest_energy"] > rule.largest_energy:
            return (
                f"An energy has grown to {found['largest_energy']:.3g}, beyond {rule.largest_energy:.3g}: the "
                "discriminator runs away; lower its learning rate, give a margin, or move it less often."
            )
        if found["spread"] > rule.collapse:
            memory.spread_out.fill_(1)
        elif found["spread"] < rule.collapse and (bool(memory.spread_out) or int(memory.steps) > rule.grace):
            return (
                f"The mean distance between samples is {found['spread']:.2g} of that between data: the generator has "
                "collapsed; give the entropy more weight, or lower the generator's learning rate."
            )
        return None


def mean_distance(x: Float[Tensor, "batch ..."]) -> float:
    """The mean Euclidean distance between two of the rows; of many rows, some are taken."""
    return float(torch.pdist(x[evenly(len(x), ROWS).to(x.device)].flatten(1)).mean())
