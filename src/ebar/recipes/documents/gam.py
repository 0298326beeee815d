"""Parshakova et al. 2019: global autoregressive models."""

from ebar.recipes.documents.entry import Document, Entry, illustration

RARITY = "over motifs of all rarities, π is better than r in cross-entropy and motif frequency where data are few"
GAM = Document(
    title="Parshakova et al. 2019, Global Autoregressive Models for Data-Efficient Sequence Learning",
    entries=(
        illustration("Figure 1", "two-stage training, as a diagram"),
        Entry(
            place="Figure 2", recipe="gam/figure2",
            says="with few data π is far better than r in cross-entropy and motif frequency, near the true entropy "
            "where the motif is a feature; the gap closes as |D| grows",
        ),
        Entry(
            place="Table 1", recipe="gam/table1",
            says="λ by rejection and by importance sampling are equally good; rejection takes 2 to 5 times as long "
            "with few data, equally long with many",
        ),
        Entry(
            place="Table 2", recipe="gam/table2",
            says="one run: r has the motif in 0.045 of its strings, π in 0.96; λ of the motif is −10, those of "
            "distractors near 0; π's cross-entropy, 0.469, is near the true entropy, 0.449",
        ),
        Entry(
            place="Table 3", recipe="gam/table3",
            says="over motifs and feature sets CE(r)/CE(π) falls from 1.24 at 500 strings to 0.99 at 20,000",
        ),
        Entry(
            place="Table 4", recipe="gam/table4",
            says="cyclical training is as good as two-stage training; which is faster depends on |D| (ratios of time "
            "0.28 to 2.65)",
        ),
        Entry(place="Figure 3", recipe="gam/figure3", says="cyclical training gives curves like those of two stages"),
        Entry(place="Figure 4", recipe="gam/figure4", says=f"with supermotif and submotif as features, {RARITY}"),
        Entry(place="Figure 5", recipe="gam/figure5", says=f"with motif and submotif as features, {RARITY}"),
        Entry(place="Figure 6", recipe="gam/figure6", says=f"with the motif alone as a feature, {RARITY}"),
        Entry(
            place="Figure 7", recipe="gam/figure7",
            says=f"of mixtures of strings with and without the motif, {RARITY}",
        ),
        Entry(
            place="Figure 2 (c) and Table 3, with less data", recipe="gam/data_efficiency",
            says="the fewer the data, the more π gains over r; here down to 50 strings, with a tuned r too",
        ),
        Entry(
            place="equations 2 and 3", recipe="gam/conditional",
            says="λ may depend on the context (stated, no experiment)",
        ),
        Entry(
            place="equation 2, on translations", recipe="gam/translation",
            says="features of a translation given its source help an r that is an encoder–decoder (no experiment)",
        ),
        Entry(
            place="footnote 4", recipe="gam/cryptographic",
            says="of a cryptographic predicate P_λ can make use and no autoregressive π can (stated, no experiment)",
        ),
    ),
)  # fmt: skip
