"""An XLNet as the energy of a residual model: pretrained on the text, or warmed up as a Transformer is."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ebar.build.train import train_as
from ebar.config.pretrain import MANUAL
from ebar.config.reader import read_tree
from ebar.config.train import TrainConfig
from ebar.data.built_tokeniser import TOKENISER
from ebar.recipes.grid import PARTS
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe, Row
from ebar.recipes.residual.cells import NOTHING, sizes
from ebar.recipes.residual.configurations import base_config, corpus_files
from ebar.recipes.residual.perplexity import joint_perplexity
from ebar.recipes.residual.run import best_figures, trained
from ebar.recipes.xlnet.models import pretraining
from ebar.store.writing import once

PRETRAINED, WARMED_UP, TRANSFORMER = "XLNet, pretrained", "XLNet, warmed up", "BiT, warmed up"
PERPLEXITY, GAIN, ACCURACY = (
    "perplexity per token", "nats per token − the base LM's", "held-out class accuracy of the energy",
)  # fmt: skip


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Three energies on one base, trained on the same draws of it and measured on the same prefixes."""
    train_as(base_config(cell, folder), folder / "base")
    tree = cell["pretraining"]
    files = {part: str(path) for part, path in corpus_files(cell, folder).items() if part in PARTS}
    data = {**tree["data"], **files, "tokeniser_file": str(folder / "base" / TOKENISER)}
    config = read_tree({"seed": cell["seed"], **tree, "data": data}, MANUAL, TrainConfig)
    train_as(config, folder / "pretrained")
    return {"energies": {name: once(folder / f"{name}.json", partial(_energy, cell, name, folder)) for name in KINDS}}


KINDS = {PRETRAINED: "xlnet", WARMED_UP: "xlnet", TRANSFORMER: "bit"}


def _energy(cell: Cell, name: str, folder: Path) -> dict[str, Any]:
    settings = {**cell["energies"]["bit_med"], "kind": KINDS[name]}
    if name == PRETRAINED:
        settings["start"] = str(folder / "pretrained")
    _, evaluation = trained({**cell, **NOTHING}, settings, cell["seed"], folder, name)
    return {"evaluation": evaluation.to_dict(), "held_out": best_figures(folder / name / "energy")}


def grid(scale: str) -> list[Cell]:
    """The first text of the residual recipes, with a Transformer as its base."""
    cell = next(one for one in sizes(scale) if one["base"] == "transformer" and "bit_med" in one["energies"])
    own = {name: value for name, value in cell["energies"]["bit_med"].items() if name != "figures"}
    network = {name: own[name] for name in ("layers", "hidden", "heads", "dropout")}
    length = cell["prefix"] + cell["continuation"] + 3
    tree = pretraining(
        {"length": length, "reuse": 0, "tokeniser": "bpe"}, {**network, "attention_dropout": own["dropout"]},
        rate=cell["learning_rate"], warmup=cell["warmup"], epochs=own["warm_up"], batch=cell["rows"],
    )  # fmt: skip
    kept = {name: value for name, value in cell.items() if name not in (*NOTHING, "energies", "energy_seeds", "rivals")}
    draws = {} if scale == "demo" else {"draws": min(cell["draws"], 256)}
    return [{**kept, **draws, "energies": {"bit_med": own}, "pretraining": tree}]


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    count = f"{cells[0]['prefixes']} prefixes"
    return f"draws for each Z, on these {count}" if row.name == PERPLEXITY else f"{count}, one energy seed"


RECIPE = Recipe(
    title="An XLNet as the energy of a residual model",
    source="ebar's own; residual energies of Deng et al. 2020 with the network of Dai 2019 (thesis), chapter 4",
    grid=grid,
    run=run_cell,
    figures=Figures(
        Figure(name=PERPLEXITY, at=joint_perplexity, warns="evaluation.perplexity.verdict", range=(1.0, 1e9)),
        Figure(name=GAIN, at="evaluation.perplexity.difference"),
        Figure(name=ACCURACY, at="held_out.accuracy", bare=True),
        by=("corpus", "energy"),
        parts=lambda cell, result: [({**cell, "energy": name}, own) for name, own in result["energies"].items()],
    ),
    tables=Layout(rows=("energy",), columns=("figure",)),
    plots=Points(of=[GAIN], label="{energy}", title="{corpus}", x_label=GAIN, panels=("corpus",)),
    claims=Claim(says="the energy lowers the perplexity", figure=GAIN, below=0.0),
    reading=Caption(
        items=items,
        departures=lambda cells: [
            "XLNet is pretrained for as many passes over the same text as the others are warmed up by filling gaps."
        ],
    ),
)  # fmt: skip
