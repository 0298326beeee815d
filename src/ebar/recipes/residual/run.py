"""One run: a base, its rivals and its energies, measured on the same prefixes and the same draws of the base."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ebar.build.residual import load_base, load_chunks, train_residual
from ebar.build.train import build_corpus, build_model, load_model, train_as
from ebar.data.chunks import Positives
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.evaluation.diversity import unique_difference
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.train import train
from ebar.models.tilted import LocallyResidual
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.cells import NOTHING, seeds_of_energy
from ebar.recipes.residual.configurations import base_config, residual_config
from ebar.recipes.residual.parts import PARTS, repetition
from ebar.recipes.residual.students import students
from ebar.store.writing import once, plain
from ebar.training.optimisers import OPTIMISERS, SCHEDULES
from ebar.training.randomness import seeded
from ebar.training.train import History
from ebar.types import Distribution


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Everything that the tables of Deng et al. 2020 are made of; an interrupted run goes on where it was."""
    kinds = {"base": base_figures} | {kind: RIVALS[kind] for kind in cell["rivals"]}
    rivals = {kind: once(folder / f"{kind}.json", partial(rival, cell, folder)) for kind, rival in kinds.items()}
    energies = {
        name: [
            once(folder / f"{name}-{seed}.json", partial(_energy, cell, name, settings, seed, folder))
            for seed in seeds_of_energy(cell, name)
        ]
        for name, settings in cell["energies"].items()
    }
    return {"rivals": rivals, "energies": energies}


def trained(cell: Cell, settings: Mapping[str, Any], seed: int, folder: Path, name: str) -> tuple[Residual, Evaluation]:
    """As `ebar residual train` does it."""
    config = residual_config(cell, settings, seed, folder)
    joint = train_residual(config, folder / name)
    return joint, joint.evaluate(config.evaluation, seed=seed)


def base_figures(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base, trained where it is not pretrained, as `ebar train` does it."""
    if cell["base"] == "transformer":
        train_as(base_config(cell, folder), folder / "base")
    return _measured(*_loaded(cell, folder))


def _measured(model: Distribution, part: Positives) -> dict[str, Any]:
    """Size of a normalised model, and its cost of every continuation."""
    assert isinstance(model, nn.Module)
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": size, "nats": negative_log_scores(model, *part).tolist(), "tokens": part.x.lengths.tolist()}


def _loaded(cell: Cell, folder: Path) -> tuple[Distribution, Positives]:
    """The base, and the continuations it is measured by."""
    config = residual_config(cell, next(iter(cell["energies"].values())), 0, folder)
    found = load_base(config)
    return found.base.q, load_chunks(config, found, folder).test.spread(cell["prefixes"])


def _balm(cell: Cell, folder: Path) -> dict[str, Any]:
    """A plain model of matched total size."""
    model = train_as(base_config(cell, folder, layers=cell["balm_layers"]), folder / "balm").model
    return _measured(Base.of(model, None, cell["continuation"]).q, _loaded(cell, folder)[1])


def _ralm(cell: Cell, folder: Path) -> dict[str, Any]:
    """The locally normalised residual: a second model whose logits are added to the base's, token by token."""
    config = base_config(cell, folder)
    _, test = _loaded(cell, folder)
    corpus = build_corpus(config, folder / "base")
    base = load_model(config, folder / "base", corpus.space).requires_grad_(False)
    generator = seeded(config.seed)
    model = LocallyResidual(base, build_model(config, corpus.space))
    train(
        model, corpus, training=config.training, optimiser=config.optimiser.make(OPTIMISERS),
        schedule=config.schedule.make(SCHEDULES), seed=config.seed, generator=generator,
        folder=folder / "ralm",
    )  # fmt: skip
    halves: Any = (Base.of(half, None, cell["continuation"]).q for half in (base, model.residual))
    return _measured(LocallyResidual(*halves), test)


RIVALS = {"ralm": _ralm, "balm": _balm}


def _energy(cell: Cell, name: str, settings: Mapping[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """One energy, trained and measured; of the first seed, what it makes of the base's text too."""
    cell = {**cell, **settings.get("figures", {}), **(NOTHING if seed else {})}
    place = folder / f"{name}-{seed}"
    joint, evaluation = trained(cell, settings, seed, folder, place.name)
    log_z = [row.estimate.value for row in evaluation.perplexity.log_z]
    systems = evaluation.systems
    found = {
        "parameters": sum(parameter.numel() for parameter in joint.energy.parameters()),
        "evaluation": evaluation.to_dict(),
        # Of each prefix, joint − base: for an interval over seeds and prefixes at once.
        "gains": [float(cost) + z for cost, z in zip(evaluation.of_data.tolist(), log_z, strict=True)],
        "held_out": best_figures(place / "energy"),
        "ngrams": {str(n): plain(unique_difference(systems["joint"], systems["base"], n)) for n in range(1, 5)},
        "repetition": plain(repetition(evaluation)),
    }
    parts = {part: None if cell[part] is None else make(cell, joint, evaluation, place) for part, make in PARTS.items()}
    again = None if cell["distil"] is None else students(cell, settings, joint, place)
    return {**found, **plain(parts), "distilled": plain(again)}


def best_figures(folder: Path) -> dict[str, float]:
    """What held-out chunks gave at the best of all evaluations."""
    evaluations = [line for line in History.read(folder) if "validation.loss" in line]
    best = min(evaluations, key=lambda line: float(line["validation.loss"]))
    return {name.removeprefix("validation."): value for name, value in best.items() if name.startswith("validation.")}
