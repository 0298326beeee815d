"""Table 4.6 of Dai 2019 (thesis): what the parts of XLNet's pretraining bring, and what pretraining brings at all.

At scale cpu a network has two layers of 128 numbers and reads some tokens of novels, once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.grid import PARTS
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe, Row, layouts
from ebar.recipes.xlnet import models
from ebar.recipes.xlnet.cells import PAPER, by_seed, by_task, run_cell
from ebar.recipes.xlnet.models import BERT, DENOISING, DIRECTIONS, MEMORY, SCRATCH, SENTENCES, SPANS, XLNET, finetuning

POLARITY, SUBJECTIVITY, REVIEWS = "sentence polarity", "subjectivity", "movie reviews"
ACCURACY, GAIN, LOSS = "test accuracy", f"test accuracy − {SCRATCH}", "held-out loss of pretraining, nats a target"
WORSE = f"test accuracy − {XLNET}"

# Scale demo ---------------------------------------------------------------------------------------------------------

TOY = models.pretraining(
    {"train": "toy/train.txt", "validation": "toy/valid.txt", "vocabulary": 300, "length": 24, "reuse": 8},
    {"layers": 2, "hidden": 16, "heads": 2, "memory": 8, "dropout": 0.1},
    rate=1e-2, warmup=2, epochs=1, batch=8,
)  # fmt: skip


def toy(
    name: str, labels: Sequence[int | None] = (None,), seeds: int = 1, *, measures: Sequence[str] = ("accuracy",),
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """A made-up task."""
    data = {**dict.fromkeys(PARTS, f"toy/{name}"), "length": 24, **options}
    return finetuning(data, rate=3e-3, epochs=2, batch=16, labels=labels, seeds=seeds, measures=measures)


# Two cores ----------------------------------------------------------------------------------------------------------

NOVELS = {"train": "gutenberg-novels/train.txt.xz", "validation": "gutenberg-novels/valid.txt.xz"}
SMALL = models.pretraining(
    {**NOVELS, "vocabulary": 4000, "length": 64, "reuse": 32, "limit": 1_000_000, "held_out_limit": 20_000},
    {"layers": 2, "hidden": 128, "heads": 4, "memory": 32, "dropout": 0.0, "attention_dropout": 0.0},
    rate=1e-3, warmup=100, epochs=1, batch=32,
)  # fmt: skip
SHORT = {**SMALL, "data": {**SMALL["data"], "limit": 500_000}}  # what each of many networks can afford
HELD_OUT = {"validation_share": 0.1, "test_share": 0.2}


def snippets(
    name: str, labels: Sequence[int | None], seeds: int, length: int = 64, *, epochs: int = 4, batch: int = 32
) -> dict[str, Any]:  # fmt: skip
    """One of Pang & Lee's data sets."""
    data = {"train": f"pang-lee-reviews/{name}.zip", "length": length, **HELD_OUT}
    return finetuning(data, rate=1e-3, epochs=epochs, batch=batch, warmup=20, labels=labels, seeds=seeds, head="mean")


# The authors' settings ----------------------------------------------------------------------------------------------

# Wikipedia and books have 3.87·10⁹ tokens, of which a step reads 256 inputs of 256 new ones: 17 passes are 10⁶ steps.
BASE = models.pretraining(
    {"train": "bookscorpus-wikipedia/train.txt", "validation": "bookscorpus-wikipedia/valid.txt", "vocabulary": 32_000,
     "length": 512, "reuse": 256},
    {"layers": 12, "hidden": 768, "heads": 12, "feedforward": 3072, "memory": 384},
    rate=1e-4, warmup=10_000, epochs=17, batch=256,
)  # fmt: skip
BASE["optimiser"] = {"kind": "adam", "learning_rate": 1e-4}
BASE["schedule"]["floor"] = 1e-3


def glue(name: str, *, measures: Sequence[str] = ("accuracy",), **data: Any) -> dict[str, Any]:
    """A task of GLUE by path, reported on its development part; a tenth of the training part validates."""
    files = {part: f"glue/{name}/{file}.tsv" for part, file in (("train", "train"), ("test", "dev"))}
    return finetuning(
        {**files, "length": 128, **data}, rate=2e-5, epochs=3, batch=32, warmup=120, seeds=5, measures=measures
    )  # fmt: skip


def squad(version: str) -> dict[str, Any]:
    """SQuAD by path."""
    files = {"train": f"squad/train-v{version}.json", "test": f"squad/dev-v{version}.json"}
    return finetuning(
        {"task": "span", **files, "length": 512}, rate=3e-5, epochs=3, batch=48, warmup=1000, layer_decay=0.75, seeds=5,
        measures=["exact_match", "f1"],
    )  # fmt: skip


def race() -> dict[str, Any]:
    """RACE by path."""
    files = {part: f"race/{file}" for part, file in (("train", "train"), ("validation", "dev"), ("test", "test"))}
    return finetuning(
        {"task": "choice", **files, "length": 640}, rate=2e-5, epochs=4, batch=32, warmup=1000, seeds=5,
        measures=["accuracy", "accuracy.middle", "accuracy.high"],
    )  # fmt: skip


