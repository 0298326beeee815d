"""A game as a configuration says, and a game's run opened."""

from pathlib import Path
from typing import Any

import torch

from ebar.build.train import training_arguments
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import read_file
from ebar.devices import device_at_hand, device_named
from ebar.energies.discriminators import DISCRIMINATORS
from ebar.journeys.game.data import GAME_DATA, GameData, game_data
from ebar.journeys.game.journey import game, networks
from ebar.journeys.game.played import Played
from ebar.models.generators import GENERATORS
from ebar.objectives.adversarial_costs import COSTS
from ebar.objectives.energy_gan import CONTROLS
from ebar.objectives.entropy_terms import ENTROPIES
from ebar.store.names import CONFIG
from ebar.training import distributed
from ebar.training.randomness import seeded
from ebar.training.train import History, load_players


def read_game_data(config: GameConfig) -> GameData:
    """The data of a game."""
    return game_data(config.data.make(GAME_DATA).read(seed=config.seed), dtype=getattr(torch, config.precision))


def build_networks(config: GameConfig, shape: tuple[int, ...]) -> dict[str, Any]:
    """Of the players, by name; weights are drawn from torch's global state: seed it before."""
    made = networks(
        shape,
        config.entropy.make(ENTROPIES),
        generator=config.generator.make(GENERATORS, shape=shape),
        energy=config.discriminator.make(DISCRIMINATORS, shape=shape),
        like={"kind": config.discriminator.kind, **config.discriminator.options},
    )
    for module in made.values():
        module.to(torch.device(device_at_hand(config.device)), getattr(torch, config.precision))
    return made


def game_as(
    config: GameConfig, folder: Path | None, *, data: Any = None, replace_config: bool = False, quiet: bool = True
) -> Played:
    """Seeds all random sources, reads the data, builds the networks and plays, in that order."""
    random = seeded(config.seed, device=device_named(config.device), rank=distributed.rank())
    rows = read_game_data(config) if data is None else game_data(data, dtype=getattr(torch, config.precision))
    made = build_networks(config, rows.shape)
    return game(
        rows,
        generator=made["generator"],
        energy=made["discriminator"],
        inference=made.get("inference"),
        costs=config.costs.make(COSTS),
        entropy=config.entropy.make(ENTROPIES),
        control=config.control.make(CONTROLS),
        halt=config.halt,
        smoothness=config.smoothness,
        random=random,
        **training_arguments(config, folder, MANUAL, replace_config=replace_config, quiet=quiet),
    )


def load_game(folder: Path) -> Played:
    """The networks of a run folder with their last good weights, and its data."""
    config = read_file(folder / CONFIG, MANUAL, GameConfig)
    rows = read_game_data(config)
    made = build_networks(config, rows.shape)
    load_players(made, folder)
    for module in made.values():
        module.eval()
    return Played(
        generator=made["generator"], energy=made["discriminator"], inference=made.get("inference"), data=rows,
        weight=config.entropy.make(ENTROPIES).weight, history=History.read(folder), folder=folder,
    )  # fmt: skip
