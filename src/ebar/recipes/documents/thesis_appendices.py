"""Dai 2019 (thesis), appendices A to C."""

from ebar.recipes.documents.entry import Document, Entry, illustration, settings

APPENDICES = Document(
    title="Dai 2019 (thesis), appendices A to C",
    entries=(
        Entry(
            place="Table A.1", recipe="mos/table_a1",
            says="on Penn Treebank a mixture of softmaxes has perplexity 54.44, AWD-LSTM 57.3; with dynamic evaluation "
            "47.69 and 51.1",
        ),
        Entry(
            place="Table A.2", recipe="mos/table_a2",
            says="on WikiText-2 61.45 and 65.8; with dynamic evaluation 40.68 and 44.3",
        ),
        Entry(
            place="Table A.3", recipe="mos/table_a3",
            says="on One Billion Word, without dropout, the mixture has perplexity 37.10, the softmax 42.77",
        ),
        Entry(
            place="Table A.4", recipe="mos/table_a4",
            says="in a decoder of dialogues the mixture has perplexity 32.7, the softmax 34.7, and more BLEU",
        ),
        Entry(
            place="Table A.5", recipe="mos/table_a5",
            says="neither a mixture of contexts nor the mixture's settings explain its gain",
        ),
        Entry(
            place="Table A.6", recipe="mos/table_a6",
            says="log-probabilities have rank 400 with a softmax, 280 with a mixture of contexts (their dimensions), "
            "and 9,981 of 10,000 with a mixture of softmaxes",
        ),
        Entry(
            place="Table A.7", recipe="mos/table_a7",
            says="more softmaxes give a higher rank and a lower perplexity, up to 15",
        ),
        settings("Table A.8", "settings of the mixtures", "mos"),
        settings("Table A.9", "settings of dynamic evaluation", "mos"),
        settings("Table A.10", "settings on One Billion Word", "mos"),
        Entry(
            place="Figure A.1", recipe="mos/figure_a1",
            says="most singular values of softmax and mixture of contexts are very small, those of the mixture of "
            "softmaxes orders larger",
        ),
        Entry(
            place="Table A.11", recipe="mos/table_a11",
            says="predictions after different contexts differ more with a mixture of softmaxes (5.28 nats) than with a "
            "softmax (4.76)",
        ),
        Entry(
            place="Table A.12", recipe="mos/table_a12",
            says="of characters, where a softmax is no bottleneck, a mixture gains nothing (1.49 bits each)",
        ),
        Entry(
            place="Table A.13", recipe="mos/table_a13",
            says="15 softmaxes make a training step 1.9 to 2.5 times as long, 7 on One Billion Word 3.8 times",
        ),
        Entry(
            place="Table A.14", recipe="mos/table_a14",
            says="six steps at which the mixture of softmaxes expects the next word more than that of contexts",
        ),
        Entry(place="Figure B.1", recipe="cegan/figures_b2_b3", says="true energies of three mixtures, and samples"),
        Entry(
            place="Figure B.2", recipe="cegan/table_b2", claims=("it is nearer than that of EGAN-Const",),
            says="GAN and EGAN-Const draw good samples and learn flat energies",
        ),
        Entry(
            place="Figure B.3", recipe="cegan/table_b2",
            claims=(
                "the energy of EGAN-Ent-NN is near the data's on the Gaussian mixture", "and on the biased one",
                "its energy of the minor mode is above that of the major one",
            ),
            says="EGAN-Ent-NN learns the true energies; EGAN-Ent-VI less well, and gives the minor mode the lower "
            "energy",
        ),
        Entry(
            place="Figure B.4", recipe="cegan/digits",
            says="of digits, those of the lowest energy under EGAN-Ent-NN are like the mean digit; not so under others",
        ),
        Entry(
            place="Figure B.5", recipe="cegan/digits",
            says="… and those of the highest are rotated, thick or thin",
        ),
        Entry(
            place="Table B.1", recipe="cegan/table_b1",
            says="on CIFAR-10 samples of EGAN-Ent-VI have Inception score 7.07, EGAN-Const 6.74, improved GAN 6.86",
        ),
        Entry(place="Figure B.6", recipe="cegan/figure_b6", says="images of CIFAR-10 and CelebA by EGAN-Ent-VI"),
        illustration("Figure B.7", "the mean digit"),
        Entry(
            place="Table B.2", recipe="cegan/table_b2",
            says="KL(data‖energy) of EGAN-Ent-NN is 0.12 and 0.33 on two mixtures of Gaussians, of EGAN-Const 2.1 and "
            "2.5",
        ),
        Entry(
            place="Figure B.8", recipe="cegan/figure_b8",
            says="the entropy gradient by nearest neighbours points the right way, the variational one does not",
        ),
        Entry(place="Figure B.9", recipe="cegan/digits", says="all 1,000 digits ranked, as in Figures B.4 and B.5"),
        Entry(
            place="Table B.3", recipe="cegan/table_b3",
            says="linear classifiers on features of EGAN-Ent-NN's discriminator err on 1.19 % of MNIST, of "
            "EGAN-Const's 1.34, GAN's 1.26, random 3.4",
        ),
        Entry(place="Figure C.1", recipe="badgan/synthetic", claims=(), says="two sets of points with few labels"),
        Entry(
            place="Figure C.2", recipe="badgan/synthetic",
            claims=(
                "with a complement generator no point of the manifold is taken for another class",
                "its class boundary lies in the fake data area",
            ),
            says="with a complement generator both boundaries are almost perfect",
        ),
        Entry(
            place="Figure C.3", recipe="badgan/synthetic",
            claims=("feature matching classifies two circles perfectly, with features of 2 dimensions",),
            says="feature matching puts generated features between those of the classes",
        ),
        Entry(
            place="Figure C.4", recipe="badgan/synthetic",
            claims=("many samples of feature matching fall into the data manifold",),
            says="many of its samples fall into the data manifold, which costs it errors",
        ),
        Entry(
            place="Table C.1", recipe="badgan/table_c1",
            says="with few labels bad GANs err less than feature matching: 79.5 images of MNIST (93), 4.25 % of SVHN "
            "(8.11), 14.41 % of CIFAR-10 (18.63)",
        ),
        Entry(
            place="Figure C.5", recipe="badgan/figure_c5",
            says="feature matching draws collapsed images, the bad GAN diverse bad ones",
        ),
        Entry(
            place="Table C.2", recipe="badgan/table_c2",
            says="low density helps on MNIST (85.0 to 79.5 errors), entropy of the generator on SVHN and CIFAR-10, "
            "conditional entropy on SVHN alone; a lower threshold is better",
        ),
        Entry(
            place="Figure C.6", recipe="badgan/figure_c6",
            says="over 90 % of test images and of generated ones satisfy the theory's assumption",
        ),
    ),
)  # fmt: skip
