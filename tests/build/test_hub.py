"""Runs that are pushed and pulled, by way of a folder in place of the hub."""

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import ebar
from ebar.build.hub import pull, push
from ebar.cli import main

SMALL = ["--backbone.layers", "1", "--backbone.hidden", "4", "--training.epochs", "1", "--json"]


class FolderHub:
    """The three calls of `HfApi` that are used, on a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.private: dict[str, bool] = {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        self.private[repo_id] = private

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        assert repo_id in self.private
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)
        return commit_message

    def snapshot_download(
        self, *, repo_id: str, local_dir: Path, revision: str | None, allow_patterns: list[str]
    ) -> None:
        if not (self.folder / repo_id).is_dir():
            raise ConnectionError("404: no such repository")
        for path in (self.folder / repo_id).rglob("*"):
            name = str(path.relative_to(self.folder / repo_id))
            if path.is_file() and any(fnmatch(name, pattern) for pattern in allow_patterns):
                (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, local_dir / name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on a language and on a file."""
    home = tmp_path_factory.mktemp("hub")
    (home / "lines.txt").write_text("0101\n1100\n0011\n" * 10)
    runs = ["--runs", str(home / "runs")]
    language = ["--data.motif", "11", "--data.length", "4", "--data.size", "20", "--data.test_size", "20"]
    assert main(["train", *runs, "--name", "language", *language, *SMALL]) == 0
    lines = ["--data.kind", "lines", "--data.train", str(home / "lines.txt")]
    assert main(["train", *runs, "--name", "lines", *lines, *SMALL]) == 0
    return home


def test_a_run_comes_back_as_it_was(home: Path, tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub")
    push(home / "runs" / "language", "me/language", hub=hub)
    assert hub.private == {"me/language": True}
    done = pull("me/language", tmp_path / "runs" / "again", hub=hub)
    assert done.missing == ()
    before, after = ebar.load(home / "runs" / "language"), ebar.load(done.folder)
    assert torch.equal(before.model.log_prob(before.data.test), after.model.log_prob(before.data.test))
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in (home / "runs" / "language", done.folder)]
    assert configs[0] == configs[1]
    assert not list((tmp_path / "runs").glob(".*"))


def test_paths_and_data_stay_at_home_and_files_are_found_by_their_names(home: Path, tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub")
    push(home / "runs" / "lines", "me/lines", hub=hub, private=False)
    pushed = [path for path in (tmp_path / "hub").rglob("*") if path.is_file()]
    texts = [path for path in pushed if path.suffix != ".safetensors"]
    assert [path for path in texts if str(home) in path.read_text()] == []
    assert {"lines.txt", "environment.json", "lock"}.isdisjoint(path.name for path in pushed)
    lacking = pull("me/lines", tmp_path / "lacking", data=tmp_path, hub=hub)
    assert lacking.missing == ("lines.txt",)
    with pytest.raises(ebar.UserError, match=r"lines\.txt"):
        ebar.load(lacking.folder)
    found = pull("me/lines", tmp_path / "found", data=home, hub=hub)
    assert found.missing == ()
    assert len(ebar.load(found.folder).model.sample(2).lengths) == 2


def test_what_cannot_be_pushed_or_pulled_is_told_in_a_sentence(home: Path, tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub")
    with pytest.raises(ebar.UserError, match=r"cannot be pushed: it has no config\.yaml"):
        push(home / "runs", "me/runs", hub=hub)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(home / "runs" / "language", unfinished)
    (unfinished / "results.json").unlink()
    with pytest.raises(ebar.UserError, match="is not finished"):
        push(unfinished, "me/unfinished", hub=hub)
    with pytest.raises(ebar.UserError, match=r"^The hub refuses me/nothing: .*404"):
        pull("me/nothing", tmp_path / "nothing", hub=hub)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ebar.UserError, match="is there already"):
        pull("me/nothing", tmp_path, hub=hub)


@pytest.mark.parametrize("broken", ["config.yaml", "paths.json"])
def test_a_repository_that_is_no_run_leaves_nothing_behind(home: Path, tmp_path: Path, broken: str) -> None:
    hub = FolderHub(tmp_path / "hub")
    push(home / "runs" / "language", "me/broken", hub=hub)
    (tmp_path / "hub" / "me" / "broken" / broken).unlink()
    with pytest.raises(ebar.UserError, match="holds no run"):
        pull("me/broken", tmp_path / "broken", hub=hub)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub"]


def test_a_run_from_elsewhere_can_name_no_file_of_this_machine_and_brings_no_code(home: Path, tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub")
    push(home / "runs" / "lines", "me/bad", hub=hub)
    place = tmp_path / "hub" / "me" / "bad"
    (place / "sitecustomize.py").write_text("1 / 0")
    (place / "paths.json").write_text(json.dumps({"data.train": "../../../etc/passwd"}))
    found = pull("me/bad", tmp_path / "inside", data=tmp_path, hub=hub)
    assert found.missing == ("passwd",)
    assert not list(found.folder.rglob("*.py"))
    config: dict[str, Any] = yaml.safe_load((place / "config.yaml").read_text())
    config["data"]["test"] = "/etc/passwd"
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ebar.UserError, match="by its whole path"):
        pull("me/bad", tmp_path / "outside", data=tmp_path, hub=hub)


def test_the_commands_need_the_hub(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("ebar.build.hub.hub_answers", lambda: False)
    assert main(["push", str(home / "runs" / "language"), "me/mine"]) == 2
    assert main(["pull", "me/mine", "--runs", str(home / "others")]) == 2
    assert capsys.readouterr().err.count("The hub cannot be reached") == 2
