"""Pretraining, then fine-tuning: the runs of XLNet's tables, and what is measured of each.

A cell pretrains a network once, as `ebar pretrain` does, or takes one from the hub, or leaves its weights as they were
drawn; then it fine-tunes it on each task, as `ebar finetune` does, with several numbers of labels and several seeds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace as replace_field
from functools import partial
from pathlib import Path
from typing import Any

from ebar.build.finetune import finetune_as
from ebar.build.train import build_corpus, train_as
from ebar.config.finetune import MANUAL as FINETUNE
from ebar.config.finetune import FinetuneConfig
from ebar.config.pretrain import MANUAL as PRETRAIN
from ebar.config.reader import read_tree
from ebar.config.train import TrainConfig
from ebar.data.built_tokeniser import TOKENISER
from ebar.journeys.finetune.journey import ONE
from ebar.recipes.figures import over_seeds_alone
from ebar.recipes.grid import PARTS, cell_file, file_of
from ebar.recipes.recipe import Cell, Result
from ebar.recipes.training import with_files
from ebar.recipes.xlnet.models import ACCURACY
from ebar.recipes.xlnet.toy import toy_labelled
from ebar.store.differences import as_yaml
from ebar.store.writing import once, plain, replace
from ebar.training.train import History

PAPER = "Dai 2019 (thesis)"
ALL = "all"  # labels
COST = "validation.nll_per_target"  # what is minimised counts the loss of next-sentence prediction too


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Figures of each task, by the number of labels, and how pretraining went."""
    found: dict[str, Any] = {"pretraining": None, "tasks": {}}
    if cell["pretraining"] is not None:
        found["pretraining"] = once(folder / "pretraining.json", partial(_pretrained, cell, folder))
    if cell.get("together"):
        found["tasks"] = once(folder / "together.json", partial(_together, cell, folder))
        return found
    for task, settings in cell["tasks"].items():
        found["tasks"][task] = {
            str(labels or ALL): _over_seeds(
                [
                    once(
                        folder / f"{task}-{labels or ALL}-{seed}.json",
                        partial(_finetuned, cell, task, labels, seed, folder),
                    )
                    for seed in seeds_of(cell, settings)
                ]
            )
            for labels in settings["labels"]
        }
    return found


def seeds_of(cell: Cell, settings: Mapping[str, Any]) -> range:
    """Of fine-tuning, others for each pretraining: new weights, dropout and which examples are labelled differ too.

    So an interval over pretrainings holds all of that, of a network that is not pretrained as well.
    """
    first = cell["seed"] * settings["seeds"]
    return range(first, first + settings["seeds"])


def pretraining_config(cell: Cell, folder: Path) -> TrainConfig:
    """As `ebar pretrain --config` reads it."""
    tree = cell["pretraining"]
    data = with_files(tree["data"], folder)
    data["more"] = [cell_file(name, folder) for name in data.get("more", [])]
    return read_tree({"seed": cell["seed"], **tree, "data": data}, PRETRAIN, TrainConfig)


def _pretrained(cell: Cell, folder: Path) -> dict[str, Any]:
    """The cost of held-out text, per target; of a network that is not pretrained, its tokeniser alone."""
    config, place = pretraining_config(cell, folder), folder / "pretrained"
    if cell["scratch"]:
        place.mkdir(exist_ok=True)
        for name, text in build_corpus(config).files.items():
            replace(place / name, text.encode())
        return {"loss": None}
    run = train_as(config, place)
    assert run.result is not None
    lines = [line for line in History.read(place) if "validation.loss" in line]
    return {
        "loss": min(lines, key=lambda line: line["validation.loss"])[COST],
        "steps": run.result.position.step,
        "curve": [[line["step"], line[COST]] for line in lines],
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def finetune_config(cell: Cell, task: str, labels: int | None, seed: int, folder: Path) -> FinetuneConfig:
    """As `ebar finetune --config` reads it."""
    settings = cell["tasks"][task]
    tree = dict(settings["configuration"])
    tree["data"] = {**_labelled(tree["data"], folder), "limit": labels}
    if cell["pretraining"] is None:  # a model of the hub
        tree["pretrained"] = cell["start"]
    elif cell["scratch"]:
        tree["backbone"] = cell["pretraining"]["backbone"]
        tree["data"]["tokeniser_file"] = str(folder / "pretrained" / TOKENISER)
    else:
        tree["pretrained"] = str(folder / "pretrained")
    return read_tree({"seed": seed, **tree}, FINETUNE, FinetuneConfig)


def _labelled(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Files below EBAR_DATA; those of toy/ are made in the folder."""
    found = dict(data)
    for part in [part for part in PARTS if part in data]:
        kind, _, name = str(data[part]).partition("/")
        found[part] = str(toy_labelled(name, part, folder) if kind == "toy" else file_of(str(data[part])))
    return found


def _finetuned(cell: Cell, task: str, labels: int | None, seed: int, folder: Path) -> dict[str, Any]:
    """Figures of the test part. The seed draws the labelled examples too, the same for every network."""
    place = folder / f"{task}-{labels or ALL}-{seed}"
    run = finetune_as(finetune_config(cell, task, labels, seed, folder), place)
    figures: dict[str, Any] = {name: plain(value) for name, value in run.evaluate("test").items()}
    return figures


def _together(cell: Cell, folder: Path) -> dict[str, Any]:
    """All tasks at once, with the options of the first, as `ebar finetune --also` does it."""
    first, *others = cell["tasks"]
    files = []
    for task in others:
        files.append(folder / f"{_as_name(task)}.yaml")
        files[-1].write_text(as_yaml(_labelled(cell["tasks"][task]["configuration"]["data"], folder)), encoding="utf-8")
    config = replace_field(finetune_config(cell, first, None, 0, folder), also=tuple(files))
    figures = finetune_as(config, folder / "together").evaluate("test")
    names = {first: ONE, **{task: _as_name(task) for task in others}}
    return {
        task: {ALL: {name.removeprefix(f"{known}."): {**plain(value), "each": [value.value]}
                     for name, value in figures.items() if name.startswith(f"{known}.")}}
        for task, known in names.items()
    }  # fmt: skip


def _as_name(task: str) -> str:
    return re.sub(r"\W", "_", task)


def _over_seeds(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each figure's mean over the seeds of fine-tuning with Student's interval; of one seed, its own over items."""
    found = {}
    for name in runs[0]:
        values = [run[name]["value"] for run in runs]
        if len(values) == 1:
            found[name] = {**runs[0][name], "each": values}
            continue
        value, low, high = over_seeds_alone(values)
        found[name] = {"value": value, "low": low, "high": high, "effective_sample_size": len(values), "each": values}
    return found


def by_task(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each task, each of its figures and each number of labels."""
    for task, by_labels in result["tasks"].items():
        for labels, figures in by_labels.items():
            number = labels if labels == ALL else int(labels)
            for measure in cell["tasks"][task]["measures"]:
                name = task if measure == ACCURACY else f"{task}, {measure}"
                yield {**cell, "task": name, "labels": number}, {"score": figures[measure]}


def by_seed(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """The same as one for each seed of fine-tuning, of one pretraining; a single one keeps its interval over items."""
    for own, figure in by_task(cell, result):
        if len(figure["score"]["each"]) == 1:
            yield {**own, "seed": 0}, figure
            continue
        for seed, score in enumerate(figure["score"]["each"]):
            yield {**own, "seed": seed}, {"score": score}
