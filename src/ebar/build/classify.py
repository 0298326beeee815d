"""Classification with few labels as a configuration says, and such a run opened."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ebar.build.train import load_trained, training_arguments
from ebar.config.classify import MANUAL, ClassifyConfig
from ebar.config.reader import read_file
from ebar.data.labelled_images import FewLabels
from ebar.devices import device_at_hand, device_named
from ebar.energies.discriminators import MlpDiscriminator
from ebar.errors import UserError
from ebar.journeys.classify.journey import Classified, Pair, classify, generator_player, last_pair
from ebar.models.classifiers import CLASSIFIERS
from ebar.models.generators import GENERATORS
from ebar.models.inference import GaussianInference
from ebar.models.raster_density import RasterDensity
from ebar.objectives.bad_gan import CLASSIFIER, GENERATOR, Density
from ebar.store.names import CONFIG
from ebar.training import distributed
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import Checkpoints
from ebar.training.state import restore_weights
from ebar.training.train import History


class Networks(NamedTuple):
    """What a run trains."""

    classifier: nn.Module
    generator: Any
    encoder: GaussianInference | None


def classify_as(
    config: ClassifyConfig, folder: Path | None, *, replace_config: bool = False, quiet: bool = True
) -> Classified:
    """Seeds all random sources, reads the data, makes the networks and trains them, in that order."""
    randomness = seeded(config.seed, device=device_named(config.device), rank=distributed.rank())
    data = config.data.read(labels=config.labels, seed=config.seed)
    networks = build_networks(config, data)
    return classify(
        data,
        **networks._asdict(),
        density=density_of(config),
        terms=config.terms,
        generator_optimiser=config.generator_optimiser.make(OPTIMISERS),
        randomness=randomness,
        **training_arguments(config, folder, MANUAL, replace_config=replace_config, quiet=quiet),
    )


def build_networks(config: ClassifyConfig, data: FewLabels) -> Networks:
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
    config = read_file(folder / CONFIG, MANUAL, ClassifyConfig)
    data = config.data.read(labels=config.labels, seed=config.seed)
    networks = build_networks(config, data)
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
