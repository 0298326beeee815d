"""Published tables and figures at three scales: demo, cpu, paper.

A line in `RECIPES` puts a recipe in `ebar reproduce`, in the documentation's list and in the tests; from outside,
`RECIPES["mine/table1"] = RECIPE` does the same.
"""

import importlib
from typing import TYPE_CHECKING, Union

from ebar.tables import Table

if TYPE_CHECKING:
    from ebar.recipes.recipe import Recipe

SCALES = ("demo", "cpu", "paper")


class Lazy:
    """A recipe that is imported only when it is run: a line of help, and where it is.

    That of FAMILY/NAME is `RECIPE` in the module FAMILY.NAME of this package, or NAME in capitals in another module.
    """

    def __init__(self, help: str, module: str | None = None):
        self.__doc__ = help
        self.module = module

    def load(self, name: str) -> "Recipe":
        """The recipe itself."""
        family, own = name.split("/")
        found = importlib.import_module(f"ebar.recipes.{self.module or f'{family}.{own}'}")
        recipe: Recipe = getattr(found, own.upper() if self.module else "RECIPE")
        return recipe


def find_recipe(name: str) -> "Recipe":
    """A recipe by name."""
    entry = RECIPES.choose(name)
    return entry.load(name) if isinstance(entry, Lazy) else entry


