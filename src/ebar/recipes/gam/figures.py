"""Figures 2 to 7 of Parshakova et al. 2019: cross-entropy, ℓ1_mom and motif frequency against |D|.

Tables 1 to 4 of Parshakova et al. 2019.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.figures import Figure, Figures
from ebar.recipes.gam.cells import ENTROPY, MIXED, MOTIF, PURE, READING, SIZES, STANDARD, cost, gam_grid, of, run_cell
from ebar.recipes.layout import Claim, Curves, Layout
from ebar.recipes.recipe import Cell, Recipe, Result, Row
from ebar.report.plots import Line, Panel

PANELS = ("motif", "ft", "presence", "regime")
KEYS = (*PANELS, "matching", "size")
# Panel → the figures in it, with the names of their lines.
CURVES = {
    "cross-entropy, nats per token": {"cross-entropy of r": "r, {matching}", "cross-entropy of π": "π, {matching}"},
    "motif frequency, 2,000 draws": {"motif frequency of r": "r, {matching}", "motif frequency of π": "π, {matching}"},
    "ℓ1_mom to the truth": {"ℓ1_mom of r": "r, {matching}", "ℓ1_mom of the distilled set": "distilled, {matching}"},
}  # fmt: skip


PAPER = "Parshakova et al. 2019"
GAM: dict[str, Any] = {"run": run_cell, "reading": READING}
SOME_SIZES = {"demo": (60,), "cpu": (500, 5000), "paper": SIZES}
AGAINST_SIZE: dict[str, Any] = {"x": "size", "x_label": "|D|", "log_x": True}


def figure(number: int, title: str, settings: Sequence[dict[str, Any]], panels: int = 3) -> Recipe:
    """A figure with these settings; at scale demo only its first, at scale cpu two |D|."""
    return Recipe(
        title=title,
        source=f"{PAPER}, Figure {number}",
        grid=gam_grid(
            {
                "setting": {"demo": settings[:1], "cpu": settings, "paper": settings},
                "matching": {"demo": ["newton"], "cpu": ["newton"], "paper": ["rs", "snis"]},
                "size": SOME_SIZES,
            }
        ),
        figures=Figures(ENTROPY, *STANDARD, by=KEYS),
        tables=Layout(rows=KEYS, names={"size": "|D|"}),
        plots=[
            Curves(
                of=lines,
                y_label=label,
                title="{motif}, ft {ft}, presence {presence:g}, {regime}",
                by=("matching",),
                panels=PANELS,
                levels={"H": "entropy"} if label.startswith("cross-entropy") else {},
                **AGAINST_SIZE,
            )
            for label, lines in list(CURVES.items())[:panels]
        ],
        **GAM,
    )


FIGURE2 = figure(
    2,
    "Cross-entropy and motif frequency against |D|, two-stage training",
    [
        {"motif": "001001100111", "ft": "0111111"},
        {"motif": "1011100111001", "ft": "1011111"},
        {"motif": MOTIF},
        {"motif": MOTIF, "presence": 0.9},
    ],
    panels=2,
)
FIGURE3 = figure(3, "Cyclical training against |D|", [{"regime": "cyclical"}])
FIGURE4, FIGURE5, FIGURE6 = (
    figure(number, f"Pure D, {what}: motifs of all rarities", [{"motif": motif, "ft": ft} for motif in PURE])
    for number, what, ft in (
        (4, "features supermotif and submotif", "0111111"),
        (5, "features motif and submotif", "1011111"),
        (6, "feature motif", "1001111"),
    )
)
FIGURE7 = figure(
    7, "Mixture D, feature motif: motifs of all rarities", [{"motif": motif, "presence": 0.9} for motif in MIXED]
)


SEEDS = {"demo": 1, "cpu": 3, "paper": 1}


def ratios(
    by: str, level: str, of: Sequence[Figure], paper: Mapping[str, Sequence[Sequence[Any]]], drawn: int | None = None
) -> dict[str, Any]:
    """Figures by a setting and |D|; the paper's by that setting, of each figure those of all |D|; `level` names 1."""
    known = {(value, size): row for value, own in paper.items() for size, *row in zip(SIZES, *own, strict=True)}
    return {
        "figures": [Figures(*of, by=(by, "size"), paper=known)],
        "tables": [Layout(rows=(by, "size"), names={"size": "|D|"})],
        "plots": [
            Curves(of={one.name: f"{{{by}}}"}, by=(by,), title=one.name, levels={level: 1.0}, **AGAINST_SIZE)
            for one in of[:drawn]
        ],
    }


