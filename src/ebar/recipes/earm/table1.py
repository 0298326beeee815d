"""Table 1: BLEU with and without E-ARM, on top of label smoothing and scheduled sampling, greedy and by beam."""

from collections.abc import Sequence
from typing import Any

from ebar.recipes.crossed import with_items
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, SENTENCES, cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

METHODS = {"1": "greedy", "5": "beam 5"}
# de→en: variant, branch, width → BLEU on IWSLT14.
DOCUMENT = {
    ("base", "base", "1"): 32.44, ("base", "base", "5"): 33.62, ("base", "earm", "1"): 32.99,
    ("base", "earm", "5"): 34.06, ("label smoothing", "base", "1"): 33.68, ("label smoothing", "base", "5"): 34.61,
    ("label smoothing", "earm", "1"): 33.97, ("label smoothing", "earm", "5"): 34.93,
    ("scheduled sampling", "base", "1"): 34.23, ("scheduled sampling", "base", "5"): 35.10,
    ("scheduled sampling", "earm", "1"): 34.58, ("scheduled sampling", "earm", "5"): 35.36,
}  # fmt: skip
DIFFERENCE = "BLEU, E-ARM − without, paired"


def figures(results: Sequence[Result]) -> list[Row]:
    """BLEU of both branches, their paired difference, and held-out cost."""
    rows = []
    for (direction, variant), runs in grouped(results, ("direction", "variant")).items():
        found = [result for _, result in runs]
        for width, method in METHODS.items():
            settings: dict[str, Any] = {"direction": direction, "variant": variant, "decoding": method}
            scores = {
                name: [float(one["branches"][name]["bleu"][width]["value"]) for one in found]
                for name in ("base", "earm")
            }
            for name, values in scores.items():
                told = DOCUMENT.get((variant, name, width)) if direction == "de→en" else None
                single = as_estimate(found[0]["branches"][name]["bleu"][width])
                label = "BLEU" if name == "base" else "BLEU with E-ARM"
                row = over_seeds(label, settings, values, single=single, document=told)
                rows.append(with_items(row, single, SENTENCES))
            differences = [twin - base for base, twin in zip(scores["base"], scores["earm"], strict=True)]
            single = as_estimate(found[0]["difference"][width])
            told = _told(variant, width) if direction == "de→en" else None
            row = over_seeds(DIFFERENCE, settings, differences, single=single, document=told)
            rows.append(with_items(row, single, SENTENCES))
        settings = {"direction": direction, "variant": variant, "decoding": None}
        costs = [
            float(one["branches"]["earm"]["nats_per_token"]["value"])
            - float(one["branches"]["base"]["nats_per_token"]["value"])
            for one in found
        ]
        rows.append(over_seeds("test nats per token, E-ARM − without, paired", settings, costs))
    return rows


def _told(variant: str, width: str) -> float:
    return round(DOCUMENT[variant, "earm", width] - DOCUMENT[variant, "base", width], 2)


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    wanted = [row for row in rows if row.name == DIFFERENCE]
    named = {f"{row.settings['variant']}, {row.settings['decoding']}": as_dot(row) for row in wanted}
    return [Dots(title="E-ARM − without, paired over seeds", x_label="BLEU", rows=named)]


RECIPE = Experiment(
    title="Translation with and without E-ARM: label smoothing, scheduled sampling, greedy and beam search",
    source="document 003, Table 1 (IWSLT14); at scale cpu 20,000 pairs of Tatoeba, de→en",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=READING,
)
