"""The settings of the residual experiments: what fits on two cores, and what Deng et al. 2020 say of theirs.

The paper's base has 203 million parameters, BiT-Base 0.6 times as many, BiT-Med as many; BiT-Base* and BiT-Large* are
pretrained elsewhere. At scale cpu the sizes stand in the same relation to a base of 0.65 million, and the pretrained
ones are the lowest three layers of MiniLM and all six.
"""

from typing import Any

from ebar.recipes.recipe import Cell

BOUND = 3.0  # of |E| for networks whose last layer bounds nothing: then perplexities can be certified

# Parts of a run that only the first seed of an energy has; None: this energy has it not.
MEASURED: dict[str, Any] = {
    "last_step": {"prefixes": 300, "candidates": None}, "per_step": {"prefixes": 300, "draws": 32},
    "next_words": {"candidates": 20, "draws": 32}, "search": {"prefixes": 10, "steps": 100},
    "fooling": {
        "prefixes": 2000, "candidates": 16, "epochs": 2, "learning_rate": 2e-4, "own": False,
        "judge": {"kind": "pretrained", "encoder": "minilm", "layers": 6, "frozen_layers": 4},
    },
    "top_k": {"k": [40, 10], "candidates": 16},
    "samplers": None,
    "distil": {"chunks": 600, "candidates": 8, "epochs": 2, "learning_rate": 1e-4, "seeds": 3, "again": True},
}  # fmt: skip
ROUGHLY = {"prefixes": 300, "candidates": 32}  # a last step of which the likeliest tokens are scored one by one
NOTHING: dict[str, Any] = dict.fromkeys(MEASURED) | {"last_step": {"prefixes": 0, "candidates": None}}
LITTLE: dict[str, Any] = {"draws": 100, "last_step": ROUGHLY, "search": {"prefixes": 4, "steps": 50}}

SMALL: dict[str, Any] = {"chunks": 10_000, "epochs": 2, "batch_size": 16, "learning_rate": 5e-4, "bound": BOUND}
BIT: dict[str, Any] = {"kind": "bit", **SMALL, "layers": 2, "heads": 4, "dropout": 0.1, "warm_up": 3}
MINILM: dict[str, Any] = {
    "kind": "pretrained", "encoder": "minilm", "chunks": 2400, "epochs": 1, "batch_size": 16, "learning_rate": 2e-4,
    "bound": None,
}  # fmt: skip
BASE_STAR: dict[str, Any] = {**MINILM, "layers": 3, "frozen_layers": 1}
FROM_SCRATCH: dict[str, dict[str, Any]] = {
    "unit": {"kind": "unit", **SMALL, "figures": {"distil": None}},
    "bit_base": {**BIT, "hidden": 96, "figures": {**NOTHING, "last_step": ROUGHLY}},
    "bit_med": {
        **BIT, "hidden": 128,
        "figures": {"last_step": {"prefixes": 300, "candidates": 256}, "per_step": None, "distil": None},
    },
}  # fmt: skip
PRETRAINED: dict[str, dict[str, Any]] = {
    "pretrained_base": {
        **BASE_STAR,
        "figures": {
            **LITTLE, "per_step": {"prefixes": 300, "draws": 8}, "distil": None,
        },
    },
    "pretrained_bounded": {
        **BASE_STAR, "bound": BOUND,
        "figures": {
            **NOTHING, "draws": LITTLE["draws"], "samplers": {"prefixes": 50, "particles": [2, 8]},
            "distil": {**MEASURED["distil"], "again": False},
        },
    },
}  # fmt: skip
LARGE_STAR: dict[str, Any] = {
    **MINILM, "layers": 6, "frozen_layers": 4,
    "figures": {**NOTHING, **LITTLE, "last_step": NOTHING["last_step"], "fooling": MEASURED["fooling"],
                "next_words": {"candidates": 20, "draws": 16}},
}  # fmt: skip
LANGUAGE_MODEL: dict[str, Any] = {
    "base": "transformer", "vocabulary": 2000, "prefix": 20, "continuation": 10, "train_chunks": 16_000,
    "valid_chunks": 400, "test_chunks": 2000, "prefixes": 300, "draws": 512, "energy_seeds": 3,
    "layers": 2, "hidden": 128, "heads": 4, "dropout": 0.1, "epochs": 2,
    "learning_rate": 2e-3, "warmup": 50, "rows": 32, "balm_layers": 5,
    "rivals": ["ralm", "balm"], **MEASURED,
}  # fmt: skip

