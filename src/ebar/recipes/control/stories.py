"""A word that must occur, and one that half of all stories are to have, on a language model of 260,000 weights."""

from functools import partial

from ebar.recipes.control.readings import READING, figures, notes, panels
from ebar.recipes.control.run import run_cell
from ebar.recipes.control.settings import cells
from ebar.recipes.experiment import Experiment

RECIPE = Experiment(
    title="Control of a small story-teller: a pointwise and a distributional constraint",
    source="ebar's own, after Khalifa et al. 2021 (arXiv:2012.11635)",
    cells=partial(cells, "stories"),
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    reading=READING,
)
