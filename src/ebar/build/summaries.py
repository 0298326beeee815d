"""What run folders hold, told from their files alone; what is broken is said. Nothing heavy is imported."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ebar.config.kinds import kind_of_run
from ebar.errors import UserError
from ebar.journeys.sweep.trials import TRIALS, read_trials
from ebar.store.differences import renamed
from ebar.store.names import CHECKPOINTS, CONFIG, LOCK, checkpoint_folder, checkpoint_steps

Tree = Mapping[str, Any]
RESULTS = "results.json"


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run, for a line of a list."""

    folder: Path
    kind: str  # the command that makes such a run, or what is known of one that no command made
    data: str = ""
    model: str = ""
    step: int | None = None
    figure: str = ""  # the best so far, and what it is
    state: str = "broken"  # finished, halted, running, interrupted, begun; or broken
    problem: str = ""  # why it cannot be read
    tree: Tree = field(default_factory=dict, repr=False)  # its configuration


def list_runs(folder: Path | str = "runs") -> list[RunSummary]:
    """The runs of a folder, by name. A folder in it that is none, or that is damaged, has a line that says so."""
    folder = Path(folder)
    try:
        places = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder} has no runs ({error.strerror}): give the folder that they are in.") from None
    return [summarise(place) for place in places]


def model_of_gam(run: RunSummary) -> Path:
    """The last π of a GAM."""
    return run.folder / f"round-{run.tree.get('rounds', 1)}" / "pi"


def readable_run(folder: Path | str, done: str, take: str = "") -> RunSummary:
    """What a folder holds, where it can be `done` with that; `take`: what is to be taken in place of a whole GAM."""
    run = summarise(Path(folder))
    if run.state == "broken":
        raise UserError(f"{folder} cannot be {done}: {run.problem.rstrip('.')}.")
    if take and run.kind == "gam":
        raise UserError(f"{folder} is a GAM, and its model is {model_of_gam(run)}: {take} that one.")
    return run


def summarise(folder: Path) -> RunSummary:
    """What a folder holds; one that cannot be read is `broken`, with the reason."""
    try:
        return _summary(folder)
    except UserError as error:
        return RunSummary(folder=folder, kind="–", problem=str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        return RunSummary(folder=folder, kind="–", problem=f"it is damaged ({type(error).__name__}: {reason})")


def _summary(folder: Path) -> RunSummary:
    if not folder.exists():
        raise UserError("there is no such folder, and `ebar list` shows those there are")
    if not folder.is_dir():
        raise UserError("it is a file: give the folder of a run")
    if not (folder / CONFIG).exists():
        raise UserError(f"it has no {CONFIG}: no run, or the folder of several, which `ebar list` shows")
    try:
        tree = yaml.safe_load(renamed((folder / CONFIG).read_text(encoding="utf-8")))
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"its {CONFIG} cannot be read: {' '.join(str(error).split())[:100]}") from None
    if not isinstance(tree, dict):
        raise UserError(f"its {CONFIG} says nothing")
    kind = kind_of_run(tree)
    if (folder / TRIALS).exists():
        return _of_sweep(folder)
    results = _read(folder / RESULTS)
    look = LOOKS.get(kind or "", _of_something)
    found = look(folder, tree, results)
    state = found.pop("state")
    if state == "interrupted" and _is_used(folder):
        state = "running"
    return RunSummary(folder=folder, tree=tree, state=state, **found)


def _of_sweep(folder: Path) -> RunSummary:
    """Many runs, each of which can be shown for itself."""
    found = read_trials(folder)
    done = sum(one.state is not None for one in found.trials)
    state = "finished" if done == len(found.trials) else "running" if _is_used(folder) else "interrupted"
    best = found.best
    figure = "" if best is None else f"validation loss {_number(best.figure)} of trial {best.number}"
    data = f"{done} of {len(found.trials)} trials done"
    return RunSummary(folder=folder, kind="sweep", data=data, figure=figure, state=state)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise UserError(f"its {path.name} cannot be read") from None
    return found if isinstance(found, dict) else {}


def _trained(folder: Path, results: Tree, figure: str) -> dict[str, Any]:
    """Of any run with checkpoints: the newest, and the best figure that it knows of."""
    steps = checkpoint_steps(folder / CHECKPOINTS)
    state = _read(checkpoint_folder(folder / CHECKPOINTS, steps[-1]) / "state.json") if steps else {}
    step, best = (steps[-1] if steps else None), state.get("best") or {}
    value = best.get("value")
    found = "" if value is None else f"{figure} {_number(value)} at step {best['step']}"
    # A run that goes on with more epochs keeps the results of its first end until the next.
    ended = (results.get("position") or {}).get("step")
    done = "status" in results and (ended is None or step is None or ended >= step)
    return {"step": step, "figure": found, "state": results["status"] if done else "interrupted" if steps else "begun"}


