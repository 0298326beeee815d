"""Equation 2 of Parshakova et al. 2019 in its own case: r an encoder–decoder, features of a text given its source.

The paper's own experiments are unconditional; the setting is ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ebar.build.gam import make_gam
from ebar.recipes.gam.cells import SHARE, configured, cost, difference
from ebar.recipes.grid import PARTS
from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Grid, Layout, Recipe
from ebar.recipes.training import with_files

# Of German and English: denied, asked, and of Tom, who is in a fifth of Tatoeba.
AGREEMENTS = ["agrees:nicht|kein|nie=>not|n't|no |never|nothing|nobody|without", r"agrees:\?", "agrees:Tom"]
NAMES = {"agrees on nicht|kein|nie=>not|n't|no |never|nothing|nobody|without": "denied", r"agrees on \?": "asked",
         "agrees on Tom": "Tom", "agrees on eins=>one": "one"}  # fmt: skip
TATOEBA = {part: f"tatoeba-deu-eng/{name}.tsv.xz" for part, name in PARTS.items()}
SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "files": {part: f"toy/{name}.tsv" for part, name in PARTS.items()}, "columns": (0, 1), "vocabulary": 280,
        "features": ["agrees:eins=>one"], "held_out": 20, "length": 40, "layers": 1, "hidden": 16, "epochs": 12,
        "matching": 1920, "distil": 60, "validation": 20, "student": 1, "checks": 100,
    },
    "cpu": {
        "files": TATOEBA, "columns": (1, 0), "vocabulary": 1000, "features": AGREEMENTS, "held_out": 500,
        "length": 100, "layers": 1, "hidden": 128, "epochs": 15, "matching": 64 * 500, "distil": 4000,
        "validation": 500, "student": 3, "checks": 16_000,
    },
    "paper": {
        "files": TATOEBA, "columns": (1, 0), "vocabulary": 8000, "features": AGREEMENTS, "held_out": 3000,
        "length": 200, "layers": 4, "hidden": 256, "epochs": 60, "matching": 256 * 5000, "distil": 200_000,
        "validation": 5000, "student": 10, "checks": 768_000,
    },
}  # fmt: skip
SIZES = {"demo": [100], "cpu": [1000, 4000], "paper": [1000, 4000, 32_000, 128_000]}
SEEDS = {"demo": 1, "cpu": 3, "paper": 5}


def _cell(settings: dict[str, Any]) -> Cell:
    source, target = settings["columns"]
    hidden = settings["hidden"]
    training = {"batch_size": 64, "learning_rate": 1e-3}
    configuration = {
        "seed": settings["seed"],
        "data": {
            "kind": "parallel", **settings["files"], "source_column": source, "target_column": target,
            "vocabulary": settings["vocabulary"], "limit": settings["size"], "held_out_limit": settings["held_out"],
        },
        "maximal_length": settings["length"],
        "backbone": {
            "kind": "encoder_decoder", "layers": settings["layers"], "encoder_layers": settings["layers"],
            "hidden": hidden, "feedforward": 4 * hidden, "heads": 4, "dropout": 0.1,
        },
        "features": settings["features"],
        "base": {"epochs": settings["epochs"], "patience": 4, **training},
        "matching": {"kind": "newton", "draws": settings["matching"]},
        "sampler": {"kind": "rejection"},
        "distillation": {"size": settings["distil"], "validation": settings["validation"], "proposal": "base"},
        "continuation": {"epochs": settings["student"], "patience": 4, **training, "learning_rate": 5e-4},
        "checks": settings["checks"],
    }  # fmt: skip
    return {"size": settings["size"], "seed": settings["seed"], "configuration": configuration}


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar gam --config` makes of the configuration; files are looked for below EBAR_DATA."""
    tree = {**cell["configuration"], "data": with_files(cell["configuration"]["data"], folder)}
    return make_gam(configured(tree), folder / "run", page=False)[1].to_dict()


def shares(result: Mapping[str, Any]) -> dict[str, str]:
    """Features by what they are called in tables."""
    return {NAMES.get(name, name): name for name in result["features"]}


ITEMS = "test sentences"
WHO = ("data", "r", "P_λ", "π")
LESS = {letter: f"CE(r) − CE({letter}), nats per token" for letter in ("P_λ", "π")}
MORE = "agreement of π − r"


RECIPE = Recipe(
    title="A GAM of translations: what is denied, asked or said of Tom in the source is so in the translation",
    source="Parshakova et al. 2019, equation 2 (no experiment there); Tatoeba, de→en",
    grid=Grid(scales=SCALES, axes={"size": SIZES}, seeds=SEEDS, make=_cell),
    run=run_cell,
    figures=Figures(
        *(Figure(name=f"cross-entropy of {letter}", at=cost(letter[0]), shared=ITEMS) for letter in ("r", "P_λ", "π")),
        *(Figure(name=name, at=f"gains.{letter}", shared=ITEMS) for letter, name in LESS.items()),
        Figure(
            name="agreement", at="moments.{who}.{feature}", each={"feature": shares, "who": WHO}, shared=ITEMS,
            range=SHARE,
        ),
        Figure(
            name=MORE, each={"feature": shares}, shared=ITEMS, range=(-1.0, 1.0),
            at=lambda run, feature: difference(run["moments"]["π"][feature], run["moments"]["r"][feature]),
        ),
        Figure(
            name="λ", at="lambda.0.{feature}", each={"feature": shares}, items="training pairs and draws, one training"
        ),
        by=("size",),
    ),
    tables=[
        Layout(rows=("size",), figures=("cross-entropy*", "CE(r)*"), names={"size": "|D|"}, caption="What tests cost:"),
        Layout(
            rows=("size", "feature"), columns=("who",), figures=("agreement",), names={"size": "|D|"},
            caption="How often a translation agrees with its source, of references and of one draw for each source:",
        ),
        Layout(rows=("size", "feature"), figures=(MORE, "λ"), names={"size": "|D|"}, caption="What π gained, and λ:"),
    ],
    plots=[
        Curves(
            of={f"cross-entropy of {letter}": letter for letter in ("r", "P_λ", "π")}, x="size", x_label="|D|",
            title="cross-entropy, nats per token", log_x=True,
        ),
        Curves(
            of={"agreement": "{who}"}, by=("who",), panels=("feature",), x="size", x_label="|D|", y_label="share",
            title="agreement: {feature}", log_x=True, dashed=("data",),
        ),
    ],
    claims=[
        Claim(says="P_λ has a lower cross-entropy than r", figure=LESS["P_λ"], above=0.0),
        Claim(says="π has a lower cross-entropy than r", figure=LESS["π"], above=0.0),
        Claim(says="π agrees with its source oftener than r", figure=MORE, above=0.0),
    ],
    reading=Caption(
        items="{configuration[data][held_out_limit]:,} test sentences, one training",
        shared="A seed decides which pairs are trained on, the first weights and the draws; all seeds are tested on "
        "the same sentences.",
    ),
    notes=lambda rows: [
        "π goes on from r's weights, on draws of P_λ and the pairs that r was trained on until its validation loss no "
        "longer fell: what π gains over r may in part come from the longer training. What P_λ gains does not: it has "
        "r's own weights and a λ for each feature.",
        "Cross-entropies of P_λ need log Z of every source; they have the reference among its draws, which makes them "
        "too high rather than too low.",
    ],
)  # fmt: skip
