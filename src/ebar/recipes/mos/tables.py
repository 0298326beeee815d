"""Tables of appendix A on word models, read off one set of runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.figures import found
from ebar.recipes.mos.measures import CACHED, DYNAMIC, PLAIN, TUNED, run_cell
from ebar.recipes.mos.words import MOC, MOS, MOS_SETTINGS, NGRAM, PAPER, PTB, RUNS, SOFTMAX, SPREAD, WIDE, WT2, words
from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Layout, Points, Recipe, Result, layouts
from ebar.recipes.training import SAME_TEXT

WORDS: dict[str, Any] = {"run": run_cell, "runs": RUNS}
BLOCKS = "blocks of the test text"
AMOUNT = (0.0, math.inf)
PARTS: dict[str, Any] = {"each": {"part": ("validation", "test")}, "range": AMOUNT}


def elsewhere(cells: Sequence[Cell]) -> str | None:
    """Of which text the paper's figures are, where ours are of another."""
    names = sorted({cell["place"] for cell in cells if cell["corpus"] != cell["place"]})
    return f"{' and '.join(names)}, all words" if names else None


RATES = (
    "Rates of fine-tuning and of dynamic evaluation, and the cache's, were chosen on validation text with a softmax. "
    "Learning rates were not tuned equally: of the softmax two were tried there (10 and 20), whose better one it has, "
    "and the mixtures have 15, between the two that were tried of them."
)
NARROW_RUNS = (
    "Vectors have 16 dimensions, so few that they limit what is learnt, and there is no dropout. These settings were "
    "chosen in trials with seed 0 for how far the numbers of singular values lie apart: with 48 dimensions and three "
    "passes over a quarter of the text they did not grow with the components, as they did not at other learning rates. "
    "The other seeds were not looked at before."
)


def departures(cells: Sequence[Cell], own: str = RATES) -> list[str]:
    """What the thesis states otherwise than its authors' code, what the slice of a text is, and how runs were set."""
    said = [
        "Table A.8 has the embedding and hidden dropouts of Penn Treebank and WikiText-2 swapped: at scale paper they "
        "are those of the authors' README, and the context dropout is its 0.29, not 0.30."
    ]
    if any(cell["corpus"] != cell["place"] for cell in cells):
        said.append(
            "Penn Treebank cannot be had, and all of WikiText-2 takes too long: in their places stands the beginning "
            "of WikiText-2, its most frequent words kept and all others one unknown word, which makes perplexities "
            "lower than those of all words. Models are small and trained for one pass or a few, by gradient descent "
            f"whose rate falls to 0, and without activation regularisation. {own}"
        )
    return said


READING = Caption(
    items=f"{BLOCKS}, one training",
    shared=SAME_TEXT,
    elsewhere=elsewhere,
    departures=departures,
)

# Tables A.1 and A.2 -------------------------------------------------------------------------------------------------

PERPLEXITY, RATIO = "perplexity, {part}", "test perplexity ÷ that before"
AGAINST = "test perplexity ÷ that of AWD-LSTM"
# Model and evaluation → perplexity on validation and test data.
PENN = {
    (SOFTMAX, PLAIN): (60.7, 58.8), (SOFTMAX, TUNED): (60.0, 57.3), (SOFTMAX, CACHED): (53.9, 52.8),
    (SOFTMAX, DYNAMIC): (51.6, 51.1), (MOS, PLAIN): (58.08, 55.97), (MOS, TUNED): (56.54, 54.44),
    (MOS, DYNAMIC): (48.33, 47.69),
}  # fmt: skip
WIKITEXT = {
    (SOFTMAX, PLAIN): (69.1, 66.0), (SOFTMAX, TUNED): (68.6, 65.8), (SOFTMAX, CACHED): (53.8, 52.0),
    (SOFTMAX, DYNAMIC): (46.4, 44.3), (MOS, PLAIN): (66.01, 63.33), (MOS, TUNED): (63.88, 61.45),
    (MOS, DYNAMIC): (42.41, 40.68),
}  # fmt: skip


