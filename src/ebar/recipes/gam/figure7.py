"""Document 000, Figure 7: mixture D, the motif as feature, motifs of all rarities."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import MIXED

RECIPE = figure(
    "Mixture D, feature motif: motifs of all rarities",
    "document 000, Figure 7",
    [Setting(motif=motif, ft="1001111", presence=0.9) for motif in MIXED],
    moments=True,
)
