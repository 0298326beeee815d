"""The papers, and what ebar asks on its own account.

Parshakova et al. 2019: global autoregressive models.
Wang et al. 2022: E-ARM, later called E-Forcing.
Deng et al. 2020: residual energy-based models for text generation, as slides, which number nothing.
Last, what ebar asks with the methods of these documents.
"""

from ebar.recipes.documents.entry import Document, Entry, illustration, settings

RARITY = "over motifs of all rarities, π is better than r in cross-entropy and motif frequency where data are few"
GAM = Document(
    title="Parshakova et al. 2019, Global Autoregressive Models for Data-Efficient Sequence Learning",
    entries=(
        illustration("Figure 1", "two-stage training, as a diagram"),
        Entry("Figure 2", "gam/figure2",
              "with few data π is far better than r in cross-entropy and motif frequency, near the true entropy "
              "where the motif is a feature; the gap closes as |D| grows"),
        Entry("Table 1", "gam/table1",
              "λ by rejection and by importance sampling are equally good; rejection takes 2 to 5 times as long with "
              "few data, equally long with many"),
        Entry("Table 2", "gam/table2",
              "one run: r has the motif in 0.045 of its strings, π in 0.96; λ of the motif is −10, those of "
              "distractors near 0; π's cross-entropy, 0.469, is near the true entropy, 0.449"),
        Entry("Table 3", "gam/table3",
              "over motifs and feature sets CE(r)/CE(π) falls from 1.24 at 500 strings to 0.99 at 20,000"),
        Entry("Table 4", "gam/table4",
              "cyclical training is as good as two-stage training; which is faster depends on |D| (ratios of time "
              "0.28 to 2.65)"),
        Entry("Figure 3", "gam/figure3", "cyclical training gives curves like those of two stages"),
        Entry("Figure 4", "gam/figure4", f"with supermotif and submotif as features, {RARITY}"),
        Entry("Figure 5", "gam/figure5", f"with motif and submotif as features, {RARITY}"),
        Entry("Figure 6", "gam/figure6", f"with the motif alone as a feature, {RARITY}"),
        Entry("Figure 7", "gam/figure7", f"of mixtures of strings with and without the motif, {RARITY}"),
        Entry("Figure 2 (c) and Table 3, with less data", "gam/data_efficiency",
              "the fewer the data, the more π gains over r; here down to 50 strings, with a tuned r too"),
        Entry("equations 2 and 3", "gam/conditional", "λ may depend on the context (stated, no experiment)"),
        Entry("equation 2, with an encoder–decoder", "gam/translation",
              "r may be a sequence-to-sequence model and features may look at the source (stated, no experiment)"),
        Entry("footnote 4", "gam/cryptographic",
              "of a cryptographic predicate P_λ can make use and no autoregressive π can (stated, no experiment)"),
    ),
)  # fmt: skip
FORCING = Document(
    title="E-Forcing (the later version of the same paper)",
    note="What there is of it, abstract and introduction, has neither table nor figure. Its claims (better "
    "translation, language models and images, less exposure bias, more coherence) are those of the tables below.",
    entries=(),
)
EARM = Document(
    title="Wang et al. 2022, E-ARM: autoregressive models as their own energy-based models",
    entries=(
        Entry("Table 1", "earm/table1",
              "E-ARM raises BLEU on six directions of IWSLT14, by 0.62 alone and by 0.34 on top of label smoothing, "
              "scheduled sampling and beam search"),
        Entry("Table 1, on other data", "earm/tatoeba", "the same question on all of Tatoeba, German to English"),
        Entry("Table 2", "earm/table2",
              "E-ARM raises BLEU on WMT16, English to German, by 0.2 to 0.3, at both sizes of model"),
        Entry("Table 3, Transformer", "earm/table3", "E-ARM lowers the perplexity on WikiText-103 from 30.56 to 29.89"),
        Entry("Table 3, Transformer-XL", "earm/table3_xl", "… from 24.20 to 23.81 (called 0.20 in the text)"),
        Entry("Table 4", "earm/table4",
              "λ 0.05 from epoch 15 of 40 is best; earlier, later, smaller and larger are worse"),
        Entry("Table 5", "earm/table5",
              "E-ARM needs fewer bits per dimension on MNIST (0.17 to 0.15; gated 0.14 to 0.12) and on CIFAR-10 "
              "(3.14 to 3.07; 3.03 to 2.97)"),
        Entry("Figure 1", "earm/figure1", "images of CIFAR-10 drawn from a Gated PixelCNN with E-ARM"),
        settings("Table 6", "settings of all models", "earm"),
        Entry("Table 7", "earm/table7",
              "E-ARM gains most on long sentences (+0.35 BLEU from 50 words on, +0.17 and +0.16 below)"),
        Entry("Table 8", "earm/table8",
              "after the model's own decoding 60 to 68 % of true words are likelier under E-ARM"),
        Entry("Table 9", "earm/table9", "resampling 5 or 10 candidates by energy raises BLEU by at most 0.18"),
        Entry("Table 10", "earm/table10", "E-ARM raises ROUGE, METEOR and BLEU on top of scheduled sampling"),
        Entry("Figure 2", "earm/figure2", "the baseline's test loss rises after 50 epochs, that of E-ARM does not"),
        Entry("Table 11", "earm/table11",
              "an update takes 5.3 times as long with E-ARM as without, with 20 steps of Langevin dynamics 23 times"),
        Entry("Table 12", "earm/cases", "translations in which E-ARM errs on fewer words"),
        Entry("equation 11, footnote 4", "earm/recent",
              "the gradient goes through the two most recent factors alone (no figures)"),
        Entry("section 4", "earm/without_ce",
              "the contrastive term alone does not train a model from scratch (no figures)"),
    ),
)  # fmt: skip
RESIDUAL = Document(
    title="Deng et al. 2020, Residual Energy-Based Models for Text Generation (slides)",
    note="Tables, plots and lists of the slides by the titles of these.",
    entries=(
        illustration("“Great Progress”", "a continuation by a large language model"),
        Entry("“Can we simply search for text considered real?”", "residual/energies",
              "a search by the discriminator alone ends in text that is far from any it was trained on"),
        Entry("Algorithm 1", "residual/top_k", "draws of the base by top-k, resampled by their energies"),
        Entry("“Estimated Perplexities”", "residual/perplexity",
              "joint models have a lower perplexity than the base, RALM and BALM: on CC-News 14.89, 13.81 with UniT, "
              "12.38 with BiT-Med, 12.10 with the pretrained BiT-Large*"),
        Entry("… and by the size of the energy", "residual/sizes",
              "larger energies lower it more, and UniT that reads as the base does lowers it already"),
        Entry("“Limitation of Perplexity Estimation”", "residual/bounded",
              "there is no guarantee that 100,000 draws suffice for Z"),
        Entry("“Per-Step Perplexity”", "residual/per_step",
              "at the last step, where the estimate is exact, the joint model has the lower perplexity"),
        illustration("“Does better PPL lead to better generations?”", "a page for judges"),
        Entry("“Human Evaluation”", None,
              "judges prefer BALM to the base (54.85 %), BiT-Med to BALM (56.23 %), people to BiT-Large* (55.21 %)",
              why="needs judges: `ebar rate make` writes pages for them, `ebar rate read` reads them"),
        Entry("“Energy Distribution”", "residual/energies",
              "energies of the joint model's text are distributed as those of data, the base's are not"),
        Entry("“Given a prefix, check P(xₜ|x₍<t₎)”", "residual/repetition",
              "the base's likeliest next words repeat those of the text, the joint model's less"),
        Entry("“… Our model P_joint”, the texts", "residual/samples",
              "the ten likeliest next words of base and joint model after two texts"),
        Entry("“Unique Ratio of Ngrams”", "residual/ngrams",
              "the joint model's text has more unique n-grams than the base's, data most"),
        Entry("“Are generations from P_joint harder to discriminate?”", "residual/fooling",
              "a fresh discriminator takes 31.8 % of the joint model's texts for real, 17.8 % of the base's; its "
              "accuracy falls from 89.9 to 82.9 %"),
        Entry("“Limitations”, generation", "residual/samplers",
              "generation is expensive: would other samplers, such as Metropolis–Hastings, do? (a question)"),
        Entry("“Limitations”, the generator", "residual/distilled",
              "the base is fixed: could it be updated too? (a question)"),
    ),
)  # fmt: skip
BEYOND = Document(
    title="Questions of ebar's own about these methods",
    says="is it so?",
    entries=(
        Entry("E-ARM and GAM on one language", "earm/motif",
              "E-ARM and the π of a GAM lower the exact cross-entropy of r"),
        Entry("XLNet as an energy", "residual/xlnet",
              "an XLNet as the energy of a residual model lowers its perplexity"),
        Entry("Labels and pretraining", "xlnet/labels", "pretraining raises the accuracy, most with few labels"),
        Entry("Orders", "xlnet/orders", "a network that learnt only from left to right is worse at random orders"),
        Entry("Dynamic evaluation of a pretrained model", "mos/dynamic",
              "learning from what it has read lowers the perplexity of SmolLM2-135M on novels"),
        Entry("Distributional policy gradient", "gam/policy_gradient",
              "π by policy gradient against π by distillation, at equal numbers of draws"),
        Entry("Densities of images", "images/logistic_mixture",
              "a mixture of logistics needs fewer bits than a softmax over 256 levels"),
        Entry("Control of a small model", "control/stories",
              "moments are met by a tuned model, with few draws by way of the look-ahead"),
        Entry("Tuning that arrives", "control/tuning",
              "the moments of a tuned model are those asked for, by policy gradient or by distillation"),
        Entry("Rewards", "control/reward",
              "p ∝ q·e^(r/β) has at its KL the largest expected reward there is, and best-of-n comes near"),
        Entry("Grammars", "control/grammar",
              "every text is valid JSON of the schema, and weights undo what masking bends"),
        Entry("Control of SmolLM2-135M", "control/smollm2", "the same of a larger one"),
        Entry("Samplers", "spine/samplers", "every sampler comes nearer to an enumerable target with more draws"),
        Entry("Intervals", "spine/coverage", "95 % intervals hold the truth as often as they say"),
    ),
)  # fmt: skip
