"""One translation model on all of Tatoeba, and its E-ARM twin."""

from ebar.recipes.earm.table1 import figures, panels
from ebar.recipes.earm.translation import run_cell
from ebar.recipes.earm.translation_settings import READING, cell_for
from ebar.recipes.experiment import Experiment
from ebar.recipes.recipe import Cell

# Batches are small because few passes over the data are all there is time for.
LARGER = {
    "pairs": None, "test_pairs": None, "vocabulary": 4000, "layers": 2, "hidden": 192, "feedforward": 768,
    "tokens": 2048, "epochs": 5, "start_epoch": 4, "learning_rate": 2e-3, "warmup": 500,
}  # fmt: skip


def cells(scale: str) -> list[Cell]:
    """One seed: the interval is over the test sentences."""
    more = LARGER if scale == "cpu" else {}
    return [cell_for(scale, variant="label smoothing", direction="de→en", seed=0, **more)]


RECIPE = Experiment(
    title="A translation model on all of Tatoeba, de→en, and its E-ARM twin",
    source="ebar's own; the setting of document 003, Table 1",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=READING,
)
