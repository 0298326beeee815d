"""Games on three mixtures of the plane, as `ebar game train` plays them, and what is measured of each on a grid."""

from pathlib import Path
from typing import Any

from torch import Generator, Tensor

from ebar.evaluation import grid as on_grid
from ebar.evaluation.grid import Grid, density_on_grid, discriminator_on_grid, histogram
from ebar.journeys.game.journey import Played
from ebar.maths.randomness import folded
from ebar.models.points import mixture, spirals
from ebar.recipes.cegan.methods import GAN, METHODS, cell_of, played
from ebar.recipes.grid import Grid as Runs
from ebar.recipes.recipe import Cell
from ebar.store.writing import plain

FOUR, BIASED, SPIRALS = "Gaussian mixture", "biased mixture", "two spirals"
NAMES = {FOUR: "four_gaussians", BIASED: "biased_gaussians", SPIRALS: "spirals"}
DATA, EMPIRICAL, GENERATED, LEARNT, PLAIN = "data", "emp", "gen", "disc", "disc, e^−c"
WIDE = "data, variance 1"  # of the spirals: the density that the authors' code calls true
# The authors' settings (public code): by mixture.
AUTHORS: dict[str, dict[str, Any]] = {
    FOUR: {
        "neighbours.weight": 0.5, "variational.weight": 0.5, "gap.low": -10.0, "generator.deviation": 0.001,
        "discriminator.deviation": 0.01, "schedule.constant": 10, "schedule.decay": 0.985, "training.epochs": 100,
    },
    BIASED: {
        "neighbours.weight": 0.15, "variational.weight": 0.15, "energy.margin": 10.0, "gap.low": -0.2,
        "generator.deviation": 0.001, "discriminator.deviation": 0.01, "schedule.constant": 0, "schedule.decay": 0.985,
        "training.epochs": 100,
    },
    SPIRALS: {
        "neighbours.weight": 0.25, "variational.weight": 0.25, "energy.margin": 10.0, "gap.low": -10.0,
        "generator.deviation": 0.01, "discriminator.deviation": 0.1, "schedule.constant": 200, "schedule.decay": 0.99,
        "training.epochs": 500,
    },
}  # fmt: skip
COMMON = {"data.kind": "points", "measures.samples": 100_000, "measures.draws": 20_000, "measures.shown": 300}
# Fewer steps, of smaller batches. The discriminator is slow beside the generator: faster, it is ahead of it, and the
# energies become steeper than −α·log p. Momentum and larger first weights let the generator follow it.
CPU = {
    "data.size": 100_000, "training.batch_size": 250, "training.epochs": 20, "training.checkpoint_every": 2000,
    "optimiser.learning_rate": 1e-4, "optimiser.betas": [0.5, 0.999], "training.generator_rate": 20.0,
    "generator.deviation": 0.05, "discriminator.deviation": 0.01, "schedule.constant": 2, "schedule.decay": 0.88,
    "neighbours.neighbours": 50, "neighbours.weight": 0.5, "variational.weight": 0.5, "gap.low": -10.0,
}  # fmt: skip
# A fifth of a batch reaches over many of the hundred Gaussians.
CPU_SPIRALS = {**CPU, "neighbours.neighbours": 20, "discriminator.deviation": 0.1}
# So slow a discriminator tells the original GAN's generator nothing.
CPU_GAN = {"optimiser.learning_rate": 5e-4, "training.generator_rate": 1.0}
DEMO = {
    "data.size": 1000, "training.batch_size": 100, "training.epochs": 2, "neighbours.neighbours": 20,
    "generator.hidden": 16, "discriminator.hidden": 16, "measures.samples": 1000, "measures.draws": 500,
    "measures.shown": 20,
}  # fmt: skip
SCALES: dict[str, dict[str, Any]] = {"demo": DEMO, "cpu": CPU, "paper": {"data.size": 100_000}}


