"""Wang et al. 2022: E-ARM, later called E-Forcing."""

from ebar.recipes.documents.entry import Document, Entry, settings

FORCING = Document(
    title="E-Forcing (the later version of the same paper)",
    note="What there is of it, abstract and introduction, has neither table nor figure. Its claims (better "
    "translation, language models and images, less exposure bias, more coherence) are those of the tables below.",
    entries=(),
)
EARM = Document(
    title="Wang et al. 2022, E-ARM: autoregressive models as their own energy-based models",
    entries=(
        Entry(
            place="Table 1", recipe="earm/table1",
            says="E-ARM raises BLEU on six directions of IWSLT14, by 0.62 alone and by 0.34 on top of label smoothing, "
            "scheduled sampling and beam search",
        ),
        Entry(
            place="Table 1, on other data", recipe="earm/tatoeba",
            says="the same question on all of Tatoeba, German to English",
        ),
        Entry(
            place="Table 2", recipe="earm/table2",
            says="E-ARM raises BLEU on WMT16, English to German, by 0.2 to 0.3, at both sizes of model",
        ),
        Entry(
            place="Table 3, Transformer", recipe="earm/table3",
            says="E-ARM lowers the perplexity on WikiText-103 from 30.56 to 29.89",
        ),
        Entry(
            place="Table 3, Transformer-XL", recipe="earm/table3_xl",
            says="… from 24.20 to 23.81 (called 0.20 in the text)",
        ),
        Entry(
            place="Table 4", recipe="earm/table4",
            says="λ 0.05 from epoch 15 of 40 is best; earlier, later, smaller and larger are worse",
        ),
        Entry(
            place="Table 5", recipe="earm/table5",
            says="E-ARM needs fewer bits per dimension on MNIST (0.17 to 0.15; gated 0.14 to 0.12) and on CIFAR-10 "
            "(3.14 to 3.07; 3.03 to 2.97)",
        ),
        Entry(
            place="Figure 1", recipe="earm/figure1",
            says="images of CIFAR-10 drawn from a Gated PixelCNN with E-ARM",
        ),
        settings("Table 6", "settings of all models", "earm"),
        Entry(
            place="Table 7", recipe="earm/table7",
            says="E-ARM gains most on long sentences (+0.35 BLEU from 50 words on, +0.17 and +0.16 below)",
        ),
        Entry(
            place="Table 8", recipe="earm/table8",
            says="after the model's own decoding 60 to 68 % of true words are likelier under E-ARM",
        ),
        Entry(
            place="Table 9", recipe="earm/table9",
            says="resampling 5 or 10 candidates by energy raises BLEU by at most 0.18",
        ),
        Entry(
            place="Table 10", recipe="earm/table10",
            says="E-ARM raises ROUGE, METEOR and BLEU on top of scheduled sampling",
        ),
        Entry(
            place="Figure 2", recipe="earm/figure2",
            says="the baseline's test loss rises after 50 epochs, that of E-ARM does not",
        ),
        Entry(
            place="Table 11", recipe="earm/table11",
            says="an update takes 5.3 times as long with E-ARM as without, with 20 steps of Langevin dynamics 23 times",
        ),
        Entry(place="Table 12", recipe="earm/cases", says="translations in which E-ARM errs on fewer words"),
        Entry(
            place="equation 11, footnote 4", recipe="earm/recent",
            says="the gradient goes through the two most recent factors alone (no figures)",
        ),
        Entry(
            place="section 4", recipe="earm/without_ce",
            says="the contrastive term alone does not train a model from scratch (no figures)",
        ),
    ),
)  # fmt: skip
