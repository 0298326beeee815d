"""Tables 3.1 to 3.5 of Dai 2019 (thesis), and the ablations: Transformer-XL beside a Transformer and an LSTM.

At scale cpu a model has about half a million parameters and reads about a million tokens once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Layout, Points, Recipe, Row, layouts
from ebar.recipes.rows import chosen
from ebar.recipes.training import SAME_TEXT, training_grid
from ebar.recipes.xl import cells as xl
from ebar.recipes.xl.cells import ABSOLUTE, BITS_PER_BYTE, LSTM, SEGMENTS, SLIDING, VANILLA, XL, Unit, files, systems

FROM_XL = f"test nats per token − {XL}'s, paired"
PARAMETERS = "parameters, millions"
TRAINING, EVALUATION = "seconds per 1,000 training tokens", "seconds per 1,000 test tokens"
LEVELS = "smallest memory within 0.2 % of the best, tokens"
BY = ("model", "scored")
SEEDS = {"demo": 2, "cpu": 3, "paper": 3}
MEMORIES = [0, 16, 32, 64, 128, 256, 512, 1024]
AMOUNT = (0.0, math.inf)
RATES = (
    "Learning rates are not the paper's: with so little text, larger ones are better. They were chosen in one shorter "
    "run each, on the first 30,000 tokens of the corpus's test file, which therefore validates here; figures are of "
    "the file that usually validates, which played no part. Tried were, for bytes, three rates of Transformer-XL (1e-3 "
    "to 6e-3), two of the Transformer and of the LSTM; for words, three of Transformer-XL (7e-4 to 3e-3) and of the "
    "LSTM. The others have Transformer-XL's. The clamp of distances in evaluation was chosen there too."
)
# The file that rates were chosen on is not the one that figures are of.
TUNED: dict[str, Any] = {"tested": "valid", "held_out_limit": 60_000}
TIMES = "Seconds are of one thread, on a machine that computed other things as well: they are rough."
PAIRED = Points(of=[FROM_XL], label="{model}, {scored}", title="Paired over seeds", x_label=FROM_XL)
READ: dict[str, Any] = {"run": xl.run_cell, "runs": xl.RUNS}
Models = list[dict[str, Any]]
Paper = Mapping[str, tuple[float | None, float]]


def scored(columns: int, segment: int, clamp: int | None, *, stride: int = 8) -> dict[str, Any]:
    """How the test text is scored: columns side by side, in segments, distances counted up to `clamp`."""
    own = {"columns": columns, "segment": segment, "clamp": clamp, "stride": stride}
    return {f"measures.{key}": value for key, value in own.items()}


def trained(rate: float, warmup: int, epochs: int = 1) -> dict[str, Any]:
    """By Adam, its rate falling by a cosine."""
    return {"optimiser.learning_rate": rate, "schedule.warmup": warmup, "training.epochs": epochs}


# Sizes --------------------------------------------------------------------------------------------------------------

TOY = systems(
    {**files("toy", "txt", "bytes", limit=1300, held_out_limit=300), **trained(1e-2, 2), **scored(2, 8, 16)},
    layers=2, hidden=16, heads=2, feedforward=34, length=8, batch=4, lstm=17,
    local={"data.length": 16, "training.batch_size": 2, "backbone.chunk": 4},
    xl={"measures.memories": [0, 8, 16], "measures.speed": {"lengths": [8, 16], "scored": 32, "segment": 8},
        "measures.write": {"prompt": 20, "tokens": 60, "order": 4}},
)  # fmt: skip
SMALL: dict[str, Any] = {"hidden": 128, "heads": 4, "feedforward": 384, "length": 64, "batch": 16}
SMALL_LOCAL = {"data.length": 256, "training.batch_size": 4, "backbone.chunk": 32}
WIKITEXT2 = systems(
    {**files("wikitext-2", "txt.xz", "words", 5000, **TUNED, limit=600_000), **trained(1.5e-3, 100),
     **scored(4, 64, 127)},
    **SMALL, layers=2, dropout=0.1, lstm=138, local=SMALL_LOCAL,
    xl={"measures.memories": MEMORIES, "measures.write": {"prompt": 50, "tokens": 2000, "order": 4}},
)  # fmt: skip
WIKITEXT103 = systems(
    {**files("wikitext-103", "txt.xz", "words"), **trained(2.5e-4, 0, 17), **scored(10, 64, 400)},
    layers=16, hidden=410, heads=10, feedforward=2100, length=150, batch=60, dropout=0.1, lstm=546,
    cutoffs=[20_000, 40_000, 200_000], local={"backbone.chunk": 64},
    xl={"measures.memory": 640, "measures.memories": [*MEMORIES, 640, 1600],
        "measures.write": {"prompt": 50, "tokens": 2000, "order": 4}},
)  # fmt: skip
LENGTHS = {"lengths": [100, 200, 400, 800], "scored": 128, "segment": 64}
ENWIK8_10M = {**files("enwik8-10m", "bin.xz", "bytes", **TUNED, limit=1_000_000), **trained(3e-3, 100),
              **scored(4, 64, 127)}  # fmt: skip
SLICE = systems(
    ENWIK8_10M, **SMALL, layers=3, lstm=182, lstm_rate=1e-2, local=SMALL_LOCAL,
    xl={"measures.memories": MEMORIES, "measures.speed": LENGTHS},
)  # fmt: skip
ENWIK8 = systems(
    {**files("enwik8", "bin.xz", "bytes"), **trained(2.5e-4, 0, 50), **scored(10, 80, 820)},
    layers=12, hidden=512, heads=8, feedforward=2048, length=512, batch=22, dropout=0.1, lstm=1595,
    local={"backbone.chunk": 64},
    xl={"measures.memory": 2100, "measures.memories": [*MEMORIES, 2100],
        "measures.speed": {"lengths": [800, 1800, 2800, 3800], "scored": 1024, "segment": 128}},
)  # fmt: skip
LETTERS = systems(
    {**files("enwik8-10m", "bin.xz", "characters", **TUNED, clean="wikipedia", limit=800_000),
     **trained(3e-3, 100), **scored(4, 64, 127)},
    **SMALL, layers=3, lstm=183, lstm_rate=1e-2,
)  # fmt: skip
TEXT8 = systems(
    {**files("text8", "txt.xz", "characters"), **trained(2.5e-4, 4000, 218), **scored(10, 128, 1000),
     "backbone.attention_dropout": 0.15},
    layers=24, hidden=1024, heads=8, feedforward=3072, length=768, batch=64, dropout=0.15, lstm=4155,
    xl={"measures.memory": 3800},
)  # fmt: skip
NEWS = systems(
    {**files("gmb-news", "txt.xz", "words", 5000, **TUNED, shuffle=True, seed=0, limit=400_000),
     **trained(1.5e-3, 100), **scored(4, 32, None)},
    **{**SMALL, "length": 32, "batch": 32}, layers=2, dropout=0.1, lstm=138,
)  # fmt: skip
BILLION = systems(
    {**files("one-billion-word", "txt.xz", "words"), **trained(2.5e-4, 20_000, 4), **scored(10, 32, None),
     "head.tied": False},
    layers=18, hidden=1024, heads=8, feedforward=4096, length=32, batch=224, lstm=286,
    cutoffs=[60_000, 100_000, 640_000], divide=4, xl={"measures.memory": 128},
)  # fmt: skip


def averaged(steps: int) -> dict[str, Any]:
    """Variational dropout, and weights averaged from a step on: what regularises Transformer-XL on Penn Treebank."""
    return {"optimiser.kind": "averaged_adam", "optimiser.average_from": steps, "backbone.variational": True}


def awd(layers: int, hidden: int, embedding: int, dropout: Mapping[str, float]) -> dict[str, Any]:
    """AWD-LSTM: the same for an LSTM (Merity et al. 2018)."""
    sizes = {"kind": "awd_lstm", "layers": layers, "hidden": hidden, "embedding": embedding}
    dropouts = {f"dropout_{where}": chance for where, chance in dropout.items()}
    return {f"backbone.{key}": value for key, value in {**sizes, **dropouts}.items()}


LIGHT = {"embedding": 0.05, "input": 0.2, "hidden": 0.2, "output": 0.2, "weight": 0.2}
TOY_TREEBANK = systems(
    {**files("toy", "txt", "words", limit=1300, held_out_limit=300), **trained(1e-2, 2), **scored(2, 8, 16),
     **averaged(10)},
    layers=2, hidden=16, heads=2, feedforward=32, length=8, batch=4, dropout=0.1, lstm=0, awd=awd(2, 18, 16, LIGHT),
)  # fmt: skip
LITTLE = systems(
    {**files("wikitext-2", "txt.xz", "words", 5000, **TUNED, limit=200_000), **trained(1.5e-3, 50, 3),
     **scored(4, 64, 127), **averaged(400)},
    **SMALL, layers=2, dropout=0.2, lstm=0, awd=awd(2, 172, 128, LIGHT),
)  # fmt: skip
# The authors have not said of what size their model was, but that it has 24 million parameters, or how it was trained.
TREEBANK = systems(
    {**files("penn-treebank", "txt.xz", "words"), **trained(2.5e-4, 0, 500), **scored(1, 64, 400), **averaged(100_000)},
    layers=16, hidden=380, heads=10, feedforward=720, length=70, batch=20, dropout=0.45, lstm=0,
    awd=awd(3, 1150, 400, {"input": 0.4, "hidden": 0.25}),
)  # fmt: skip

# Tables -------------------------------------------------------------------------------------------------------------


def comparison(unit: Unit, paper: Paper) -> Figures:
    """Cost, size and time of each model, and how far its cost is from Transformer-XL's."""
    own = {"scored": SEGMENTS}
    return Figures(
        Figure(name=unit.name, at=lambda run: unit.of(xl.nats_of(run["nats"])), range=AMOUNT,
               paper=_as_scored(paper, 1)),
        Figure(name=FROM_XL, at="nats", minus={"model": XL, **own}),
        Figure(name=PARAMETERS, at=lambda run: float(run["parameters"]) / 1e6, exact=True, where=own,
               paper=_as_scored(paper, 0, SEGMENTS)),
        Figure(name=TRAINING, at="training", where=own, range=AMOUNT),
        Figure(name=EVALUATION, at="seconds", range=AMOUNT),
        by=BY, parts=xl.by_protocol,
    )  # fmt: skip


