"""One run of a translation experiment: a base model and its E-ARM twin that share their history, and their worth."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Generator, Tensor

from ebar.backbones.transformer import EncoderDecoder
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.exposure_bias import exposure_bias
from ebar.evaluation.overlap import meteor, rouge
from ebar.evaluation.translation import bleu, bleu_by_length, bleu_difference
from ebar.heads.softmax import Softmax
from ebar.journeys.forked import Branch, Fork, train_forked
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.earm import Earm
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.objectives.scheduled_sampling import ScheduledSampling
from ebar.recipes.earm.translation_data import Task, task_of
from ebar.recipes.recipe import Cell
from ebar.samplers.beam import decode
from ebar.samplers.energy_resampling import energy_resampling
from ebar.training.budgeted import Budgeted
from ebar.training.optimisers import Adam
from ebar.training.schedules import Cosine, InverseSquareRoot, Schedule
from ebar.types import Objective


def build(cell: Cell, task: Task) -> Autoregressive:
    """The model of a cell, its weights drawn from torch's own state."""
    backbone = EncoderDecoder(
        task.space.vocabulary, layers=cell["layers"], encoder_layers=cell["layers"], hidden=cell["hidden"],
        heads=cell["heads"], feedforward=cell["feedforward"], dropout=cell["dropout"],
    )  # fmt: skip
    return Autoregressive(backbone, Softmax(backbone.width, task.space.vocabulary), task.space)


def objectives(cell: Cell, steps: int) -> dict[str, Callable[[Autoregressive], Objective]]:
    """Of the base and of its twin; `steps` in all. Label smoothing touches the cross-entropy only."""
    smoothing = cell["label_smoothing"]
    scheduled: dict[str, Any] = {
        "decay": "linear",
        "slope": (1 - cell["least_truth"]) / steps,
        "floor": cell["least_truth"],
    }

    def base(model: Autoregressive) -> Objective:
        if cell["scheduled_sampling"]:
            return ScheduledSampling(model=model, label_smoothing=smoothing, **scheduled)
        return MaximumLikelihood(model=model, label_smoothing=smoothing)

    def earm(model: Autoregressive) -> Objective:
        return Earm(
            model=model, base="scheduled_sampling" if cell["scheduled_sampling"] else "maximum_likelihood",
            label_smoothing=smoothing, **scheduled, **cell["earm"],
        )  # fmt: skip

    return {"base": base, "earm": earm}


def train_pair(cell: Cell, task: Task, folder: Path) -> dict[str, Branch]:
    """Branches of one history, each trained to the end."""
    batches = Budgeted(data=task.train, tokens=cell["tokens"], seed=cell["seed"])
    steps = len(batches)
    all_objectives = objectives(cell, steps * cell["epochs"])
    fork = Fork(
        epochs=cell["epochs"],
        at=cell["start_epoch"],
        seed=cell["seed"],
        optimiser=Adam(
            learning_rate=cell["learning_rate"], betas=(0.9, 0.98), weight_decay=cell.get("weight_decay", 0.0)
        ),
        schedule=_schedule(cell, steps),
        checkpoint_every=200,
    )
    validation = Budgeted(data=task.validation, tokens=8 * cell["tokens"], shuffle=False)
    return train_forked(
        folder,
        fork,
        lambda: build(cell, task),
        all_objectives["base"],
        all_objectives,
        batches,
        lambda model: (MaximumLikelihood(model=model), validation),
    )


def _schedule(cell: Cell, steps: int) -> Schedule:
    if cell["schedule"] == "cosine":
        return Cosine(steps=cell["epochs"] * steps, warmup=cell["warmup"])
    return InverseSquareRoot(warmup=cell["warmup"])


def limits(task: Task) -> Int[Tensor, " rows"]:
    """Twice the source and ten more: longer than any reference here, and a bound on what a bad model rambles."""
    return (2 * task.test[1].given.lengths + 10).clamp(max=task.space.length)


def hypotheses(model: Autoregressive, task: Task, width: int) -> list[str]:
    """Translations of the test sources: greedy for width 1, else by beam search."""
    found = decode(model, task.test[1], width=width, maximal_length=limits(task), enough=width)
    return task.text(found.first())


def resampled(model: Autoregressive, task: Task, candidates: int, seed: int) -> list[str]:
    """Top-K energy resampling (document 003, D.4): one of the beam's K best, by the energy at its last step."""
    generator = Generator().manual_seed(folded(seed, candidates))
    found = energy_resampling(model, task.test[1], candidates=candidates, distinct=True, generator=generator)
    return task.text(found.x)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Both branches, trained and measured every way that a table of the document asks for."""
    task = task_of(cell)
    branches = train_pair(cell, task, folder)
    translations = {
        name: {str(width): hypotheses(branch.module, task, width) for width in cell["widths"]}
        for name, branch in branches.items()
    }
    pairs = {
        width: bleu_difference(translations["earm"][width], translations["base"][width], task.references)._asdict()
        for width in translations["base"]
    }
    found = exposure_bias(branches["earm"].module, branches["base"].module, *task.test)
    return {
        "branches": {name: _measured(cell, task, branch, translations[name]) for name, branch in branches.items()},
        "difference": pairs,
        "exposure": {"own": found.own._asdict(), "gold": found.gold._asdict(), "tested": found.own_tested},
        "steps": {name: branch.log[-1]["step"] for name, branch in branches.items()},
        "parameters": sum(parameter.numel() for parameter in branches["base"].module.parameters()),
        "sources": task.sources[-KEPT:],
        "references": task.references[-KEPT:],  # the longest: there is more to go wrong
    }


KEPT = 200  # translations written down, for the cases


def _measured(cell: Cell, task: Task, branch: Branch, translations: dict[str, list[str]]) -> dict[str, Any]:
    best = translations[str(max(cell["widths"]))]
    costs = cross_entropy(branch.module, task.test[0], context=task.test[1]).pooled_per_token
    overlap = rouge(best, task.references)
    if cell["meteor"] and cell["direction"].endswith("→en"):  # WordNet speaks English only
        overlap["meteor"] = meteor(best, task.references)
    return {
        "bleu": {width: _bleu(texts, task.references) for width, texts in translations.items()},
        "by_length": {
            part.name: None if part.score is None else part.score._asdict()
            for part in bleu_by_length(best, task.references, edges=cell["edges"])
        },
        "overlap": {name: value._asdict() for name, value in overlap.items()},
        "resampling": {
            str(k): _bleu(resampled(branch.module, task, k, cell["seed"]), task.references) for k in cell["candidates"]
        },
        "nats_per_token": costs._asdict(),
        "curves": {
            "training": branch.curve("nll_per_token"),
            "validation": branch.curve("validation.loss"),
            "effective_share": branch.curve("effective_share"),
            "gap": branch.curve("log_partition_gap"),
        },
        "texts": best[-KEPT:],
    }


def _bleu(texts: list[str], references: list[str]) -> dict[str, Any]:
    found = bleu(texts, references)
    return {**found.score._asdict(), "signature": found.signature}
