"""Fine-tuning a network on labelled data: the validation part decides when to stop, the test part is not looked at.

What it is made of: the encoder, the heads of the tasks, what each minimises, and its batches.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Generator, nn

from ebar.data.labelled import LabelledCorpus, LabelledData
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError, choose
from ebar.journeys.description import architecture, run_description
from ebar.journeys.finetune.predictions import BATCH, Prediction, asks_for_answers, figures, predictions
from ebar.journeys.train import Learnt, as_kept, plan_of, same_files, seed_of, train_in_folder, training_steps
from ebar.models.task.encoders import TaskEncoder, task_encoder
from ebar.models.task.model import KernelPooling, TaskModel, new_head
from ebar.objectives.tasks import Choice, Classification, OfTask, Regression, SeveralTasks, SpanExtraction
from ebar.store.fingerprint import fingerprint
from ebar.store.writing import to_json
from ebar.training import distributed
from ebar.training.batches import Batches, OnDevice
from ebar.training.course import Training
from ebar.training.layerwise import layers_of, layerwise
from ebar.training.loop import evaluate_objective
from ebar.training.optimisers import AdamW, LinearDecay, OptimiserConfig, Schedule, for_steps
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import Run
from ebar.training.sharding import spread_weights
from ebar.training.tasks import InTurn, Mixing, Pairs
from ebar.types import Estimate

Head = Literal["summary", "mean", "kernel_pooling"]
Data = LabelledCorpus | LabelledData
Tasks = Mapping[str, LabelledCorpus]
ONE = "task"  # the name of the task where there is only one
ENCODER = "encoder.json"  # in a run folder: the options of the network, so that it opens without the pretrained run
COURSE = Training(epochs=10, batch_size=32, patience=3, clip=1.0)
OPTIMISER = AdamW(learning_rate=1e-4)
SCHEDULE = LinearDecay()


@dataclass(frozen=True, kw_only=True)
class Finetuned(Learnt):
    """A model of one or several labelled tasks, and how its training went."""

    model: nn.Module  # with the weights of the best validation figure, in evaluation mode
    tasks: Mapping[str, LabelledCorpus]  # their data, by name

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
    tasks = _tasks(model, data, drawn)
    encoder = _checked_encoder(model, tasks)
    device = str(encoder.table.device)
    if generator is None:
        rank = distributed.rank()
        generator = Generator(device).manual_seed(drawn) if seed is None else seeded(seed, device=device, rank=rank)
    own = new_model(encoder, tasks, head=head, dropout=dropout, frozen=frozen)
    if (origin := _encoder_origin(model)) is not None:
        own.origin = {"backbone": origin}  # type: ignore[assignment]
    if description is None:
        options = {"head": head, "dropout": dropout, "frozen": frozen, "layer_decay": layer_decay, "mixing": mixing}
        description = run_description(
            own, {**_made_of(model, tasks), **options, "monitor": monitor}, seed=drawn, training=training,
            optimiser=optimiser, schedule=schedule,
        )  # fmt: skip
    batches, held_out = _batches(tasks, training, mixing, drawn, device), _held_out_batches(tasks, training, device)
    # What each task minimises.
    objective = SeveralTasks(objectives=tuple(_objective(own, name, corpus) for name, corpus in tasks.items()))
    schedule = for_steps(schedule, training_steps(batches, training))
    # Before the optimiser, which is made for the weights as they are then.
    sharded = spread_weights(own, replicate=training.replicate, shard=training.shard)
    moved = _optimiser(own, optimiser, layer_decay)
    player = Player(module=own, optimiser=moved, schedule=schedule, clip_norm=training.clip, sharded=sharded)
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
    data = next(iter(tasks.values()))
    same_files(run, data)
    for name, text in data.files.items():
        run.write(name, text.encode())
    if (origin := _encoder_origin(model)) is not None:
        vocabulary = task_encoder(getattr(model, "model", model)).vocabulary
        run.write(ENCODER, to_json({**origin, "vocabulary": vocabulary}))


def _encoder_origin(model: Any) -> dict[str, Any] | None:
    """The kind of a model's network and its options, where it was made by name."""
    origin = getattr(getattr(model, "model", model), "origin", None)
    return None if origin is None else dict(origin["backbone"])


def _made_of(given: Any, tasks: Tasks) -> dict[str, Any]:
    """What a run was made from; as a configuration has it where the model and the data say how they were made.

    Of a pretrained run in memory the weights are part of it. Of a network that was given by itself they are not: one
    that is drawn anew continues with the weights of the run.
    """
    folder, origin = getattr(given, "folder", None), _encoder_origin(given)
    if folder is not None:
        start: dict[str, Any] = {"pretrained": str(folder)}
    elif getattr(given, "history", None) is not None:  # a run that was trained in memory
        start = {"network": fingerprint(given.model)}
    elif origin is not None:
        start = {"pretrained": None, "backbone": origin}
    else:
        start = {"network": architecture(given)}
    data = {name: _origin(corpus) for name, corpus in tasks.items()}
    return {**start, **({"data": next(iter(data.values()))} if len(data) == 1 else {"tasks": data})}


