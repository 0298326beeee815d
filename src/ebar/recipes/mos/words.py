"""Word models of the appendix: AWD-LSTM with a softmax, with mixtures, and the fixes that section A.2.3 names.

One set of runs serves Tables A.1, A.2, A.5, A.6, A.7, A.11, A.14 and Figure A.1: models of equally many parameters
(but for the fixes), trained on the same text and measured on the same tokens. Recipes choose among them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebar.recipes.grid import PARTS, Grid
from ebar.recipes.recipe import Cell
from ebar.recipes.training import training_grid

PAPER = "Dai 2019 (thesis)"
SOFTMAX, MOS, MOC = "AWD-LSTM", "AWD-LSTM-MoS", "AWD-LSTM-MoC"
MOS_SETTINGS, WIDE, NGRAM = "AWD-LSTM (MoS settings)", "AWD-LSTM, wide softmax", "n-gram"
PTB, WT2 = "Penn Treebank", "WikiText-2"  # in whose place a text is read
RUNS = "mos/words"
SEEDS = {"demo": 2, "cpu": 3, "paper": 3}

STREAM = {
    "data.kind": "stream", "backbone.kind": "awd_lstm", "head.tied": True, "training.clip": 0.25,
    "training.patience": 1000, "training.checkpoint_every": 500,
}  # fmt: skip
COMMON = {**STREAM, "data.tokeniser": "words", "data.vary": True}


def group(name: str, **options: Any) -> dict[str, Any]:
    """Options by the names that they have on the command line."""
    return {f"{name}.{key}": value for key, value in options.items()}


def text(corpus: str, suffix: str, **data: Any) -> dict[str, Any]:
    """Where a text is, and how it is read."""
    files = {part: f"{corpus}/{name}.{suffix}" for part, name in PARTS.items()}
    return {"corpus": corpus, **group("data", **files, **data)}


def head(components: int, *, dropout: float = 0.0, contexts: bool = False) -> dict[str, Any]:
    """A softmax, or a mixture of softmaxes or of contexts; the dropout is on the vectors of its components."""
    if components == 1:
        return {"components": 1, "head.kind": "softmax"}
    kind = f"mixture_of_{'contexts' if contexts else 'softmaxes'}"
    return {"components": components, **group("head", kind=kind, components=components, dropout=dropout)}


def place(
    name: str, shared: Mapping[str, Any], *, softmax: Mapping[str, Any], mixtures: Mapping[int, Mapping[str, Any]],
    main: int, dropout: float, tuned: Mapping[str, Mapping[str, Any]], wide: int | None = None,
    order: int | None = None, ablations: bool = True,
) -> list[dict[str, Any]]:  # fmt: skip
    """The models that are read in place of one text.

    `mixtures` are options by the number of components, of which `main` is the one of the main tables. `wide` is the
    size of the wide softmax's vectors, `order` that of the n-gram. `tuned` are measures of the two models that are
    compared in the main table: fine-tuning, the cache and dynamic evaluation.
    """
    shared = {**shared, "place": name}
    counts = sorted(mixtures)
    found: list[dict[str, Any]] = [{"model": SOFTMAX, "main": True, **shared, **softmax, **head(1), **tuned[SOFTMAX]}]
    for components in counts:
        fewer = max([k for k in counts if k < components], default=components)
        own = {**shared, **mixtures[components], "fewer": fewer}
        model = {**own, "model": MOS, "main": components == main, **head(components, dropout=dropout)}
        found.append({**model, **(tuned[MOS] if components == main else {})})
        if ablations and components == main:
            plain = {key: value for key, value in own.items() if key != "backbone.last"}
            found += [
                {**own, "model": MOC, "main": True, **head(components, dropout=dropout, contexts=True)},
                {**plain, "model": MOS_SETTINGS, "main": True, **head(1)},
            ]
    if wide is not None:
        options = group("head", kind="wide_softmax", size=wide, tied=False)
        found.append({"model": WIDE, "main": True, **shared, **softmax, "components": 1, **options})
    if order is not None:
        found.append({"model": NGRAM, "main": True, **shared, **softmax, **head(1), "measures.order": order})
    return [{"fewer": one["components"], **one} for one in found]


# Toy sentences ------------------------------------------------------------------------------------------------------


def dropouts(**of: float) -> dict[str, Any]:
    """Those of AWD-LSTM, by the part of the network that they are in."""
    return group("backbone", **{f"dropout_{part}": share for part, share in of.items()})


TOY = {
    **text("toy", "txt", length=10, vocabulary=None, limit=900, held_out_limit=300),
    **dropouts(embedding=0.0, input=0.1, hidden=0.1, output=0.1, weight=0.1), "backbone.layers": 2,
    **group("optimiser", kind="adam", learning_rate=3e-2), **group("training", epochs=3, batch_size=5),
    **group("measures", parts=["validation", "test"], segment=20, contexts=100, spacing=1, steps=40),
}  # fmt: skip
NO_MATRIX = {"measures.contexts": None, "measures.steps": None}
TOY_AGAIN = {**TOY, "corpus": "toy again", **NO_MATRIX}
TOY_TUNED = group(
    "measures", finetune={"optimiser": {"learning_rate": 1.0}, "training": {"epochs": 1}},
    cache={"window": 50, "theta": 0.5, "weight": 0.1},
    dynamic={"learning_rate": 1e-3, "decay": 1e-3, "epsilon": 1e-3, "segment": 10, "rows": 5, "batches": 5},
)  # fmt: skip
TOY_SOFTMAX = group("backbone", embedding=6, hidden=12)
TOY_MIXTURES = {components: group("backbone", embedding=4, hidden=12, last=8) for components in (2, 3)}

# Two cores ----------------------------------------------------------------------------------------------------------

# A softmax of 64 dimensions, and mixtures of 48 whose first layer is such that they have as many parameters.
SLICE = {
    **text("wikitext-2", "txt.xz", length=35, vocabulary=4000, limit=150_000, held_out_limit=30_000),
    "corpus": "WikiText-2, 4,000 words",
    **dropouts(embedding=0.02, input=0.2, hidden=0.1, output=0.2, weight=0.1), "backbone.layers": 2,
    **group("optimiser", kind="sgd", learning_rate=20.0), **group("schedule", kind="cosine", warmup=50),
    **group("training", epochs=3, batch_size=10),
    **group("measures", parts=["test"], segment=70, contexts=4000, spacing=4, steps=4000),
}  # fmt: skip
SLICE_TUNED = group(
    "measures", finetune={"optimiser": {"learning_rate": 5.0}, "training": {"epochs": 1}},
    cache={"window": 500, "theta": 1.0, "weight": 0.1},
    dynamic={"learning_rate": 1e-3, "decay": 1e-3, "epsilon": 1e-3, "segment": 20, "rows": 20, "batches": 100},
)  # fmt: skip
SLOWER = {"optimiser.learning_rate": 15.0}  # of mixtures, whose first steps are less steady than a softmax's
SLICE_MIXTURES = {
    components: {**SLOWER, **group("backbone", embedding=48, hidden=hidden, last=80)}
    for components, hidden in ((2, 185), (3, 183), (5, 179), (10, 168))
}
# More words, for the two models of Table A.2.
LARGER = {**SLICE, "corpus": "WikiText-2, 5,000 words", "data.vocabulary": 5000, **NO_MATRIX}
# Vectors so short that they limit what is learnt, and a longer text that is read once: for what components add to them.
NARROW = {
    **SLICE, **group("data", limit=600_000, held_out_limit=160_000), "training.epochs": 1, "measures.steps": None,
    **dropouts(embedding=0.0, input=0.0, hidden=0.0, output=0.0, weight=0.0),
}  # fmt: skip
NARROW_MIXTURES = {
    components: group("backbone", embedding=16, hidden=hidden, last=80)
    for components, hidden in ((2, 182), (5, 180), (10, 176))
}

# The authors' settings ----------------------------------------------------------------------------------------------

# Merity et al. 2018 and Yang et al. 2018: READMEs of their code.
AUTHORS = {
    **group("optimiser", kind="triggered_asgd", weight_decay=1.2e-6, evaluations=5), "backbone.layers": 3,
    **group("objective", kind="activation_regularised", alpha=2.0, beta=1.0), "training.held_out_batch": 10,
    **group("measures", parts=["validation", "test"], segment=70, contexts=10_000, spacing=1, steps=10_000),
}  # fmt: skip
WORDS = {"length": 70, "vocabulary": None, "limit": None, "held_out_limit": None}
PENN = {**text("penn", "txt", **WORDS), "corpus": PTB, **AUTHORS}
WIKITEXT2 = {**text("wikitext-2", "txt.xz", **WORDS), "corpus": WT2, **AUTHORS, **NO_MATRIX}
SOFTMAX_SIZES = group("backbone", embedding=400, hidden=1150)
MOS_DROPOUTS = {"embedding": 0.1, "output": 0.4, "weight": 0.5}


def _trained(learning_rate: float, batch: int, epochs: int) -> dict[str, Any]:
    return {"optimiser.learning_rate": learning_rate, **group("training", batch_size=batch, epochs=epochs)}


PENN_SOFTMAX = {**SOFTMAX_SIZES, **dropouts(**MOS_DROPOUTS, input=0.4, hidden=0.25), **_trained(30.0, 20, 500)}
PENN_MOS = {
    **group("backbone", embedding=280, hidden=960, last=620), **dropouts(**MOS_DROPOUTS, input=0.4, hidden=0.225),
    **_trained(20.0, 12, 1000),
}  # fmt: skip
WIKITEXT2_SOFTMAX = {**SOFTMAX_SIZES, **dropouts(**MOS_DROPOUTS, input=0.65, hidden=0.2), **_trained(30.0, 80, 750)}
WIKITEXT2_MOS = {
    **group("backbone", embedding=300, hidden=1150, last=650), **dropouts(**MOS_DROPOUTS, input=0.55, hidden=0.2),
    **_trained(15.0, 15, 1000),
}  # fmt: skip


def _tuned(
    mixture: float, cache: tuple[int, float, float], decay: float, epsilon: float
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Fine-tuning at a softmax's rate 30 or the mixture's own; Table A.9, in the scaling of that time; the cache of
    Grave et al. 2017 as Merity et al. set it."""
    window, theta, weight = cache
    return {
        model: group(
            "measures",
            finetune={"optimiser": {"learning_rate": rate, "weight_decay": 1.2e-6},
                      "training": {"epochs": 1000, "patience_excluding": 5}},
            cache={"window": window, "theta": theta, "weight": weight},
            dynamic={"learning_rate": 0.002, "decay": decay, "epsilon": epsilon, "segment": 5, "rows": 100,
                     "batches": None, "old_scaling": True},
        )
        for model, rate in ((SOFTMAX, 30.0), (MOS, mixture))
    }  # fmt: skip


