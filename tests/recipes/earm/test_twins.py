"""Recipes run what users run: a twin that began in a shared trunk is the run that `ebar train` makes by itself."""

import json
from pathlib import Path

import pytest

from ebar.build.train import build_corpus, load_model
from ebar.cli import main
from ebar.config.reader import to_yaml
from ebar.config.train import read_train
from ebar.recipes.earm.tables import TABLE1
from ebar.recipes.earm.translation import SCHEDULED, WIDTHS, translated, translation_figures
from ebar.recipes.earm.twins import configurations
from ebar.store.writing import to_json


@pytest.mark.parametrize("variant", ["base", SCHEDULED])
def test_ebar_train_gives_the_figures_of_a_cell_of_table_1(variant: str, tmp_path: Path) -> None:
    cell = next(cell for cell in TABLE1.grid("demo") if cell["variant"] == variant)
    figures = json.loads(to_json(TABLE1.run(cell, tmp_path / "cell")))["twins"]["earm"]
    assert (tmp_path / "cell" / "trunk" / "results.json").exists()

    config = tmp_path / "run.yaml"
    config.write_text(to_yaml(configurations(cell, tmp_path / "data")["earm"]))
    words = ["--name", "alone", "--runs", str(tmp_path), "--objective.kind", "earm"]
    assert main(["train", "--config", str(config), *words]) == 0
    run = read_train(tmp_path / "alone")
    corpus = build_corpus(run, tmp_path / "alone")
    model = load_model(run, tmp_path / "alone", corpus.space)
    alone = translation_figures(cell, corpus, model, {str(width): translated(model, corpus, width) for width in WIDTHS})

    del figures["curves"]
    assert json.loads(to_json(alone)) == figures
    logs = [(tmp_path / place / "metrics.jsonl").read_bytes() for place in ("alone", "cell/earm", "cell/base")]
    assert logs[0] == logs[1] != logs[2]
