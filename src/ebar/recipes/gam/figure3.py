"""Document 000, Figure 3: cyclical training."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import MOTIF

RECIPE = figure(
    "Cyclical training against |D|",
    "document 000, Figure 3",
    [Setting(motif=MOTIF, ft="1001111", regime="cyclical")],
    moments=True,
)
