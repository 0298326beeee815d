"""`ebar finetune`: labelled data, the network, how it is trained.

Fine-tune a pretrained network on labelled data, or train one from scratch: classes of texts and of pairs of texts,
numbers, answers in a passage, an order of documents, the right one of several options. Validation examples decide when
to stop; the test examples are for `ebar evaluate`. Run it again to go on where it was stopped.

Example:
    ebar finetune --name reviews --from runs/novels --data.train reviews.tsv --layer_decay 0.8
    ebar finetune --name squad --from runs/novels --data.task span --data.train train-v2.0.json --data.length 384
    ebar finetune --name scratch --data.train reviews.tsv --backbone.layers 2 --backbone.hidden 64
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from ebar.bounds import Amount, Location, Seed, Share
from ebar.config.reader import Chosen, Manual, choice, list_option
from ebar.config.train import Computed
from ebar.data.labelled import LabelledData
from ebar.journeys.finetune.journey import COURSE, OPTIMISER, Head
from ebar.models.task.encoders import ENCODERS
from ebar.training.course import Training
from ebar.training.optimisers import OPTIMISERS, SCHEDULES
from ebar.training.tasks import Mixing

MANUAL = Manual.of(
    __doc__,
    defaults={
        "optimiser.learning_rate": OPTIMISER.learning_rate,
        **{f"training.{name}": asdict(COURSE)[name] for name in ("epochs", "batch_size", "patience", "clip")},
    },
    aliases={"from": "pretrained"},
)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Computed):
    """Everything that decides the result of fine-tuning."""

    seed: Seed = 0
    """Of new weights, order and dropout, and of which training examples data.limit leaves."""
    pretrained: Location | None = None
    """What to start from, also called --from: folder of a run of `ebar pretrain` or `ebar finetune`; or folder or hub
    name of an XLNet or another encoder of transformers. By default the backbone is trained from scratch."""
    data: LabelledData = field(default_factory=LabelledData)
    also: tuple[Path, ...] = list_option(
        "FILE", lambda: "YAML files, each with the data options of a further task that is learnt beside it"
    )
    mixing: Mixing = "size"
    """Whether batches of several tasks come in proportion to their sizes, or to the square roots of these."""
    backbone: Chosen = choice(ENCODERS, "xlnet")
    head: Head = "summary"
    """What is on top: layers on the vector of CLS, which stands for the text, or on the mean of all its vectors; or, to
    rank documents, kernel pooling of the likeness of words, on the network's vectors of tokens as they are."""
    dropout: Share = 0.1
    """Of the head."""
    frozen: bool = False
    """Leave the network as it is: only the head learns."""
    layer_decay: Amount = 1.0
    """The learning rate of a layer, in that of the layer above it; 1 or less."""
    monitor: str = "loss"
    """The validation figure whose lowest value is kept: loss, or error."""
    optimiser: Chosen = choice(OPTIMISERS, "adamw")
    schedule: Chosen = choice(SCHEDULES, "linear")
    training: Training = field(default_factory=Training)


@dataclass(frozen=True, kw_only=True)
class FurtherTask:
    """A file of `also`."""

    data: LabelledData = field(default_factory=LabelledData)
