from pathlib import Path

import pytest

from ebar.cli import main

TINY = [
    "--data.motif", "11", "--data.length", "5", "--data.size", "40", "--data.test_size", "40",
    "--backbone.layers", "1", "--backbone.hidden", "4", "--training.epochs", "2", "--training.batch_size", "16",
]  # fmt: skip


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny trained run."""
    runs = tmp_path_factory.mktemp("runs")
    assert main(["train", "--runs", str(runs), "--name", "tiny", "--json", *TINY]) == 0
    return runs / "tiny"


@pytest.fixture(scope="session")
def continues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run on text, as windows of characters."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("abcab cabab\n" * 30)
    options = [
        "--data.kind", "text", "--data.train", str(folder / "text.txt"), "--data.tokeniser", "characters",
        "--data.length", "8", "--backbone.layers", "1", "--backbone.hidden", "8", "--training.epochs", "2",
    ]  # fmt: skip
    assert main(["train", "--runs", str(folder), "--name", "letters", "--json", *options]) == 0
    return folder / "letters"
