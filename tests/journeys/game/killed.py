"""A game small enough to be done in a blink, with all that must be kept when it is killed."""

from itertools import islice
from pathlib import Path

import torch
from torch import Generator, Tensor

from ebar.energies.discriminators import MlpDiscriminator
from ebar.journeys.game.journey import GameTraining, Played, game
from ebar.models.generators import MlpGenerator
from ebar.objectives.adversarial_costs import EnergyGap
from ebar.objectives.energy_gan import EnergyGan, GapControl
from ebar.objectives.entropy_terms import NeighbourEntropy, VariationalEntropy
from ebar.training.batches import Batches
from ebar.training.distributed import rank, same_everywhere
from ebar.training.games import WithNoise
from ebar.training.loop import fit
from ebar.training.optimisers import Adam, EpochDecay
from ebar.training.players import Player
from ebar.training.randomness import seeded

POINTS = 2 * torch.randn(50, 2, generator=Generator().manual_seed(4)) + torch.tensor([3.0, 0.0])


def run_game(folder: Path, *, steps: int, checkpoint_every: int = 4) -> Played:
    """Three players and the gap of the step before: 5 steps an epoch, in some of which one player is left out."""
    random = seeded(3, rank=rank())
    return game(
        POINTS,
        generator=MlpGenerator(shape=(2,), hidden=6, deviation=0.5),
        energy=MlpDiscriminator(shape=(2,), hidden=6, deviation=0.5),
        costs=EnergyGap(margin=10.0), entropy=VariationalEntropy(weight=0.5, bound=3.0),
        control=GapControl(low=-0.3, high=0.1), seed=7, random=random, folder=folder,
        training=GameTraining(
            epochs=max(1, steps // 5), batch_size=10, checkpoint_every=checkpoint_every, log_every=1, clip=5.0
        ),
        optimiser=Adam(learning_rate=0.01, betas=(0.0, 0.999)), schedule=EpochDecay(decay=0.9),
    )  # fmt: skip


def game_trajectory(*, accumulate: int = 1) -> dict[str, Tensor]:
    """Weights, memory and gaps after each of eight steps, in float64; ranks start apart, on purpose."""
    seeded(3, rank=rank())
    modules = {
        "generator": MlpGenerator(shape=(2,), hidden=6, deviation=0.5).double(),
        "discriminator": MlpDiscriminator(shape=(2,), hidden=6, deviation=0.5).double(),
    }
    played = EnergyGan(
        generator=modules["generator"], energy=modules["discriminator"],
        control=GapControl(low=-0.3, high=0.1, together=1),
        entropy=NeighbourEntropy(neighbours=5),
    )  # fmt: skip
    adam = Adam(learning_rate=0.01, betas=(0.0, 0.999))
    players = {name: Player(module=one, optimiser=adam.build(one.parameters())) for name, one in modules.items()}
    players["memory"] = Player(module=played.memory)
    same_everywhere(player.module for player in players.values())
    source = WithNoise(batches=Batches(data=POINTS.double(), batch_size=11, seed=2), latent=4, seed=2)
    found = {}
    for step in islice(fit(played, source, players, generator=Generator(), accumulate=accumulate), 8):
        for name, player in players.items():
            for key, value in player.module.state_dict().items():
                found[f"{step.number}.{name}.{key}"] = value.clone()
    return found