PLACES: dict[str, Sequence[dict[str, Any]]] = {
    "demo": [
        *place(PTB, TOY, softmax=TOY_SOFTMAX, mixtures=TOY_MIXTURES, main=3, dropout=0.1, wide=10, order=3,
               tuned=dict.fromkeys((SOFTMAX, MOS), TOY_TUNED)),
        *place(WT2, TOY_AGAIN, softmax=TOY_SOFTMAX, mixtures={3: TOY_MIXTURES[3]}, main=3, dropout=0.1,
               tuned=dict.fromkeys((SOFTMAX, MOS), TOY_TUNED), ablations=False),
    ],
    "cpu": [
        *place(PTB, SLICE, softmax=group("backbone", embedding=64, hidden=160), mixtures=SLICE_MIXTURES, main=5,
               dropout=0.1, wide=256, order=5, tuned=dict.fromkeys((SOFTMAX, MOS), SLICE_TUNED)),
        *place(WT2, LARGER, softmax=group("backbone", embedding=80, hidden=200),
               mixtures={3: {**SLOWER, **group("backbone", embedding=64, hidden=218, last=100)}}, main=3, dropout=0.1,
               tuned=dict.fromkeys((SOFTMAX, MOS), SLICE_TUNED), ablations=False),
    ],
    "paper": [
        *place(PTB, PENN, softmax=PENN_SOFTMAX, mixtures=dict.fromkeys((3, 5, 10, 15, 20), PENN_MOS), main=15,
               dropout=0.29, wide=10_000, order=5, tuned=_tuned(25.0, (500, 1.0, 0.1), 0.075, 0.001)),
        *place(WT2, WIKITEXT2, softmax=WIKITEXT2_SOFTMAX, mixtures={15: WIKITEXT2_MOS}, main=15, dropout=0.29,
               tuned=_tuned(20.0, (3785, 0.6625, 0.1279), 0.02, 0.002)),
    ],
}  # fmt: skip
GRID: Grid = training_grid(COMMON, {"model": PLACES}, seeds=SEEDS)
# For the recipes that ask how the singular values of log-probabilities are spread.
SPREAD: Grid = training_grid(
    COMMON,
    {
        "model": {
            **PLACES,
            "cpu": place(PTB, NARROW, softmax=group("backbone", embedding=16, hidden=224), mixtures=NARROW_MIXTURES,
                         main=5, dropout=0.0, tuned={SOFTMAX: {}, MOS: {}}),
        }
    },
    seeds=SEEDS,
)  # fmt: skip


def words(wanted: Callable[[Cell], bool], *, of: Grid = GRID) -> Callable[[str], list[Cell]]:
    """Those of the runs that a recipe reads."""
    return lambda scale: [cell for cell in of(scale) if wanted(cell)]
