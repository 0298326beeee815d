"""Deng et al. 2020: residual energy-based models for text generation, as slides, which number nothing."""

from ebar.recipes.documents.entry import Document, Entry, illustration

RESIDUAL = Document(
    title="Deng et al. 2020, Residual Energy-Based Models for Text Generation (slides)",
    note="Tables, plots and lists of the slides by the titles of these.",
    entries=(
        illustration("“Great Progress”", "a continuation by a large language model"),
        Entry(
            place="“Can we simply search for text considered real?”", recipe="residual/energies",
            says="a search by the discriminator alone ends in text that is far from any it was trained on",
        ),
        Entry(
            place="Algorithm 1", recipe="residual/top_k",
            says="draws of the base by top-k, resampled by their energies",
        ),
        Entry(
            place="“Estimated Perplexities”", recipe="residual/perplexity",
            says="joint models have a lower perplexity than the base, RALM and BALM: on CC-News 14.89, 13.81 with "
            "UniT, 12.38 with BiT-Med, 12.10 with the pretrained BiT-Large*",
        ),
        Entry(
            place="“Limitation of Perplexity Estimation”", recipe="residual/bounded",
            says="there is no guarantee that 100,000 draws suffice for Z",
        ),
        Entry(
            place="“Per-Step Perplexity”", recipe="residual/per_step",
            says="at the last step, where the estimate is exact, the joint model has the lower perplexity",
        ),
        illustration("“Does better PPL lead to better generations?”", "a page for judges"),
        Entry(
            place="“Human Evaluation”",
            says="judges prefer BALM to the base (54.85 %), BiT-Med to BALM (56.23 %), people to BiT-Large* (55.21 %)",
            why="needs judges: `ebar rate make` writes pages for them, `ebar rate read` reads them",
        ),
        Entry(
            place="“Energy Distribution”", recipe="residual/energies",
            says="energies of the joint model's text are distributed as those of data, the base's are not",
        ),
        Entry(
            place="“Given a prefix, check P(xₜ|x₍<t₎)”", recipe="residual/repetition",
            says="the base's likeliest next words repeat those of the text, the joint model's less",
        ),
        Entry(
            place="“… Our model P_joint”, the texts", recipe="residual/samples",
            says="the ten likeliest next words of base and joint model after two texts",
        ),
        Entry(
            place="“Unique Ratio of Ngrams”", recipe="residual/ngrams",
            says="the joint model's text has more unique n-grams than the base's, data most",
        ),
        Entry(
            place="“Are generations from P_joint harder to discriminate?”", recipe="residual/fooling",
            says="a fresh discriminator takes 31.8 % of the joint model's texts for real, 17.8 % of the base's; its "
            "accuracy falls from 89.9 to 82.9 %",
        ),
        Entry(
            place="“Limitations”, generation", recipe="residual/samplers",
            says="generation is expensive: would other samplers, such as Metropolis–Hastings, do? (a question)",
        ),
        Entry(
            place="“Limitations”, the generator", recipe="residual/distilled",
            says="the base is fixed: could it be updated too? (a question)",
        ),
    ),
)  # fmt: skip
