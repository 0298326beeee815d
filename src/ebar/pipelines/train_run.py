"""One run of `ebar train`: from its configuration to a folder with a trained model."""

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.model import begin_with, build_model, build_player
from ebar.config.run import Run
from ebar.objectives import OBJECTIVES
from ebar.training import (
    Batches,
    Console,
    Patience,
    Plan,
    Result,
    distributed,
    measure,
    open_run,
    seeded,
    tensorboard,
    train,
)


def train_run(run: Run, folder: Path, *, quiet: bool = False, replace_config: bool = False) -> Result:
    """Train as configured, in a run folder, from where it stands."""
    generator = seeded(run.seed, rank=distributed.rank())
    corpus = build_corpus(run)
    model = build_model(run, corpus.space)
    if run.training.start is not None:
        begin_with(model, run.training.start)
    players = {"model": build_player(run, model)}
    objective = make(OBJECTIVES, run.objective, "objective", model=model)
    device = run.device
    data = corpus.train._replace(tokens=corpus.train.tokens.to(device), lengths=corpus.train.lengths.to(device))
    held_out = corpus.validation
    held_out = held_out._replace(tokens=held_out.tokens.to(device), lengths=held_out.lengths.to(device))
    batches = Batches(data=data, batch_size=run.training.batch_size, seed=run.seed, drop_last=run.training.drop_last)
    validation = Batches(data=held_out, batch_size=max(1024, run.training.batch_size), shuffle=False)
    plan = Plan(
        epochs=run.training.epochs,
        accumulate=run.training.accumulate,
        validate_every=run.training.evaluate_every * len(batches),
        checkpoint_every=run.training.checkpoint_every,
        patience=Patience(evaluations=run.training.patience, in_all=run.training.patience_in_all),
    )
    with ExitStack() as stack:
        opened = stack.enter_context(
            open_run(folder, config=resolved(run), seed=run.seed, replace_config=replace_config)
        )
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
            validation=lambda: measure(objective, validation, generator=generator),
            sinks=sinks,
        )


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
