"""Two ablations of E-ARM that Wang et al. 2022 tell of in words: how many recent factors, and no cross-entropy."""

import math
from typing import Any

from ebar.recipes.earm.language import COMMON, ENWIK8, GAIN, READING, TOY, WIKITEXT103, nats, run_cell
from ebar.recipes.earm.twins import BASE, PAPER, each_twin, run_curves, twin_grid
from ebar.recipes.pieces import Claim, Curves, Figure, Figures, Layout, Points, Recipe, layouts

ONE = {
    "demo": [{**TOY, "earm.start_epoch": 2}],
    "cpu": [{**ENWIK8, "earm.start_epoch": 3}],
    "paper": [{**WIKITEXT103, "earm.start_epoch": 15}],
}

# How many recent factors ------------------------------------------------------------------------------------------

COST, FROM_TWO = "test nats per token", "test nats per token, m − 2, paired"


def _recent(*factors: int | None) -> dict[str, Any]:
    return {"twins": {"all" if m is None else str(m): {"recent": m} for m in factors}}


RECENT = Recipe(
    title="How many recent factors E-ARM's gradient goes through",
    source=f"{PAPER}, equation 11 and its footnote 4; at scale cpu a slice of enwik8",
    grid=twin_grid(
        COMMON,
        {
            "corpus": ONE,
            "recent": {"demo": [_recent(0, 2, None)], "cpu": [_recent(0, 1, 2, None)],
                       "paper": [_recent(0, 1, 2, 3, 5, None)]},
            # Five models in one run, at scale paper seven: less text than in Table 3.
            "smaller": {
                "demo": [{"training.epochs": 3}],
                "cpu": [{"data.limit": 150_000, "data.held_out_limit": 40_000, "data.length": 50,
                         "schedule.warmup": 100, "training.batch_size": 32}],
                "paper": [{}],
            },
        },
        seeds={"demo": 2, "cpu": 5, "paper": 5},
    ),
    run=run_cell,
    figures=Figures(
        Figure(name=COST, at=nats, paper={"2": "best"}),
        Figure(name=GAIN, at=nats, minus={"m": "without E-ARM"}),
        Figure(name=FROM_TWO, at=nats, where={"twin": True}, minus={"m": "2"}, paper=("above 0",)),
        by=("m",),
        parts=each_twin(lambda cell, name: {"m": "without E-ARM" if name == BASE else name, "twin": name != BASE}),
    ),
    tables=Layout(rows=("m",)),
    plots=[Points(of=[figure], label="m = {m}", title=figure, x_label=COST) for figure in (GAIN, FROM_TWO)],
    claims=Claim(says="two recent factors are best", figure=FROM_TWO, above=0.0),
    reading=READING,
)  # fmt: skip

# Without cross-entropy --------------------------------------------------------------------------------------------

CROSS_ENTROPY, BOTH, SCRATCH = "cross-entropy", "cross-entropy and E-ARM", "equation 12 alone, from scratch"
TERM = {"weight": 1.0, "cross_entropy": False, "window": None}
# All from the same first weights, over the same batches; those after pre-training from the same model.
ALONE: dict[str, dict[str, Any]] = {
    SCRATCH: {**TERM, "start_epoch": 0},
    "without its data term, from scratch": {**TERM, "start_epoch": 0, "data_term": False},
    "equation 12 alone, after pre-training": TERM,
    "without its data term, after pre-training": {**TERM, "data_term": False},
}
HELD_OUT = "held-out nats per token"
AT_THE_END = f"{HELD_OUT} at the end, minus that of cross-entropy, paired"


WITHOUT_CE = Recipe(
    title="E-ARM without cross-entropy",
    source=f"{PAPER}, section 4: training from scratch by equation 12 alone did not work well; "
    "at scale cpu a slice of enwik8",
    grid=twin_grid(
        {**COMMON, "twins": {BOTH: {}, **ALONE}},
        {
            "corpus": ONE,
            # Windows as long as the fakes: the term sees all of the text that the cross-entropy sees.
            "smaller": {
                "demo": [{"data.limit": 1000, "data.held_out_limit": 300, "training.epochs": 2, "earm.start_epoch": 1,
                          "earm.window": 50}],
                "cpu": [{"data.limit": 100_000, "data.held_out_limit": 40_000, "data.length": 50,
                         "schedule.warmup": 100, "training.batch_size": 32}],
                "paper": [{"data.length": 50, "training.batch_size": 80}],
            },
        },
        seeds={"demo": 2, "cpu": 3, "paper": 3},
    ),
    run=run_curves,
    figures=Figures(
        Figure(
            name=HELD_OUT, at="curves.validation.{epoch}.1", range=(0.0, math.inf),
            each={"epoch": lambda twin: {place + 1: place for place in range(len(twin["curves"]["validation"]))}},
        ),
        Figure(
            name=AT_THE_END, at=lambda twin: float(twin["curves"]["validation"][-1][1]),
            minus={"trained by": CROSS_ENTROPY}, paper={SCRATCH: "did not work well"},
            about=lambda runs: {"epoch": len(runs[0][1]["curves"]["validation"])},
        ),
        by=("trained by",),
        parts=each_twin(lambda cell, name: {"trained by": CROSS_ENTROPY if name == BASE else name}),
    ),
    tables=[*layouts(("trained by",), HELD_OUT, columns=("epoch",)), *layouts(("trained by",), (AT_THE_END,))],
    plots=Curves(of={HELD_OUT: "{trained by}"}, x="epoch", title=HELD_OUT, by=("trained by",), dashed=tuple(ALONE)),
    claims=Claim(says="by itself it costs more", figure=AT_THE_END, above=0.0, where={"trained by": SCRATCH}),
    reading=READING,
)  # fmt: skip
