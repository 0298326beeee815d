"""`ebar residual train`: from a language model and text to a joint model."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebar.build.residual import train_residual
from ebar.cli.show import show_interrupted, show_json, show_table
from ebar.cli.train import run_folder
from ebar.config.options import parse
from ebar.config.residual import Residual, as_residual, read_residual, residual_parser
from ebar.data.chunks import CHUNKS
from ebar.errors import UserError
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual as Trained
from ebar.journeys.residual.report import write_residual_page
from ebar.progress import shown
from ebar.store.differences import changed
from ebar.store.writing import to_json
from ebar.store.yaml import as_yaml
from ebar.training import Run, open_run
from ebar.types import Estimate

# What a run has that was told of a mistake before it had drawn anything.
BEGUN = {"config.yaml", "environment.json", "lock", "checkpoints", "seconds.json", CHUNKS}


def main(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    options = residual_parser(
        words,
        "residual train",
        "Train an energy on top of a language model, by telling text from the model's own continuations of the same\n"
        "prefixes. Chunks, draws, warm-up and training are each kept: run it again to go on where it was stopped.",
        "ebar residual train --name unit --base runs/text --energy.kind unit --data.prefix 60 --data.continuation 20\n"
        "  ebar residual train --name mine --base HuggingFaceTB/SmolLM2-135M --data.train novels.txt \\\n"
        "      --energy.kind pretrained --energy.encoder sentence-transformers/all-MiniLM-L6-v2 --energy.lora 8\n"
        "  ebar residual train --name bit --base runs/text --energy.warm_up 5 --negatives.refresh true",
    )
    options.add_argument("--name", type=str, default="residual", help="of the run: its folder is RUNS/NAME")
    options.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    arguments = parse(options, words)
    residual = as_residual(arguments)
    folder = run_folder(arguments.runs, arguments.name)
    config = as_yaml(asdict(residual))
    another = _another(folder, residual, config)
    try:
        with (
            shown(not arguments.json),
            open_run(folder, config=config, seed=residual.seed, replace_config=another) as run,
        ):
            if another:
                (folder / CHUNKS).unlink(missing_ok=True)
            trained = train_residual(residual, folder)
            how = residual.evaluation
            evaluation = trained.evaluate(how, seed=residual.seed) if how.prefixes else None
            record(run, trained, evaluation)
    except KeyboardInterrupt:
        return show_interrupted(folder, as_json=arguments.json)
    if arguments.json:
        show_json({"status": "finished", "folder": str(folder), **_results(trained, evaluation)})
    elif evaluation is not None:
        tell(folder, evaluation)
    if not arguments.json:
        sys.stdout.write(f"{folder / 'report.html'}\n")
    return 0


def _another(folder: Path, residual: Residual, config: str) -> bool:
    """Whether the folder holds another configuration; one that has come further than its chunks is not given up."""
    path = folder / "config.yaml"
    other = path.exists() and path.read_text(encoding="utf-8") != config
    if other and (not {entry.name for entry in folder.iterdir()} <= BEGUN or any((folder / "checkpoints").iterdir())):
        names = changed(asdict(read_residual(path)), asdict(residual))
        if all(name.startswith("evaluation.") for name in names):
            raise UserError(f"{folder} differs in {', '.join(names)} only: use `ebar residual evaluate {folder}`.")
        raise UserError(
            f"{folder} holds a run with another {', another '.join(names)}: choose another --name, or remove it."
        )
    return other


def _results(trained: Trained, evaluation: Evaluation | None) -> dict[str, Any]:
    whole, energy = (
        sum(parameter.numel() for parameter in module.parameters()) for module in (trained.p, trained.energy)
    )
    found: dict[str, Any] = {"parameters": {"base": whole - energy, "energy": energy}}
    return found if evaluation is None else {**found, "evaluation": evaluation.to_dict()}


def record(run: Run, trained: Trained, evaluation: Evaluation | None) -> None:
    """results.json and report.html of the run folder."""
    run.write("results.json", to_json(_results(trained, evaluation), indent=1))
    write_residual_page(run.folder, evaluation)


def tell(folder: Path, evaluation: Evaluation) -> None:
    """For people."""
    found = evaluation.perplexity
    title = f"{folder}: {len(found.log_z):,} prefixes, {found.by_draws[-1].draws:,} draws each, 95 % intervals"
    figures, reasons = evaluation.figures(), dict[str, list[str]]()
    for name, value in figures.items():
        if isinstance(value, Estimate) and value.warning:
            reasons.setdefault(value.warning, []).append(name)
    silent = [[name, value._replace(warning=None) if isinstance(value, Estimate) else value]
              for name, value in figures.items()]  # fmt: skip
    show_table(title, ("figure", "value"), silent)
    show_table(
        "with fewer draws",
        ("draws", "low", "perplexity", "high", "mean log Z"),
        [[row.draws, row.low, row.value, row.high, row.log_z] for row in found.by_draws],
    )
    for reason, names in reasons.items():
        sys.stdout.write(f"⚠ {reason} ({', '.join(names)})\n")
