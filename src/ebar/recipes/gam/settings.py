"""The settings of document 000's experiments, and ours beside them."""

from collections.abc import Sequence
from typing import Any

from ebar.config.bit_vector import terms_of
from ebar.config.gam import Gam
from ebar.config.run import Chosen
from ebar.journeys.gam.settings import Distillation, Phase
from ebar.recipes.recipe import Cell

# FACTS: the spellings in the document's captions are typos or slips of character recognition; these are the code's.
PURE = ("10001010001", "01011101101", "001001100111", "1011100111001", "10001011111000")
MIXED = ("01011101101", "001001100111", "1011100111001", "100010100011", "10001011111000")
MOTIF = "10001011111000"
SIZES = (500, 1000, 5000, 10_000, 20_000)

# How large everything is at each scale. At scale paper it is as in the authors' code.
SCALES: dict[str, dict[str, Any]] = {
    "demo": {"length": 12, "test_size": 100, "layers": 1, "hidden": 16, "distil": 200, "validation": 50, "epochs": 4,
             "pool": 1000},
    "cpu": {"length": 30, "test_size": 5000, "layers": 2, "hidden": 200, "distil": 20_000, "validation": 2000,
            "epochs": 40, "pool": 10_000},
    "paper": {"length": 30, "test_size": 5000, "layers": 2, "hidden": 200, "distil": 20_000, "validation": 2000,
              "epochs": 130, "pool": 10_000},
}  # fmt: skip


def cell_for(scale: str, *, motif: str, ft: str, size: int, seed: int, presence: float = 1.0, **more: Any) -> Cell:
    """One run, everything that decides it written out. At scale demo a piece of the motif fits in short strings."""
    sizes = SCALES[scale]
    if scale == "demo":  # a piece whose half is not 00, which is what d₃ is for motifs that short
        motif = motif[:5] if motif[0] == "1" else motif[1:6]
    return {"motif": motif, "ft": ft, "size": size, "seed": seed, "presence": presence, "recipe": "authors",
            "matching": "newton", "regime": "two_stage", "exact": False, **sizes, **more}  # fmt: skip


EPOCHS = 130  # at most, of r and of π, in the authors' code


def departures(cells: Sequence[Cell]) -> list[str]:
    """Where models that go by the authors' name are stopped earlier than theirs."""
    stops = sorted(
        {(who, int(cell["size"]), epochs) for cell in cells for who, epochs in _stops(cell).items() if epochs < EPOCHS}
    )
    return [
        f"{who} by the authors' settings is stopped after {epochs} epochs at the latest where |D| = {size:,}, not "
        f"after {EPOCHS} as theirs."
        for who, size, epochs in stops
    ]


def _stops(cell: Cell) -> dict[str, int]:
    if cell["recipe"] == "tuned":
        return {}
    gam = gam_of(cell)
    stops = {"r": gam.base.epochs}
    return stops if cell["recipe"] != "authors" or gam.student is None else {**stops, "π": gam.student.epochs}


def gam_of(cell: Cell) -> Gam:
    """The journey of a cell."""
    return {"authors": _authors, "authors_then_ours": _authors_then_ours, "tuned": _tuned}[cell["recipe"]](cell)


def _common(cell: Cell) -> dict[str, Any]:
    return {
        "seed": cell["seed"],
        "data": Chosen(
            kind="language",
            options={
                "motif": cell["motif"], "expression": None, "alphabet": "01", "length": cell["length"],
                "presence": cell["presence"], "stop": None, "size": cell["size"], "test_size": cell["test_size"],
            },
        ),
        "features": tuple(terms_of(cell["motif"], cell["ft"])),
        "matching": Chosen(kind=cell["matching"], options=_few(cell) if cell["matching"] == "newton" else {}),
        "regime": cell["regime"],
        "distillation": Distillation(size=cell["distil"], validation=cell["validation"]),
        "exact": cell["exact"],
    }  # fmt: skip


def _few(cell: Cell) -> dict[str, Any]:
    return {"draws": cell["pool"]}


def _lstm(layers: int, hidden: int, dropout: float) -> Chosen:
    options = {"layers": layers, "hidden": hidden, "dropout": dropout, "embedding": None, "compiled": False}
    return Chosen(kind="lstm", options=options)


def _authors_phase(epochs: int, size: int) -> Phase:
    """Batches of at most 500, the last one dropped; patience of 10 evaluations in all, as in the authors' code."""
    return Phase(
        epochs=epochs, batch_size=min(size, 500), learning_rate=1e-3, schedule="constant", patience=10,
        patience_in_all=True, clip=0.25, drop_last=True,
    )  # fmt: skip


def _base_epochs(cell: Cell) -> int:
    """130, but where an epoch has many steps and time is short no more than π gets."""
    return EPOCHS if cell["epochs"] >= 40 and cell["size"] <= 1000 else int(cell["epochs"])


def _authors(cell: Cell) -> Gam:
    """The authors' r, and π the same way: fresh weights, on distilled ∪ D."""
    return Gam(
        **_common(cell),
        backbone=_lstm(cell["layers"], cell["hidden"], 0.2),
        base=_authors_phase(_base_epochs(cell), cell["size"]),
        student=_authors_phase(cell.get("student_epochs", cell["epochs"]), cell["distil"]),
        fresh=True,
    )


def _authors_then_ours(cell: Cell) -> Gam:
    """The authors' r; from there on ours: λ by newton, a smaller π, refined on D, and a second round."""
    small = {"layers": 1, "hidden": min(128, cell["hidden"]), "dropout": 0.0}
    return Gam(
        **_common(cell),
        backbone=_lstm(cell["layers"], cell["hidden"], 0.2),
        base=_authors_phase(_base_epochs(cell), cell["size"]),
        student=Phase(epochs=4, batch_size=128, learning_rate=4e-3),
        student_backbone=small,
        refinement=_tuned_phase(cell, 2e-3),
        continuation=Phase(epochs=4, batch_size=128, learning_rate=1e-3),
        rounds=2,
        fresh=True,
    )


def _tuned(cell: Cell) -> Gam:
    """Our r, which is the honest rival: many small steps, a falling learning rate; and π from its weights on."""
    return Gam(
        **_common(cell),
        backbone=_lstm(1, min(128, cell["hidden"]), 0.0),
        base=_tuned_phase(cell, 4e-3),
        continuation=Phase(epochs=4, batch_size=128, learning_rate=1e-3),
    )


def _tuned_phase(cell: Cell, learning_rate: float) -> Phase:
    """About 32 steps for each pass over D, however small it is."""
    batch = min(32, max(4, cell["size"] // 32))
    return Phase(epochs=cell["epochs"], batch_size=batch, learning_rate=learning_rate, patience=cell["epochs"])
