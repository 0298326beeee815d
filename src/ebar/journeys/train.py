"""Training an autoregressive model on a corpus, in a run folder or in memory."""

import json
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Generator, nn

from ebar.data.corpus import Corpus, Part
from ebar.data.images import Images
from ebar.data.pretraining_inputs import PretrainingPart
from ebar.data.stream import Stream
from ebar.devices import check_bfloat16
from ebar.errors import UserError
from ebar.journeys.description import run_description
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.store.differences import differences, listed_names
from ebar.store.writing import to_json
from ebar.training import distributed
from ebar.training.batches import Batches, Budgeted, OnDevice, Source, lengths_of, steps_in
from ebar.training.course import Training
from ebar.training.loop import evaluate_objective
from ebar.training.metrics import Console, Sink
from ebar.training.metrics import tensorboard as tensorboard_sink
from ebar.training.optimisers import Adam, Constant, OptimiserConfig, Schedule, for_steps
from ebar.training.players import Player, Players
from ebar.training.randomness import seeded
from ebar.training.run import Run, continue_from, open_run
from ebar.training.sharding import Sharded, spread_weights
from ebar.training.state import restore
from ebar.training.stopping import Patience
from ebar.training.streams import Columns, GoesOn, OnStream, PretrainingColumns
from ebar.training.train import History, Plan, Result, load_best, train_to_best
from ebar.types import Objective

SHAPE = "shape.json"  # in a run folder: the shape of the data that the backbone was built for
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Trained(Generic[Model]):
    """A trained model and how its training went."""

    model: Model  # with the weights of the lowest validation loss, in evaluation mode
    data: Corpus
    history: History
    result: Result | None = None  # how training ended; None where the run was loaded
    folder: Path | None = None  # None where it was trained in memory


def train(
    model: Model,
    data: Corpus,
    *,
    objective: Objective | None = None,
    training: Training = Training(),  # noqa: B008 — immutable
    optimiser: OptimiserConfig = Adam(),  # noqa: B008
    schedule: Schedule = Constant(),  # noqa: B008
    seed: int | None = None,
    generator: Generator | None = None,
    folder: Path | str | None = None,
    description: str | None = None,
    replace_config: bool = False,
    trunk: Path | None = None,
    until: int | None = None,
    quiet: bool = True,
    sinks: Sequence[Sink] = (),
) -> Trained[Model]:
    """Trains a model by maximum likelihood, or by another objective that was made for it.

    With a folder, training continues from its newest checkpoint, if there is one; without, a temporary folder is used
    and removed. `description` is what the folder keeps as config.yaml: a folder with another one is refused, unless
    `replace_config`. By default it is composed from the arguments.

    `seed` decides the order of the batches, the draws of the objective and dropout. Without one it is drawn from
    torch's own state (or is that of the folder). A caller that has seeded all random sources before it built the model
    passes the `generator` that `seeded` returned.

    `until` ends it after so many of its epochs. `trunk` is the folder of a run that ended so, to branch from: it may
    differ in its objective only. `sinks` are told what is logged, as it comes.
    Stopped by SIGINT or SIGTERM, or after `training.max_minutes`, it saves a checkpoint and raises `Interrupted`.
    """
    folder = None if folder is None else Path(folder)
    known: Any = model
    if getattr(model, "reading", data.reading) is None:
        known.reading = data.reading
    device = str(next(model.parameters()).device)
    if training.start is not None:
        _begin(model, training.start)
    if seed is None:
        seed = seed_of(folder)
    elif generator is None:
        generator = seeded(seed, device=device, rank=distributed.rank())
    source = Generator(device).manual_seed(seed) if generator is None else generator
    if objective is None:
        objective = MaximumLikelihood(model=model)  # type: ignore[arg-type]
    if description is None:
        description = run_description(
            model, data, objective=objective, training=training, optimiser=optimiser, schedule=schedule, seed=seed
        )
    if trunk is not None:
        if training.shard > 1:
            raise UserError("A run that branches from another keeps its weights whole: leave out training.shard.")
        _check_trunk(trunk, folder, description)
    batches, held_out = training_batches(data, training, seed, device), held_out_batches(data, training, device)
    steps = training_steps(batches, training)
    objective, schedule = for_steps(objective, steps), for_steps(schedule, steps)
    judge = getattr(objective, "validation", objective)  # plain cross-entropy, whatever the objective
    if _goes_on(objective, model, batches):
        assert not isinstance(batches, OnDevice)
        assert not isinstance(held_out, OnDevice)
        objective, judge = OnStream.of(objective, model, batches), OnStream.of(judge, model, held_out)
    sharded = spread_weights(model, replicate=training.replicate, shard=training.shard)
    players = _players(model, objective, training, optimiser, schedule, sharded)

    def keep(run: Run) -> None:
        _keep(run, data)
        if trunk is not None:
            continue_from(Run(trunk), run, players)

    result, history = train_in_folder(
        folder, objective, batches, players, plan_of(training, device, until=until), description=description, seed=seed,
        generator=source, replace_config=replace_config, tensorboard=training.tensorboard, quiet=quiet, keep=keep,
        sinks=sinks,
        same=lambda run: _same_files(run, data),
        # The same random numbers at every evaluation, where an objective draws some: epochs are compared, not luck.
        validation=lambda: evaluate_objective(judge, held_out, generator=Generator(device).manual_seed(seed)),
    )  # fmt: skip
    if isinstance(objective, MaximumLikelihood) and (words := history.diverged(math.log(data.space.vocabulary))):
        warnings.warn(words, RuntimeWarning, stacklevel=2)
    if sharded is not None:
        model = cast(Model, sharded.plain())
    return Trained(model=model, data=data, history=history, result=result, folder=folder)


