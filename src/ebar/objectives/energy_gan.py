"""An adversarial game of a generator and a discriminator that is an energy, and of an inference network if need be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ebar.bounds import Amount, Natural, NonNegative
from ebar.maths.rows import evenly
from ebar.objectives.adversarial_costs import Costs, EnergyGap
from ebar.objectives.entropy_terms import EntropyTerm, NeighbourEntropy
from ebar.tables import Table
from ebar.types import Clock, Loss

ROWS = 128  # of a batch, that are looked at after each step, to see whether the game goes wrong


@runtime_checkable
class Control(Protocol):
    """Decides who moves."""

    @property
    def first(self) -> float:
        """The gap before the first step."""

    def movers(self, gap: float, clock: Clock) -> tuple[bool, bool]:
        """Whether the discriminator moves, and whether the generator does."""


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

    gap: Tensor  # of the last step
    steps: Tensor
    spread_out: Tensor  # 1 once samples have been farther apart than a collapse is
    spread: Tensor  # the mean distance between samples, in that between data, after the last step
    largest_energy: Tensor  # in absolute value, after the last step

    def __init__(self, first: float):
        super().__init__()
        self.register_buffer("gap", torch.tensor(first, dtype=torch.float64))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("spread_out", torch.tensor(0))
        self.register_buffer("spread", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("largest_energy", torch.tensor(0.0, dtype=torch.float64))


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
        metrics = self._metrics(of_data.detach(), of_samples.detach(), cost.detach())
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

        self._look(data, noise)

    def _metrics(self, of_data: Tensor, of_samples: Tensor, cost: Tensor) -> dict[str, float]:
        """Before anybody moves; spread and largest energy are those after the step before."""
        gap = cost if isinstance(self.costs, EnergyGap) else of_data.mean() - of_samples.mean()
        return {
            "gap": float(gap),
            "energy_data": float(of_data.mean()),
            "energy_samples": float(of_samples.mean()),
            "largest_energy": float(self.memory.largest_energy),
            "spread": float(self.memory.spread),
        }

    def _look(self, data: Float[Tensor, "batch ..."], noise: Float[Tensor, "batch latent"]) -> None:
        """What the players have become, on some rows of the batch."""
        data, noise = (x[evenly(len(x), ROWS).to(x.device)] for x in (data, noise))
        samples = as_in_training(self.generator, noise)
        energies = torch.cat([as_in_training(self.energy, x) for x in (data, samples)])
        between_data, between_samples = mean_distance(data), mean_distance(samples)
        self.memory.spread.fill_(between_samples / between_data if between_data else torch.inf)
        self.memory.largest_energy.fill_(float(energies.abs().max()))

    def after_step(self, metrics: Mapping[str, float]) -> str | None:
        """Remembers the gap; says what has failed, if something has."""
        rule, memory = self.halt, self.memory
        memory.gap.fill_(next(value for name, value in metrics.items() if name.endswith(".gap")))
        memory.steps.add_(1)
        largest, spread = float(memory.largest_energy), float(memory.spread)
        if not largest <= rule.largest_energy:  # nor is what is not a number
            return (
                f"An energy has grown to {largest:.3g}, beyond {rule.largest_energy:.3g}: the discriminator runs away; "
                "lower its learning rate, give a margin, or move it less often."
            )
        if spread > rule.collapse:
            memory.spread_out.fill_(1)
        elif spread < rule.collapse and (bool(memory.spread_out) or int(memory.steps) > rule.grace):
            return (
                f"The mean distance between samples is {spread:.2g} of that between data: the generator has collapsed; "
                "give the entropy more weight, or lower the generator's learning rate."
            )
        return None


def mean_distance(x: Float[Tensor, "batch ..."]) -> float:
    """The mean Euclidean distance between two of the rows."""
    return float(torch.pdist(x.flatten(1)).mean())


@torch.no_grad()
def as_in_training(module: nn.Module, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
    """What a module gives in its own mode, with its averages (of batch normalisation) left as they are.

    Without dropout: a decision made by it must be the same in every process.
    """
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    dropping = [part for part in module.modules() if isinstance(part, _DropoutNd) and part.training]
    try:
        for part in dropping:
            part.train(False)
        found: Tensor = module(x)
        return found
    finally:
        for part in dropping:
            part.train()
        for buffer, value in kept:
            buffer.copy_(value)
