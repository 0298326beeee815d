"""One run: a base, its rivals and its energies, measured on the same prefixes and the same draws of the base."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.energies.bounded import bound_of
from ebar.energies.neural import Neural
from ebar.estimators.joint_perplexity import JointPerplexity, joint_perplexity
from ebar.evaluation.cross_entropy import negative_log_scores
from ebar.journeys.residual.negatives import Negatives, draw_negatives
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.locally_residual import LocallyResidual
from ebar.progress import bar
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.energies_of import Contrasts, trained_energy
from ebar.recipes.residual.kept import kept
from ebar.recipes.residual.language_models import continuing, train_on_chunks, transformer
from ebar.recipes.residual.task import Chunks, Task, spaced, task_of
from ebar.recipes.residual.texts import Measured, text_figures
from ebar.types import Context, Distribution, Stepwise


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Everything that the tables of document 002 are made of; killed and called again it goes on."""
    task = task_of(cell)
    base = base_of(cell, task, folder)
    pool = draw_negatives(folder / "pool", base, task.test[1], cell["draws"], seed=folded(cell["seed"], 1))
    rivals = {"base": kept(folder / "base.json", lambda: measured(base, task.test))}
    if cell["base"] == "transformer":
        rivals |= {
            "ralm": kept(folder / "ralm.json", lambda: measured(_ralm(cell, task, folder), task.test)),
            "balm": kept(folder / "balm.json", lambda: measured(_balm(cell, task, folder), task.test)),
        }
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, settings in cell["energies"].items():
        for seed in range(cell["energy_seeds"]):
            found.setdefault(kind, []).append(
                kept(
                    folder / f"{kind}-{seed}.json",
                    partial(_energy, kind, {**settings, "seed": seed}, cell, task, base, pool, rivals, folder),
                )
            )
    return {"rivals": rivals, "energies": found}


def measured(model: Distribution, chunks: Chunks) -> dict[str, Any]:
    """Size of a normalised model, and its cost of every continuation."""
    x, context = chunks
    assert isinstance(model, nn.Module)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "nats": negative_log_scores(model, x, context).tolist(),
        "tokens": x.lengths.tolist(),
    }


def base_of(cell: Cell, task: Task, folder: Path) -> Stepwise:
    """The language model of continuations, trained where it is not pretrained."""
    if task.pretrained is not None:
        return task.pretrained
    return continuing(_whole(cell, task, folder), task.space)


def _whole(cell: Cell, task: Task, folder: Path) -> Autoregressive:
    """The base as it is trained, on prefix and continuation alike; trained once, read afterwards."""
    return train_on_chunks(
        cell, task, folder / "base", lambda: transformer(cell, task.space, cell["layers"]), cell["epochs"]
    )


def _ralm(cell: Cell, task: Task, folder: Path) -> Stepwise:
    base = _whole(cell, task, folder)
    model = train_on_chunks(
        cell, task, folder / "ralm",
        lambda: LocallyResidual(base.requires_grad_(False), transformer(cell, task.space, cell["layers"])),
        cell["epochs"],
    )  # fmt: skip
    return LocallyResidual(continuing(base, task.space), continuing(model.residual, task.space))


def _balm(cell: Cell, task: Task, folder: Path) -> Stepwise:
    model = train_on_chunks(
        cell, task, folder / "balm", lambda: transformer(cell, task.space, cell["balm_layers"]), cell["epochs"]
    )
    return continuing(model, task.space)


def _energy(
    kind: str, settings: Mapping[str, Any], cell: Cell, task: Task, base: Stepwise, pool: Negatives,
    rivals: Mapping[str, Any], folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """One energy, trained and measured."""
    own = folder / f"{kind}-{settings['seed']}"
    energy = trained_energy(kind, settings, task, base, contrasts_of(settings, cell, task, base, folder), own)
    x, context = task.test
    with torch.no_grad():
        of_data = energy(x, context).double()
    measured = Measured(energy=energy, of_data=of_data, of_draws=energies_of(energy, pool, context), pool=pool)
    nats = torch.tensor(rivals["base"]["nats"], dtype=torch.float64)
    joint = joint_perplexity(-nats, of_data, measured.of_draws, x.lengths, bound=bound_of(energy))
    found = {
        "parameters": sum(parameter.numel() for parameter in energy.parameters()),
        "joint": summary(joint),
        # Of each prefix, joint − base: for an interval over seeds and prefixes at once.
        "gains": [float(cost) + row.estimate.value for cost, row in zip(of_data.tolist(), joint.log_z, strict=True)],
        "held_out": best_figures(own / "energy"),
    }
    if settings["seed"]:
        return found
    return found | text_figures({**cell, **settings.get("figures", {})}, task, base, measured, own)


def contrasts_of(settings: Mapping[str, Any], cell: Cell, task: Task, base: Stepwise, folder: Path) -> Contrasts:
    """A fresh draw for each epoch: what a network has seen often, it learns by heart."""
    train, seed = spaced(task.train, settings["chunks"]), folded(cell["seed"], 3)
    name = f"negatives-{settings['chunks']}-{settings['epochs']}"
    return Contrasts(
        train,
        draw_negatives(folder / name, base, train[1], settings["epochs"], seed=seed),
        task.validation,
        draw_negatives(folder / "negatives-held-out", base, task.validation[1], 1, seed=folded(seed, 1)),
    )


@torch.no_grad()
def energies_of(energy: Neural, pool: Negatives, context: Context) -> Float[Tensor, "prefixes draws"]:
    """E of every draw of the pool."""
    parts = []
    with bar("energies", len(pool) * pool.draws, "draws") as progress:
        for row in range(len(pool)):
            one = torch.tensor([row])
            parts.append(energy(pool.fetch(one), context.select(one)).double())
            progress.advance(pool.draws)
    return torch.stack(parts)


def summary(joint: JointPerplexity) -> dict[str, Any]:
    """What a table needs of it."""
    return {
        "base": joint.base,
        "low": joint.low,
        "value": joint.value,
        "high": joint.high,
        "difference": joint.difference._asdict(),
        "established": joint.established,
        "verdict": joint.verdict,
        "verdict_elsewhere": joint.verdict_elsewhere,
        "here": joint.here._asdict(),
        "certified": None if joint.certified is None else joint.certified._asdict(),
        "share_light": joint.share_light,
        "moved": joint.moved,
        "by_draws": [row._asdict() for row in joint.by_draws],
        "log_z": [row.estimate.value for row in joint.log_z],
        "effective": [row.estimate.effective_sample_size for row in joint.log_z],
    }


def best_figures(folder: Path) -> dict[str, float]:
    """What held-out chunks told at the best of all evaluations."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if "validation.loss" in line]
    best = min(evaluations, key=lambda line: float(line["validation.loss"]))
    return {name.removeprefix("validation."): value for name, value in best.items() if name.startswith("validation.")}