def _origin(corpus: LabelledCorpus) -> dict[str, Any]:
    if corpus.origin is None:
        return {"digest": fingerprint(dict(corpus.parts))}
    return {name: value for name, value in corpus.origin.items() if name != "kind"}


def _tasks(model: Any, data: Data | Mapping[str, Data], seed: int) -> dict[str, LabelledCorpus]:
    """Data by the name of the task, in the tokens of the model's own tokeniser, where it has one."""
    named: Mapping[str, Data] = data if isinstance(data, Mapping) else {ONE: data}
    if not named:
        raise UserError("There is no task to learn: give labelled data.")
    own = _own_tokeniser(model)
    return {
        name: one.read(tokeniser=own, seed=seed) if isinstance(one, LabelledData) else one
        for name, one in named.items()
    }


def _own_tokeniser(model: Any) -> Tokeniser | None:
    """That of the text which a model has learnt from, where it knows it."""
    tasks = getattr(model, "tasks", None)  # of a run that was fine-tuned itself
    data = next(iter(tasks.values())) if tasks else getattr(model, "data", None)
    for holder in (data, getattr(model, "model", None), model):
        found = getattr(holder, "tokeniser", None)
        if isinstance(found, Tokeniser):
            return found
    return None


def _checked_encoder(model: Any, tasks: Tasks) -> TaskEncoder:
    """A copy of the model's network, if it knows the tokens of the data: the model stays as it is."""
    encoder = task_encoder(getattr(model, "model", model))
    own = _own_tokeniser(model)
    for corpus in tasks.values():
        if own is not None and as_kept(own) != as_kept(corpus.tokeniser):
            raise UserError(
                "The data are not in the tokens of the pretrained model: read them with its tokeniser, "
                "data.with_tokeniser(pretrained.data.tokeniser)."
            )
        if encoder.vocabulary < corpus.vocabulary or (own is None and encoder.vocabulary != corpus.vocabulary):
            raise UserError(
                f"The network knows {encoder.vocabulary:,} tokens and the data have {corpus.vocabulary:,}: make it for "
                "data.vocabulary tokens, or read the data with its tokeniser."
            )
    return copy.deepcopy(encoder)


def new_model(encoder: TaskEncoder, tasks: Tasks, *, head: Head, dropout: float, frozen: bool) -> nn.Module:
    """The encoder and new heads, their weights from torch's global state; a frozen encoder does not learn."""
    if head == "kernel_pooling":
        if [corpus.task for corpus in tasks.values()] != ["ranking"]:
            raise UserError("Kernel pooling ranks documents: choose the head summary, or one task of ranking.")
        return KernelPooling(encoder)
    made: Any = encoder
    made.requires_grad_(not frozen)
    heads = {
        name: new_head(corpus.task, encoder.width, classes=len(corpus.names), dropout=dropout, mean=head == "mean")
        for name, corpus in tasks.items()
    }
    where = encoder.table
    return TaskModel(encoder, heads).to(where.device, where.dtype)


def _objective(model: Any, name: str, corpus: LabelledCorpus) -> OfTask:
    if corpus.task == "classification":
        return Classification(model=model, task=name)
    if corpus.task == "regression":
        return Regression(model=model, task=name)
    if corpus.task == "span":
        return SpanExtraction(model=model, task=name, answerability=asks_for_answers(corpus))
    return Choice(model=model, task=name)


def _batches(tasks: Tasks, training: Training, mixing: Mixing, seed: int, device: str) -> OnDevice:
    """Of the training examples: the tasks take turns."""
    if training.batch_tokens is not None:
        raise UserError("Labelled examples come in batches of examples: give training.batch_size, no batch_tokens.")
    sources = [
        _source(corpus, "train", training.batch_size, seed, drop_last=training.drop_last) for corpus in tasks.values()
    ]
    return OnDevice(InTurn(sources=sources, seed=seed, mixing=mixing), device)


def _held_out_batches(tasks: Tasks, training: Training, device: str) -> OnDevice:
    """Of the validation examples, always the same: of ranking, the same pairs."""
    size = training.held_out_batch or training.batch_size
    sources = [_source(corpus, "validation", size, None) for corpus in tasks.values()]
    return OnDevice(InTurn(sources=sources, shuffle=False), device)


def _source(corpus: LabelledCorpus, part: str, size: int, seed: int | None, *, drop_last: bool = False) -> Any:
    data, shuffle = corpus.part(part), seed is not None
    if corpus.task == "ranking":
        return Pairs(data=data, batch_size=size, seed=seed or 0, shuffle=shuffle)
    drop_last = drop_last and len(data.group) >= size
    return Batches(data=data, batch_size=size, seed=seed or 0, shuffle=shuffle, drop_last=drop_last)


def _optimiser(model: nn.Module, optimiser: OptimiserConfig, layer_decay: float) -> Any:
    """With a learning rate for each layer of the encoder; the heads have that of the top layer."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learning:
        raise UserError("Nothing of this model can learn.")
    if layer_decay == 1 or not isinstance(model, TaskModel):
        return optimiser.build(learning)
    layers = layers_of(model.encoder)
    layers[-1] += [parameter for parameter in model.heads.parameters() if parameter.requires_grad]
    return optimiser.build(layerwise(layers, layer_decay))