def _begin(model: nn.Module, start: Path) -> None:
    try:
        load_best(model, start)
    except UserError as error:
        if "does not fit" not in str(error):
            raise
        raise UserError(
            f"The weights of {start} do not fit this model: give it the same data, tokeniser, backbone and head."
        ) from error


def train_in_folder(
    folder: Path | None,
    objective: Objective,
    batches: Source,
    players: Players,
    plan: Plan,
    *,
    description: str,
    seed: int,
    generator: Generator,
    validation: Callable[[], dict[str, float]] | None,
    keep: Callable[[Run], None],
    same: Callable[[Run], None] = lambda run: None,
    replace_config: bool = False,
    tensorboard: bool = False,
    quiet: bool = True,
    sinks: Sequence[Sink] = (),
) -> tuple[Result, History]:
    """From the folder's newest checkpoint, if there is one, to the best weights; without a folder, in a temporary one.

    `keep` writes what is needed to open the run beside its checkpoints. A folder with another description goes on only
    with `replace_config`, if `same` finds nothing to refuse and its newest checkpoint fits the players.
    """

    def check(run: Run, changed: list[str]) -> None:
        if "optimiser.kind" in changed:
            raise UserError("The state of one optimiser is of no use to another: choose another name.")
        same(run)
        if (newest := run.checkpoints.newest()) is not None:
            restore(newest, players, generator)  # as training will, once the configuration is replaced

    with ExitStack() as stack:
        run = stack.enter_context(
            open_run(
                folder,
                config=description,
                seed=seed,
                replace_config=replace_config,
                check=check,
                advice="choose another name, or give --replace_config to go on with this one",
            )
        )
        if distributed.rank() == 0:
            keep(run)
        shown: list[Sink] = [] if quiet or not sys.stderr.isatty() else [Console()]
        if tensorboard and distributed.rank() == 0:
            shown.append(stack.enter_context(tensorboard_sink(run.folder / "tensorboard")))
        result = train_to_best(
            run, objective, batches, players, plan, generator=generator, validation=validation, sinks=[*shown, *sinks]
        )
        return result, History.read(run.folder)


def seed_of(folder: Path | None) -> int:
    """That of a run that was begun; otherwise one drawn from torch's own state."""
    if folder is None:
        return int(torch.randint(2**62, ()))
    try:
        return int(json.loads((folder / "environment.json").read_bytes())["seed"])
    except (OSError, ValueError, KeyError):
        return int(torch.randint(2**62, ()))


def _players(
    model: nn.Module, objective: Objective, training: Training, optimiser: OptimiserConfig, schedule: Schedule,
    sharded: Sharded | None,
) -> Players:  # fmt: skip
    """The model with its optimiser, and the state of the objective, if it has any.

    What an objective learns besides the model, a head of its own, is moved by the model's optimiser.
    """
    memory = getattr(objective, "memory", None)
    own = list(memory.to(next(model.parameters()).device).parameters()) if isinstance(memory, nn.Module) else []
    try:
        moved = optimiser.build(parameter for parameter in (*model.parameters(), *own) if parameter.requires_grad)
    except ValueError as error:
        raise UserError(f"The optimiser {type(optimiser).__name__.lower()} cannot be made: {error}.") from None
    players = {
        "model": Player(module=model, optimiser=moved, schedule=schedule, clip_norm=training.clip, sharded=sharded)
    }
    if isinstance(memory, nn.Module):
        players["objective"] = Player(module=memory)
    return players


def training_steps(batches: Any, training: Training) -> int:
    """At most so many: those of all epochs, or fewer where that is said."""
    steps = steps_in(batches, training.epochs)
    return steps if training.max_steps is None else min(steps, training.max_steps)


def plan_of(training: Training, device: str, *, until: int | None = None, monitor: str = "loss") -> Plan:
    """How long a training goes on, and what decides its best weights."""
    if training.autocast:
        check_bfloat16(device)
    if training.batch_tokens is None:
        distributed.check_batch(training.batch_size, training.accumulate)
    return Plan(
        steps=training.max_steps,
        minutes=training.max_minutes,
        autocast=device if training.autocast else None,
        validate_every=training.evaluate_steps,
        validate_last=True,
        epochs=training.epochs if until is None else min(until, training.epochs),
        accumulate=training.accumulate,
        validate_epochs=training.evaluate_every,
        checkpoint_every=training.checkpoint_every,
        patience=Patience(
            evaluations=training.patience, in_all=training.patience_in_all, excluding=training.patience_excluding
        ),
        monitor=monitor,
    )


