"""Table 9: top-K energy resampling when translating."""

from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.crossed import with_items
from ebar.recipes.earm.readings import PAIRED, Branch, difference_dots
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, SENTENCES
from ebar.recipes.earm.translation_settings import cells as all_cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

# Direction → BLEU on IWSLT14 of E-ARM, by K.
DOCUMENT = {
    "de→en": {0: 34.86, 5: 34.93, 10: 34.88}, "en→de": {0: 28.73, 5: 28.85, 10: 28.91},
    "en→it": {0: 29.91, 5: 30.04, 10: 29.96}, "it→en": {0: 32.44, 5: 32.56, 10: 32.41},
    "es→en": {0: 40.88, 5: 41.01, 10: 40.90}, "en→es": {0: 37.59, 5: 37.66, 10: 37.73},
}  # fmt: skip
SYSTEMS = {"E-ARM": "earm", "base": "base"}
FIGURE = "BLEU"


def cells(scale: str) -> list[Cell]:
    """Those of Table 1 in which resampling is measured."""
    return all_cells(scale, variants=("label smoothing",))


def figures(results: Sequence[Result]) -> list[Row]:
    """K = 0 is the best of beam 5; each K beside it, paired."""
    rows = []
    for (direction,), runs in grouped(results, ("direction",)).items():
        for system, branch in SYSTEMS.items():
            told = DOCUMENT.get(direction, {}) if system == "E-ARM" else {}
            values: dict[int, list[float]] = {}
            for k in (0, *runs[0][0]["candidates"]):
                trees = [resampled(result["branches"][branch], k) for _, result in runs]
                values[k] = [float(tree["value"]) for tree in trees]
                settings = {"direction": direction, "system": system, "K": str(k)}
                single = as_estimate(trees[0])
                row = over_seeds(FIGURE, settings, values[k], single=single, document=told.get(k))
                rows.append(with_items(row, single, SENTENCES))
            for k in runs[0][0]["candidates"]:
                differences = [one - none for one, none in zip(values[k], values[0], strict=True)]
                settings = {"direction": direction, "system": system, "K": f"{k} − 0"}
                document = round(told[k] - told[0], 2) if k in told else None
                rows.append(over_seeds(FIGURE + PAIRED, settings, differences, document=document))
    return rows


def resampled(branch: Branch, k: int) -> Mapping[str, Any]:
    """BLEU of one of the K best, drawn by its energy."""
    found: Mapping[str, Any] = branch["bleu"]["5"] if k == 0 else branch["resampling"][str(k)]
    return found


def panels(rows: Sequence[Row]) -> list[Dots]:
    """What resampling changes."""
    return [difference_dots(rows, "K resampled − beam 5, paired over seeds", "BLEU", "system", "K")]


RECIPE = Experiment(
    title="Top-K energy resampling in translation",
    source="document 003, Table 9 (IWSLT14); the runs of earm/table1",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=READING,
)
