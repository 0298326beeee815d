"""One run: a base, its rivals and its energies, measured on the same prefixes and the same draws of the base."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.model import build_model, load_model
from ebar.build.residual import Found, load_base, load_chunks, train_residual
from ebar.build.train import train_as
from ebar.data.chunks import Chunks, Positives
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.train import train
from ebar.models.locally_residual import LocallyResidual
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.configurations import base_config, residual_config
from ebar.recipes.residual.texts import text_figures
from ebar.store.writing import once
from ebar.training import OPTIMISERS, SCHEDULES, seeded
from ebar.types import Distribution, Stepwise


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Everything that the tables of Deng et al. 2020 are made of; an interrupted run goes on where it was."""
    rivals = {"base": once(folder / "base.json", lambda: base_figures(cell, folder))}
    if cell["base"] == "transformer":
        rivals |= {
            "ralm": once(folder / "ralm.json", lambda: _ralm(cell, folder)),
            "balm": once(folder / "balm.json", lambda: _balm(cell, folder)),
        }
    energies = {
        kind: [
            once(folder / f"{kind}-{seed}.json", partial(_energy, cell, kind, settings, seed, folder))
            for seed in range(cell["energy_seeds"])
        ]
        for kind, settings in cell["energies"].items()
    }
    return {"rivals": rivals, "energies": energies}


def trained(
    cell: Cell, kind: str, settings: Mapping[str, Any], seed: int, folder: Path, name: str
) -> tuple[Residual, Evaluation]:
    """As `ebar residual train` does it."""
    config = residual_config(cell, kind, settings, seed, folder)
    joint = train_residual(config, folder / name)
    return joint, joint.evaluate(config.evaluation, seed=seed)


def measured(model: Distribution, part: Positives) -> dict[str, Any]:
    """Size of a normalised model, and its cost of every continuation."""
    assert isinstance(model, nn.Module)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "nats": negative_log_scores(model, *part).tolist(),
        "tokens": part.x.lengths.tolist(),
    }


def base_figures(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base, trained where it is not pretrained, as `ebar train` does it."""
    if cell["base"] == "transformer":
        train_as(base_config(cell, folder), folder / "base")
    found, chunks = _loaded(cell, folder)
    return measured(found.base.q, chunks.test)


def _loaded(cell: Cell, folder: Path) -> tuple[Found, Chunks]:
    kind, settings = next(iter(cell["energies"].items()))
    config = residual_config(cell, kind, settings, 0, folder)
    found = load_base(config)
    return found, load_chunks(config, found, folder)


def _balm(cell: Cell, folder: Path) -> dict[str, Any]:
    """A plain model of matched total size."""
    model = train_as(base_config(cell, folder, layers=cell["balm_layers"]), folder / "balm").model
    return measured(_continuing(cell, model), _loaded(cell, folder)[1].test)


def _ralm(cell: Cell, folder: Path) -> dict[str, Any]:
    """The locally normalised residual: a second model whose logits are added to the base's, token by token."""
    config = base_config(cell, folder)
    chunks = _loaded(cell, folder)[1]
    corpus = build_corpus(config, folder / "base")
    base = load_model(config, folder / "base", corpus.space).requires_grad_(False)
    generator = seeded(config.seed)
    model = LocallyResidual(base, build_model(config, corpus.space))
    train(
        model, corpus, training=config.training, optimiser=make(OPTIMISERS, config.optimiser, "optimiser"),
        schedule=make(SCHEDULES, config.schedule, "schedule"), seed=config.seed, generator=generator,
        folder=folder / "ralm",
    )  # fmt: skip
    halves = (_continuing(cell, half) for half in (base, model.residual))
    return measured(LocallyResidual(*halves), chunks.test)


def _continuing(cell: Cell, model: Stepwise) -> Any:
    return Base.of(model, None, cell["continuation"]).q


def _energy(cell: Cell, kind: str, settings: Mapping[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """One energy, trained and measured."""
    name = f"{kind}-{seed}"
    cell = {**cell, **settings.get("figures", {})}
    joint, evaluation = trained(cell, kind, settings, seed, folder, name)
    found = {
        "parameters": sum(parameter.numel() for parameter in joint.energy.parameters()),
        "joint": evaluation.to_dict()["perplexity"],
        # Of each prefix, joint − base: for an interval over seeds and prefixes at once.
        "gains": [
            float(cost) + row.estimate.value
            for cost, row in zip(evaluation.of_data.tolist(), evaluation.perplexity.log_z, strict=True)
        ],
        "held_out": best_figures(folder / name / "energy"),
    }
    return found if seed else found | text_figures(cell, joint, evaluation, folder / name)


def best_figures(folder: Path) -> dict[str, float]:
    """What held-out chunks gave at the best of all evaluations."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if "validation.loss" in line]
    best = min(evaluations, key=lambda line: float(line["validation.loss"]))
    return {name.removeprefix("validation."): value for name, value in best.items() if name.startswith("validation.")}
