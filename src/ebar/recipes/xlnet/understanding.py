"""Tables 4.1 to 4.5 of Dai 2019 (thesis): XLNet-Large on RACE, SQuAD, text classification, GLUE and ClueWeb09-B.

The data are found by path, below the folder that EBAR_DATA names, and at scale paper the network on the hub. At scale
demo made-up files of the same formats stand in their place; at scale cpu a small network is pretrained first.
"""

from collections.abc import Mapping
from typing import Any

from ebar.recipes.pieces import Caption, Figure, Figures, Grid, Layout, Points, Recipe
from ebar.recipes.xlnet.cells import PAPER, by_task, run_cell
from ebar.recipes.xlnet.models import XLNET, cell_of, finetuning
from ebar.recipes.xlnet.tables import SMALL, TOY, glue, labelled_runs, race, squad, toy

SCORE, ERROR = "test score", "error"
ALONE, TOGETHER = "XLNet, one task", "XLNet, all tasks at once"
Tasks = Mapping[str, Mapping[str, Any]]


def table(
    title: str,
    number: int,
    tasks: Tasks,
    made_up: Tasks,
    theirs: Mapping[str, float],
    unit: str,
    *,
    together: bool = False,
) -> Recipe:
    """A recipe that fine-tunes on each task, or on all at once too, and reads scores of each."""
    cells = {
        "demo": [{**cell_of(TOY, XLNET, made_up), "model": ALONE}],
        "cpu": [{**cell_of(SMALL, XLNET, tasks), "model": ALONE}],
        # XLNet-Large, as its authors published it.
        "paper": [
            {"model": ALONE, "scratch": False, "pretraining": None, "start": "xlnet/xlnet-large-cased", "tasks": tasks}
        ],
    }
    if together:
        cells = {scale: [*own, {**own[0], "model": TOGETHER, "together": True}] for scale, own in cells.items()}

    return Recipe(
        title=title,
        source=f"{PAPER}, Table 4.{number}",
        grid=Grid(axes={"model": cells}, seeds=1),
        run=run_cell,
        figures=Figures(
            Figure(name=SCORE, at="score", range=(-1.0, 1.0), paper={(ALONE, task): theirs[task] for task in theirs}),
            by=("model", "task"), parts=by_task,
        ),
        tables=Layout(rows=("task",), columns=("model",), figures=(SCORE,)),
        plots=Points(of=[SCORE], label="{task}, {model}", title=SCORE, x_label=unit),
        reading=Caption(
            items=labelled_runs, elsewhere=lambda cells: f"XLNet-Large, {unit}",
            departures=lambda cells: [
                "The thesis reports a single model or its leaderboard entry; here each score is a mean over seeds of "
                "fine-tuning, of the part named as test data."
            ],
        ),
    )  # fmt: skip


def texts(name: str, length: int = 512) -> dict[str, Any]:
    """A data set of text classification by path: a table of labels and texts for training and for testing."""
    files = {part: f"{name}/{part}.tsv" for part in ("train", "test")}
    return finetuning({**files, "length": length}, rate=2e-5, epochs=3, batch=32, warmup=1000, measures=[ERROR])


TABLE4_1 = table(
    "Multiple choice: RACE", 1, {"RACE": race()},
    {"RACE": toy("race", task="choice", length=64, measures=["accuracy", "accuracy.middle", "accuracy.high"])},
    {"RACE": 81.75, "RACE, accuracy.middle": 85.45, "RACE, accuracy.high": 80.21}, "in per cent",
)  # fmt: skip
TABLE4_2 = table(
    "Answers in a passage: SQuAD", 2, {"SQuAD 1.1": squad("1.1"), "SQuAD 2.0": squad("2.0")},
    {"SQuAD 2.0": toy("squad", task="span", measures=["exact_match", "f1"])},
    {"SQuAD 1.1, exact_match": 88.95, "SQuAD 1.1, f1": 94.52, "SQuAD 2.0, exact_match": 86.12, "SQuAD 2.0, f1": 88.79},
    "in per cent, development data",
)  # fmt: skip
TABLE4_3 = table(
    "Text classification", 3,
    {name: texts(path) for name, path in (
        ("IMDB", "imdb"), ("Yelp-2", "yelp-2"), ("Yelp-5", "yelp-5"), ("DBpedia", "dbpedia"), ("AG", "ag-news"),
        ("Amazon-2", "amazon-2"), ("Amazon-5", "amazon-5"))},
    {"IMDB": toy("sentiment", measures=[ERROR])},
    {f"{name}, {ERROR}": value for name, value in (
        ("IMDB", 3.79), ("Yelp-2", 1.55), ("Yelp-5", 27.80), ("DBpedia", 0.62), ("AG", 4.49), ("Amazon-2", 2.40),
        ("Amazon-5", 32.26))},
    "error in per cent",
)  # fmt: skip
TABLE4_4 = table(
    "GLUE", 4,
    {**{name: glue(name) for name in ("QNLI", "QQP", "RTE", "SST-2", "MRPC", "WNLI")},
     "MNLI": glue("MNLI", test="glue/MNLI/dev_matched.tsv"), "CoLA": glue("CoLA", measures=["matthews"]),
     "STS-B": glue("STS-B", task="regression", measures=["pearson"])},
    {"SST-2": toy("sentiment"), "RTE": toy("entailment"),
     "CoLA": toy("acceptability", text_column=3, label_column=1, measures=["matthews"]),
     "STS-B": toy("similarity", task="regression", measures=["pearson"])},
    {"MNLI": 89.8, "QNLI": 93.9, "QQP": 91.8, "RTE": 83.8, "SST-2": 95.6, "MRPC": 89.2, "CoLA, matthews": 63.6,
     "STS-B, pearson": 91.8},
    "in per cent, development data", together=True,
)  # fmt: skip
RETRIEVAL = ["ndcg@20", "err@20"]


def ranked(task: Mapping[str, Any]) -> dict[str, Any]:
    """By kernel pooling on the network's token vectors, which do not learn."""
    configuration = {**task["configuration"], "frozen": True, "head": "kernel_pooling"}
    return {**task, "measures": RETRIEVAL, "configuration": configuration}


TABLE4_5 = table(
    "Ranking documents by frozen token vectors and kernel pooling", 5,
    {"ClueWeb09-B": ranked(finetuning(
        {"task": "ranking", "train": "clueweb09-b/train.jsonl", "test": "clueweb09-b/test.jsonl", "length": 512},
        rate=1e-3, epochs=10, batch=32,
    ))},
    {"ClueWeb09-B": ranked(toy("ranking", task="ranking"))},
    {"ClueWeb09-B, ndcg@20": 31.10, "ClueWeb09-B, err@20": 20.28}, "in per cent",
)  # fmt: skip
