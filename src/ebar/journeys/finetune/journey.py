"""Fine-tuning a network on labelled data: the validation part decides when to stop, the test part is not looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Generator, nn

from ebar.data.labelled import LabelledCorpus
from ebar.errors import UserError, choose
from ebar.journeys.finetune.description import ENCODER, description_of, encoder_origin
from ebar.journeys.finetune.made import (
    Data,
    Head,
    batches_of,
    checked_encoder,
    held_out_batches_of,
    new_model,
    objective_of,
    optimiser_of,
    tasks_of,
)
from ebar.journeys.finetune.predictions import BATCH, Prediction, figures, predictions
from ebar.journeys.train import plan_of, seed_of, train_in_folder, training_steps
from ebar.models.task.encoders import task_encoder
from ebar.store.writing import to_json
from ebar.training import distributed
from ebar.training.course import Training
from ebar.training.loop import evaluate_objective
from ebar.training.optimisers import AdamW, LinearDecay, OptimiserConfig, Schedule, for_steps
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import Run
from ebar.training.sharding import spread_weights
from ebar.training.tasks import Mixing
from ebar.training.train import History, Result
from ebar.types import Estimate

COURSE = Training(epochs=10, batch_size=32, patience=3, clip=1.0)
OPTIMISER = AdamW(learning_rate=1e-4)
SCHEDULE = LinearDecay()


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """A model of one or several labelled tasks, and how its training went."""

    model: nn.Module  # with the weights of the best validation figure, in evaluation mode
    tasks: Mapping[str, LabelledCorpus]  # their data, by name
    history: History
    result: Result | None = None  # how training ended; None where the run was loaded
    folder: Path | None = None  # None where it was trained in memory

    @property
    def data(self) -> LabelledCorpus:
        """Of its one task."""
        return self.tasks[self._task(None)]

    def evaluate(self, part: str = "test", *, batch_size: int = BATCH) -> dict[str, Estimate]:
        """Figures of a part of the data, each with its interval, by name; of several tasks with their names before."""
        return figures([self.model], self.tasks, part, batch_size=batch_size)

    def predict(
        self, texts: Sequence[str | tuple[str, ...]], *, task: str | None = None, batch_size: int = BATCH
    ) -> list[Prediction]:
        """What it says of new texts: strings, pairs, (passage, question) or (passage, question, option, option …)."""
        name = self._task(task)
        return predictions([self.model], self.tasks[name], texts, task=name, batch_size=batch_size)

    def _task(self, name: str | None) -> str:
        return task_name(self.tasks, name)


def task_name(tasks: Mapping[str, Any], name: str | None) -> str:
    """A task by its name, or the only one."""
    if name is None and len(tasks) > 1:
        raise UserError(f"There are several tasks: say which by task=, one of {', '.join(tasks)}.")
    found = next(iter(tasks)) if name is None else name
    choose(tasks, found, "task")
    return found


def finetune(
    model: Any,
    data: Data | Mapping[str, Data],
    *,
    head: Head = "summary",
    dropout: float = 0.1,
    frozen: bool = False,
    layer_decay: float = 1.0,
    mixing: Mixing = "size",
    monitor: str = "loss",
    training: Training = COURSE,
    optimiser: OptimiserConfig = OPTIMISER,
    schedule: Schedule = SCHEDULE,
    seed: int | None = None,
    generator: Generator | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
    replace_config: bool = False,
    quiet: bool = True,
) -> Finetuned:
    """Trains a copy of a network, with a new head for each task, on labelled data.

    `model` is a run that was pretrained or fine-tuned (`ebar.load`), a model, or a network with new weights, which then
    learns from scratch.
    Data that are not read yet (`LabelledData`) are read with the tokeniser of the pretrained run. Several tasks, a
    mapping from names to data, share the network; their batches take turns in proportion to their sizes or, with
    `mixing="square_root"`, to the square roots of them.

    `layer_decay` is the learning rate of a layer in that of the layer above it. A `frozen` network does not learn, its
    heads do. `head="mean"` reads the mean of all vectors in place of that of CLS, and `head="kernel_pooling"` ranks by
    the likeness of the network's token vectors alone (K-NRM). `monitor` names the validation figure whose lowest value
    is kept: `loss`, or `error`. `dropout` is that of the heads. The test part of the data is not looked at.

    With a folder, training continues from its newest checkpoint, if there is one. `seed` decides the weights of new
    heads, the order of examples and dropout; a caller that has seeded all random sources before it built the network
    passes the `generator` that `seeded` returned. Stopped by SIGINT or SIGTERM, or after `training.max_minutes`, it
    saves a checkpoint and raises `Interrupted`.
    """
    folder = None if folder is None else Path(folder)
    drawn = seed_of(folder) if seed is None else seed
    tasks = tasks_of(model, data, drawn)
    encoder = checked_encoder(model, tasks)
    device = str(encoder.table.device)
    if generator is None:
        rank = distributed.rank()
        generator = Generator(device).manual_seed(drawn) if seed is None else seeded(seed, device=device, rank=rank)
    own = new_model(encoder, tasks, head=head, dropout=dropout, frozen=frozen)
    if (origin := encoder_origin(model)) is not None:
        own.origin = {"backbone": origin}  # type: ignore[assignment]
    if description is None:
        description = description_of(
            model, own, tasks, seed=drawn, head=head, dropout=dropout, frozen=frozen, layer_decay=layer_decay,
            mixing=mixing, monitor=monitor, training=training, optimiser=optimiser, schedule=schedule,
        )  # fmt: skip
    batches, held_out = batches_of(tasks, training, mixing, drawn, device), held_out_batches_of(tasks, training, device)
    objective = objective_of(own, tasks)
    sharded = spread_weights(own, replicate=training.replicate, shard=training.shard)
    player = Player(
        module=own,
        optimiser=optimiser_of(own, optimiser, layer_decay),
        schedule=for_steps(schedule, training_steps(batches, training)),
        clip_norm=training.clip,
        sharded=sharded,
    )
    players = {"model": player}

    result, history = train_in_folder(
        folder, objective, batches, players, plan_of(training, device, monitor=monitor), description=description,
        seed=drawn, generator=generator, replace_config=replace_config, tensorboard=training.tensorboard, quiet=quiet,
        keep=lambda run: _keep(run, model, tasks),
        validation=lambda: evaluate_objective(objective, held_out, generator=Generator(device).manual_seed(drawn)),
    )  # fmt: skip
    own = own if sharded is None else sharded.plain()
    own.eval()
    return Finetuned(model=own, tasks=tasks, history=history, result=result, folder=folder)


def _keep(run: Run, model: Any, tasks: Mapping[str, LabelledCorpus]) -> None:
    """What is needed to open the run without the pretrained one: its tokeniser, and the options of its network."""
    for name, text in next(iter(tasks.values())).files.items():
        if (path := run.folder / name).exists() and path.read_bytes() != text.encode():
            raise UserError(f"These data make another {name}: choose another name.")
        run.write(name, text.encode())
    if (origin := encoder_origin(model)) is not None:
        vocabulary = task_encoder(getattr(model, "model", model)).vocabulary
        run.write(ENCODER, to_json({**origin, "vocabulary": vocabulary}))
