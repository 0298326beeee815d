"""Document 000, Figure 2: two-stage training, four settings."""

from ebar.recipes.gam.figures import Setting, figure
from ebar.recipes.gam.settings import MOTIF

RECIPE = figure(
    "Cross-entropy and motif frequency against |D|, two-stage training",
    "document 000, Figure 2",
    [
        Setting(motif="001001100111", ft="0111111"),
        Setting(motif="1011100111001", ft="1011111"),
        Setting(motif=MOTIF, ft="1001111"),
        Setting(motif=MOTIF, ft="1001111", presence=0.9),
    ],
    moments=False,
)
