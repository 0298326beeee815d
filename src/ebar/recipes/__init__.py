"""Published tables and figures, each one file, at three scales: demo, cpu, paper.

A line in RECIPES puts a recipe in `ebar reproduce` and in the tests.
"""

# Name → the module that holds it as `RECIPE`; imported only when it is run.
RECIPES = {
    "spine/samplers": "ebar.recipes.spine.samplers",
    "spine/coverage": "ebar.recipes.spine.coverage",
    "gam/data_efficiency": "ebar.recipes.gam.data_efficiency",
    "gam/table1": "ebar.recipes.gam.table1",
    "gam/table2": "ebar.recipes.gam.table2",
    "gam/table3": "ebar.recipes.gam.table3",
    "gam/table4": "ebar.recipes.gam.table4",
    "gam/figure2": "ebar.recipes.gam.figure2",
    "gam/figure3": "ebar.recipes.gam.figure3",
    "gam/figure4": "ebar.recipes.gam.figure4",
    "gam/figure5": "ebar.recipes.gam.figure5",
    "gam/figure6": "ebar.recipes.gam.figure6",
    "gam/figure7": "ebar.recipes.gam.figure7",
    "gam/policy_gradient": "ebar.recipes.gam.policy_gradient",
    "gam/conditional": "ebar.recipes.gam.conditional",
    "gam/cryptographic": "ebar.recipes.gam.cryptographic",
    "earm/tatoeba": "ebar.recipes.earm.tatoeba",
    "earm/table1": "ebar.recipes.earm.table1",
    "earm/table3": "ebar.recipes.earm.table3",
    "earm/table4": "ebar.recipes.earm.table4",
    "earm/table5": "ebar.recipes.earm.table5",
    "earm/figure1": "ebar.recipes.earm.figure1",
    "earm/motif": "ebar.recipes.earm.motif",
    "earm/table2": "ebar.recipes.earm.table2",
    "earm/table7": "ebar.recipes.earm.table7",
    "earm/table8": "ebar.recipes.earm.table8",
    "earm/table9": "ebar.recipes.earm.table9",
    "earm/table10": "ebar.recipes.earm.table10",
    "earm/table11": "ebar.recipes.earm.table11",
    "earm/figure2": "ebar.recipes.earm.figure2",
    "earm/cases": "ebar.recipes.earm.cases",
    "earm/recent": "ebar.recipes.earm.recent",
    "earm/without_ce": "ebar.recipes.earm.without_ce",
    "residual/perplexity": "ebar.recipes.residual.perplexity",
    "residual/bounded": "ebar.recipes.residual.bounded",
    "residual/per_step": "ebar.recipes.residual.per_step",
    "residual/samples": "ebar.recipes.residual.samples",
    "residual/energies": "ebar.recipes.residual.energies",
    "residual/ngrams": "ebar.recipes.residual.ngrams",
    "residual/fooling": "ebar.recipes.residual.fooling",
    "residual/distilled": "ebar.recipes.residual.distilled",
    "control/stories": "ebar.recipes.control.stories",
    "control/smollm2": "ebar.recipes.control.smollm2",
}

SCALES = ("demo", "cpu", "paper")
