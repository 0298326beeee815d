"""The base updated by the joint model, and a second energy on top of what it has become.

What Deng et al. 2020 leave open: their base is fixed while the energy is trained.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.build.residual import Found, build_energy, load_base
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.journeys.residual.distil import distil_by_gradient, distil_joint_model
from ebar.journeys.residual.journey import Residual, residual
from ebar.journeys.residual.negatives import draw_negatives
from ebar.journeys.residual.settings import NegativesDraws
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.configurations import residual_config
from ebar.recipes.residual.parts import costs_of_draws
from ebar.samplers.joint import chosen_by_energy
from ebar.training.optimisers import Adam
from ebar.training.randomness import seeded
from ebar.training.train import Course

DATA, OWN, JOINT, GRADIENT = "the data", "the base's own draws", "draws of the joint model", "policy gradient"


def students(cell: Cell, settings: Mapping[str, Any], joint: Residual, folder: Path) -> dict[str, Any] | None:
    """Nats of each test continuation, student − base: a row for each seed of each way to update the base.

    Beside what the joint model teaches stand two controls of the same prefixes, epochs and learning rate: the base's
    own draws, which teach nothing, and the data themselves, which no teacher surpasses.
    """
    how, base = cell["distil"], joint.base.q
    if not isinstance(base, Autoregressive):
        return None
    count, part = how["candidates"], joint.chunks.train.spread(how["chunks"])
    context, held_out = part.context, joint.chunks.validation
    assert context is not None
    assert held_out.context is not None
    place = folder.parent / f"distil-draws-{how['chunks']}-{count}"
    drawn = draw_negatives(place, base, context, count, seed=folded(cell["seed"], 5))
    costs = costs_of_draws(joint.energy, drawn, context)
    x, prefixes = joint.chunks.test.spread(cell["prefixes"])
    before, checked = negative_log_scores(base, x, prefixes), (held_out.x, held_out.context)
    gains: dict[str, list[list[float]]] = {way: [] for way in (DATA, OWN, JOINT, GRADIENT)}
    first: Autoregressive | None = None
    for seed in range(how["seeds"]):
        chosen = chosen_by_energy(costs, Generator().manual_seed(folded(cell["seed"], seed)))
        adam = Adam(learning_rate=how["learning_rate"])
        course = Course(epochs=how["epochs"], seed=seed, optimiser=adam, checkpoint_every=500)
        own = drawn.one_each(torch.full_like(chosen, seed % count))
        texts = {DATA: part.x, OWN: own, JOINT: drawn.one_each(chosen)}
        taught = {
            way: distil_joint_model(folder / f"student-{number}-{seed}", course, base, (text, context), checked)
            for number, (way, text) in enumerate(texts.items())
        }
        first = first or taught[JOINT]
        taught[GRADIENT] = distil_by_gradient(
            folder / f"student-gradient-{seed}", course, base, joint.energy, context, checked, draws=count
        )
        for way, student in taught.items():
            gains[way].append((negative_log_scores(student, x, prefixes) - before).tolist())
    assert first is not None
    again = _again(cell, settings, joint, first, folder) if how["again"] else None
    return {"gains": gains, "again": again}


def _again(
    cell: Cell, settings: Mapping[str, Any], joint: Residual, student: Autoregressive, folder: Path
) -> list[float]:
    """Nats of each test continuation, the joint model of the student and an energy of its own − the first base."""
    config = residual_config(cell, settings, 0, folder.parent)
    base = replace(joint.base, q=student.requires_grad_(False).eval())
    seeded(folded(config.seed, "weights"), device=config.device)
    energy = build_energy(config, Found(base, load_base(config).run))
    negatives = NegativesDraws(draws=config.negatives.draws, seed=cell["seed"])
    second = residual(
        base, energy, joint.chunks, negatives=negatives, fitting=config.training, seed=0, folder=folder / "again"
    )
    found = second.evaluate(replace(config.evaluation, folder=None, last_rows=0), seed=0)
    x, prefixes = joint.chunks.test.spread(cell["prefixes"])
    moved = negative_log_scores(student, x, prefixes) - negative_log_scores(joint.base.q, x, prefixes)
    log_z = torch.tensor([row.estimate.value for row in found.perplexity.log_z], dtype=torch.float64)
    return (moved.double().cpu() + found.of_data + log_z).tolist()
