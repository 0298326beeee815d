"""`ebar train`: fit an autoregressive model."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ebar.build.train import train_as
from ebar.cli.show import show_json
from ebar.config.options import parse
from ebar.config.run import as_run, run_parser
from ebar.errors import Interrupted, UserError
from ebar.progress import shown
from ebar.training import Result, distributed


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
        try:
            run, quiet = as_run(arguments), arguments.json
            result = train_as(run, folder, quiet=quiet, replace_config=arguments.replace_config).result
        except Interrupted as stopped:
            (result,) = stopped.args
        if distributed.rank() == 0:
            _tell(result, folder, as_json=arguments.json)
    return 0 if result.status == "finished" else 130


def run_folder(runs: Path, name: str) -> Path:
    """Where a run lives; its name is one folder's, not a path."""
    if not name or Path(name).name != name or name.startswith(".") or "\0" in name:
        raise UserError(f"{name!r} cannot be the name of a run: it must be the name of one folder.")
    return runs / name


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
