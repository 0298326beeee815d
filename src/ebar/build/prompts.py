"""A file of prompts to a file of what follows them: one line each, gone on with where it was stopped."""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ebar.build.control import load_model_at, read_constraints
from ebar.config.prompts import MANUAL, PromptsConfig
from ebar.config.reader import described
from ebar.errors import Interrupted, UserError
from ebar.journeys.control.controlled_prompts import OfPrompt
from ebar.journeys.control.prompts import Summary, control_prompts
from ebar.progress import bar
from ebar.store.store import open_store
from ebar.store.writing import plain, saving, to_json
from ebar.training.stopping import interruptible
from ebar.types import Estimate


def read_prompts(path: Path) -> Iterator[str]:
    """Prompts one by one, blank lines left out; the file is never in memory as a whole."""
    if not path.is_file():
        raise UserError(f"There is no file {path} of prompts.")
    with path.open(encoding="utf-8", errors="strict") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            if path.suffix != ".jsonl":
                yield line.rstrip("\r\n")
                continue
            try:
                prompt = json.loads(line)["prompt"]
            except (ValueError, KeyError, TypeError):
                prompt = None
            if not isinstance(prompt, str):
                raise UserError(f'Line {number} of {path} is no prompt: each is an object with a text "prompt".')
            yield prompt


def run_prompts(config: PromptsConfig, folder: Path) -> dict[str, Any]:
    """Lines for all prompts in `folder`, and the means over them."""
    wanted = read_constraints(config.features) if config.features or not config.suffix else []
    model = load_model_at(config.model, length=config.length, ends=config.ends, device=config.device)
    advice = f"choose another --name, or delete {folder}"
    description = described(folder, MANUAL, config)
    with open_store(folder, description=description, seed=config.seed, take_over=True, advice=advice) as store:
        made = control_prompts(
            model, wanted, read_prompts(config.prompts), per_prompt=config.per_prompt, suffix=config.suffix,
            length=min(config.length, model.space.length), draws=config.draws, sample=config.sample,
            surrogate_draws=config.surrogate_draws, rounds=config.rounds, round_draws=config.round_draws,
            rows=config.rows, seed=config.seed,
        )  # fmt: skip
        solved = made.fitted[0]
        names = [one.feature.name for one in made.constraints]
        found = {"lambda": dict(zip(names, solved.coefficients.tolist(), strict=True)), "prompts": len(made.sample)}
        store.write("lambda.json", to_json(found, indent=1))
        path = store.folder / "prompts.jsonl"
        done = _resumed(path, made.at_once)
        with saving(str(path)), path.open("ab") as out, bar("prompts", None, "prompts") as progress:
            progress.advance(done)
            rest = islice(read_prompts(config.prompts), done, None)
            with interruptible() as stop:
                for number, one in enumerate(
                    made.stream(rest, texts=config.texts, weights=config.weights, first=done), start=done + 1
                ):
                    out.write(json.dumps(json.loads(to_json(_line(one))), ensure_ascii=False).encode() + b"\n")
                    progress.advance(1)
                    if stop.requested and number % made.at_once == 0:
                        raise Interrupted(store.folder)
        summary = summarised(path)
        result = {"prompts": summary.prompts, "means": summary.means(), "warning": summary.warning, **found}
        store.write("results.json", to_json(plain(result), indent=1))
    return result


def summarised(path: Path) -> Summary:
    """Means over the lines of a file, read one by one."""
    summary = Summary()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            tree = json.loads(line)
            figures = {"log Z": tree["log_z"], **tree["moments"]}
            summary.add(tree["prompt"], {name: Estimate.from_dict(one) for name, one in figures.items()})
    return summary


def _line(one: OfPrompt) -> dict[str, Any]:
    tree = plain(one)
    return {name: value for name, value in tree.items() if name != "draws" or value}


def _resumed(path: Path, at_once: int) -> int:
    """How many prompts are done: whole batches of whole lines; what is beyond is cut off."""
    if not path.exists():
        return 0
    done = lines = size = kept = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            size, lines = size + len(line), lines + 1
            if lines % at_once == 0:
                done, kept = lines, size
    os.truncate(path, kept)
    return done
