"""A classifier of sentiment as the reward of a language model: what there is to be had at which KL, beside best-of-n.

A cell fine-tunes the classifier as `ebar finetune` does, and takes its probability of a label as the reward of what the
language model goes on with, as `ebar control reward` does. All β are of the same draws of the language model.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.build.finetune import finetune_as, scores_by
from ebar.config.finetune import MANUAL, FinetuneConfig
from ebar.config.reader import read_tree
from ebar.evaluation.best_of_n import expected_best, kl_bound, n_for
from ebar.journeys.texts import reward
from ebar.models.construction import from_pretrained
from ebar.recipes.control.tables import write_toy
from ebar.recipes.grid import file_of
from ebar.recipes.pieces import Caption, Cell, Figure, Figures, Grid, Layout, Points, Recipe, Result, Row
from ebar.recipes.residual.configurations import path_of
from ebar.recipes.xlnet.toy import toy_labelled
from ebar.store.writing import plain

MODEL = "the model"
LOG_Z, VALUE, KL, WORTH = "log Z", "β·log Z", "KL(p‖q), nats", "effective samples per draw"
REWARD, SAME, COUNT = "expected reward under p", "of the best of n, at no more KL", "this n"
BEST, BOUND = "expected reward", "KL from the model at most, nats"
ACCURACY, SCORE = "accuracy of the classifier", "reward"
OF_CHECK = {
    LOG_Z: "log_z", VALUE: "value: β·log Z", REWARD: "p: expected reward", KL: "KL(p‖model), nats", WORTH: WORTH,
}  # fmt: skip
DRAWS = "{draws:,} draws of the language model, one classifier"

TOY: dict[str, Any] = {
    "classifier": {
        "data": {"train": "toy/sentiment", "length": 24},
        "backbone": {"kind": "xlnet", "layers": 1, "hidden": 16, "heads": 2},
        "optimiser": {"kind": "adamw", "learning_rate": 3e-3}, "training": {"epochs": 1, "batch_size": 16},
    },
    "label": "1", "model": "toy", "prompt": "", "length": 8, "draws": 80, "betas": [0.5, 0.1], "best_of": [1, 4],
    "shown": 2,
}  # fmt: skip
SMOLLM2: dict[str, Any] = {
    "classifier": {
        "data": {
            "train": "pang-lee-reviews/sentence_polarity.zip", "length": 48, "limit": 3000, "validation_share": 0.1,
            "test_share": 0.2, "held_out_limit": 1000,
        },
        "pretrained": "minilm", "head": "mean", "optimiser": {"kind": "adamw", "learning_rate": 1e-4},
        "schedule": {"kind": "linear", "warmup": 20}, "training": {"epochs": 1, "batch_size": 16, "clip": 1.0},
    },
    "label": "pos", "model": "smollm2", "prompt": "This movie is", "length": 20, "draws": 2000,
    "betas": [1.0, 0.2, 0.05], "best_of": [1, 2, 4, 16, 64], "shown": 4,
}  # fmt: skip
WHOLE = {**SMOLLM2["classifier"], "data": {**SMOLLM2["classifier"]["data"], "limit": None, "held_out_limit": None}}
PAPER = {**SMOLLM2, "classifier": WHOLE, "length": 64, "draws": 100_000}
GRID = Grid(scales={"demo": TOY, "cpu": SMOLLM2, "paper": PAPER}, seeds={"demo": 1, "cpu": 1, "paper": 3})


def classifier_config(cell: Cell, folder: Path) -> FinetuneConfig:
    """As `ebar finetune --config` reads it; files lie below EBAR_DATA, that of toy/ is made in the folder."""
    tree = dict(cell["classifier"])
    name = str(tree["data"]["train"])
    train = toy_labelled(name[4:], "train", folder) if name.startswith("toy/") else file_of(name)
    start = {"pretrained": path_of(tree["pretrained"])} if "pretrained" in tree else {}
    data = {**tree["data"], "train": str(train)}
    return read_tree({"seed": cell["seed"], **tree, **start, "data": data}, MANUAL, FinetuneConfig)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The classifier, draws of the language model, and what each β makes of them, as plain JSON."""
    run = finetune_as(classifier_config(cell, folder), folder / "classifier")
    where = str(write_toy(folder / "toy")) if cell["model"] == "toy" else path_of(cell["model"])
    model, scores = from_pretrained(where, length=cell["length"]), scores_by(run, cell["label"])
    ruled = {beta: reward(model, scores, beta=beta, prompt=cell["prompt"], rows=64) for beta in cell["betas"]}
    first, generator = next(iter(ruled.values())), Generator().manual_seed(cell["seed"])
    drawn = first.draw(cell["draws"], generator=generator)
    found: dict[str, Any] = {"accuracy": run.evaluate("test")["accuracy"], "betas": {}, "best_of": {}, "texts": {}}
    shown = {MODEL: drawn.x.select(slice(cell["shown"]))}
    for beta, one in ruled.items():
        checked = one.check(drawn=drawn)
        figures: dict[str, Any] = {name: checked[key] for name, key in OF_CHECK.items()}
        count = min(n_for(figures[KL].value), cell["draws"] // 4)
        found["betas"][beta] = {**figures, SAME: expected_best(drawn.rewards, count), COUNT: count}
        shown[f"p, β = {beta:g}"] = one.texts(drawn, cell["shown"], generator=generator).draws.x
    for n in cell["best_of"]:
        found["best_of"][n] = {BEST: expected_best(drawn.rewards, n), BOUND: kl_bound(n)}
    for name, x in shown.items():
        found["texts"][name] = dict(zip(first.text(x), first.energy.rewards(x).tolist(), strict=True))
    return dict(plain(found))


def texts(results: Sequence[Result]) -> list[Row]:
    """Those of the first seed, each with its reward."""
    of, (_, first) = "text of", results[0]
    return [
        Row(name=SCORE, settings={of: name, "text": text}, value=float(value))
        for name, own in first["texts"].items()
        for text, value in own.items()
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What p and best-of-n are."""
    return [
        "p ∝ q·e^(r/β) has the largest E[r] − β·KL(·‖q) of all models, which is β·log Z, and so the largest expected "
        "reward at its own KL: no tuning can do better. Best of n is drawn without weights; its KL, log n − (n − 1)/n "
        "at most, is compared at the largest n at which that bound is not above KL(p‖q).",
        "The reward is what the classifier says, not what a reader would: it judges the prompt and 20 tokens after it, "
        "mostly the beginning of a sentence, and was taught by whole snippets of reviews.",
    ]


EACH = {"β": "betas"}
RECIPE = Recipe(
    title="A classifier of sentiment as the reward of SmolLM2-135M",
    source="ebar's own, after Korbak et al. 2022 (arXiv:2205.11275) and Beirami et al. 2024 (arXiv:2401.01879)",
    grid=GRID,
    run=run_cell,
    figures=[
        Figures(
            *(Figure(name=name, at=f"betas.{{β}}.{name}", each=EACH) for name in (LOG_Z, VALUE, REWARD, KL)),
            Figure(name=WORTH, at=f"betas.{{β}}.{WORTH}", each=EACH, bare=True),
            Figure(name=SAME, at=f"betas.{{β}}.{SAME}", each=EACH),
            Figure(name=COUNT, at=f"betas.{{β}}.{COUNT}", each=EACH, bare=True),
            Figure(name=BEST, at=f"best_of.{{n}}.{BEST}", each={"n": "best_of"}),
            Figure(name=BOUND, at=f"best_of.{{n}}.{BOUND}", each={"n": "best_of"}, exact=True),
            Figure(name=ACCURACY, at="accuracy", items="test snippets, one classifier", range=(0.0, 1.0)),
            by=["model"],
        ),
        texts,
    ],
    tables=[
        Layout(rows=["β"], figures=[LOG_Z, VALUE, KL, WORTH], caption="p ∝ q·e^(r/β)"),
        Layout(rows=["β"], figures=[REWARD, SAME, COUNT], caption="Its reward, beside that of the best of n draws"),
        Layout(rows=["n"], figures=[BEST, BOUND], caption="The best of n draws; n = 1 is the model itself"),
        Layout(rows=["model"], figures=[ACCURACY]),
        Layout(rows=["text of", "text"], figures=[SCORE], caption="Texts"),
    ],
    plots=[
        Points(of=[REWARD, SAME], label="β = {β}: {figure}", title="expected reward", x_label="probability of `pos`"),
        Points(of=[BEST], label="best of {n}", title="best of n", x_label="probability of `pos`"),
    ],
    notes=notes,
    reading=Caption(items=DRAWS, ranges={REWARD: (0.0, 1.0), SAME: (0.0, 1.0), BEST: (0.0, 1.0), KL: (0.0, math.inf)}),
)  # fmt: skip