RS: dict[str, Any] = {"where": {"matching": "rs"}, "over": {"matching": "snis"}}
TABLE1 = Recipe(
    title="λ by rejection against importance sampling, motif 10001011111000",
    source=f"{PAPER}, Table 1",
    grid=gam_grid(
        {
            "language": [
                {"language": "m", "ft": "1011111", "presence": 1.0},
                {"language": "mam", "ft": "1001111", "presence": 0.9},
            ],
            "size": SOME_SIZES,
            "matching": ["rs", "snis"],
        },
        seeds=SEEDS,
    ),
    **ratios(
        "language",
        "equal",
        [
            Figure(name="motif frequency rs/snis", at=of("π", "motif_frequency"), **RS),
            Figure(name="cross-entropy rs/snis", at=cost("π"), **RS),
            Figure(name="time of Training-1 rs/snis", at="matching.0.seconds", **RS),
        ],
        {
            "m": (
                (0.998, 1.009, 0.995, 1.134, 1.497),
                (0.967, 0.973, 0.967, 0.956, 0.961),
                (2.92, 2.038, 0.756, 1.514, 0.938),
            ),
            "mam": (
                (0.997, 0.77, 1.12, 1.011, 0.965),
                (1.003, 1.07, 0.99, 1.002, 1.005),
                (4.7, 3.638, 1.365, 1.005, 0.975),
            ),
        },
    ),
    claims=Claim(
        says="with few data rejection takes longer",
        figure="time of Training-1 rs/snis",
        above=1.0,
        where={"size": 500},
    ),
    **GAM,
)


def names(result: Mapping[str, Any]) -> dict[str, str]:
    """Features, by name."""
    return {name: name for name in result["features"]}


def examples(results: Sequence[Result]) -> list[Row]:
    """One string of each model."""
    [(_, result)] = results
    return [
        Row(name="example", settings={"model": who.replace("P_λ", "P"), "text": text}, value=None, low=None, high=None)
        for who, (text, *_) in result["examples"].items()
    ]


def moment_lines(rows: Sequence[Row]) -> list[Panel]:
    """Moments of each feature, in the order of ft."""
    lines = []
    for who in ("truth", "r", "π"):
        own = [row for row in rows if row.name.startswith("moment of") and row.settings.get("model") == who]
        ends = [[getattr(row, end) or 0.0 for row in own] for end in ("value", "low", "high")]
        places = [float(place) for place in range(1, len(own) + 1)]
        lines.append(Line(name=who, x=places, y=ends[0], low=ends[1], high=ends[2], dashed=who == "truth"))
    return [Panel(title="Feature moments", x_label="feature, in the order of ft", y_label="mean", lines=lines)]


# The authors' own figures for this run.
RUN = {
    "cross-entropy of r": 0.5646, "cross-entropy of P": 0.4662, "cross-entropy of π": 0.4689, "entropy": 0.4491,
    "motif frequency of r": 0.045, "motif frequency of π": 0.9595, "mean length of r": 27.8, "mean length of π": 30.7,
}  # fmt: skip
OF_MODELS: dict[str, Any] = {"model": {"r": "r", "π": "π"}, "feature": names}
TABLE2 = Recipe(
    title="One run by the authors' settings: motif 10001011111000, ft 1001111, |D| = 5000, λ by rejection",
    source=f"{PAPER}, Table 2, and the authors' recorded run",
    # At scale cpu π, which learns from 25,000 strings, has fewer epochs.
    grid=gam_grid(
        {"size": {"demo": (60,), "cpu": (5000,), "paper": (5000,)}},
        matching="rs",
        student_epochs={"demo": None, "cpu": 15, "paper": None},
    ),
    figures=[
        Figures(
            *(replace(one, paper=(RUN.get(one.name),)) for one in (ENTROPY, *STANDARD)),
            Figure(
                name="λ of {feature}",
                at="lambda.0.{feature}",
                each={"feature": names},
                paper=(-10.09, -0.151, -0.062, 0.0, -0.142),
            ),
            Figure(name="moment of {feature}", at="moments.{model}.{feature}", each=OF_MODELS),
            Figure(
                name="moment of {feature}",
                at="moments.language.{feature}",
                each={"feature": names},
                about={"model": "truth"},
                exact=True,
            ),
            by=(),
        ),
        examples,
    ],
    tables=[
        Layout(rows=("figure",), columns=(), figures=("entropy", *(one.name for one in STANDARD), "λ of*")),
        Layout(rows=("figure",), columns=("model",), figures=("moment of*",), caption="Moments of the features:"),
    ],
    plots=moment_lines,
    claims=[
        Claim(says="π has the motif in most strings", figure="motif frequency of π", above=0.5),
        Claim(says="r seldom has the motif", figure="motif frequency of r", below=0.1),
    ],
    **GAM,
)


def deviation(name: str, settings: Mapping[str, Any], values: list[float]) -> Row:
    """The mean ± one standard deviation, as in the paper's table."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Row(name=name, settings=settings, value=mean, low=mean - spread, high=mean + spread)


def extremes(name: str, settings: Mapping[str, Any], values: list[float]) -> Row:
    """The mean, the least and the greatest, as in the paper's table."""
    return Row(name=name, settings=settings, value=math.fsum(values) / len(values), low=min(values), high=max(values))