def _as_scored(paper: Paper, place: int, vanilla: str = SLIDING) -> dict[tuple[str, str], float | None]:
    """The paper's Transformers are scored with a sliding window."""
    return {(model, vanilla if model == VANILLA else SEGMENTS): row[place] for model, row in paper.items()}


def table(
    number: str, *, title: str, models: Mapping[str, Models], unit: Unit, paper: Paper, sizes: str, others: str,
    grows: bool = False,
) -> Recipe:  # fmt: skip
    """Models side by side; `paper` has millions of parameters and the figure of those that a table of the paper has."""
    figures, tables = [comparison(unit, paper)], layouts(BY, (unit.name, FROM_XL, PARAMETERS), (TRAINING, EVALUATION))
    plots: list[Callable[..., Any]] = [PAIRED]
    if grows:
        growth, curve = f"{unit.name} by memory", xl.by_memory(unit)
        figures.append(
            Figures(
                Figure(name=growth, at=lambda run, memory: curve(run)[memory], where={"model": XL}, range=AMOUNT,
                       each={"memory": lambda run: {places: places for places in curve(run)}}),
                Figure(name=LEVELS, at=lambda run: xl.levels_at(curve(run)), where={"model": XL}, range=AMOUNT),
                by=("model",),
            )
        )  # fmt: skip
        tables += [
            Layout(rows=("memory",), figures=(growth,), caption=f"{XL} with other memories in evaluation"),
            Layout(rows=("model",), figures=(LEVELS,)),
        ]

        def vanilla(rows: Sequence[Row]) -> float:
            return float(chosen(rows, unit.name, {"model": VANILLA, "scored": SLIDING})[0].value or math.nan)

        plots.append(
            Curves(of={growth: "{model}"}, by=("model",), x="memory", x_label="memory in evaluation, tokens",
                   title=unit.name, levels={f"{VANILLA}, {SLIDING}": vanilla})
        )  # fmt: skip
    return Recipe(
        title=title,
        source=f"{xl.PAPER}, Table {number}",
        grid=training_grid(xl.COMMON, {"model": models}, seeds=SEEDS),
        figures=figures,
        tables=tables,
        plots=plots,
        claims=[
            Claim(says=f"{XL} is better than a Transformer", figure=FROM_XL, above=0.0, where={"model": VANILLA}),
            Claim(says="… and than an LSTM", figure=FROM_XL, above=0.0, where={"model": LSTM}),
        ],
        notes=lambda rows: [_counts(rows), others, TIMES],
        **READ,
        reading=Caption(
            shared=SAME_TEXT,
            elsewhere=(elsewhere := _elsewhere(models, sizes)),
            departures=lambda cells: [] if elsewhere(cells) is None else [RATES],
        ),
    )


