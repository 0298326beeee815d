"""`ebar train`: fit an autoregressive model."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.model import build_model, build_player
from ebar.cli.show import show_json
from ebar.config.options import parse
from ebar.config.run import Run, as_run, run_parser
from ebar.errors import UserError
from ebar.objectives import OBJECTIVES
from ebar.progress import shown
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


def main(words: Sequence[str]) -> int:
    """Train, or go on with a run that was interrupted."""
    options = run_parser(
        words,
        "train",
        "Fit an autoregressive model to a language or to your own data. Run it again to go on where it was stopped.",
        "ebar train --name motif --data.motif 10001011111000 --data.size 500 --backbone.hidden 64\n"
        "  ebar train --name mine --data.kind lines --data.train sequences.txt --training.epochs 20\n"
        "  torchrun --standalone --nproc-per-node 2 -m ebar.cli train --config run.yaml",
    )
    options.add_argument("--name", type=str, default="run", help="of the run: its folder is RUNS/NAME")
    options.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    options.add_argument(
        "--replace_config", action="store_true", help="go on with a changed configuration, say with more epochs"
    )
    options.add_argument("--json", action="store_true", help="print how it ended as one JSON object")
    arguments = parse(options, words)
    folder = run_folder(arguments.runs, arguments.name)
    with shown(not arguments.json), distributed.processes(arguments.device):
        result = train_run(as_run(arguments), folder, quiet=arguments.json, replace_config=arguments.replace_config)
        if distributed.rank() == 0:
            _tell(result, folder, as_json=arguments.json)
    return 0 if result.status == "finished" else 130


def run_folder(runs: Path, name: str) -> Path:
    """Where a run lives; its name is one folder's, not a path."""
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise UserError(f"{name!r} cannot be the name of a run: it must be the name of one folder.")
    return runs / name


def train_run(run: Run, folder: Path, *, quiet: bool = False, replace_config: bool = False) -> Result:
    """Train as configured, in a run folder."""
    generator = seeded(run.seed, rank=distributed.rank())
    corpus = build_corpus(run)
    model = build_model(run, corpus.space)
    players = {"model": build_player(run, model)}
    objective = make(OBJECTIVES, run.objective, "objective", model=model)
    device = run.device
    data = corpus.train._replace(tokens=corpus.train.tokens.to(device), lengths=corpus.train.lengths.to(device))
    held_out = corpus.validation
    held_out = held_out._replace(tokens=held_out.tokens.to(device), lengths=held_out.lengths.to(device))
    batches = Batches(data=data, batch_size=run.training.batch_size, seed=run.seed)
    validation = Batches(data=held_out, batch_size=max(1024, run.training.batch_size), shuffle=False)
    plan = Plan(
        epochs=run.training.epochs,
        accumulate=run.training.accumulate,
        validate_every=run.training.evaluate_every * len(batches),
        checkpoint_every=run.training.checkpoint_every,
        patience=Patience(evaluations=run.training.patience),
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
    from dataclasses import asdict

    tree = asdict(run)
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


def _tell(result: Result, folder: Path, *, as_json: bool) -> None:
    best = result.best
    if as_json:
        show_json({"status": result.status, "reason": result.reason, "step": result.position.step,
                   "epoch": result.position.epoch, "best": best._asdict(), "folder": str(folder)})  # fmt: skip
        return
    where = f"step {result.position.step}, epoch {result.position.epoch}"
    if result.status == "interrupted":
        sys.stdout.write(f"interrupted at {where}: run the same command to go on\n")
        return
    held_out = (
        "" if best.value is None else f"; best validation loss {best.value:.6f} nats per token at step {best.step}"
    )
    sys.stdout.write(f"finished ({result.reason}) at {where}{held_out}\n{folder}\n")
