"""What to say of a folder that is not what a command opens: what it is, and the command that opens it."""

from pathlib import Path

from ebar.build.next_commands import next_commands
from ebar.build.summaries import model_of_gam, summarise
from ebar.errors import UserError
from ebar.store.names import CONFIG

NAMES = {
    "train": "a trained model", "pretrain": "a pretrained network", "finetune": "a fine-tuned model", "gam": "a GAM",
    "classify": "a classifier", "residual": "a residual model", "control": "a controlled model",
    "control tune": "the tuned model of a controlled one", "game": "a game", "made in Python": "a run made in Python",
}  # fmt: skip


def something_else(folder: Path, command: str, error: UserError | None = None) -> UserError:
    """Of a folder that `command` should have made: it is none, or of another kind, or its configuration is damaged."""
    if not (folder / CONFIG).exists():
        return _no_run(folder, command)
    run = summarise(folder)
    own = command == run.kind or command.startswith(f"{run.kind} ") or (command == "train" and run.kind == "pretrain")
    if run.state == "broken" or own:  # this command made it: it is the configuration that cannot be read
        why = str(error or "it is damaged") if not run.problem else run.problem
        return UserError(f"{folder} holds no run of `ebar {command}`: {why.rstrip('.')}.")
    if run.kind == "gam" and command == "train":
        return UserError(f"{folder} is a GAM: its model is {model_of_gam(run)}, so give that one.")
    what, line = next(iter(next_commands(run).items()), ("", ""))
    advice = f"{what} with `{line}`" if line else "give another folder"
    return UserError(
        f"{folder} is {NAMES.get(run.kind, 'something else')}, and holds no run of `ebar {command}`: {advice}."
    )


def _no_run(folder: Path, command: str) -> UserError:
    if folder.is_file():
        return UserError(f"There is no run in {folder}, which is a file: give the folder of a run.")
    if not folder.exists():
        around = folder.parent if folder.parent.is_dir() else Path()
        return UserError(
            f"There is no run in {folder}, no folder of `ebar {command}`: `ebar list {around}` shows those there are."
        )
    inside = sorted(place.parent for place in folder.glob(f"*/{CONFIG}"))
    if inside:
        return UserError(
            f"There is no run in {folder} itself, which holds several: give one of them, such as {inside[0]}."
        )
    return UserError(f"There is no run in {folder}, which has no {CONFIG}: give a folder that `ebar {command}` made.")
