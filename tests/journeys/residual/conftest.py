from pathlib import Path

import pytest

from ebar.cli import main
from ebar.recipes.grid import toy_text


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of short sentences."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(toy_text(120, 0))
    return path


@pytest.fixture(scope="session")
def base(text: Path) -> Path:
    """The folder of a tiny language model of that text."""
    words = [
        "--data.kind", "text", "--data.train", str(text), "--data.length", "24", "--backbone.kind", "transformer",
        "--backbone.layers", "1", "--backbone.hidden", "8", "--backbone.heads", "2", "--backbone.dropout", "0",
        "--training.epochs", "2", "--optimiser.learning_rate", "1e-2", "--json",
    ]  # fmt: skip
    assert main(["train", "--runs", str(text.parent), "--name", "base", *words]) == 0
    return text.parent / "base"
