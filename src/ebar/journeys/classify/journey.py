"""A classifier from few labels: the validation part chooses the epoch, the test part is not looked at."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from torch import Generator, Tensor, nn

from ebar.bounds import Count
from ebar.data.labelled_images import FewLabels, as_numbers
from ebar.errors import UserError
from ebar.evaluation.few_labels import class_logits, density_centile, few_label_figures
from ebar.journeys.description import architecture, entry
from ebar.journeys.train import Learnt, player_of, seed_of, train_in_folder
from ebar.maths.randomness import folded
from ebar.models.classifiers import MlpClassifier, initialise
from ebar.models.generators import SoftplusGenerator, StartsFromData
from ebar.models.inference import GaussianInference
from ebar.modes import modules_in
from ebar.objectives.bad_gan import CLASSIFIER, GENERATOR, BadGan, BadGanTerms, Density
from ebar.store.differences import as_yaml
from ebar.store.fingerprint import fingerprint
from ebar.training import distributed
from ebar.training.batches import OnDevice, steps_in
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, Adam, HeldLinear, OptimiserConfig, Schedule, for_steps
from ebar.training.randomness import seeded
from ebar.training.run import Checkpoints
from ebar.training.semi_supervised import FewLabelBatches
from ebar.training.train import Plan
from ebar.types import Estimate

MONITOR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyTraining:
    """How long, and in what batches."""

    epochs: Count = 30
    """Passes over the unlabelled examples."""
    batch_size: Count = 100
    """Unlabelled examples of a step, and generated ones."""
    labelled_size: Count = 50
    """Labelled examples of a step, at most as many as there are."""
    initialise_on: Count = 500
    """Unlabelled examples that set the first lengths and biases of weight-normalised layers."""
    samples: Count = 1000
    """Generated samples that are looked at when an epoch is measured."""
    density_images: Count = 2000
    """Unlabelled examples whose densities give the threshold of the low-density term."""
    checkpoint_every: Count = 500
    """Steps between checkpoints."""


OPTIMISER = Adam(learning_rate=3e-3, betas=(0.5, 0.999))
GENERATOR_OPTIMISER = Adam(learning_rate=1e-3, betas=(0.0, 0.999))


class Pair(NamedTuple):
    """Both players of an epoch, in evaluation mode."""

    classifier: nn.Module
    generator: Any = None  # None where only labelled examples were learnt from


@dataclass(frozen=True, kw_only=True)
class Classified(Learnt):
    """A classifier from few labels, and how its training went."""

    best: Pair  # of the epoch with the lowest validation error
    last: Pair  # of the last epoch
    data: FewLabels

    @property
    def classifier(self) -> nn.Module:
        return self.best.classifier

    def evaluate(self, part: str = "test", *, last: bool = False, samples: int = 1000) -> dict[str, Estimate]:
        """Error and the shares of Assumption 1 of a part of the data, of the best epoch or of the last."""
        x, labels = self.data.part(part)
        pair = self.last if last else self.best
        return few_label_figures(pair.classifier, x, labels, maker=pair.generator, samples=samples)

    def predict(self, x: Tensor) -> Tensor:
        """The class of each image."""
        return class_logits(self.classifier, x).argmax(-1)


def classify(
    data: FewLabels,
    *,
    classifier: nn.Module | None = None,
    generator: nn.Module | None = None,
    encoder: GaussianInference | None = None,
    density: Density | None = None,
    terms: BadGanTerms = BadGanTerms(),  # noqa: B008 — immutable
    training: ClassifyTraining = ClassifyTraining(),  # noqa: B008
    optimiser: OptimiserConfig = OPTIMISER,
    generator_optimiser: OptimiserConfig = GENERATOR_OPTIMISER,
    schedule: Schedule = HeldLinear(),  # noqa: B008
    seed: int | None = None,
    randomness: Generator | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
    replace_config: bool = False,
    quiet: bool = True,
) -> Classified:
    """Trains a classifier of few labelled examples beside a generator of bad ones. Dai et al. 2017b.

    Without networks, those for MNIST are made. The encoder, for `terms.variational`, moves with the generator; the
    density, any function from images to log p with a gradient in them, for `terms.low_density`. Its threshold is a
    centile of the densities of unlabelled training examples, never of test ones.

    The lowest error on the validation part chooses the epoch; the test part is for `Classified.evaluate`. With a
    folder, training continues from its newest checkpoint; nothing is initialised again. A game that diverges or
    collapses ends with its reason in `result`, and the last good checkpoint kept. Stopped by SIGINT or SIGTERM, it
    saves a checkpoint and raises `Interrupted`.
    """
    folder = None if folder is None else Path(folder)
    drawn = seed_of(folder) if seed is None else seed
    if randomness is None:
        randomness = seeded(drawn, rank=distributed.rank())
    classifier = classifier or MlpClassifier(shape=data.shape, classes=data.classes)
    if not terms.supervised:
        generator = generator or SoftplusGenerator(shape=data.shape)
    else:
        generator = encoder = None
    _check_shapes(data, classifier, generator)
    weight = next(classifier.parameters())
    device = str(weight.device)
    if folder is None or not Checkpoints(folder / "checkpoints").steps():
        first = as_numbers(data.unlabelled[: training.initialise_on]).to(weight)
        initialise(classifier, first)
        if isinstance(generator, StartsFromData):
            generator.start_from(first)
    threshold = float("inf")
    if density is not None and terms.low_density:
        threshold = density_centile(density, data.unlabelled[: training.density_images], terms.low_density_centile)
    examples = FewLabelBatches(
        data=data, batch_size=training.batch_size, labelled_size=training.labelled_size, seed=drawn, dtype=weight.dtype,
        latent=getattr(generator, "latent", 1), law=getattr(generator, "law", "uniform"),
    )  # fmt: skip
    batches = OnDevice(examples, device)
    steps = steps_in(batches, training.epochs)
    objective = BadGan(
        classifier=classifier, generator=generator, encoder=encoder, density=density, threshold=threshold, terms=terms
    ).for_steps(steps)  # fmt: skip
    if description is None:
        networks = {"classifier": classifier, "generator": generator, "encoder": encoder}
        read = (data.labelled, data.labels, data.unlabelled, data.validation, data.validation_labels)
        description = as_yaml(
            {
                "seed": drawn,
                "labels": len(data.labels),
                "data": {"digest": fingerprint(read)},
                **{name: None if one is None else architecture(one) for name, one in networks.items()},
                "density": None if density is None else [fingerprint(one.state_dict()) for one in modules_in(density)],
                "terms": asdict(terms),
                "training": asdict(training),
                "optimiser": entry(OPTIMISERS, optimiser),
                "generator_optimiser": entry(OPTIMISERS, generator_optimiser),
                "schedule": entry(SCHEDULES, schedule),
            }
        )
    schedule = for_steps(schedule, steps)
    players = {CLASSIFIER: player_of(classifier, optimiser, schedule)}
    if generator is not None:  # an encoder is moved together with it, by the same loss
        players[GENERATOR] = player_of(generator_player(generator, encoder), generator_optimiser, schedule)

    def held_out() -> dict[str, float]:
        x, labels = data.part("validation")
        own = folded(drawn, "held out")  # the same samples at every evaluation, but for what the generator has learnt
        figures = few_label_figures(classifier, x, labels, maker=generator, samples=training.samples, seed=own)
        return {name: estimate.value for name, estimate in figures.items()}

    with _place(folder) as place:
        result, history = train_in_folder(
            place, objective, batches, players,
            Plan(epochs=training.epochs, checkpoint_every=training.checkpoint_every, monitor=MONITOR),
            description=description, seed=drawn, generator=randomness, validation=held_out, keep=lambda run: None,
            replace_config=replace_config, quiet=quiet,
        )  # fmt: skip
        best = Pair(classifier.eval(), None if generator is None else generator.eval())
        last = last_pair(place, best, encoder)
    return Classified(best=best, last=last, data=data, history=history, result=result, folder=folder)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """The folder, or one that is removed afterwards: the last weights are read from there."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory() as place:
        yield Path(place) / "run"