def spread_over_runs(row: Row, cells: Sequence[Cell]) -> str:
    """What stands in place of an interval."""
    what = "least and greatest" if row.name == "motif frequency π/r" else "± one standard deviation"
    return f"no interval: {what} of {row.settings['runs']} runs, each with its own motif and features"


def all_motifs(motifs: int, *sets: str) -> list[dict[str, Any]]:
    """Pure languages with each set of features, and mixtures."""
    pure = [{"language": "m", "motif": motif, "ft": ft} for motif in PURE[:motifs] for ft in sets]
    return [*pure, *({"language": "mam", "motif": motif, "presence": 0.9} for motif in MIXED[:motifs])]


def cost_ratio(result: Mapping[str, Any]) -> float:
    """CE(r)/CE(π)."""
    return float(cost("r")(result)["value"] / cost("π")(result)["value"])


def frequency_ratio(result: Mapping[str, Any]) -> float:
    """How much oftener π has the motif than r, of which 2,000 draws may have none."""
    r, student = (float(of(letter, "motif_frequency")(result)["value"]) for letter in "rπ")
    return student / max(r, 1 / 2000)


COUNTED: dict[str, Any] = {"about": lambda runs: {"runs": len(runs)}}
TABLE3 = Recipe(
    title="Overall statistics over motifs and feature sets",
    source=f"{PAPER}, Table 3",
    # At scale cpu one feature set for each motif, and λ by newton, where rejection would take hours.
    grid=gam_grid(
        {
            "size": {"demo": (60,), "cpu": (500,), "paper": SIZES},
            "motif": {
                "demo": all_motifs(1, "1001111"),
                "cpu": all_motifs(5, "1001111"),
                "paper": all_motifs(5, "1001111", "1011111", "0111111"),
            },
        },
        matching={"demo": "newton", "cpu": "newton", "paper": "rs"},
    ),
    run=run_cell,
    **ratios(
        "language",
        "1",
        [
            Figure(name="CE(r)/CE(π)", at=cost_ratio, summary=deviation, **COUNTED),
            replace(STANDARD[4], summary=deviation, **COUNTED),
            Figure(name="motif frequency π/r", at=frequency_ratio, summary=extremes, **COUNTED),
        ],
        {
            "m": (
                ("1.24 ± 0.07", "1.24 ± 0.07", "1.18 ± 0.08", "1.08 ± 0.1", "0.99 ± 0.01"),
                ("1.19 ± 0.07", "1.16 ± 0.07", "1.09 ± 0.05", "1.04 ± 0.02", "1.02 ± 0.01"),
                ("32 … 392", "23.87 … 653.33", "3.59 … 206.67", "0.89 … 196", "0.81 … 1.76"),
            ),
            "mam": (
                ("1.23 ± 0.03", "1.21 ± 0.03", "1.16 ± 0.05", "1.02 ± 0.03", "0.99 ± 0"),
                ("1.16 ± 0.03", "1.14 ± 0.03", "1.08 ± 0.04", "1.04 ± 0.03", "1.02 ± 0"),
                ("59.26 … 433.33", "26.29 … 233.33", "7.32 … 130", "1 … 4.97", "0.85 … 1.04"),
            ),
        },
        drawn=2,
    ),
    claims=Claim(says="π has a lower cross-entropy than r", figure="CE(r)/CE(π)", above=1.0),
    reading=replace(READING, items=spread_over_runs),
)


def time(result: Mapping[str, Any]) -> float:
    """Of all stages but the training of r."""
    return math.fsum(float(seconds) for stage, seconds in result["seconds"].items() if stage != "r")


STAGED: dict[str, Any] = {"where": {"regime": "two_stage"}, "over": {"regime": "cyclical"}}
TABLE4 = Recipe(
    title="Two-stage against cyclical training, motif 10001011111000, ft 1001111",
    source=f"{PAPER}, Table 4",
    grid=gam_grid(
        {
            "size": SOME_SIZES,
            "matching": {"demo": ["snis"], "cpu": ["rs", "snis"], "paper": ["rs", "snis"]},
            "regime": ["two_stage", "cyclical"],
        },
        seeds=SEEDS,
    ),
    **ratios(
        "matching",
        "equal",
        [
            Figure(name="cross-entropy two-stage/cyclical", at=cost("π"), **STAGED),
            Figure(name="time two-stage/cyclical", at=time, **STAGED),
        ],
        {
            "rs": ((1.02, 1.0, 1.04, 0.98, 0.99), (1.21, 1.48, 0.57, 1.47, 2.65)),
            "snis": ((1.02, 1.08, 1.0, 1.02, 1.0), (1.51, 2.04, 0.57, 0.45, 0.28)),
        },
    ),
    **GAM,
)
