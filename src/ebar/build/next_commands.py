"""What can be done with a run, as commands that run as they stand."""

import shlex
from collections.abc import Callable

from ebar.build.summaries import RunSummary, model_of_gam
from ebar.store.names import CONFIG

PARTS = {"residual": "residual train", "control": "control fit", "game": "game train"}


def maker(run: RunSummary) -> str:
    """The command that makes such a run."""
    return PARTS.get(run.kind, run.kind)


def going_on(run: RunSummary) -> str | None:
    """The command that goes on with a run that is not finished."""
    if run.kind == "control tune":
        return _line("control", "tune", run.folder.parent, "--name", run.folder.name, "--config", run.folder / CONFIG)
    if run.kind not in ("train", "pretrain", "finetune", "gam", "classify", *PARTS):
        return None
    words = maker(run).split()
    place = run.folder.resolve()
    return _line(*words, "--config", run.folder / CONFIG, "--runs", place.parent, "--name", place.name)


def next_commands(run: RunSummary) -> dict[str, str]:
    """What can be done with a run, each with a command that runs as it stands."""
    folder = run.folder
    more = going_on(run)
    if run.state in ("interrupted", "begun", "halted"):
        return {} if more is None else {"go on with it": more}
    if run.state in ("running", "broken"):
        return {}
    return (NEXT[run.kind](run) if run.kind in NEXT else {}) | {"see all runs beside it": _line("list", folder.parent)}


def next_lines(run: RunSummary) -> list[str]:
    """The same for people, a line each."""
    after = next_commands(run)
    width = max((len(what) for what in after), default=0)
    return [f"{what:<{width}}   {command}" for what, command in after.items()]


def _after_train(run: RunSummary) -> dict[str, str]:
    kind, folder = (run.tree.get("data") or {}).get("kind"), run.folder
    to = "hf" if run.model == "transformer" else "safetensors"
    found = {"measure it on the test data": _line("evaluate", folder)}
    if kind == "parallel":
        parts = [part for part in ("test", "validation", "train") if run.tree["data"].get(f"{part}_target") is not None]
        if parts:  # a file of sources alone
            found["translate"] = _line("decode", folder, "--input", run.tree["data"][parts[0]])
    else:
        found["draw from it"] = _line("sample", folder, "--n", 5)
    return found | {"use its weights elsewhere": _line("export", folder, "--to", to)}


def _after_gam(run: RunSummary) -> dict[str, str]:
    pi = model_of_gam(run)
    return {
        "draw from π": _line("sample", pi, "--n", 5),
        "measure π": _line("evaluate", pi),
        "compare π with r": _line("compare", pi, run.folder / "r"),
        "look at π": _line("show", pi),
    }


def _after_residual(run: RunSummary) -> dict[str, str]:
    return {
        "measure it with more draws": _line("residual", "evaluate", run.folder, "--draws", 200),
        "continue a text": _line("residual", "generate", run.folder, "--prompt", "The"),
        "see what the energy says of next words": _line("residual", "explain", run.folder, "--prompt", "The"),
    }


def _after_control(run: RunSummary) -> dict[str, str]:
    found = {"draw from it": _line("control", "sample", run.folder, "--n", 5)}
    if (run.folder / "tune" / "model").exists():
        return found | {"use the tuned model elsewhere": _line("export", run.folder, "--to", "hf")}
    return found | {"make a model of its own of it": _line("control", "tune", run.folder)}


def _after_game(run: RunSummary) -> dict[str, str]:
    points = run.tree["data"].get("kind") == "points"
    more = () if points else ("--output", run.folder / "sheet.png")
    return {
        "draw from its generator": _line("game", "sample", run.folder, "--n", 5, *more),
        "rank the data by energy": _line("game", "rank", run.folder, "--n", 10),
        "use its weights elsewhere": _line("export", run.folder, "--to", "safetensors"),
    }


def _weights(run: RunSummary) -> dict[str, str]:
    return {"use its weights elsewhere": _line("export", run.folder, "--to", "safetensors")}


NEXT: dict[str, Callable[[RunSummary], dict[str, str]]] = {
    "train": _after_train,
    "pretrain": lambda run: {"fill a gap": _line("infill", run.folder, "It was a ___ night."), **_weights(run)},
    "finetune": lambda run: {"measure it on the test examples": _line("evaluate", run.folder), **_weights(run)},
    "classify": _weights,
    "gam": _after_gam,
    "residual": _after_residual,
    "control": _after_control,
    "control tune": lambda run: {"use it elsewhere": _line("export", run.folder, "--to", "hf")},
    "game": _after_game,
}


def _line(*words: object) -> str:
    return shlex.join(["ebar", *map(str, words)])