def _of_train(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    data, network = tree.get("data") or {}, tree.get("backbone") or tree.get("model") or {}
    kind = "pretrain" if data.get("kind") == "pretraining" else "train"
    found = _trained(folder, results, "validation loss, nats per token,")
    return {"kind": kind, "data": _data(data), "model": str(network.get("kind", "")), **found}


def _of_finetune(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    start = tree.get("pretrained")
    model = str(tree["backbone"].get("kind", "")) if start is None else f"from {Path(start).name}"
    return {
        "kind": "finetune", "data": _data(tree.get("data") or {}), "model": model,
        **_trained(folder, results, f"validation {tree.get('monitor', 'loss')}"),
    }  # fmt: skip


def _of_game(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    model = f"{tree['generator'].get('kind')} against {tree['discriminator'].get('kind')}"
    return {"kind": "game", "data": _data(tree["data"]), "model": model, **_trained(folder, results, "figure")}


def _of_classify(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    data = f"{_data(tree['data'])}, {tree.get('labels')} labels"
    model = str(tree["classifier"].get("kind", ""))
    return {"kind": "classify", "data": data, "model": model, **_trained(folder, results, "validation error")}


def _of_gam(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    data, base = tree.get("data") or {}, tree.get("backbone")
    model = str(base.get("kind", "")) if isinstance(base, dict) else ""
    found = {"kind": "gam", "data": _data(data), "model": model, "step": None}
    if not results:
        made = [name for name in ("r", "round-1/lambda.json", "round-1/pi") if (folder / name).exists()]
        return {**found, "figure": f"so far {', '.join(made)}" if made else "", "state": "interrupted"}
    name = [one for one in results["models"] if one.startswith("π")][-1]
    cost = _estimate(results["models"][name]["cross_entropy"])
    return {**found, "state": "finished", "figure": f"test cross-entropy of {name}, nats per token, {cost}"}


def _of_residual(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    data = _data(tree.get("data") or {}) if (tree.get("data") or {}).get("train") else "the text of its base"
    energy = folder / "energy"
    inside = _trained(energy, _read(energy / RESULTS), "held-out loss")
    found = {"kind": "residual", "data": data, "model": f"{tree['energy'].get('kind')} on {Path(tree['base']).name}"}
    joint = (results.get("evaluation") or {}).get("perplexity")
    figure = inside["figure"] if joint is None else f"test perplexity {_estimate(joint)}"
    return {**found, "step": inside["step"], "figure": figure, "state": "finished" if results else "interrupted"}


def _of_control(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    wanted = ", ".join(tree.get("features") or [])
    figure = f"KL(p‖q), nats per text, {_estimate(results['kl_of_p_from_model'])}" if results else ""
    return {
        "kind": "control", "data": wanted, "model": Path(str(tree["model"])).name, "step": None, "figure": figure,
        "state": "finished" if results else "interrupted",
    }  # fmt: skip


def _of_tuning(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    found = _trained(folder, results, "KL(p‖π), nats per text,")
    done = {"state": "finished"} if results else {}
    return {"kind": "control tune", "model": f"of {folder.parent.name}", **found, **done}


def _of_something(folder: Path, tree: Tree, results: Tree) -> dict[str, Any]:
    """Made in Python, or by a later version: what its checkpoints tell."""
    network = tree.get("model")
    model = str(network.get("kind", "")) if isinstance(network, dict) else ""
    data = tree.get("data")
    return {
        "kind": "made in Python", "data": _data(data) if isinstance(data, dict) else "", "model": model,
        **_trained(folder, results, "validation loss"),
    }  # fmt: skip


LOOKS: dict[str, Callable[[Path, Tree, Tree], dict[str, Any]]] = {
    "train": _of_train,
    "gam": _of_gam,
    "residual": _of_residual,
    "control": _of_control,
    "finetune": _of_finetune,
    "classify": _of_classify,
    "game": _of_game,
    "control tune": _of_tuning,
}


def _data(options: Tree) -> str:
    """The kind of data, and where they are from or what language they are of."""
    kind = str(options.get("kind", ""))
    if (train := options.get("train")) is not None:
        found = Path(str(train)).name
    else:
        names = ("dataset", "motif", "expression", "mixture")
        found = next((f"{name} {options[name]}" for name in names if options.get(name) is not None), "")
        found = found.removeprefix("dataset ")
    tokens = options.get("tokeniser")
    return " ".join(part for part in (kind, found, f"({tokens})" if tokens else "") if part)


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else str(value)  # JSON has words for inf and NaN


def _estimate(tree: Tree) -> str:
    return f"{_number(tree['value'])} [{_number(tree['low'])}, {_number(tree['high'])}]"


def _is_used(folder: Path) -> bool:
    """Whether another process holds the folder; its lock is only looked at where that process is alive."""
    import fcntl

    try:
        with (folder / LOCK).open("rb") as file:
            owner = int(file.read() or 0)
            if owner <= 0 or owner == os.getpid():
                return False
            os.kill(owner, 0)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    except (OSError, ValueError):
        pass
    return False