RECIPES: Table[Union[Lazy, "Recipe"]] = Table(
    "recipe",
    {
        "spine/samplers": Lazy("every sampler on an enumerable target: total variation and cost by number of draws"),
        "spine/coverage": Lazy("how often 95 % intervals hold the truth, for every sampler, on enumerable targets"),
        "gam/data_efficiency": Lazy("r and π against |D|, from 5,000 down to 50: the authors' r and a tuned one"),
        "gam/table1": Lazy("λ by rejection against importance sampling", "gam.tables"),
        "gam/table2": Lazy("one run in detail, by the authors' settings", "gam.tables"),
        "gam/table3": Lazy("all motifs and feature sets together", "gam.tables"),
        "gam/table4": Lazy("two-stage against cyclical training", "gam.tables"),
        "gam/figure2": Lazy("cross-entropy and motif frequency against |D|, four settings", "gam.figures"),
        "gam/figure3": Lazy("cyclical training against |D|", "gam.figures"),
        "gam/figure4": Lazy("pure data, features supermotif and submotif, motifs of all rarities", "gam.figures"),
        "gam/figure5": Lazy("the same with motif and submotif", "gam.figures"),
        "gam/figure6": Lazy("the same with the motif alone", "gam.figures"),
        "gam/figure7": Lazy("mixtures of strings with and without the motif", "gam.figures"),
        "gam/policy_gradient": Lazy("distributional policy gradient against distillation at equal numbers of draws"),
        "gam/conditional": Lazy("λ as a function of the context against one λ for all"),
        "gam/translation": Lazy("a GAM of translations: what is denied or asked in the source, in the translation too"),
        "gam/cryptographic": Lazy("a predicate that P_λ captures at once and no autoregressive model can"),
        "earm/tatoeba": Lazy("a translation model on all of Tatoeba, and its E-ARM twin", "earm.tables"),
        "earm/table1": Lazy(
            "translation with and without E-ARM, with label smoothing and scheduled sampling", "earm.tables"
        ),
        "earm/table3": Lazy("a Transformer language model with and without E-ARM", "earm.language"),
        "earm/table3_xl": Lazy("a Transformer-XL with and without E-ARM, memory carried along", "earm.language"),
        "earm/table4": Lazy("λ against the epoch in which E-ARM starts", "earm.language"),
        "earm/table5": Lazy("bits per dimension of PixelCNN and Gated PixelCNN with and without E-ARM", "earm.images"),
        "earm/figure1": Lazy("images drawn from them, and completions of half images", "earm.images"),
        "earm/motif": Lazy("the motif language with its exact entropy: r, scheduled sampling, E-ARM, and π of a GAM"),
        "earm/table2": Lazy("translation en→de by models of two sizes, with and without E-ARM", "earm.tables"),
        "earm/table7": Lazy("BLEU by the length of the target, from the runs of earm/table1", "earm.tables"),
        "earm/table8": Lazy("exposure bias: how often the true token is likelier under E-ARM", "earm.exposure"),
        "earm/table9": Lazy("top-K energy resampling, K = 0, 5, 10", "earm.resampling"),
        "earm/table10": Lazy("ROUGE, METEOR (where WordNet is there) and BLEU", "earm.tables"),
        "earm/table11": Lazy(
            "seconds per 100 iterations of the base, scheduled sampling, E-ARM, Langevin", "earm.timing"
        ),
        "earm/figure2": Lazy("cross-entropy in training and on held-out data, epoch by epoch", "earm.overfitting"),
        "earm/cases": Lazy("translations side by side, what differs from the reference in italics", "earm.cases"),
        "earm/recent": Lazy("how many recent factors E-ARM's gradient goes through", "earm.ablations"),
        "earm/without_ce": Lazy(
            "the contrastive term by itself, from scratch and after pre-training", "earm.ablations"
        ),
        "images/logistic_mixture": Lazy("bits per dimension of a mixture of logistics and of a softmax, 256 levels"),
        "residual/perplexity": Lazy("perplexity intervals of joint models, beside base, RALM, BALM"),
        "residual/sizes": Lazy("the same of energies of all sizes, from scratch too", "residual.perplexity"),
        "residual/bounded": Lazy("what can be certified of bounded energies, and what a bound costs"),
        "residual/per_step": Lazy("perplexity at every place of a continuation, the last exactly", "residual.tables"),
        "residual/samples": Lazy("continuations and likeliest next words of base and joint model", "residual.tables"),
        "residual/repetition": Lazy("next words that repeat the prefix: data, base, joint model", "residual.tables"),
        "residual/energies": Lazy(
            "energies of data, of base and joint text, and of what a search without the base finds", "residual.tables"
        ),
        "residual/ngrams": Lazy("unique n-grams of data, base and joint model", "residual.tables"),
        "residual/fooling": Lazy("how often a fresh discriminator takes their texts for real", "residual.judges"),
        "residual/top_k": Lazy("Algorithm 1: the base cut to its k likeliest next tokens", "residual.judges"),
        "residual/samplers": Lazy("resampling, Metropolis and SMC for the joint model", "residual.outlook"),
        "residual/distilled": Lazy("the base updated by the joint model, and a second energy", "residual.outlook"),
        "xl/table3_1": Lazy(
            "Transformer-XL, a Transformer, an LSTM, Local-XL on WikiText; longer memories in evaluation",
            "xl.tables",
        ),
        "xl/table3_2": Lazy("the same on enwik8", "xl.tables"),
        "xl/table3_3": Lazy("Transformer-XL, a Transformer and an LSTM on text in the manner of text8", "xl.tables"),
        "xl/table3_4": Lazy("the same on sentences in no order, as those of One Billion Word are", "xl.tables"),
        "xl/table3_5": Lazy("the same on little text, with variational dropout and averaged weights", "xl.tables"),
        "xl/ablations": Lazy("Transformer-XL without recurrence, without relative positions, or either", "xl.tables"),
        "xl/evaluation_speed": Lazy("evaluation with a memory against windows read anew for every token"),
        "xl/long_text": Lazy("a long text written by Transformer-XL, beside what really follows"),
        "local/scaling": Lazy("local attention by length and chunk size, beside LightConv and DynamicConv"),
        "residual/xlnet": Lazy("an XLNet as the energy, pretrained or warmed up, beside a Transformer"),
        "xlnet/table4_1": Lazy("an XLNet fine-tuned on multiple choice (RACE)", "xlnet.understanding"),
        "xlnet/table4_2": Lazy("the same on answers in a passage (SQuAD)", "xlnet.understanding"),
        "xlnet/table4_3": Lazy("the same on text classification", "xlnet.understanding"),
        "xlnet/table4_4": Lazy("the same on the tasks of GLUE", "xlnet.understanding"),
        "xlnet/table4_5": Lazy("documents ranked by frozen token vectors and kernel pooling", "xlnet.understanding"),
        "xlnet/table4_6": Lazy("ablations of XLNet's pretraining, fine-tuned on three tasks", "xlnet.tables"),
        "xlnet/table5_1": Lazy("XLNet with full and with local attention: accuracy, time, memory", "xlnet.table5_1"),
        "xlnet/labels": Lazy("accuracy by the number of labels, with and without pretraining", "xlnet.tables"),
        "xlnet/orders": Lazy("how likely an XLNet finds a text in different orders"),
        "badgan/synthetic": Lazy("complement generator and feature matching on points of the plane"),
        "control/stories": Lazy(
            "a word in every text, another in half of them: moments, look-ahead, KL over tuning", "control.tables"
        ),
        "control/tuning": Lazy("policy gradient and distillation until the moments are there"),
        "control/reward": Lazy("a classifier of sentiment as a reward: log Z, expected reward, KL, best-of-n, texts"),
        "control/grammar": Lazy("a JSON schema: valid texts, share cut off, log Z; against enumeration, and masking"),
        "control/smollm2": Lazy("one such constraint on SmolLM2-135M", "control.tables"),
        "mos/table_a1": Lazy("AWD-LSTM with a softmax and a mixture of softmaxes, as on Penn Treebank", "mos.tables"),
        "mos/table_a2": Lazy("the same on WikiText-2; fine-tuned, with a cache, by dynamic evaluation", "mos.tables"),
        "mos/table_a3": Lazy("sentences in no order, without dropout: softmax and mixture", "mos.plain"),
        "mos/table_a4": Lazy("a mixture of softmaxes in a sequence-to-sequence decoder", "mos.dialogue"),
        "mos/table_a5": Lazy("ablation: mixture of contexts, settings, wide softmax, n-gram", "mos.tables"),
        "mos/table_a6": Lazy("the rank of log-probabilities of softmax and mixtures", "mos.tables"),
        "mos/table_a7": Lazy("rank and perplexity by the number of softmaxes", "mos.tables"),
        "mos/table_a11": Lazy("how different predictions are after different contexts", "mos.tables"),
        "mos/table_a12": Lazy("characters, where a softmax is no bottleneck: no gain", "mos.plain"),
        "mos/table_a13": Lazy("how much longer a training step takes with a mixture", "mos.timing"),
        "mos/table_a14": Lazy("next words of a mixture of contexts and of softmaxes, side by side", "mos.cases"),
        "mos/figure_a1": Lazy("how singular values of log-probabilities are spread", "mos.tables"),
        "cegan/table_b1": Lazy("a classifier's score of samples, with and without entropy", "cegan.tables"),
        "cegan/table_b2": Lazy("divergences between data, generator and energy on three mixtures", "cegan.points"),
        "cegan/table_b3": Lazy("linear classifiers on fixed features of discriminators", "cegan.tables"),
        "cegan/figures_b2_b3": Lazy("learnt energies and samples on three mixtures", "cegan.points"),
        "cegan/figure_b6": Lazy("images drawn from generators trained with entropy", "cegan.tables"),
        "cegan/figure_b8": Lazy("the entropy gradient by nearest neighbours, against the true one"),
        "cegan/digits": Lazy("one digit ranked by energy, beside the distance to its mean", "cegan.tables"),
        "badgan/table_c1": Lazy("few labels: supervised only, feature matching and its terms", "badgan.tables"),
        "badgan/table_c2": Lazy("ablation of the bad GAN: VI, LD, Ent, the threshold of LD", "badgan.tables"),
        "badgan/figure_c5": Lazy("images of the bad GAN's generators", "badgan.tables"),
        "badgan/figure_c6": Lazy("how far the assumption of the bad GAN's theory holds, by epoch", "badgan.tables"),
        "mos/dynamic": Lazy("dynamic evaluation of SmolLM2-135M on novels"),
    },
)
