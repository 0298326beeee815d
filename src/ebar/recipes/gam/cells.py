"""Runs of `ebar gam` for the experiments of Parshakova et al. 2019, and figures that the recipes have in common.

What the recipes without a configuration share: training in memory, on sequences in memory.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ebar.build.gam import base_settings, make_gam
from ebar.build.train import train_as
from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import read_tree, to_yaml
from ebar.data.corpus import FEW_LOGITS, Corpus, Part
from ebar.journeys.gam.figures import DRAWS
from ebar.journeys.train import train
from ebar.recipes.figures import Figure
from ebar.recipes.grid import Grid
from ebar.recipes.recipe import Caption, Cell, Row
from ebar.store.fingerprint import fingerprint, source_fingerprint
from ebar.store.names import LOCK
from ebar.store.stages import open_stage
from ebar.training.course import Training
from ebar.training.optimisers import Adam
from ebar.types import Space

# The spellings in the paper's captions are typos or slips of character recognition; these are those of the code.
PURE = ("10001010001", "01011101101", "001001100111", "1011100111001", "10001011111000")
MIXED = ("01011101101", "001001100111", "1011100111001", "100010100011", "10001011111000")
MOTIF = "10001011111000"
SIZES = (500, 1000, 5000, 10_000, 20_000)
EPOCHS = 130  # at most, of r and of π, in the authors' code
PATIENCE = 20  # epochs in a row without a better validation loss (the paper, "Autoregressive models")
CYCLE_PATIENCE = 5  # epochs of λ in a round of cyclical training, in the authors' code

# How large everything is at each scale. At scale paper it is as in the paper; where that is silent, as in the authors'
# code.
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"length": 12, "test_size": 100, "layers": 1, "hidden": 16, "distil": 200, "validation": 50, "epochs": 4,
             "checks": 1000, "shortened": True},
    "cpu": {"length": 30, "test_size": 5000, "layers": 2, "hidden": 200, "distil": 20_000, "validation": 2000,
            "epochs": 40, "checks": 10_000},
    "paper": {"length": 30, "test_size": 5000, "layers": 2, "hidden": 200, "distil": 20_000, "validation": 2000,
              "epochs": EPOCHS, "patience": PATIENCE, "checks": 10_000},
}  # fmt: skip
# What a run is called by in tables; the rest is in its configuration alone.
LABELS = ("motif", "ft", "presence", "recipe", "matching", "regime", "size", "seed")
DATA = ("motif", "length", "presence", "size", "test_size")
COMMON = {"motif": MOTIF, "ft": "1001111", "presence": 1.0, "recipe": "authors", "matching": "newton",
          "regime": "two_stage"}  # fmt: skip


def gam_grid(axes: Mapping[str, Any], **more: Any) -> Grid:
    """Runs of `ebar gam` that differ in these settings."""
    seeds = more.pop("seeds", 1)
    return Grid(common={**COMMON, **more}, scales=SCALES, axes=axes, seeds=seeds, make=_cell)


def _cell(settings: dict[str, Any]) -> Cell:
    if settings.get(
        "shortened"
    ):  # a piece of the motif whose half is not 00, which is what d₃ is for motifs that short
        motif = settings["motif"]
        settings["motif"] = motif[:5] if motif[0] == "1" else motif[1:6]
    labels = {key: settings[key] for key in LABELS if key in settings}
    return {**labels, "configuration": configuration(settings)}


def configuration(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a user would write in a YAML file for `ebar gam --config`."""
    own: dict[str, Any] = {}
    if settings["matching"] == "newton":
        own = {"draws": 4000 if settings["recipe"] == "small_student" else settings["checks"]}
    elif settings["regime"] == "cyclical":
        own = {"schedule": {"patience": CYCLE_PATIENCE}}
    # The authors draw from P_λ by rejection from r; everything else that is called ours looks ahead.
    rejection = settings.get("rejection", settings["recipe"] == "authors")
    return {
        "seed": settings["seed"],
        "data": {"kind": "language", **{key: settings[key] for key in DATA}},
        "ft": settings["ft"],
        "matching": {"kind": settings["matching"], **own},
        "regime": settings["regime"],
        "distillation": {
            "size": settings["distil"], "validation": settings["validation"],
            **({"proposal": "base"} if rejection else {}),
        },
        **({"sampler": {"kind": "rejection"}} if rejection else {}),
        "checks": settings["checks"],
        "exact": settings.get("exact", False),
        **STAGES[settings["recipe"]](settings),
    }  # fmt: skip