def cells(scale: str, seeds: int) -> list[Cell]:
    """Every mixture, method and seed."""

    def make(settings: dict[str, Any]) -> Cell:
        name, method = settings["mixture"], settings["method"]
        own = CPU_SPIRALS if scale == "cpu" and name == SPIRALS else SCALES[scale]
        own = {**own, **CPU_GAN} if scale == "cpu" and method == GAN else own
        options = {**COMMON, **AUTHORS[name], **own, "data.mixture": NAMES[name]}
        # Another seed has other data too.
        return cell_of({**options, "data.draw_seed": settings["seed"]}, method, mixture=name, seed=settings["seed"])

    return Runs(axes={"mixture": list(NAMES), "method": list(METHODS)}, seeds=seeds, make=make)(scale)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """A game, and what is measured of it."""
    game = played(cell, folder)
    assert game.result is not None
    halted = game.result.reason if game.result.status == "halted" else None
    random = Generator().manual_seed(folded(cell["seed"], "measures"))
    return {**measured(game, cell, random), "steps": game.result.position.step, "halted": halted}


def measured(game: Played, cell: Cell, random: Generator) -> dict[str, Any]:
    """Divergences on the grid, log Z by importance sampling and by the grid, energies at the modes, what is drawn."""
    how = cell["measures"]
    grid = on_grid.grid_around(game.data.rows())
    energies = on_grid.energy_on_grid(game.energy, grid)
    samples = game.sample(how["samples"], generator=random)
    known = {
        DATA: density_on_grid(mixture(NAMES[cell["mixture"]]), grid),
        EMPIRICAL: histogram(grid, game.data.rows()),
        GENERATED: histogram(grid, samples),
        LEARNT: discriminator_on_grid(energies, entropy_weight=game.weight or 1.0),
        PLAIN: discriminator_on_grid(energies),
    }
    if cell["mixture"] == SPIRALS:
        known[WIDE] = density_on_grid(spirals("energy"), grid)
    return {
        "kl": {f"{first}‖{second}": kl for (first, second), kl in on_grid.pairwise_kl(known).items()},
        "log_z": log_z(game, grid, energies, how["draws"], random),
        "modes": modes(game),
        "shown": {
            "low": grid.low.tolist(), "high": grid.high.tolist(),
            "energies": _square(-known[LEARNT], grid), "true": _square(-known[DATA], grid),
            "samples": _written(samples[: how["shown"]]), "data": _written(game.data.rows("test", how["shown"])),
        },
    }  # fmt: skip


def log_z(game: Played, grid: Grid, energies: Tensor, draws: int, random: Generator) -> dict[str, Any]:
    """log ∫ exp(−c/α) over the grid's rectangle: by importance sampling, less that by the trapezoidal rule."""
    found = game.log_z(draws=draws, generator=random, low=grid.low, high=grid.high)
    exact = on_grid.grid_log_z(grid, energies / (game.weight or 1.0))
    apart = found.mapped(lambda value: value - exact)
    return {"grid": exact, "apart": plain(apart), "held": float(apart.low <= 0 <= apart.high)}


def modes(game: Played) -> float | None:
    """The energy of the biased mixture's minor mode less that of its major one, in nats (c/α): log 9 at the optimum."""
    if game.data.mixture != NAMES[BIASED]:
        return None
    minor, major = game.rank(mixture(NAMES[BIASED]).means).energies.tolist()
    return float(minor - major) / (game.weight or 1.0)


def _square(energies: Tensor, grid: Grid, every: int = 2) -> list[str]:
    """Every other node, and no more digits than a contour shows, a row in a line: the record stays small."""
    rows = (energies - energies.min()).view(grid.size, grid.size)[::every, ::every]
    return [" ".join(f"{min(value, 99.0):.2f}" for value in row) for row in rows.tolist()]


def _written(points: Tensor) -> list[str]:
    return [" ".join(f"{value:.2f}" for value in point) for point in points.tolist()]
