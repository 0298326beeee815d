"""A word that must occur, on SmolLM2-135M going on from a prompt; a few steps of tuning."""

from functools import partial

from ebar.recipes.control.readings import READING, figures, notes, panels
from ebar.recipes.control.run import run_cell
from ebar.recipes.control.settings import cells
from ebar.recipes.experiment import Experiment

RECIPE = Experiment(
    title="Control of SmolLM2-135M: a pointwise constraint",
    source="ebar's own, after Khalifa et al. 2021 (arXiv:2012.11635)",
    cells=partial(cells, "smollm2"),
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    reading=READING,
)
