"""Dai 2019 (thesis), the chapters."""

from ebar.recipes.documents.entry import Document, Entry, illustration

HUB = "needs XLNet-Large and so a GPU, and data that ebar may not hand on: scale paper finds them below EBAR_DATA"
THESIS = Document(
    title="Dai 2019 (thesis), chapters 3 to 7",
    note="Chapter 6 repeats tables and figures of the appendices: such lines have the same result.",
    entries=(
        illustration("Figure 3.1", "segments of the vanilla model"),
        illustration("Figure 3.2", "segments of Transformer-XL"),
        Entry(
            place="Table 3.1", recipe="xl/table3_1",
            says="on WikiText-103 Transformer-XL has perplexity 24.0 (151M parameters), an LSTM 48.7; large 18.3, "
            "before 20.5",
        ),
        Entry(
            place="Table 3.2", recipe="xl/table3_2",
            says="on enwik8 12 layers of Transformer-XL need 1.06 bits a byte, of a Transformer 1.11, recurrent "
            "networks 1.24 or more; 24 layers 0.99",
        ),
        Entry(
            place="Table 3.3", recipe="xl/table3_3",
            says="on text8 24 layers of Transformer-XL need 1.08 bits, 64 of a Transformer 1.13, recurrent networks "
            "1.27",
        ),
        Entry(
            place="Table 3.4", recipe="xl/table3_4",
            says="on One Billion Word, sentences in no order, Transformer-XL has perplexity 21.8, adaptive inputs 23.7",
        ),
        Entry(
            place="Table 3.5", recipe="xl/table3_5",
            says="on Penn Treebank Transformer-XL has perplexity 54.52, AWD-LSTM 58.8",
        ),
        Entry(
            place="section 3.2.2", recipe="xl/ablations",
            says="recurrence needs relative positions, and terms that Shaw et al. lack (no figures)",
        ),
        Entry(
            place="section 3.2.1", recipe="xl/evaluation_speed",
            says="with a memory, evaluation need not read the context anew for each token: much faster (no figures)",
        ),
        Entry(
            place="chapter 3", recipe="xl/long_text",
            says="Transformer-XL writes long coherent texts (no figures)",
        ),
        illustration("Figure 4.1", "one token predicted under four orders"),
        illustration("Figure 4.2", "two-stream attention"),
        Entry(place="Table 4.1", recipe="xlnet/table4_1", says="on RACE XLNet has accuracy 81.75, BERT 72.0", why=HUB),
        Entry(
            place="Table 4.2", recipe="xlnet/table4_2", why=HUB,
            says="on SQuAD XLNet has F1 94.52 (1.1) and 88.79 (2.0), BERT 90.9 and 81.77",
        ),
        Entry(
            place="Table 4.3", recipe="xlnet/table4_3", why=HUB,
            says="XLNet errs less than BERT on seven text classifications, on IMDB 3.79 % against 4.51 %",
        ),
        Entry(
            place="Table 4.4", recipe="xlnet/table4_4", why=HUB,
            says="XLNet is better than BERT on all tasks of GLUE, by 13.4 points on RTE",
        ),
        Entry(
            place="Table 4.5", recipe="xlnet/table4_5", why=HUB,
            says="by frozen token vectors XLNet ranks documents of ClueWeb09-B better than BERT (NDCG 31.10, 30.53)",
        ),
        Entry(
            place="Table 4.6", recipe="xlnet/table4_6",
            says="permutation language modelling, memory, spans and both directions each help, by up to 1.6 points on "
            "RACE; next-sentence prediction does not",
        ),
        Entry(
            place="Table 5.1", recipe="xlnet/table5_1",
            says="local attention loses nothing on short texts (SST-2 94.8, full 94.9) and some on long ones (SQuAD "
            "2.0 86.9, full 87.8)",
        ),
        Entry(
            place="sections 5.3 and 5.4", recipe="local/scaling",
            says="chunks make local attention about twice as fast, in time that grows with the length alone",
        ),
        Entry(place="Table 6.1", recipe="mos/table_a1", says="as Table A.1"),
        Entry(place="Table 6.2", recipe="mos/table_a2", says="as Table A.2"),
        Entry(place="Table 6.3", recipe="mos/table_a3", says="as Table A.3"),
        Entry(place="Figure 6.1", recipe="cegan/figures_b2_b3", says="as Figure B.1"),
        Entry(
            place="Figure 6.2", recipe="cegan/table_b2", claims=("it is nearer than that of EGAN-Const",),
            says="as Figures B.2 and B.3",
        ),
        Entry(place="Figure 6.3", recipe="cegan/digits", says="as Figure B.4"),
        Entry(place="Figure 6.4", recipe="cegan/digits", says="as Figure B.5"),
        illustration("Figure 6.5", "as Figure B.7: the mean digit"),
        illustration("Figure 6.6", "why telling real from fake helps to classify"),
        Entry(place="Table 6.4", recipe="badgan/table_c1", says="as Table C.1"),
        illustration("Figure 7.1", "the thesis's timeline"),
    ),
)  # fmt: skip