def _counts(rows: Sequence[Row]) -> str:
    counts = {row.settings["model"]: float(row.value or 0) for row in chosen(rows, PARAMETERS, {})}
    spread = max(abs(count / counts[XL] - 1) for count in counts.values())
    said = ", ".join(f"{model} {count:.3f}" for model, count in counts.items())
    return f"Parameters, millions: {said}; they differ from {XL}'s by at most {100 * spread:.1f} %."


def _elsewhere(models: Mapping[str, Models], sizes: str) -> Callable[[Sequence[Cell]], str | None]:
    """The paper's figures are of other runs, unless these are those of scale paper."""
    theirs = models["paper"][0]["data.train"]
    return lambda cells: None if cells[0]["configuration"]["data"]["train"] == theirs else sizes


TABLE3_1 = table(
    "3.1 (WikiText-103); at scale cpu WikiText-2, its 5,000 most frequent words",
    title="Transformer-XL on WikiText",
    models={"demo": TOY, "cpu": WIKITEXT2, "paper": WIKITEXT103},
    unit=xl.PERPLEXITY,
    paper={XL: (151.0, 24.0), VANILLA: (247.0, 20.5), LSTM: (None, 48.7)},
    sizes="WikiText-103, all words",
    others="Of the paper's rows: the Transformer is Baevski and Auli's with adaptive inputs (contemporary), the LSTM "
    "Grave et al.'s. Also there: TCN 45.2, GCNN-8 44.9, LSTM with a neural cache 40.8, GCNN-14 37.2, QRNN (151M) 33.0, "
    "Hebbian with cache 29.9, Transformer-XL Large (257M) 18.3.",
    grows=True,
)
TABLE3_2 = table(
    "3.2 (enwik8); at scale cpu a slice of its first 10 MB",
    title="Transformer-XL on enwik8",
    models={"demo": TOY, "cpu": SLICE, "paper": ENWIK8},
    unit=BITS_PER_BYTE,
    paper={XL: (41.0, 1.06), VANILLA: (44.0, 1.11), LSTM: (46.0, 1.24)},
    sizes="enwik8, 90 MB",
    others="Of the paper's rows: the Transformer is Al-Rfou et al.'s of 12 layers, with auxiliary losses, the LSTM "
    "Krause et al.'s large mLSTM. Also there: LN HyperNetworks (27M) 1.34, LN HM-LSTM (35M) 1.32, RHN (46M) 1.27, "
    "FS-LSTM-4 (47M) 1.25, cmix v13 1.23, Al-Rfou et al.'s 64 layers (235M) 1.06, Transformer-XL of 18 layers (88M) "
    "1.03, of 24 layers (277M) 0.99.",
    grows=True,
)
TABLE3_3 = table(
    "3.3 (text8); at scale cpu the first 10 MB of enwik8, cleaned in the same manner",
    title="Transformer-XL on text8",
    models={"demo": [{**model, "data.tokeniser": "characters"} for model in TOY[:3]], "cpu": LETTERS, "paper": TEXT8},
    unit=xl.BITS_PER_CHARACTER,
    paper={XL: (277.0, 1.08), VANILLA: (44.0, 1.18), LSTM: (45.0, 1.27)},
    sizes="text8, 90 MB",
    others="Of the paper's rows: the Transformer is Al-Rfou et al.'s of 12 layers, the LSTM Krause et al.'s large "
    "mLSTM. Also there: BN-LSTM 1.36, LN HM-LSTM (35M) 1.29, RHN (45M) 1.27, Al-Rfou et al.'s 64 layers (235M) 1.13.",
)
TABLE3_4 = table(
    "3.4 (One Billion Word); at scale cpu news of the Groningen Meaning Bank, its sentences shuffled",
    title="Transformer-XL on sentences in no order",
    models={
        "demo": [{**model, "data.tokeniser": "words", "data.shuffle": True, "data.seed": 0} for model in TOY[:3]],
        "cpu": NEWS, "paper": BILLION,
    },
    unit=xl.PERPLEXITY,
    paper={XL: (460.0, 23.5), VANILLA: (460.0, 24.1), LSTM: (1800.0, 30.6)},
    sizes="One Billion Word",
    others="Of the paper's rows: the Transformer is Baevski and Auli's smaller one with adaptive inputs "
    "(contemporary), the LSTM Jozefowicz et al.'s. Also there: sparse non-negative (33B) 52.9, RNN-1024 with 9-grams "
    "(20B) 51.3, G-LSTM-2 36.0, GCNN-14 31.9, LSTM with CNN input (1.04B) 30.0, mixtures of experts (5B) 34.1 and "
    "28.0, Mesh TensorFlow (4.9B) 24.0, adaptive inputs (1.0B) 23.7, Transformer-XL Large (0.8B) 21.8.",
)  # fmt: skip
TABLE3_5 = table(
    "3.5 (Penn Treebank); at scale cpu a tenth of WikiText-2, its 5,000 most frequent words, read three times",
    title="Transformer-XL on little text",
    models={"demo": TOY_TREEBANK, "cpu": LITTLE, "paper": TREEBANK},
    unit=xl.PERPLEXITY,
    paper={XL: (24.0, 54.52), LSTM: (24.0, 58.8)},
    sizes="Penn Treebank",
    others="The LSTM is Merity et al.'s AWD-LSTM, here and in the paper. The authors of Transformer-XL have not "
    "published how they trained on Penn Treebank, and nobody is known to have had their figure again. Also in the "
    "paper's table: tied variational LSTM (24M) 73.2, variational RHN (23M) 65.4, NAS cell (25M) 64.0, efficient NAS "
    "(24M) 58.6, differentiable NAS (23M) 56.1, AWD-LSTM-MoS (22M) 55.97, tuned dropout (24M) 55.3; with two-step "
    "finetuning AWD-LSTM 57.3 and MoS 54.44.",
)

