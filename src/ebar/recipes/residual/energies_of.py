"""The energies of document 002, built and trained: UniT, BiT and BiT*."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ebar.backbones.encoder import BidirectionalTransformer
from ebar.data.chunks import Positives
from ebar.energies.encoders import bit, unit_from
from ebar.energies.loading import load_encoder
from ebar.energies.neural import Neural
from ebar.energies.reencoded import Reencoded
from ebar.errors import Interrupted
from ebar.journeys.residual.negatives import Negatives
from ebar.journeys.residual.settings import Fitting
from ebar.journeys.residual.train_energy import train_energy
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.masked import Masked, MaskedModel
from ebar.recipes.residual.models import path_of
from ebar.recipes.residual.task import Chunks, Task
from ebar.training import Batches, seeded
from ebar.training.best import Course, train_best
from ebar.training.optimisers import AdamW
from ebar.types import Stepwise


class Contrasts(NamedTuple):
    """Chunks that energies are trained and chosen on, and the base's draws for the same prefixes."""

    train: Chunks
    train_pool: Negatives
    validation: Chunks
    validation_pool: Negatives


def trained_energy(
    kind: str, settings: Mapping[str, Any], task: Task, base: Stepwise, contrasts: Contrasts, folder: Path
) -> Neural:
    """An energy with its best held-out weights; killed and called again it goes on."""
    seed = settings["seed"]
    seeded(folded(seed, 7))
    energy = BUILDERS[kind](settings, task, base, folder)
    fitting = Fitting(
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        evaluations=2,
        patience=4,
    )
    result = train_energy(
        folder / "energy", energy, Positives(*contrasts.train), contrasts.train_pool, fitting=fitting, seed=seed,
        validation=(Positives(*contrasts.validation), contrasts.validation_pool),
    )  # fmt: skip
    if result.status == "interrupted":
        raise Interrupted
    return energy


def _unit(settings: Mapping[str, Any], task: Task, base: Stepwise, folder: Path) -> Neural:
    """From the base's own weights: at this scale a causal energy that starts afresh learns nothing."""
    assert isinstance(base, Autoregressive)
    return unit_from(base, bound=settings.get("bound"))


def _bit(settings: Mapping[str, Any], task: Task, base: Stepwise, folder: Path) -> Neural:
    """From scratch, warmed up on filling gaps in the training text."""
    network = BidirectionalTransformer(
        task.space.vocabulary, layers=settings["layers"], hidden=settings["hidden"], heads=settings["heads"],
        dropout=settings["dropout"],
    )  # fmt: skip
    _warm_up(network, settings, task, folder / "warm-up")
    return bit(network, bound=settings.get("bound"))


def _pretrained(settings: Mapping[str, Any], task: Task, base: Stepwise, folder: Path) -> Neural:
    """A pretrained encoder over the text; its lowest layers stay as they are."""
    loaded = load_encoder(path_of(settings["encoder"]))
    network: Any = loaded.network
    for part in (network.embeddings, *network.encoder.layer[: settings["frozen_layers"]]):
        if settings["frozen_layers"]:
            part.requires_grad_(False)
    return Neural(Reencoded(network, loaded.tokeniser.original, task.tokeniser), bound=settings.get("bound"))


def _warm_up(network: BidirectionalTransformer, settings: Mapping[str, Any], task: Task, folder: Path) -> None:
    model = MaskedModel(network)
    objective = Masked(model=model)
    course = Course(
        epochs=settings["warm_up"],
        seed=folded(settings["seed"], 8),
        optimiser=AdamW(learning_rate=settings["learning_rate"]),
        checkpoint_every=500,
    )
    batches = Batches(data=task.train, batch_size=settings["batch_size"], seed=settings["seed"], drop_last=True)
    validation = Batches(data=task.validation, batch_size=64, shuffle=False)
    train_best(folder, course, model, objective, batches, (objective, validation))


BUILDERS: dict[str, Callable[[Mapping[str, Any], Task, Stepwise, Path], Neural]] = {
    "unit": _unit,
    "bit": _bit,
    "pretrained": _pretrained,
}
