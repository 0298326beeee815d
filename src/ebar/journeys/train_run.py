"""One run of `ebar train`: from its configuration to a folder with a trained model."""

import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.model import SHAPE, begin_with, build_model, build_player
from ebar.config.run import Run
from ebar.data.corpus import Corpus
from ebar.data.images import ImageBatches, Images
from ebar.errors import UserError
from ebar.objectives import OBJECTIVES
from ebar.store.writing import to_json
from ebar.training import (
    Batches,
    Console,
    Patience,
    Plan,
    Player,
    Result,
    distributed,
    measure,
    open_run,
    seeded,
    tensorboard,
    train,
)
from ebar.training import Run as OpenRun
from ebar.training.batches import OnDevice
from ebar.training.budgeted import Budgeted, lengths_of
from ebar.training.schedules import for_steps
from ebar.training.state import restore


def train_run(run: Run, folder: Path, *, quiet: bool = False, replace_config: bool = False) -> Result:
    """Train as configured, in a run folder, from where it stands."""
    try:
        generator = seeded(run.seed, device=run.device, rank=distributed.rank())
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None
    corpus = build_corpus(run, folder)
    model = build_model(run, corpus.space, corpus.shape)
    if run.training.start is not None:
        begin_with(model, run.training.start)
    batches, validation = training_batches(run, corpus), held_out_batches(run, corpus)
    steps = run.training.epochs * len(batches)
    players = {"model": build_player(run, model)}
    players["model"] = replace(players["model"], schedule=for_steps(players["model"].schedule, steps))
    objective = for_steps(make(OBJECTIVES, run.objective, "objective", model=model), steps)
    if isinstance(memory := getattr(objective, "memory", None), nn.Module):
        players["objective"] = Player(module=memory.to(run.device))  # moved by no loss, kept in checkpoints
    judge = getattr(objective, "validation", objective)  # plain cross-entropy, whatever is trained
    plan = Plan(
        epochs=run.training.epochs,
        accumulate=run.training.accumulate,
        validate_every=run.training.evaluate_every * len(batches),
        checkpoint_every=run.training.checkpoint_every,
        patience=Patience(evaluations=run.training.patience, in_all=run.training.patience_in_all),
    )

    def check(opened: OpenRun, changed: list[str]) -> None:
        if "optimiser.kind" in changed:
            raise UserError("The state of one optimiser is of no use to another: choose another name.")
        _same_files(opened, corpus)
        if (newest := opened.checkpoints.newest()) is not None:
            restore(newest, players, generator)  # as training will, once the configuration is replaced

    with ExitStack() as stack:
        opened = stack.enter_context(
            open_run(folder, config=resolved(run), seed=run.seed, replace_config=replace_config, check=check)
        )
        if distributed.rank() == 0:
            keep(opened, corpus)
        sinks: list[Any] = [] if quiet or not sys.stderr.isatty() else [Console()]
        if run.training.tensorboard and distributed.rank() == 0:
            sinks.append(stack.enter_context(tensorboard(folder / "tensorboard")))
        return train(
            opened,
            objective,
            batches,
            players,
            plan,
            generator=generator,
            validation=lambda: measure(judge, validation, generator=generator),
            sinks=sinks,
        )


def training_batches(run: Run, corpus: Corpus) -> OnDevice:
    """By rows, or by tokens where the configuration says so; what is on disk is read as it is needed."""
    part, training = corpus.parts["train"], run.training
    if isinstance(part, Images):
        images = Batches(
            data=part.pixels, batch_size=images_in_batch(run, part), seed=run.seed, drop_last=training.drop_last
        )
        return OnDevice(ImageBatches(images), run.device)
    if training.batch_tokens is None:
        rows = Batches(data=part, batch_size=training.batch_size, seed=run.seed, drop_last=training.drop_last)
        return OnDevice(rows, run.device)
    if training.drop_last:
        raise UserError("Batches of a number of tokens have no last one: leave out training.drop_last.")
    return OnDevice(Budgeted(data=part, tokens=training.batch_tokens, seed=run.seed), run.device)


def held_out_batches(run: Run, corpus: Corpus) -> OnDevice:
    """No larger than those of training where a token has many logits, and fewer of them where it has few."""
    part, training = corpus.parts["validation"], run.training
    if isinstance(part, Images):
        size = training.held_out_batch or images_in_batch(run, part)
        images = Batches(data=part.pixels, batch_size=size, shuffle=False)
        return OnDevice(ImageBatches(images), run.device)
    if training.batch_tokens is not None:
        tokens = max(training.held_out_batch or training.batch_tokens, int(lengths_of(part).max()))
        return OnDevice(Budgeted(data=part, tokens=tokens, shuffle=False), run.device)
    small = run.data.kind in ("language", "lines")
    size = training.held_out_batch or (max(1024, training.batch_size) if small else training.batch_size)
    return OnDevice(Batches(data=part, batch_size=size, shuffle=False), run.device)


def images_in_batch(run: Run, images: Images) -> int:
    """All have as many tokens."""
    tokens = run.training.batch_tokens
    return run.training.batch_size if tokens is None else max(1, tokens // images.space.length)


def _same_files(opened: OpenRun, corpus: Corpus) -> None:
    """A tokeniser of the same size would fit the weights and read other words into them."""
    for name, text in corpus.files.items():
        if (path := opened.folder / name).exists() and path.read_bytes() != text.encode():
            raise UserError(f"These data make another {name}: choose another name.")


def keep(opened: OpenRun, corpus: Corpus) -> None:
    """What a run needs to be evaluated: its tokenisers, and what its backbone was told."""
    for name, text in corpus.files.items():
        opened.write(name, text.encode())
    if corpus.shape:
        opened.write(SHAPE, to_json(dict(corpus.shape)))


def resolved(run: Run) -> str:
    """The complete configuration as YAML, every default in it; `read_run` reads it back."""
    return as_yaml(asdict(run))


def as_yaml(tree: dict[str, Any]) -> str:
    """A configuration as YAML; the options of a table's entry stand beside its kind."""
    for key, value in tree.items():
        if isinstance(value, dict) and set(value) == {"kind", "options"}:
            tree[key] = {"kind": value["kind"], **value["options"]}
    return str(yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True))


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return [_plain(value) for value in node]
    if isinstance(node, Path):
        return str(node.resolve())  # absolute, so that the run can be evaluated from any folder
    # Restricted numbers are subclasses that YAML does not know.
    return next((kind(node) for kind in (bool, int, float, str) if isinstance(node, kind)), None)
