from pathlib import Path

import numpy as np
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


@pytest.fixture(scope="session")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run on grey images of 4 × 4 pixels, of which image i is all i."""
    folder = tmp_path_factory.mktemp("images")
    images = np.arange(20, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
    np.savez(folder / "images.npz", images=images)
    words = ["--data.kind", "images", "--data.train", str(folder / "images.npz"), "--backbone.features", "2"]
    words += ["--backbone.layers", "1", "--training.epochs", "1"]
    assert main(["train", "--runs", str(folder), "--name", "pixels", "--json", *words]) == 0
    return folder / "pixels"