def _authors(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The authors' r, and π the same way: fresh weights, on distilled ∪ D."""
    student = _authors_phase(settings, settings.get("student_epochs") or settings["epochs"], settings["distil"])
    return {**_authors_base(settings), "student": student, "fresh": True}


def _small_student(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The authors' r and one round, with a π that takes a minute: a smaller LSTM, more and larger steps."""
    return {
        **_authors_base(settings),
        "student": {"epochs": 4, "batch_size": 128, "learning_rate": 4e-3},
        "student_backbone": {"layers": 1, "hidden": min(128, settings["hidden"]), "dropout": 0.0},
        "checks": min(4000, settings["checks"]),
        "fresh": True,
    }


def _authors_then_ours(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The authors' r; from there on ours: λ by newton, a smaller π, refined on D, and a second round."""
    return {
        **_authors_base(settings),
        "student": {"epochs": 4, "batch_size": 128, "learning_rate": 4e-3},
        "student_backbone": {"layers": 1, "hidden": min(128, settings["hidden"]), "dropout": 0.0},
        "refinement": _tuned_phase(settings, 2e-3),
        "continuation": {"epochs": 4, "batch_size": 128, "learning_rate": 1e-3},
        "rounds": 2,
        "fresh": True,
    }


def _tuned(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Our r, which is the fair rival: many small steps, a falling learning rate; π starts from its weights."""
    return {
        "backbone": {"kind": "lstm", "layers": 1, "hidden": min(128, settings["hidden"]), "dropout": 0.0},
        "base": _tuned_phase(settings, 4e-3),
        "continuation": {"epochs": 4, "batch_size": 128, "learning_rate": 1e-3},
    }


STAGES = {"authors": _authors, "authors_then_ours": _authors_then_ours, "small_student": _small_student,
          "tuned": _tuned}  # fmt: skip
AUTHORS_BASE = ("authors", "authors_then_ours", "small_student")  # those whose r is the authors'


def _authors_base(settings: Mapping[str, Any]) -> dict[str, Any]:
    """At most 130 epochs; where an epoch has many steps and time is short, no more than π gets."""
    few = settings["epochs"] >= 40 and settings["size"] <= 1000
    epochs = settings.get("base_epochs") or (EPOCHS if few else settings["epochs"])
    return {
        "backbone": {"kind": "lstm", "layers": settings["layers"], "hidden": settings["hidden"], "dropout": 0.2},
        "base": _authors_phase(settings, epochs, settings["size"]),
    }


def _authors_phase(settings: Mapping[str, Any], epochs: int, size: int) -> dict[str, Any]:
    """Batches of at most 500, the last one dropped, as in the authors' code.

    A patience that is given counts epochs in a row, as the paper's does; otherwise it is that of the authors' code,
    whose count of 10 is never set back.
    """
    patience = settings.get("patience")
    stop = {"patience": 10, "patience_in_all": True} if patience is None else {"patience": patience}
    return {"epochs": epochs, "batch_size": min(size, 500), "learning_rate": 1e-3, "schedule": "constant",
            **stop, "clip": 0.25, "drop_last": True}  # fmt: skip


def _tuned_phase(settings: Mapping[str, Any], learning_rate: float) -> dict[str, Any]:
    """About 32 steps for each pass over D, however small it is."""
    epochs, batch = settings["epochs"], min(32, max(4, settings["size"] // 32))
    return {"epochs": epochs, "batch_size": batch, "learning_rate": learning_rate, "patience": epochs}


def departures(cells: Sequence[Cell]) -> list[str]:
    """Where models that go by the authors' name are stopped earlier than theirs."""
    stops = {
        (who, cell["size"], epochs)
        for cell in cells
        for who, stage, recipes in (("r", "base", AUTHORS_BASE), ("π", "student", ("authors",)))
        if cell["recipe"] in recipes and (epochs := cell["configuration"][stage]["epochs"]) < EPOCHS
    }
    said = [
        f"{who} by the authors' settings is stopped after {epochs} epochs at the latest where |D| = {size:,}, not "
        f"after {EPOCHS} as theirs."
        for who, size, epochs in sorted(stops)
    ]
    small = [cell for cell in cells if cell["recipe"] == "small_student"]
    if small:
        width, epochs = (small[0]["configuration"][key] for key in ("student_backbone", "student"))
        said.append(
            f"r is trained by the authors' settings, and so is λ but for newton's; π, which would take 20 minutes or "
            f"more, is an LSTM of one layer of {width['hidden']} units, trained for {epochs['epochs']} epochs in "
            f"batches of {epochs['batch_size']}."
        )
    if any("sampler" not in cell["configuration"] for cell in small):
        said.append(
            "Draws of P_λ are by quasi-rejection from a proposal that looks ahead, within 0.01 of p in total "
            "variation, where the paper's are by rejection from r: the same law but for that, in less time."
        )
    return said


BASE_MODELS = "base-models"


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar gam --config` makes of the cell's configuration: its results.json, without a page that nobody sees.

    Runs that differ in λ, in features or in how they draw have the same r. It is trained once, beside the folders of
    the runs, and each begins with a copy; a run that finds it being trained by another process waits.
    """
    config = configured(cell["configuration"])
    run = base_settings(config)
    if folder.name == "work" and not (folder / "r").exists():  # a recipe's, among others
        place = folder.parent.parent / BASE_MODELS / fingerprint(to_yaml(run), source_fingerprint())
        with open_stage(place, {"r": to_yaml(run)}) as stage:
            if not stage.done:
                train_as(run, stage.folder / "r")
        shutil.copytree(place / "r", folder / "r", ignore=shutil.ignore_patterns(LOCK))
    return make_gam(config, folder, page=False)[1].to_dict()


def configured(tree: Mapping[str, Any]) -> GamConfig:
    """What `ebar gam --config` reads from this tree, written as YAML."""
    return read_tree(tree, MANUAL, GamConfig)


def last(result: Mapping[str, Any], letter: str) -> str:
    """The name of r, or of the last P_λ or π."""
    return str([name for name in result["models"] if name.startswith(letter)][-1])


def of(letter: str, key: str) -> Callable[[Mapping[str, Any]], Any]:
    """Reads one figure of the last model of this kind."""
    return lambda result: result["models"][last(result, letter)][key]


def cost(letter: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Reads its cross-entropy: exact where the run has it so, otherwise that on test strings."""

    def read(result: Mapping[str, Any]) -> dict[str, Any]:
        model = result["models"][last(result, letter)]
        return dict(model.get("exact_cross_entropy", model["cross_entropy"]))

    return read


ENTROPY = Figure(name="entropy", at="entropy_per_token", exact=True)
AMOUNT, SHARE = (0.0, math.inf), (0.0, 1.0)
STANDARD = [
    *(Figure(name=f"cross-entropy of {letter}", at=cost(letter)) for letter in "rPπ"),
    # No model has a lower cross-entropy than the language has entropy.
    *(
        Figure(name=f"CE({letter})/H", at=of(letter, "cross_entropy_over_entropy"), range=(1.0, math.inf))
        for letter in "rπ"
    ),
    *(Figure(name=f"motif frequency of {letter}", at=of(letter, "motif_frequency"), range=SHARE) for letter in "rπ"),
    *(Figure(name=f"mean length of {letter}", at=of(letter, "mean_length"), range=AMOUNT) for letter in "rπ"),
    Figure(name="ℓ1_mom of r", at="moment_distances.r", range=AMOUNT),
    Figure(name="ℓ1_mom of the distilled set", at="moment_distances.distilled", range=AMOUNT),
    Figure(name="ℓ1_mom of π", at="moment_distances.π", range=AMOUNT),
]


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Of two estimates whose errors are independent, or positively correlated, when the interval is too wide."""
    value, size = one["value"] - other["value"], min(float(x["effective_sample_size"]) for x in (one, other))
    low = math.hypot(one["value"] - one["low"], other["high"] - other["value"])
    high = math.hypot(one["high"] - one["value"], other["value"] - other["low"])
    return {"value": value, "low": value - low, "high": value + high, "effective_sample_size": size}


GAP = Figure(
    name="CE(r) − CE(π), nats per token", at=lambda result: difference(cost("r")(result), cost("π")(result))
)  # on the same test strings
MORE = Figure(
    name="motif frequency of π − r",
    at=lambda result: difference(of("π", "motif_frequency")(result), of("r", "motif_frequency")(result)),
    range=(-1.0, 1.0),
)


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over; of the language itself everything is known."""
    configuration = cells[0]["configuration"]
    if row.name == "entropy" or row.settings.get("model") == "truth":
        return ""
    if row.name.startswith("λ of"):
        return "data and draws, one training"
    if row.name.startswith(("motif frequency", "mean length", "moment of", "ℓ1_mom")):
        size = configuration["distillation"]["size"] if row.name.endswith("distilled set") else DRAWS
        return f"{size:,} draws, one training"
    if configuration["exact"]:
        return "draws for log Z, one training"
    return f"{configuration['data']['test_size']:,} test strings, one training"


READING = Caption(items=items, departures=departures)


def learn(
    module: nn.Module, data: Part, held_out: Part, *, learning_rate: float, seed: int, objective: Any = None,
    **training: Any,
) -> int:  # fmt: skip
    """Trains a module, by maximum likelihood unless told otherwise; it keeps its best weights. The number of steps.

    The seed decides everything random, dropout too.
    """
    space = getattr(module, "space", Space(2, 1))
    corpus = Corpus(space=space, tokeniser=None, parts={"train": data, "validation": held_out})
    how = Training(**{"clip": 1.0, "held_out_batch": FEW_LOGITS, **training})
    trained = train(
        module, corpus, objective=objective, training=how, optimiser=Adam(learning_rate=learning_rate), seed=seed
    )
    assert trained.result is not None
    return trained.result.position.step
