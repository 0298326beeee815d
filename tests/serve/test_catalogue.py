"""What can be picked, and the command that shows it."""

import sys
from pathlib import Path

import pytest

from ebar.cli import main
from ebar.errors import UserError
from ebar.serve.catalogue import Catalogue, Place

SMALL = "--data.motif 101 --data.length 4 --data.size 20 --data.test_size 5 --backbone.layers 1 --backbone.hidden 4"


def test_runs_that_write_strings_and_models_that_were_named(tmp_path: Path) -> None:
    words = ["train", "--name", "motif", "--runs", str(tmp_path), *SMALL.split(), "--training.epochs", "1", "--json"]
    assert main(words) == 0
    (tmp_path / "notes").mkdir()
    shelf = Catalogue(runs=tmp_path, models=["elsewhere/stories.bin"])
    assert shelf.places() == {
        "motif": Place(kind="train", at=str(tmp_path / "motif"), about="Trained on language motif 101: lstm."),
        "stories.bin": Place(kind="pretrained", at="elsewhere/stories.bin", about="A pretrained language model."),
    }
    found = shelf.open("motif")
    assert found.residual is None
    assert found.reading.text([1, 0, 1, 2]) == "101"
    assert shelf.suggested("motif") is None
    for name in ("notes", "../motif", str(tmp_path / "motif"), ""):
        with pytest.raises(UserError, match="There is no run or model called"):
            shelf.open(name)


def test_no_folder_of_runs_is_no_error() -> None:
    assert Catalogue(runs=Path("nowhere")).places() == {}


def test_without_gradio_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "ebar: The playground needs gradio: pip install 'ebar[web]'.\n"
