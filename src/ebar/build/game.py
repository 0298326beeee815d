"""Games as configured, a generator against an energy or beside a classifier of few labels; and their runs opened."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ebar.build.train import load_trained, training_arguments
from ebar.config.classify import MANUAL as CLASSIFY
from ebar.config.classify import ClassifyConfig
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import read_file
from ebar.data.labelled_images import FewLabels
from ebar.devices import device_at_hand, device_named
from ebar.energies.discriminators import DISCRIMINATORS, MlpDiscriminator
from ebar.errors import UserError
from ebar.journeys.classify.journey import Classified, Pair, classify, generator_player, last_pair
from ebar.journeys.game.data import GAME_DATA, GameData, game_data
from ebar.journeys.game.journey import Played, game, networks
from ebar.models.classifiers import CLASSIFIERS
from ebar.models.generators import GENERATORS
from ebar.models.inference import GaussianInference
from ebar.models.raster_density import RasterDensity
from ebar.objectives.adversarial_costs import COSTS
from ebar.objectives.bad_gan import CLASSIFIER, GENERATOR, Density
from ebar.objectives.energy_gan import CONTROLS
from ebar.objectives.entropy_terms import ENTROPIES
from ebar.store.names import CONFIG
from ebar.training import distributed
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import Checkpoints
from ebar.training.state import restore_weights
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


def game_as(config: GameConfig, folder: Path | None, *, data: Any = None, **going: Any) -> Played:
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
        **training_arguments(config, folder, MANUAL, **going),
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


class Networks(NamedTuple):
    """What a classifier from few labels is trained with."""

    classifier: nn.Module
    generator: Any
    encoder: GaussianInference | None


def classify_as(config: ClassifyConfig, folder: Path | None, **going: Any) -> Classified:
    """Seeds all random sources, reads the data, makes the networks and trains them, in that order."""
    randomness = seeded(config.seed, device=device_named(config.device), rank=distributed.rank())
    data = config.data.read(labels=config.labels, seed=config.seed)
    networks = _networks(config, data)
    return classify(
        data,
        **networks._asdict(),
        density=density_of(config),
        terms=config.terms,
        generator_optimiser=config.generator_optimiser.make(OPTIMISERS),
        randomness=randomness,
        **training_arguments(config, folder, CLASSIFY, **going),
    )


def _networks(config: ClassifyConfig, data: FewLabels) -> Networks:
    """Weights are drawn from torch's global state: seed it before."""
    where: Any = (torch.device(device_at_hand(config.device)), getattr(torch, config.precision))
    classifier = config.classifier.make(CLASSIFIERS, shape=data.shape, classes=data.classes).to(*where)
    if config.terms.supervised:
        return Networks(classifier, None, None)
    generator = config.generator.make(GENERATORS, shape=data.shape).to(*where)
    if not config.terms.variational:
        return Networks(classifier, generator, None)
    own = config.encoder
    reads = MlpDiscriminator(shape=data.shape, hidden=own.hidden, layers=own.layers, deviation=0.05)
    return Networks(classifier, generator, GaussianInference(reads, generator.latent, bound=own.bound).to(*where))


def density_of(config: ClassifyConfig) -> Density | None:
    """log p of images, from a run of `ebar train`, where a term asks for it."""
    if not config.terms.low_density:
        return None
    if config.density is None:
        raise UserError("The low-density term needs a density of images: name the folder of a run by --density.")
    return RasterDensity(load_trained(Path(config.density)).model).log_density


def load_classified(folder: Path) -> Classified:
    """The best and the last players of a run folder, and its data."""
    config = read_file(folder / CONFIG, CLASSIFY, ClassifyConfig)
    data = config.data.read(labels=config.labels, seed=config.seed)
    networks = _networks(config, data)
    checkpoint = Checkpoints(folder / "checkpoints").best()
    if checkpoint is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    players = {CLASSIFIER: Player(module=networks.classifier)}
    if networks.generator is not None:
        players[GENERATOR] = Player(module=generator_player(networks.generator, networks.encoder))
    restore_weights(checkpoint, players)
    best = Pair(networks.classifier.eval(), None if networks.generator is None else networks.generator.eval())
    last = last_pair(folder, best, networks.encoder)
    return Classified(best=best, last=last, data=data, history=History.read(folder), folder=folder)
