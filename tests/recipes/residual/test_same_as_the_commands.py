"""A cell of the residual recipes is what `ebar train` and `ebar residual train` make of its configurations."""

import json
from pathlib import Path

from ebar.cli import main
from ebar.config.reader import to_yaml
from ebar.recipes.residual.cells import cells
from ebar.recipes.residual.configurations import base_config, residual_config
from ebar.recipes.residual.run import run_cell


def test_the_commands_give_a_cells_figures_to_the_last_digit(tmp_path: Path) -> None:
    (demo,) = cells("demo")
    settings = demo["energies"]["bit_med"]
    parts = dict.fromkeys(("fooling", "top_k", "samplers", "distil", "search", "per_step"))
    cell = {**demo, **parts, "energies": {"bit_med": settings}, "energy_seeds": 1}
    found = run_cell(cell, tmp_path / "cell")
    user = tmp_path / "user"
    user.mkdir()
    (user / "base.yaml").write_text(to_yaml(base_config(cell, user)))
    assert main(["train", "--config", str(user / "base.yaml"), "--runs", str(user), "--name", "base", "--json"]) == 0
    config = residual_config(cell, settings, 0, user)
    (user / "bit.yaml").write_text(to_yaml(config))
    words = ["--config", str(user / "bit.yaml"), "--runs", str(user), "--name", "bit", "--json"]
    assert main(["residual", "train", *words]) == 0
    results = json.loads((user / "bit" / "results.json").read_text())
    evaluation, own = results["evaluation"], found["energies"]["bit_med"][0]
    assert results["parameters"] == {
        "base": found["rivals"]["base"]["parameters"], "energy": own["parameters"],
    }  # fmt: skip
    assert evaluation == own["evaluation"]