PAPER_SMALL: dict[str, Any] = {
    "chunks": 1_000_000, "epochs": 1, "batch_size": 64, "learning_rate": 3e-4, "bound": None,
}  # fmt: skip
PAPER_BIT: dict[str, Any] = {"kind": "bit", **PAPER_SMALL, "layers": 12, "dropout": 0.1, "warm_up": 1}
ROBERTA: dict[str, Any] = {"kind": "pretrained", **PAPER_SMALL, "learning_rate": 2e-5, "frozen_layers": 0}
PAPER_ENERGIES: dict[str, dict[str, Any]] = {
    "unit": {"kind": "unit", **PAPER_SMALL},
    "bit_base": {**PAPER_BIT, "hidden": 768, "heads": 12},
    "bit_med": {**PAPER_BIT, "hidden": 1024, "heads": 16},
    "pretrained_base": {**ROBERTA, "encoder": "roberta-base"},
    "pretrained_bounded": {**ROBERTA, "encoder": "roberta-base", "bound": BOUND, "figures": NOTHING},
    "pretrained_large": {**ROBERTA, "encoder": "roberta-large"},
}
PAPER: dict[str, Any] = {
    "base": "transformer", "vocabulary": 50_000, "prefix": 120, "continuation": 40, "train_chunks": 1_000_000,
    "valid_chunks": 1000, "test_chunks": 1000, "prefixes": 1000, "draws": 100_000, "energy_seeds": 1, "layers": 12,
    "hidden": 1024, "heads": 16, "dropout": 0.1, "epochs": 1, "learning_rate": 3e-4, "warmup": 4000, "rows": 256,
    "balm_layers": 28, "rivals": ["ralm", "balm"],
    "last_step": {"prefixes": 1000, "candidates": None}, "per_step": {"prefixes": 1000, "draws": 1000},
    "next_words": {"candidates": 100, "draws": 1000}, "search": {"prefixes": 100, "steps": 1000},
    "fooling": {
        "prefixes": 1000, "candidates": 64, "epochs": 1, "learning_rate": 2e-5, "own": True,
        "judge": {"kind": "pretrained", "encoder": "roberta-large", "frozen_layers": 0},
    },
    "top_k": {"k": [40, 10], "candidates": 64}, "samplers": {"prefixes": 100, "particles": [2, 8]},
    "distil": {"chunks": 100_000, "candidates": 64, "epochs": 1, "learning_rate": 1e-5, "seeds": 1, "again": True},
}  # fmt: skip

TOY: dict[str, Any] = {"chunks": 100, "epochs": 2, "batch_size": 20, "learning_rate": 5e-3, "bound": BOUND}
TOY_BIT: dict[str, Any] = {"kind": "bit", **TOY, "layers": 1, "hidden": 16, "heads": 2, "dropout": 0.0, "warm_up": 1}
CELLS: dict[str, list[dict[str, Any]]] = {
    "demo": [
        {
            "corpus": "toy", "base": "transformer", "vocabulary": 256, "prefix": 12, "continuation": 8,
            "train_chunks": 300, "valid_chunks": 40, "test_chunks": 40, "prefixes": 6, "draws": 120, "energy_seeds": 2,
            "layers": 1, "hidden": 16, "heads": 2, "dropout": 0.0, "epochs": 2, "learning_rate": 1e-2, "warmup": 5,
            "rows": 16, "balm_layers": 2, "rivals": ["ralm", "balm"], "last_step": {"prefixes": 3, "candidates": None},
            "per_step": {"prefixes": 3, "draws": 8}, "next_words": {"candidates": 20, "draws": 8},
            "search": {"prefixes": 3, "steps": 5},
            "fooling": {"prefixes": 40, "candidates": 4, "epochs": 1, "learning_rate": 1e-3, "own": True,
                        "judge": {"kind": "unit"}},
            "top_k": {"k": [3], "candidates": 4}, "samplers": {"prefixes": 3, "particles": [2]},
            "distil": {"chunks": 40, "candidates": 4, "epochs": 1, "learning_rate": 1e-3, "seeds": 2, "again": True},
            "energies": {
                "unit": {"kind": "unit", **TOY, "figures": {"samplers": None}},
                "bit_base": {**TOY_BIT, "bound": None, "figures": NOTHING},
                "bit_med": {**TOY_BIT, "figures": {"distil": None}},
            },
        },
    ],
    # The one energy of those that fit here which learns much; the others are compared with it by residual/sizes.
    "cpu": [
        {"corpus": "gmb-news", **LANGUAGE_MODEL, "rivals": [],
         "energies": {name: {**PRETRAINED[name], "first_seed": seed, "seeds": 1}}}
        for name, seed in (("pretrained_base", 0), ("pretrained_bounded", 0), ("pretrained_base", 1),
                           ("pretrained_base", 2))
    ],
    "paper": [
        {"corpus": "cc-news", **PAPER, "energies": PAPER_ENERGIES},
        {"corpus": "toronto-books", **PAPER, "energies": {
            name: PAPER_ENERGIES[name] for name in ("unit", "pretrained_base", "pretrained_large")
        }},
    ],
}  # fmt: skip


# Energies of other sizes, from scratch too, and another text. All of the news have the same base, to the last bit:
# their figures are of one task.
OTHERS: dict[str, list[dict[str, Any]]] = {
    "demo": [],
    "cpu": [
        {"corpus": "gmb-news", **LANGUAGE_MODEL, "rivals": [], "energies": {"pretrained_large": LARGE_STAR}},
        {"corpus": "gmb-news", **LANGUAGE_MODEL, "energies": FROM_SCRATCH},
        {
            "corpus": "gutenberg-novels", **LANGUAGE_MODEL, **NOTHING,
            "energies": {"pretrained_base": {**BASE_STAR, "figures": {"draws": LITTLE["draws"]}}},
        },
    ],
    "paper": [],
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """One run for each corpus and base, or several that share out its energies and their seeds.

    The base and the pool of draws are the same for all of them.
    """
    return [{"seed": 0, **cell} for cell in CELLS[scale]]


def sizes(scale: str) -> list[Cell]:
    """The same, and at scale cpu the runs of energies of other sizes and of another text."""
    return [*cells(scale), *({"seed": 0, **cell} for cell in OTHERS[scale])]


def seeds_of_energy(cell: Cell, name: str) -> range:
    """Those of an energy that a run has: its own number, or the cell's; from its first on, where runs share them."""
    own = cell["energies"][name]
    first = int(own.get("first_seed", 0))
    return range(first, first + int(own.get("seeds", cell["energy_seeds"])))