def generator_player(generator: nn.Module, encoder: nn.Module | None) -> nn.Module:
    """What moves by the generator's loss."""
    return generator if encoder is None else nn.ModuleDict({"generator": generator, "encoder": encoder})


def last_pair(folder: Path, best: Pair, encoder: nn.Module | None = None) -> Pair:
    """The players of the newest checkpoint of a run folder."""
    newest = Checkpoints(folder / "checkpoints").newest()
    if newest is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    classifier, generator = copy.deepcopy(best.classifier), copy.deepcopy(best.generator)
    classifier.load_state_dict(newest.weights[CLASSIFIER])
    if generator is not None:
        generator_player(generator, copy.deepcopy(encoder)).load_state_dict(newest.weights[GENERATOR])
    return Pair(classifier.eval(), None if generator is None else generator.eval())


def _check_shapes(data: FewLabels, classifier: Any, generator: Any) -> None:
    for name, network in (("classifier", classifier), ("generator", generator)):
        if network is not None and tuple(network.shape) != data.shape:
            theirs, ours = (" × ".join(map(str, shape)) for shape in (network.shape, data.shape))
            raise UserError(f"The {name} is for images of {theirs}, the data are of {ours}: make it for data.shape.")
    if classifier.classes != data.classes:
        raise UserError(
            f"The classifier has {classifier.classes} classes, the data have {data.classes}: make it for them."
        )
