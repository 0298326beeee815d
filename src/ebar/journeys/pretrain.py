"""Pretraining a network that predicts tokens in any order on a text of one's own."""

from pathlib import Path

from ebar.data.corpus import Corpus
from ebar.journeys.train import Model, Trained, train
from ebar.objectives.pretraining import Pretraining
from ebar.training.course import Training
from ebar.training.optimisers import AdamW, LinearDecay, OptimiserConfig, Schedule

# For small networks on one machine. XLNet-Large has 1e-4, batches of 2,048 and 500,000 steps (Yang et al. 2019).
TRAINING = Training(epochs=10, batch_size=32, clip=1.0)
OPTIMISER = AdamW()
SCHEDULE = LinearDecay(warmup=100)


def pretrain(
    model: Model,
    data: Corpus,
    *,
    next_sentence: bool = False,
    training: Training = TRAINING,
    optimiser: OptimiserConfig = OPTIMISER,
    schedule: Schedule = SCHEDULE,
    seed: int | None = None,
    folder: Path | str | None = None,
    quiet: bool = True,
) -> Trained[Model]:
    """Trains an XLNet on data of `read_pretraining`, which say what is predicted; all else is as in `train`.

    `next_sentence`: also whether the second text of an input follows the first. Stopped by SIGINT or SIGTERM, it saves
    a checkpoint and raises `Interrupted`; called again with the same folder it goes on.
    """
    objective = Pretraining(model=model, next_sentence=next_sentence)  # type: ignore[arg-type]
    return train(
        model, data, objective=objective, training=training, optimiser=optimiser, schedule=schedule, seed=seed,
        folder=folder, quiet=quiet,
    )  # fmt: skip
