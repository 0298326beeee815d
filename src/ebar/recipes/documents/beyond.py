"""What ebar asks on its own account, with the methods of these documents."""

from ebar.recipes.documents.entry import Document, Entry

BEYOND = Document(
    title="Questions of ebar's own about these methods",
    says="is it so?",
    entries=(
        Entry(
            place="E-ARM and GAM on one language", recipe="earm/motif",
            says="E-ARM and the π of a GAM lower the exact cross-entropy of r",
        ),
        Entry(
            place="XLNet as an energy", recipe="residual/xlnet",
            says="an XLNet as the energy of a residual model lowers its perplexity",
        ),
        Entry(
            place="Labels and pretraining", recipe="xlnet/labels",
            says="pretraining raises the accuracy, most with few labels",
        ),
        Entry(
            place="Orders", recipe="xlnet/orders",
            says="a network that learnt only from left to right is worse at random orders",
        ),
        Entry(
            place="Dynamic evaluation of a pretrained model", recipe="mos/dynamic",
            says="learning from what it has read lowers the perplexity of SmolLM2-135M on novels",
        ),
        Entry(
            place="Distributional policy gradient", recipe="gam/policy_gradient",
            says="π by policy gradient against π by distillation, at equal numbers of draws",
        ),
        Entry(
            place="Densities of images", recipe="images/logistic_mixture",
            says="a mixture of logistics needs fewer bits than a softmax over 256 levels",
        ),
        Entry(
            place="Control of a small model", recipe="control/stories",
            says="moments are met by a tuned model, with few draws by way of the look-ahead",
        ),
        Entry(
            place="Tuning that arrives", recipe="control/tuning",
            says="the moments of a tuned model are those asked for, by policy gradient or by distillation",
        ),
        Entry(place="Control of SmolLM2-135M", recipe="control/smollm2", says="the same of a larger one"),
        Entry(
            place="Samplers", recipe="spine/samplers",
            says="every sampler comes nearer to an enumerable target with more draws",
        ),
        Entry(place="Intervals", recipe="spine/coverage", says="95 % intervals hold the truth as often as they say"),
    ),
)  # fmt: skip
