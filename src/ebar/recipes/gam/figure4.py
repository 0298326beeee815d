"""Document 000, Figure 4: pure D, supermotif and submotif as features, motifs of all rarities."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import PURE

RECIPE = figure(
    "Pure D, features supermotif and submotif: motifs of all rarities",
    "document 000, Figure 4",
    [Setting(motif=motif, ft="0111111") for motif in PURE],
    moments=True,
)