PAPER_TASKS = {
    "SST-2": glue("SST-2"), "MNLI": glue("MNLI", test="glue/MNLI/dev_matched.tsv"), "RACE": race(),
    "SQuAD 2.0": squad("2.0"),
}  # fmt: skip
# Of the two networks that are compared at several numbers of labels, and of those of the ablations.
MAIN_TASKS: Mapping[str, Mapping[str, Any]] = {
    "demo": {POLARITY: toy("polarity", [20, 40], 2)},
    "cpu": {POLARITY: snippets("sentence_polarity", [500, 2000, None], 2)},
    "paper": PAPER_TASKS,
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "demo": {POLARITY: toy("polarity", [40], 2), SUBJECTIVITY: toy("sentiment", [40])},
    "cpu": {
        POLARITY: snippets("sentence_polarity", [1000], 5), SUBJECTIVITY: snippets("subjectivity", [1000], 3),
        REVIEWS: snippets("movie_reviews", [600], 3, 256),
    },
    "paper": PAPER_TASKS,
}  # fmt: skip
TREES = {"demo": TOY, "cpu": SMALL, "paper": BASE}


def grid(
    names: Sequence[str], trees: Mapping[str, Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]],
    seeds: int | Mapping[str, int],
) -> Grid:  # fmt: skip
    """A cell for each network and seed of pretraining."""
    cells = {scale: [models.cell_of(tree, name, tasks[scale]) for name in names] for scale, tree in trees.items()}
    return Grid(axes={"model": cells}, seeds=seeds)


READING: dict[str, Any] = {
    "shared": "Test examples are the same in all runs: an interval over seeds holds the error of training and of which "
    "examples were labelled, and not that of which examples were tested.",
    "departures": lambda cells: [DEPARTURES],
}
DEPARTURES = (
    "BooksCorpus and Wikipedia take too long: in their place stands the beginning of novels of Project Gutenberg. "
    "RACE, SQuAD and MNLI are not at hand: in their place stand sentence polarity, subjectivity and movie reviews "
    "(Pang & Lee 2004, 2005), a fixed tenth of which validates and a fifth of which tests. Networks are small and see "
    "little text. The head reads the mean of all vectors, not that of CLS, and rates of fine-tuning were chosen among "
    "a few on validation examples of sentence polarity. BERT is here a denoising auto-encoder with XLNet's layers, "
    "without memory, with next-sentence prediction and single masked tokens."
)


def labelled_runs(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single pretraining is over."""
    task = f"{row.settings.get('task', '')}, "  # with the name of its figure behind it, or without
    known = {name: settings["seeds"] for cell in cells for name, settings in cell["tasks"].items()}
    seeds = max((number for name, number in known.items() if task.startswith(f"{name}, ")), default=1)
    return f"{seeds} seeds of fine-tuning, one pretraining" if seeds > 1 else "test examples, one run"


LABELS = Recipe(
    title="Sentence polarity by the number of labels, with and without pretraining",
    source=f"ebar's own; the question of {PAPER}, chapter 4",
    grid=grid([XLNET, SCRATCH], TREES, MAIN_TASKS, {"demo": 2, "cpu": 3, "paper": 3}),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=ACCURACY, at="score", range=(0.0, 1.0)),
            Figure(name=GAIN, at="score", where={"model": XLNET}, minus={"model": SCRATCH}, range=(-1.0, 1.0)),
            by=("model", "task", "labels"), parts=by_task,
        ),
        Figures(Figure(name=LOSS, at="pretraining.loss", where={"scratch": False}, range=(0.0, 100.0)), by=("model",)),
    ],
    tables=[
        Layout(rows=("task", "labels"), columns=("model",), figures=(ACCURACY,)),
        Layout(rows=("task", "labels"), figures=(GAIN,)),
        Layout(rows=("model",), figures=(LOSS,)),
    ],
    plots=Points(of=[GAIN], label="{task}, {labels} labels", title=GAIN, x_label="accuracy"),
    claims=Claim(says="pretraining raises the accuracy", figure=GAIN, above=0.0),
    reading=Caption(items=labelled_runs, **READING),
)  # fmt: skip

# Table 4.6 ----------------------------------------------------------------------------------------------------------

# SST-2, the task of the thesis that is most like sentence polarity.
SST2 = {
    BERT: 92.78, DENOISING: 92.60, models.XLNET_7: 92.66, XLNET: 93.35, MEMORY: 92.78, SPANS: 93.12, DIRECTIONS: 92.66,
    SENTENCES: 92.89,
}  # fmt: skip
TABLE4_6 = Recipe(
    title="What the parts of XLNet's pretraining are worth",
    source=f"{PAPER}, Table 4.6",
    grid=grid([*SST2, models.LEFT, SCRATCH], {**TREES, "cpu": SHORT}, TASKS, 1),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=ACCURACY, at="score", range=(0.0, 1.0),
                   paper=lambda row: SST2.get(row["model"]) if row["task"] == POLARITY else None),
            Figure(name=WORSE, at="score", minus={"model": XLNET}, range=(-1.0, 1.0)),
            by=("model", "task"), parts=by_seed,
        ),
        Figures(Figure(name=LOSS, at="pretraining.loss", where={"scratch": False}, bare=True), by=("model",)),
    ],
    tables=[*layouts(("model",), (ACCURACY,), (WORSE,), columns=("task",)), Layout(rows=("model",), figures=(LOSS,))],
    plots=Points(of=[WORSE], label="{model}", title="{task}", x_label=WORSE, panels=("task",)),
    claims=[
        Claim(says=says, figure=WORSE, below=0.0, where={"model": model})
        for model, says in {
            DENOISING: "permutation language modelling is better than denoising auto-encoding",
            MEMORY: "memory helps", SPANS: "span-based prediction helps", DIRECTIONS: "bidirectional data help",
            SENTENCES: "next-sentence prediction does not help",
        }.items()
    ],
    reading=Caption(items=labelled_runs, elsewhere=lambda cells: "SST-2, 12 layers, in per cent", **READING),
)  # fmt: skip
