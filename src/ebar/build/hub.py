"""A run on the hub of Hugging Face: pushed by one, pulled by another. Nothing else in ebar writes to a network.

What goes there is what opens the run: configuration, tokeniser, results, curves, the newest and the best checkpoint.
Data do not. Paths of files stay behind: the configuration there has only their names, and whoever pulls says where they
are.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ebar.build.export import BESIDE
from ebar.build.summaries import RunSummary, readable_run
from ebar.errors import UserError
from ebar.hugging_face import hub_answers
from ebar.store.differences import as_yaml
from ebar.store.names import CONFIG
from ebar.store.writing import TEMPORARY, saving

PATHS = "paths.json"  # which options name files: {"data.train": "book.txt"}
FILES = (*BESIDE, "results.json", "metrics.jsonl", "checkpoints")
FETCHED = ["*.json", "*.jsonl", "*.yaml", "*.safetensors", "*/SHA256SUMS"]  # no code, no pickles, no pages
OPENED_ALONE = ("train", "pretrain", "game")  # others need further runs


class Pulled(NamedTuple):
    """A run that was fetched, and the files that it needs and that are not there."""

    folder: Path
    missing: tuple[str, ...]


def push(folder: Path | str, repository: str, *, private: bool = True, hub: Any = None) -> str:
    """Puts a finished run into a repository, which is made where there is none; gives its address.

    `hub` is an `HfApi`, by default one that is logged in by `hf auth login`.
    """
    run = readable_run(folder, "pushed", "push")
    if run.kind not in OPENED_ALONE:
        raise UserError(f"{folder} was made by `ebar {run.kind}` and needs other runs: push a run of `ebar train`.")
    if run.state in ("begun", "interrupted", "running"):
        raise UserError(f"{folder} is not finished: go on with it first (`ebar show {folder}` has the command).")
    hub = hub or _hub()
    with tempfile.TemporaryDirectory() as place, _told(repository):
        _gather(run, Path(place))
        hub.create_repo(repository, private=private, exist_ok=True)
        done = hub.upload_folder(repo_id=repository, folder_path=place, commit_message=f"A run of ebar {run.kind}")
    return str(getattr(done, "commit_url", repository))


def pull(
    repository: str, folder: Path | str, *, data: Path | str = ".", revision: str | None = None, hub: Any = None
) -> Pulled:
    """Fetches a run into a new folder, which `ebar.load` opens. Files that it read are looked for in `data`."""
    folder = Path(folder)
    if folder.exists():
        raise UserError(f"{folder} is there already: give another name, or delete it.")
    hub = hub or _hub()
    temporary = folder.with_name(TEMPORARY + folder.name)
    with saving(str(folder)):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    try:
        with _told(repository):
            hub.snapshot_download(repo_id=repository, local_dir=temporary, revision=revision, allow_patterns=FETCHED)
        missing = _settle(temporary, Path(data), repository)
        shutil.rmtree(temporary / ".cache", ignore_errors=True)  # what the hub's client keeps for itself
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Pulled(folder, missing)


def _hub() -> Any:
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        raise UserError("The hub needs the package huggingface_hub: install it with pip install 'ebar[hf]'.") from None
    if not hub_answers():
        raise UserError(
            "The hub cannot be reached: go online, or leave out HF_HUB_OFFLINE, and give the command again."
        )
    return hub.HfApi()


@contextmanager
def _told(repository: str) -> Iterator[None]:
    """What the hub's client raises, as one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the network, of the hub, of logging in: there is no common class
        cause = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"The hub refuses {repository}: check its name (OWNER/NAME), and `hf auth login` ({cause})."
        ) from error


def _gather(run: RunSummary, place: Path) -> None:
    """The files of a run, without paths of this machine, and a page that says how to use them."""
    for name in FILES:
        source = run.folder / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns(f"{TEMPORARY}*", "damaged-*"))
        elif source.exists():
            shutil.copy(source, place / name)
    tree, paths = json.loads(json.dumps(run.tree)), {}
    for key, value in _texts(tree):
        if Path(value).is_absolute():
            paths[key] = Path(value).name
            _put(tree, key, paths[key])
    (place / CONFIG).write_text(as_yaml(tree), encoding="utf-8")
    (place / PATHS).write_text(json.dumps(paths, indent=1), encoding="utf-8")
    (place / "README.md").write_text(_card(run, paths), encoding="utf-8")


def _settle(place: Path, data: Path, repository: str) -> tuple[str, ...]:
    """Files get the paths they have here; gives the names of those that are missing."""
    try:
        tree = yaml.safe_load((place / CONFIG).read_text(encoding="utf-8"))
        paths = json.loads((place / PATHS).read_text(encoding="utf-8"))
        names = {key: Path(name).name for key, name in paths.items()}
        for key, name in names.items():
            _put(tree, key, str((data / name).resolve()))
    except (OSError, ValueError, AttributeError, KeyError, TypeError, yaml.YAMLError):
        raise UserError(f"{repository} holds no run that `ebar push` put there.") from None
    if strays := [key for key, value in _texts(tree) if Path(value).is_absolute() and key not in names]:
        raise UserError(f"{repository} names a file by its whole path ({strays[0]}), as `ebar push` never does.")
    (place / CONFIG).write_text(as_yaml(tree), encoding="utf-8")
    (place / PATHS).unlink()
    return tuple(sorted({name for name in names.values() if not (data / name).exists()}))


def _texts(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every option that is text, by its name."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _texts(value, f"{before}{name}.")
        elif isinstance(value, str):
            yield f"{before}{name}", value


def _put(tree: dict[str, Any], key: str, value: str) -> None:
    *groups, name = key.split(".")
    for group in groups:
        tree = tree[group]
    tree[name] = value


def _card(run: RunSummary, paths: Mapping[str, str]) -> str:
    """What the repository's page says."""
    needs = "".join(f"- `{name}` ({key})\n" for key, name in paths.items())
    return (
        "---\nlibrary_name: ebar\n---\n"
        f"# A run of `ebar {run.kind}`\n\nData: {run.data}. Model: {run.model}. {run.figure}.\n\n"
        "```\nebar pull OWNER/NAME --name mine\nebar show runs/mine\n```\n"
        + (
            f"\nIt reads these files, which are not here; `--data FOLDER` says where you have them:\n\n{needs}"
            if needs
            else ""
        )
    )