# Ablations ----------------------------------------------------------------------------------------------------------

SHAW, RECURRENT = "Shaw's terms (a) and (b)", "absolute positions, recurrence"
ALONE, AUXILIARY = "relative positions, no recurrence", f"{VANILLA}, auxiliary losses"


def variants(models: Models) -> Models:
    """Transformer-XL with something missing; the parameters are as many, by the width of the feed-forward part.

    Shaw's terms have a vector for each of 2 × memory distances in place of a projection.
    """
    full, vanilla = models[:2]
    bare = {key: value for key, value in full.items() if key in vanilla}
    wider = {**ABSOLUTE, "backbone.feedforward": vanilla["backbone.feedforward"]}
    return [
        full,
        {**bare, "model": SHAW, "backbone.positions": "shaw",
         "backbone.feedforward": vanilla["backbone.feedforward"] - full["backbone.memory"]},
        {**bare, "model": RECURRENT, **wider},
        {**bare, "model": ALONE, "backbone.recurrence": False},
        vanilla,
        # Windows in any order, each by itself, as Al-Rfou et al. have them.
        {**vanilla, "model": AUXILIARY, "objective.kind": "auxiliary_losses", "data.kind": "text",
         "training.drop_last": True},
    ]  # fmt: skip


ABLATIONS = Recipe(
    title="What Transformer-XL owes to recurrence and to relative positions",
    source=f"{xl.PAPER}, section 3.2.2, and the ablation of Dai et al. 2019 (its figures could not be checked and are "
    "left out); at scale cpu a slice of enwik8",
    grid=training_grid(
        xl.COMMON, {"model": {"demo": variants(TOY), "cpu": variants(SLICE), "paper": variants(ENWIK8)}}, seeds=SEEDS
    ),
    figures=comparison(BITS_PER_BYTE, {}),
    tables=layouts(BY, (BITS_PER_BYTE.name, FROM_XL, PARAMETERS), (TRAINING, EVALUATION)),
    plots=PAIRED,
    claims=[
        Claim(says=said, figure=FROM_XL, above=0.0, where={"model": model})
        for said, model in {
            "the terms that Shaw et al. lack matter": SHAW,
            "absolute positions do not go with recurrence": RECURRENT,
            "recurrence matters, with relative positions": ALONE,
            "… and with absolute ones": VANILLA,
            "auxiliary losses do not make up for both": AUXILIARY,
        }.items()
    ],
    notes=lambda rows: [_counts(rows), TIMES],
    **READ,
    reading=Caption(
        shared=SAME_TEXT,
        departures=lambda cells: [] if _elsewhere({"paper": ENWIK8}, "")(cells) is None else [
            RATES, "All variants have the rate that was best for the whole model, which favours it."
        ],
    ),
)  # fmt: skip
