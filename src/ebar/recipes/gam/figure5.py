"""Document 000, Figure 5: pure D, motif and submotif as features, motifs of all rarities."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import PURE

RECIPE = figure(
    "Pure D, features motif and submotif: motifs of all rarities",
    "document 000, Figure 5",
    [Setting(motif=motif, ft="1011111") for motif in PURE],
    moments=True,
)
