"""How much time a memory saves in evaluation, against windows that are read anew for every token (Dai et al. 2019)."""

from collections.abc import Mapping
from typing import Any

from ebar.recipes.pieces import Caption, Claim, Curves, Figure, Figures, Recipe, layouts
from ebar.recipes.training import SAME_TEXT
from ebar.recipes.xl.cells import BITS_PER_BYTE, PAPER, RUNS, XL, nats_of, run_cell
from ebar.recipes.xl.tables import AMOUNT, TABLE3_2

WAYS = {"with memory": "memory", "windows read anew": "anew"}
SECONDS, BITS = "seconds per 1,000 tokens, {way}", f"{BITS_PER_BYTE.name}, {{way}}"
TIMES, DIFFERENCE = "times faster with memory", "test nats per token, with memory − windows read anew, paired"


def _nats(run: Mapping[str, Any], length: str, way: str) -> float:
    return nats_of(run["speed"][length][way]["nats"])


RECIPE = Recipe(
    title="Evaluation with a memory against windows read anew",
    source=f"{PAPER}, section 3.2.1, and Dai et al. 2019 (up to 1,874 times faster, on a GPU); at scale cpu the "
    "Transformer-XL of xl/table3_2, one thread",
    grid=lambda scale: [cell for cell in TABLE3_2.grid(scale) if cell["model"] == XL],
    run=run_cell,
    figures=Figures(
        Figure(
            name=TIMES, each={"length": "speed"}, range=AMOUNT,
            at=lambda run, length: run["speed"][length]["anew"]["seconds"] / run["speed"][length]["memory"]["seconds"],
        ),
        Figure(name=SECONDS, at="speed.{length}.{way}.seconds", each={"way": WAYS, "length": "speed"}),
        Figure(name=BITS, each={"way": WAYS, "length": "speed"},
               at=lambda run, length, way: BITS_PER_BYTE.of(_nats(run, length, way))),
        Figure(name=DIFFERENCE, each={"length": "speed"},
               at=lambda run, length: _nats(run, length, "memory") - _nats(run, length, "anew")),
        by=(),
    ),
    tables=layouts(
        ("length",), (TIMES, *(SECONDS.format(way=way) for way in WAYS)),
        (*(BITS.format(way=way) for way in WAYS), DIFFERENCE),
    ),
    plots=[
        Curves(of={TIMES: TIMES}, x="length", x_label="attention length", title=TIMES, log_x=True, log_y=True),
        Curves(of={SECONDS.format(way=way): way for way in WAYS}, x="length", x_label="attention length",
               title="seconds per 1,000 tokens", log_x=True, log_y=True),
    ],
    claims=Claim(says="evaluation is much faster with memory", figure=TIMES, above=10.0),
    notes=lambda rows: [
        "With memory a text is read once, a segment at a time, one text alone. Without, a window of as many tokens is "
        "read for every token that is scored, many windows at a time. Both are the same weights; a window has no more "
        "context than its length, a token of a segment that and what precedes it in its segment.",
        "The other core was busy with other runs, so that times are rough; ratios of hundreds are not.",
    ],
    runs=RUNS,
    reading=Caption(
        shared=SAME_TEXT, items="one training",
        ranges={figure.format(way=way): AMOUNT for figure in (SECONDS, BITS) for way in WAYS},
    ),
)  # fmt: skip
