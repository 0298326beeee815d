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
