"""`ebar classify`: images of which few have labels, the networks, what they minimise.

Learn to classify images from few labels and many images without, beside a generator whose bad samples push the
boundaries between classes to where no images are. Training images that are held out choose the best epoch; the test
images are measured once, at the end. Run it again to go on where it was stopped.

Example:
    ebar classify --labels 100 --data.train train-images-idx3-ubyte.gz --data.test t10k-images-idx3-ubyte.gz
    ebar classify --name labels_only --terms.supervised --data.train train.npz --data.test test.npz
"""

from dataclasses import dataclass, field

from ebar.bounds import Amount, Count, Location, Natural, Seed
from ebar.config.reader import Chosen, Manual, choice
from ebar.config.train import Computed
from ebar.data.labelled_images import LabelledImagesData
from ebar.journeys.classify.journey import GENERATOR_OPTIMISER, OPTIMISER, ClassifyTraining
from ebar.models.classifiers import CLASSIFIERS
from ebar.models.generators import GENERATORS
from ebar.objectives.bad_gan import BadGanTerms
from ebar.training.optimisers import OPTIMISERS, SCHEDULES

MANUAL = Manual.of(
    __doc__,
    defaults={
        "optimiser.learning_rate": OPTIMISER.learning_rate,
        "optimiser.betas": list(OPTIMISER.betas),
        "generator_optimiser.learning_rate": GENERATOR_OPTIMISER.learning_rate,
        "generator_optimiser.betas": list(GENERATOR_OPTIMISER.betas),
    },
)


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The network that tells from a sample which noise it was made of, for terms.variational."""

    hidden: Count = 500
    """Units of a layer."""
    layers: Natural = 2
    """Hidden ones."""
    bound: Amount | None = 1.0
    """Largest absolute value of the logarithm of its deviations; none where it is not given."""


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(Computed):
    """Everything that decides the result."""

    seed: Seed = 0
    """Of the choice of labelled and held-out images, of weights, order and noise."""
    labels: Count = 100
    """Labelled images, equally many of each class."""
    data: LabelledImagesData
    classifier: Chosen = choice(CLASSIFIERS, "mlp")
    generator: Chosen = choice(GENERATORS, "softplus")
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    density: Location | None = None
    """Folder of a run of `ebar train` on images with the logistic mixture head, for terms.low_density."""
    terms: BadGanTerms = field(default_factory=BadGanTerms)
    optimiser: Chosen = choice(OPTIMISERS, "adam")
    generator_optimiser: Chosen = choice(OPTIMISERS, "adam")
    schedule: Chosen = choice(SCHEDULES, "held_linear")
    training: ClassifyTraining = field(default_factory=ClassifyTraining)
