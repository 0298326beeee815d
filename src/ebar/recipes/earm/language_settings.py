"""The settings of the language-modelling experiments: the document's Table 6, and what fits on two cores."""

from typing import Any

from ebar.recipes.recipe import Cell

COMMON: dict[str, Any] = {"weight_decay": 0.0, "schedule": "cosine", "earm": {"weight": 0.05}}

# Corpus → its settings, for each scale.
SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {
        "toy": {
            "tokens": 2000, "held_out": 500, "vocabulary": 256, "window": 20, "rows": 10, "layers": 1, "hidden": 16,
            "heads": 2, "feedforward": 32, "dropout": 0.0, "epochs": 4, "start_epoch": 2, "learning_rate": 1e-2,
            "warmup": 2, **COMMON, "earm": {"weight": 0.05, "window": 10},
        },
    },
    "cpu": {
        "wikitext-2": {
            "tokens": 200_000, "held_out": 40_000, "vocabulary": 1000, "window": 100, "rows": 16, "layers": 2,
            "hidden": 128, "heads": 4, "feedforward": 512, "dropout": 0.1, "epochs": 5, "start_epoch": 3,
            "learning_rate": 2e-3, "warmup": 50, **COMMON,
        },
        "enwik8-10m": {
            "tokens": 120_000, "held_out": 50_000, "vocabulary": 256, "window": 100, "rows": 16, "layers": 2,
            "hidden": 128, "heads": 4, "feedforward": 512, "dropout": 0.1, "epochs": 5, "start_epoch": 3,
            "learning_rate": 2e-3, "warmup": 50, **COMMON,
        },
    },
    "paper": {  # Table 6, Tr-Base; the Transformer-XL of Table 3 comes with that backbone
        "wikitext-103": {
            "tokens": None, "held_out": None, "vocabulary": 30_000, "window": 512, "rows": 8, "layers": 6,
            "hidden": 512, "heads": 8, "feedforward": 2048, "dropout": 0.1, "epochs": 40, "start_epoch": 15,
            "learning_rate": 5e-4, "warmup": 4000, **COMMON, "weight_decay": 1e-2, "schedule": "inverse_square_root",
        },
    },
}  # fmt: skip
SHARED = (
    "All seeds are trained and tested on the same text: an interval over seeds alone holds the error of training and "
    "not that of which text was tested."
)
SEEDS = {"demo": 2, "cpu": 5, "paper": 5}


def cell_for(scale: str, corpus: str, seed: int, **more: Any) -> Cell:
    """One run, everything that decides it written out."""
    return {"corpus": corpus, "seed": seed, **SCALES[scale][corpus], **more}
