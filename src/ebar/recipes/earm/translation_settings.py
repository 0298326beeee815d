"""The settings of the translation experiments: the document's Table 6, and what fits on two cores."""

from collections.abc import Sequence
from typing import Any

from ebar.recipes.recipe import Cell, Reading, Row

# Options of the contrastive term: the document's λ, its two recent tokens, fakes as long as their source lets them be.
EARM = {"weight": 0.05}

# Which measures are taken in which runs: the document's tables 9 and 10 have label smoothing in all of them.
MEASURES: dict[str, Any] = {"widths": [1, 5], "edges": [6, 10], "candidates": [], "meteor": False}

SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "corpus": "toy", "pairs": 150, "test_pairs": None, "vocabulary": 300, "maximal_length": 40, "longest": 40,
        "layers": 1, "hidden": 16, "heads": 2, "feedforward": 32, "dropout": 0.1, "tokens": 1024, "epochs": 2,
        "start_epoch": 1, "learning_rate": 5e-3, "schedule": "cosine", "warmup": 5, **MEASURES, "edges": [2, 3],
    },
    "cpu": {
        "corpus": "tatoeba", "pairs": 20_000, "test_pairs": 1000, "vocabulary": 2000, "maximal_length": 100,
        "longest": 50, "layers": 1, "hidden": 128, "heads": 4, "feedforward": 512, "dropout": 0.1, "tokens": 2048,
        "epochs": 10, "start_epoch": 8, "learning_rate": 2e-3, "schedule": "cosine", "warmup": 200, **MEASURES,
    },
    "paper": {
        "corpus": "iwslt14", "pairs": None, "test_pairs": None, "vocabulary": 10_000, "maximal_length": 256,
        "longest": 176, "layers": 6, "hidden": 512, "heads": 4, "feedforward": 1024, "dropout": 0.3, "tokens": 4096,
        "epochs": 100, "start_epoch": 15, "learning_rate": 5e-4, "schedule": "inverse_square_root", "warmup": 4000,
        **MEASURES, "edges": [25, 50], "meteor": True, "weight_decay": 1e-4,
    },
}  # fmt: skip
SEEDS = {"demo": 2, "cpu": 3, "paper": 5}

# Name → label smoothing, scheduled sampling: the rows of Tables 1, 7 and 10.
VARIANTS = {
    "base": {"label_smoothing": 0.0, "scheduled_sampling": False},
    "label smoothing": {"label_smoothing": 0.1, "scheduled_sampling": False},
    "scheduled sampling": {"label_smoothing": 0.1, "scheduled_sampling": True},
}


SENTENCES = "test sentences"


def sentences(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    count = cells[0]["test_pairs"]
    return f"{'all' if count is None else f'{count:,}'} {SENTENCES}, one training"


def elsewhere(cells: Sequence[Cell]) -> str | None:
    """The document's data, where ours are others."""
    return None if cells[0]["corpus"] == "iwslt14" else "IWSLT14"


SHARED = (
    "All seeds are tested on the same sentences: an interval over seeds alone holds the error of training and not that "
    "of which sentences were tested, so that on other sentences differences may vary more than it says."
)
READING = Reading(items=sentences, shared=SHARED, elsewhere=elsewhere)


def cell_for(scale: str, *, variant: str, direction: str, seed: int, **more: Any) -> Cell:
    """One run, everything that decides it written out."""
    settings = {**SCALES[scale], **VARIANTS[variant], "least_truth": 0.8, "earm": EARM}
    if variant == "label smoothing":
        settings["candidates"] = [5, 10]
    return {"variant": variant, "direction": direction, "seed": seed, **settings, **more}


def cells(scale: str, *, variants: tuple[str, ...] = tuple(VARIANTS), **more: Any) -> list[Cell]:
    """All variants over all seeds; seeds first, so that whole pairs are there early."""
    directions = ("de→en",) if scale != "paper" else ("de→en", "en→de", "en→it", "it→en", "es→en", "en→es")
    return [
        cell_for(scale, variant=variant, direction=direction, seed=seed, **more)
        for seed in range(SEEDS[scale])
        for direction in directions
        for variant in variants
    ]