def evaluated(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each way of evaluating it."""
    for name, own in result["evaluations"].items():
        yield {**cell, "evaluation": name}, {**own, "parameters": result["parameters"]}


def perplexity(result: Mapping[str, Any], part: str = "test") -> float | None:
    """Of validation or test text, where it was read."""
    cost = found(result, "{part}", part=part) if part in result else None
    return None if cost is None else math.exp(cost.value)


def _of_part(table: Mapping[Any, Sequence[float]]) -> Any:
    """Reads the paper's figure by model, evaluation and part."""
    return lambda row: table.get((row["model"], row["evaluation"]), (None, None))[row["part"] == "test"]


def perplexities(place: str, table: Mapping[Any, Sequence[float]], title: str, source: str) -> Recipe:
    """A table of perplexities: as trained, fine-tuned, with a cache and with dynamic evaluation."""
    return Recipe(
        title=title,
        source=source,
        grid=words(lambda cell: cell["place"] == place and cell["main"] and cell["model"] in (SOFTMAX, MOS)),
        figures=Figures(
            Figure(name="parameters", at="parameters", where={"evaluation": PLAIN}, bare=True),
            Figure(name=PERPLEXITY, at=perplexity, paper=_of_part(table), **PARTS),
            Figure(name=RATIO, at="ratio", shared=BLOCKS, range=AMOUNT),
            Figure(name=AGAINST, at=perplexity, where={"model": MOS}, over={"model": SOFTMAX}, range=AMOUNT),
            by=("model", "evaluation"), parts=evaluated,
        ),
        tables=layouts(("model", "evaluation"), ("parameters", "perplexity,*"), (RATIO, AGAINST)),
        plots=[
            Points(of=[RATIO], label="{model}, {evaluation}", title=RATIO, x_label="ratio − 1", less=1.0),
            Points(of=[AGAINST], label="{evaluation}", title=AGAINST, x_label="ratio − 1", less=1.0),
        ],
        claims=[
            Claim(says="dynamic evaluation lowers the perplexity of a tied AWD-LSTM by at least 5 %", figure=RATIO,
                  below=0.95, where={"model": SOFTMAX, "evaluation": DYNAMIC}),
            Claim(says="dynamic evaluation lowers that of the mixture by at least 5 %", figure=RATIO,
                  below=0.95, where={"model": MOS, "evaluation": DYNAMIC}),
            Claim(says="with equally many parameters a mixture of softmaxes has a lower perplexity", figure=AGAINST,
                  below=1.0),
        ],
        reading=READING,
        **WORDS,
    )  # fmt: skip


TABLE_A1 = perplexities(
    PTB, PENN, "AWD-LSTM with a softmax and with a mixture of softmaxes, in place of Penn Treebank",
    f"{PAPER}, Table A.1 (Penn Treebank); at scale cpu the beginning of WikiText-2",
)  # fmt: skip
TABLE_A2 = perplexities(
    WT2, WIKITEXT, "AWD-LSTM with a softmax and with a mixture of softmaxes on WikiText-2",
    f"{PAPER}, Table A.2 (WikiText-2); at scale cpu its beginning, with fewer words",
)  # fmt: skip

# Table A.5 ----------------------------------------------------------------------------------------------------------

# In whose place a text is read, and model → perplexity on validation and test data.
ABLATION = {
    (PTB, MOS): (58.08, 55.97), (PTB, MOC): (59.82, 57.55), (PTB, SOFTMAX): (61.49, 58.95),
    (PTB, MOS_SETTINGS): (78.86, 74.86), (WT2, MOS): (66.01, 63.33), (WT2, MOC): (68.76, 65.98),
    (WT2, SOFTMAX): (68.73, 65.40), (WT2, MOS_SETTINGS): (72.73, 69.18),
}  # fmt: skip
WORSE = "test perplexity ÷ that of AWD-LSTM-MoS"


def as_trained(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as it was trained, with what else was measured of it."""
    yield cell, {**result, **result["evaluations"][PLAIN]}


TABLE_A5 = Recipe(
    title="What makes a mixture of softmaxes better: its settings, its size, or mixing softmaxes",
    source=f"{PAPER}, Table A.5; the wide softmax and the n-gram are the fixes of section A.2.3, which has no figures",
    grid=words(lambda cell: cell["main"]),
    figures=Figures(
        Figure(name="parameters", at="parameters", bare=True),
        Figure(
            name=PERPLEXITY, at=perplexity, **PARTS,
            paper=lambda row: ABLATION.get((row["place"], row["model"]), (None, None))[row["part"] == "test"],
        ),
        Figure(name=WORSE, at=perplexity, over={"model": MOS}, range=AMOUNT),
        by=("corpus", "model"), parts=as_trained,
    ),
    tables=layouts(("corpus", "model"), ("parameters", "perplexity,*"), (WORSE,)),
    plots=Points(of=[WORSE], label="{corpus}, {model}", title=WORSE, x_label="ratio − 1", less=1.0),
    claims=[
        Claim(says=f"the mixture of softmaxes is better than {model}", figure=WORSE, above=1.0, where={"model": model})
        for model in (MOC, SOFTMAX, MOS_SETTINGS, WIDE, NGRAM)
    ],
    reading=READING,
    **WORDS,
)  # fmt: skip

# Tables A.6 and A.7 -------------------------------------------------------------------------------------------------

RANK, BOUND, ABOVE = "rank, {part}", "the bound d + 2", "singular values above 10⁻³σ₁"
PAST, SHORT = "rank less the bound d + 2", "rank less the most that there can be"
MORE = "singular values above 10⁻³σ₁, more than with fewer components"
RANKS = {SOFTMAX: 400.0, MOC: 280.0, MOS: 9981.0}
BY_COMPONENTS = {3: (6467.0, 58.62), 5: (8930.0, 57.36), 10: (9973.0, 56.33), 15: (9981.0, 55.97), 20: (9981.0, 56.17)}
BOUNDED = (SOFTMAX, MOC, MOS_SETTINGS)  # whatever their parameters are
EXACTLY = (
    "A matrix of log-probabilities has a row for each context and a column for each word, the same for all models. It "
    "is computed in float64, where a few softmaxes already reach full rank and two come near it: ranks then do not "
    "tell numbers of components apart, and what does is the number of singular values that are not small. The "
    "thesis's ranks grow with the components, as they do where round-off hides small singular values. A "
    "rank counts those above ½·√(m + n + 1)·σ₁·ε, the round-off to be expected (Press et al. 2007). The bound is d + "
    "2, not d: one more for the bias, one for the normalisers."
)
RANK_READING = replace(READING, departures=lambda cells: [EXACTLY, *departures(cells, NARROW_RUNS)])


def ranked(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run with what was found of its matrix, on the test text."""
    own = result["rank"]["test"]
    past = None if result["bound"] is None else own["rank"] - result["bound"]
    cost = result["evaluations"][PLAIN]["test"]
    yield cell, {**result, **own, "ranks": result["rank"], "past": past, "cost": cost}


TEST_PERPLEXITY = Figure(
    name="test perplexity", at=lambda result: math.exp(found(result, "cost").value), range=AMOUNT
)  # fmt: skip
SIZES = [Figure(name=name, at=name, bare=True) for name in ("parameters", "contexts", "words")]
MEASURED = words(lambda cell: cell["place"] == PTB and cell["main"])

TABLE_A6 = Recipe(
    title="The rank of the log-probabilities of a softmax, a mixture of contexts and a mixture of softmaxes",
    source=f"{PAPER}, Table A.6 (Penn Treebank); at scale cpu the runs of mos/table_a7",
    grid=words(lambda cell: cell["place"] == PTB and cell["main"] and cell["model"] in (*BOUNDED, MOS), of=SPREAD),
    figures=Figures(
        *SIZES,
        Figure(name=BOUND, at="bound", bare=True),
        Figure(
            name=RANK, at=lambda result, part: result["ranks"].get(part, {}).get("rank"),
            paper=lambda row: RANKS.get(row["model"]), **PARTS,
        ),
        Figure(name=PAST, at="past"),
        Figure(name=ABOVE, at="above", range=AMOUNT),
        TEST_PERPLEXITY,
        by=("model",), parts=ranked,
    ),
    tables=layouts(
        ("model",), ("parameters", "contexts", "words", BOUND, "rank,*"), (PAST, ABOVE, "test perplexity")
    ),
    plots=Points(of=[ABOVE], label="{model}", title=ABOVE, x_label="number"),
    claims=[
        *(Claim(says=f"the rank of {model} is at most d + 2", figure=PAST, below=0.5, where={"model": model})
          for model in BOUNDED),
        Claim(says="the rank of a mixture of softmaxes is above d + 2", figure=PAST, above=0.5, where={"model": MOS}),
    ],
    reading=RANK_READING,
    **WORDS,
)  # fmt: skip

TABLE_A7 = Recipe(
    title="Rank and perplexity by the number of softmaxes, at equally many parameters",
    source=f"{PAPER}, Table A.7 (Penn Treebank, other sizes fixed); at scale cpu sizes chosen for equal parameters",
    grid=words(lambda cell: cell["place"] == PTB and cell["model"] == MOS, of=SPREAD),
    figures=Figures(
        *SIZES,
        Figure(name="rank", at="rank", range=AMOUNT, paper={k: rank for k, (rank, _) in BY_COMPONENTS.items()}),
        Figure(name=SHORT, at=lambda result: result["rank"] - result["full"]),
        Figure(name=ABOVE, at="above", range=AMOUNT),
        Figure(name=MORE, at="above", minus=lambda cell: {"components": cell["fewer"]}),
        replace(TEST_PERPLEXITY, paper={k: perplexity for k, (_, perplexity) in BY_COMPONENTS.items()}),
        by=("components",), parts=ranked,
    ),
    tables=layouts(
        ("components",), ("parameters", "contexts", "words", "rank", "test perplexity"), (SHORT, ABOVE, MORE)
    ),
    plots=[
        Curves(of={name: "mixture of softmaxes"}, x="components", title=name) for name in (ABOVE, "test perplexity")
    ],
    claims=[
        Claim(says="a mixture of softmaxes has full rank", figure=SHORT, above=-0.5),
        Claim(says="more components leave more singular values that are not small", figure=MORE, above=0.0),
    ],
    reading=RANK_READING,
    **WORDS,
)  # fmt: skip

# Figure A.1 and Table A.11 ------------------------------------------------------------------------------------------

BELOW = "share of singular values at or below"
FIGURE_A1 = Recipe(
    title="How singular values are spread, in units of the largest",
    source=f"{PAPER}, Figure A.1 (Penn Treebank), a picture without figures; at scale cpu the runs of mos/table_a7",
    grid=words(lambda cell: cell["place"] == PTB and cell["model"] in (SOFTMAX, MOC, MOS), of=SPREAD),
    figures=Figures(
        Figure(name=ABOVE, at="above", range=AMOUNT),
        Figure(
            name=BELOW, at="below.{threshold}.1", range=(0.0, 1.0),
            each={"threshold": lambda result: {float(x): place for place, (x, _) in enumerate(result["below"])}},
        ),
        by=("model", "components"), parts=ranked,
    ),
    tables=[
        Layout(rows=("model", "components"), figures=(ABOVE,)),
        *layouts(("threshold",), BELOW, columns=("model", "components")),
    ],
    plots=Curves(
        of={BELOW: "{model}, {components}"}, x="threshold", x_label="normalised singular value", title=BELOW,
        by=("model", "components"), log_x=True,
    ),
    claims=[
        *(Claim(says=f"most singular values of {model} are at most 10⁻¹⁰ of the largest", figure=BELOW, above=0.5,
                where={"model": model, "threshold": 1e-10}) for model in (SOFTMAX, MOC)),
        Claim(says="most of a mixture of softmaxes are larger", figure=BELOW, below=0.5,
              where={"model": MOS, "threshold": 1e-10}),
    ],
    reading=RANK_READING,
    **WORDS,
)  # fmt: skip

DIVERGENCE, APART = "expected KL between contexts, {part}", "expected KL between test contexts − that of AWD-LSTM"
DIVERGENCES = {SOFTMAX: (4.869, 4.763), MOC: (4.955, 4.864), MOS: (5.400, 5.284)}
TABLE_A11 = Recipe(
    title="How different predictions are after different contexts",
    source=f"{PAPER}, Table A.11 (Penn Treebank); at scale cpu the runs of mos/table_a5",
    grid=MEASURED,
    figures=Figures(
        Figure(
            name=DIVERGENCE, at=lambda result, part: result["divergence"].get(part), **PARTS,
            paper=lambda row: DIVERGENCES.get(row["model"], (None, None))[row["part"] == "test"],
        ),
        Figure(name=APART, at=lambda result: found(result, "divergence.test").value, minus={"model": SOFTMAX}),
        by=("model",),
    ),
    tables=Layout(rows=("model",)),
    plots=Points(of=[APART], label="{model}", title="Paired over seeds", x_label="nats"),
    claims=[
        Claim(says=f"predictions of {model} differ more than those of AWD-LSTM", figure=APART, above=0.0,
              where={"model": model})
        for model in (MOC, MOS)
    ],
    reading=replace(READING, items="pairs of contexts, one training"),
    **WORDS,
)  # fmt: skip
