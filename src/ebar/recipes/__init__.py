"""Published tables and figures, each one file, at three scales: demo, cpu, paper.

A line in RECIPES puts a recipe in `ebar reproduce` and in the tests.
"""

# Name → the module that holds it as `RECIPE`; imported only when it is run.
RECIPES = {
    "spine/samplers": "ebar.recipes.spine.samplers",
    "gam/data_efficiency": "ebar.recipes.gam.data_efficiency",
}

SCALES = ("demo", "cpu", "paper")
