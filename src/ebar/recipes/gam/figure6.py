"""Document 000, Figure 6: pure D, motif as features, motifs of all rarities."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import PURE

RECIPE = figure(
    "Pure D, features motif: motifs of all rarities",
    "document 000, Figure 6",
    [Setting(motif=motif, ft="1001111") for motif in PURE],
    moments=True,
)
