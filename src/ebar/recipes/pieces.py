"""What a recipe is made of, to be had from one place: runs, figures, tables, plots, claims."""

from ebar.recipes.claims import Claim
from ebar.recipes.figures import Figure, Figures
from ebar.recipes.grid import Grid
from ebar.recipes.layout import Curves, Layout, Points, layouts
from ebar.recipes.recipe import Caption, Cell, Recipe, Result, Row

__all__ = [
    "Caption", "Cell", "Claim", "Curves", "Figure", "Figures", "Grid", "Layout", "Points", "Recipe", "Result", "Row",
    "layouts",
]  # fmt: skip
