"""Table 10: ROUGE, METEOR and BLEU with and without E-ARM."""

from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.earm.readings import Branch, compared, difference_dots
from ebar.recipes.earm.table7 import cells
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.report.plots import Dots

# Name of a metric → its key in a run; METEOR where WordNet was there.
METRICS = {"ROUGE-1": "ROUGE-1", "ROUGE-2": "ROUGE-2", "ROUGE-L": "ROUGE-L", "METEOR": "meteor", "BLEU": "bleu"}
# Direction and system → those metrics on IWSLT14.
DOCUMENT = {
    ("de→en", "base"): (66.51, 43.69, 63.69, 64.35, 34.61),
    ("de→en", "scheduled sampling"): (66.83, 44.08, 64.02, 64.61, 35.10),
    ("de→en", "scheduled sampling + E-ARM"): (67.46, 44.77, 64.78, 65.13, 35.36),
    ("it→en", "base"): (64.50, 40.65, 61.69, 62.18, 32.29),
    ("it→en", "scheduled sampling"): (64.73, 40.97, 61.94, 62.51, 32.64),
    ("it→en", "scheduled sampling + E-ARM"): (65.27, 41.51, 62.49, 62.80, 32.82),
    ("es→en", "base"): (71.10, 49.47, 68.78, 68.94, 40.64),
    ("es→en", "scheduled sampling"): (71.36, 49.53, 68.96, 69.28, 40.91),
    ("es→en", "scheduled sampling + E-ARM"): (71.91, 50.17, 69.65, 69.63, 41.58),
}


def figures(results: Sequence[Result]) -> list[Row]:
    """Each metric of the translations by beam 5."""
    rows = []
    for place, (metric, key) in enumerate(METRICS.items()):
        if key == "meteor" and not results[0][0]["meteor"]:
            continue

        def read(branch: Branch, key: str = key) -> Mapping[str, Any]:
            found: Mapping[str, Any] = branch["bleu"]["5"] if key == "bleu" else branch["overlap"][key]
            return found

        told = {key: metrics[place] for key, metrics in DOCUMENT.items()}
        rows += compared(results, metric, read, told)
    return rows


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    return [difference_dots(rows, "Paired over seeds", "points", "name", "system")]


RECIPE = Experiment(
    title="Other metrics of translation, with and without E-ARM",
    source="document 003, Table 10 (IWSLT14); the runs of earm/table1",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=READING,
)
