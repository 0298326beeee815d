"""`ebar game train`: the data, the two players, what they play for, how they are trained.

Train a generator and an energy against each other, on points or images: a calibrated energy GAN, whose energy tends to
−α·log p with α the weight of the entropy, or without entropy, an original GAN, EBGAN or f-GAN beside it. A game that
fails is halted, with the reason; its last good state is kept. Run it again to go on where it was stopped.

Example:
    ebar game train --name biased --data.mixture biased_gaussians --entropy.weight 0.15 --costs.margin 10
    ebar game train --name flat --data.mixture biased_gaussians --entropy.kind constant
    ebar game train --name digits --data.kind images --data.train train-images-idx3-ubyte.gz --entropy.form unit
"""

from dataclasses import dataclass, field

from ebar.bounds import NonNegative, Seed
from ebar.config.reader import Chosen, Manual, choice
from ebar.config.train import Computed
from ebar.energies.discriminators import DISCRIMINATORS
from ebar.journeys.game.data import GAME_DATA
from ebar.journeys.game.journey import OPTIMISER, GameTraining
from ebar.models.generators import GENERATORS
from ebar.objectives.adversarial_costs import COSTS
from ebar.objectives.energy_gan import CONTROLS, HaltRule
from ebar.objectives.entropy_terms import ENTROPIES
from ebar.training.optimisers import OPTIMISERS, SCHEDULES

MANUAL = Manual.of(
    __doc__, defaults={"optimiser.learning_rate": OPTIMISER.learning_rate, "optimiser.betas": list(OPTIMISER.betas)}
)


@dataclass(frozen=True, kw_only=True)
class GameConfig(Computed):
    """Everything that decides the result of a game."""

    seed: Seed = 0
    """Of data, weights, order and noise."""
    data: Chosen = choice(GAME_DATA, "points")
    generator: Chosen = choice(GENERATORS, "mlp")
    discriminator: Chosen = choice(DISCRIMINATORS, "mlp")
    costs: Chosen = choice(COSTS, "energy")
    entropy: Chosen = choice(ENTROPIES, "neighbours")
    control: Chosen = choice(CONTROLS, "gap")
    halt: HaltRule = field(default_factory=HaltRule)
    smoothness: NonNegative = 0.0
    """Factor on the mean squared energies of data and samples in the discriminator's cost."""
    optimiser: Chosen = choice(OPTIMISERS, "adam")
    schedule: Chosen = choice(SCHEDULES, "epoch_decay")
    training: GameTraining = field(default_factory=GameTraining)