def _check_trunk(trunk: Path, folder: Path | None, description: str) -> None:
    """A finished run whose configuration differs in the objective only."""
    before = (trunk / "config.yaml").read_text(encoding="utf-8")
    other = [name for name in differences(before, description) if name.partition(".")[0] != "objective"]
    if other:
        raise UserError(f"{folder} cannot branch from {trunk}, which has another {listed_names(other)}.")
    if not (trunk / "results.json").exists():
        raise UserError(f"{folder} cannot branch from {trunk}: finish that run first.")


def _goes_on(objective: Objective, model: nn.Module, batches: OnDevice | Columns | PretrainingColumns) -> bool:
    """Whether a memory goes along from batch to batch."""
    if not isinstance(batches, PretrainingColumns):
        if isinstance(objective, GoesOn):
            raise UserError("The objective pretraining reads inputs of its own: choose data of kind pretraining.")
        return isinstance(batches, Columns)
    if not isinstance(objective, GoesOn):
        raise UserError(
            "Data of kind pretraining are inputs of which some tokens are predicted: choose objective pretraining."
        )
    if getattr(getattr(model, "backbone", None), "memory", 0) == 0:
        return False
    if batches.text.form.reuse == 0:
        raise UserError("A memory holds the reused part of each input, which has none: give data.reuse, or no memory.")
    return True


def training_batches(
    data: Corpus, training: Training, seed: int, device: str
) -> OnDevice | Columns | PretrainingColumns:
    """Batches of rows, or of tokens where `training.batch_tokens` is given. What is on disk is read as needed.

    Of a stream, the next segment of each of `training.batch_size` columns, and so of a text to pretrain on.
    """
    part = data.parts["train"]
    if isinstance(part, Stream | PretrainingPart):
        if training.batch_tokens is not None:
            raise UserError("A stream is read in columns: give their number as training.batch_size, no batch_tokens.")
        if isinstance(part, PretrainingPart):
            return PretrainingColumns.to_train(part.text, training.batch_size, seed=seed, device=device)
        return Columns.to_train(part, training.batch_size, seed=seed, device=device)
    if training.batch_tokens is None or isinstance(part, Images):
        size = _rows_in_batch(training, part)
        batches = Batches(
            data=part, batch_size=size, seed=seed, drop_last=training.drop_last, block=training.shuffle_block
        )
        return OnDevice(batches, device)
    if training.drop_last:
        raise UserError("Batches of a number of tokens have no last one: leave out training.drop_last.")
    if training.shuffle_block is not None:
        raise UserError("Batches of a number of tokens are sorted by length: leave out training.shuffle_block.")
    return OnDevice(Budgeted(data=part, tokens=training.batch_tokens, seed=seed), device)


def held_out_batches(data: Corpus, training: Training, device: str) -> OnDevice | Columns | PretrainingColumns:
    """Batches of the validation data, `training.held_out_batch` large; by default of a size for the kind of data.

    That is the size of training batches, and more where a token has few logits (`Corpus.held_out_batch`).
    """
    part, wanted = data.parts["validation"], training.held_out_batch
    if isinstance(part, Stream):
        return Columns.held_out(part, wanted or training.batch_size, device=device)
    if isinstance(part, PretrainingPart):
        return PretrainingColumns.held_out(part.text, wanted or training.batch_size, device=device)
    if training.batch_tokens is not None and not isinstance(part, Images):
        tokens = max(wanted or training.batch_tokens, int(lengths_of(part).max()))
        return OnDevice(Budgeted(data=part, tokens=tokens, shuffle=False), device)
    size = wanted or max(data.held_out_batch, _rows_in_batch(training, part))
    return OnDevice(Batches(data=part, batch_size=size, shuffle=False), device)


def _rows_in_batch(training: Training, part: Part) -> int:
    """Images all have as many tokens, so that a number of tokens is a number of rows."""
    if training.batch_tokens is None or not isinstance(part, Images):
        return training.batch_size
    return max(1, training.batch_tokens // part.space.length)


def _same_files(run: Run, data: Corpus) -> None:
    """A tokeniser of the same size would fit the weights, but map tokens to other words."""
    for name, text in data.files.items():
        if (path := run.folder / name).exists() and path.read_bytes() != text.encode():
            raise UserError(f"These data make another {name}: choose another name.")


def _keep(run: Run, data: Corpus) -> None:
    """What is needed to evaluate a run: its tokenisers, and the shape of its data."""
    for name, text in data.files.items():
        run.write(name, text.encode())
    if data.shape:
        run.write(SHAPE, to_json(dict(data.shape)))
