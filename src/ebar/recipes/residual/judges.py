"""Texts of the base and of the joint model before a discriminator that has never seen the energy.

With all of the base's next tokens, as the perplexities are; and with the k likeliest alone, as Algorithm 1 draws.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.maths.importance import all_warnings
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result, Row, layouts
from ebar.recipes.residual.reading import MODEL, PAPER, RUNS, cell_of, prefixes_of, with_part
from ebar.recipes.rows import chosen

SAME, OWN = "one, trained against the base", "each trained against its own"
RATE, ACCURACY = "false positive rate", "accuracy"
FOOLED = f"{RATE}, joint − base LM, paired over prefixes"
CHANCE = "the judge is at chance (its accuracy is not shown to be above 0.5): whom it takes for real says little"
JUDGES = {SAME: "same", OWN: "own"}


def _judges_of(run: Mapping[str, Any]) -> dict[str, str]:
    return {label: name for label, name in JUDGES.items() if name in run["fooling"]}


def _rate(name: str, base: str, joint: str) -> Figure:
    """A rate under both protocols; the paper has figures of one."""
    theirs = {(SAME, "base"): base, (SAME, "joint"): joint}
    return Figure(
        name=name, at=f"fooling.{{judge}}.{{system}}.{name.replace(' ', '_')}",
        each={"judge": _judges_of, "system": ("base", "joint")}, range=(0.0, 1.0),
        paper=lambda settings: theirs.get((settings["judge"], settings["system"])),
    )  # fmt: skip


RATES = Figures(
    _rate(RATE, "17.8 %", "31.8 %"),
    _rate(ACCURACY, "89.9 %", "82.9 %"),
    Figure(name=FOOLED, at="fooling.{judge}.difference", each={"judge": _judges_of}),
    by=MODEL, parts=with_part("fooling"),
)  # fmt: skip


def judged(results: Sequence[Result]) -> list[Row]:
    """Each row that rests on a judge which cannot tell real from generated text says so.

    The judge trained against the base is rated on the base's text, for that is what it was trained on.
    """
    rows, found = RATES(results), []
    rated = {_judge(row, row.settings["system"]): row.low or 0.0 for row in chosen(rows, ACCURACY, {})}
    for row in rows:
        systems = [row.settings["system"]] if "system" in row.settings else ["base", "joint"]
        systems = ["base"] if row.settings["judge"] == SAME else systems
        at_chance = any(rated[_judge(row, system)] <= 0.5 for system in systems)
        found.append(replace(row, warning=all_warnings(row.warning, CHANCE)) if at_chance else row)
    return found


def _judge(row: Row, system: str) -> tuple[str, ...]:
    return (*(str(row.settings[key]) for key in (*MODEL, "judge")), system)


def _notes(rows: Sequence[Row]) -> list[str]:
    """How many judges know anything, and that the paper's is another."""
    # That of the base's text is one judge, whatever energy it is set beside.
    known = {
        _judge(row, "")[: 2 if row.settings["system"] == "base" else 3]: CHANCE in (row.warning or "")
        for row in chosen(rows, ACCURACY, {"judge": SAME}) + chosen(rows, ACCURACY, {"judge": OWN})
        if row.settings["system"] == "base" or row.settings["judge"] == OWN
    }
    return [
        f"{sum(known.values())} of {len(known)} judges are at chance on the text they were trained against"
        + (": a difference between two such judges is one between their thresholds." if any(known.values()) else "."),
        "The paper's figures are those of a far larger discriminator on other text (it takes them from Bakhtin et "
        "al.): signs are to be compared, not levels. A judge with the weights of the encoder that BiT* starts from "
        "is the nearer to that energy.",
    ]


def _second_half(row: Row, cells: Sequence[Cell]) -> str:
    """Judges are trained on the first half of the prefixes and judge the second."""
    cell = cell_of(row, cells)
    count = min(cell["fooling"]["prefixes"], cell["test_chunks"])
    return f"{count - count // 2} prefixes, one energy seed, one judge"


FOOLING = Recipe(
    title="Are the joint model's texts harder to tell from real ones?",
    source=f"{PAPER}, “Are generations from P_joint harder to discriminate?”",
    figures=judged,
    tables=[
        Layout(rows=(*MODEL, "judge"), columns=("figure", "system"), figures=[RATE, ACCURACY]),
        *layouts(MODEL, FOOLED, columns=("judge",)),
    ],
    plots=Points(
        of=[FOOLED], label="{base}, {corpus}, {model}; {judge}", x_label="joint − base",
        title="how much oftener a discriminator is fooled",
    ),
    claims=[
        Claim(says="a discriminator tells the base's text from data", figure=ACCURACY, above=0.5,
              where={"judge": SAME, "system": "base"}),
        Claim(says="the joint model's text fools it oftener (31.8 % against 17.8 %)", figure=FOOLED, above=0.0,
              where={"judge": SAME}),
    ],
    notes=_notes,
    reading=Caption(items=_second_half, elsewhere=lambda cells: "other text, another judge"),
    **RUNS,
)  # fmt: skip

# Algorithm 1 ------------------------------------------------------------------------------------------------------

ENERGY_GAP = "mean energy, text − data, paired over prefixes"
SHOWN = {
    ENERGY_GAP: "gap", "share taken for real": "fooled", "unique share of bigrams": "unique",
    "share of words that have been there before": "repeated",
}  # fmt: skip


def _ks(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every k as a run of its own."""
    return [
        ({**about, "k": k, "text": system}, own)
        for about, run in with_part("top_k")(cell, result)
        for k, systems in run["top_k"].items()
        for system, own in systems.items()
    ]


TOP_K = Recipe(
    title="Top-k joint sampling",
    source=f"{PAPER}, Algorithm 1, whose n and k the document does not give",
    figures=Figures(
        *(
            Figure(name=name, at=lambda run, key=key: run.get(key), range=None if key == "gap" else (0.0, 1.0))
            for name, key in SHOWN.items()
        ),
        by=(*MODEL, "k", "text"), parts=_ks,
    ),
    tables=Layout(rows=(*MODEL, "k", "text"), figures=list(SHOWN)),
    plots=Points(
        of=[ENERGY_GAP], label="{model}, k = {k}, {text}", x_label="mean energy − that of data",
        title="{base} on {corpus}", panels=("base", "corpus"),
    ),
    notes=lambda rows: [
        "With a truncated base the draws follow q_topk·e⁻ᴱ, not the joint model q·e⁻ᴱ: what truncation removes, no "
        "energy can restore. “k all” is the full softmax.",
        "The judge is that of residual/fooling, trained against the base's full softmax. Some of the prefixes are "
        "among those that it learnt from, with other continuations.",
    ],
    reading=Caption(
        items=prefixes_of(),
        departures=lambda cells: [
            "Each joint text is chosen among "
            + " / ".join(dict.fromkeys(str(cell["top_k"]["candidates"]) for cell in cells if cell["top_k"]))
            + " draws (the document's n is not known)."
        ],
    ),
    **RUNS,
)  # fmt: skip
