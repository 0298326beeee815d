"""The page of a game: what the energy and the generator have become, and how the training went."""

import base64
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.evaluation.grid import Grid, density_on_grid, energy_on_grid, grid_around
from ebar.journeys.game.data import GameData
from ebar.models.points import mixture
from ebar.report.contours import Field, plot_fields
from ebar.report.image_sheet import image_sheet, sheets_as_svg
from ebar.report.page import PageFigure, Part, Section, Text, Warnings, write_page
from ebar.report.plots import Line, Panel, plot_panels
from ebar.report.run_page import about_run

SHOWN = 2000  # points
SHEET = 50  # images
SEED = 0  # of the samples that are shown
CURVES = {"gap": "E(data) − E(samples)", "energy_data": "energy of data", "energy_samples": "energy of samples",
          "spread": "distance between samples, in that between data"}  # fmt: skip


def write_game_page(played: Any, path: Path) -> Path:
    """A self-contained page."""
    result = played.result
    halted = result is not None and result.status == "halted"
    sections = [
        *([Section("Halted", [Warnings([f"Step {result.position.step}: {result.reason}"])])] if halted else []),
        *(_plane(played) if played.data.shape == (2,) else []),
        *(_images(played) if len(played.data.shape) == 3 else []),
        Section("Training", [_curves(played)]),
        *([] if played.folder is None else about_run(played.folder)),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, "Game" if played.folder is None else f"Game {played.folder.name}", sections)
    return path


def game_fields(played: Any, *, grid: Grid | None = None, generator: Generator | None = None) -> list[Field]:
    """Squares of the plane: the true energy where it is known, the learnt one, samples among data."""
    data: GameData = played.data
    random = Generator(next(played.generator.parameters()).device).manual_seed(SEED) if generator is None else generator
    grid = grid_around(data.rows()) if grid is None else grid
    low, high = (tuple(corner.tolist()) for corner in (grid.low, grid.high))

    def square(values: torch.Tensor) -> list[list[float]]:
        return values.view(grid.size, grid.size).tolist()

    name = "energy / α" if played.weight else "energy"
    fields = [Field(title=name, low=low, high=high, energies=square(energy_on_grid(played.calibrated, grid)))]
    if data.mixture is not None:
        true = -density_on_grid(mixture(data.mixture), grid)
        fields.insert(0, Field(title="true energy", low=low, high=high, energies=square(true)))
    points = {
        "samples": played.sample(SHOWN, generator=random).tolist(), "data": data.rows(data.held_out, SHOWN).tolist(),
    }  # fmt: skip
    return [*fields, Field(title="samples and data", low=low, high=high, points=points)]


def _plane(played: Any) -> list[Section]:
    svg = plot_fields([game_fields(played)])
    words = "Contours are a nat apart, from the lowest energy to 12 nats above it."
    if played.weight:
        words += " At the optimum the energy is −α·log p + constant, so that energy / α is drawn."
    return [Section("Energy and samples", [PageFigure(svg, words)])]


def _images(played: Any) -> list[Section]:
    random = Generator(next(played.generator.parameters()).device).manual_seed(SEED)
    held_out = played.data.rows(played.data.held_out, 10 * SHEET)
    ranking = played.rank(held_out)
    sheets = {
        "samples": played.sample(SHEET, generator=random),
        "held-out images of lowest energy": held_out[ranking.first(SHEET)],
        "held-out images of highest energy": held_out[ranking.last(SHEET)],
    }
    encoded = {name: base64.b64encode(image_sheet(images)).decode() for name, images in sheets.items()}
    words = f"Of {len(held_out):,} held-out images, those that the energy finds likeliest, and unlikeliest."
    return [Section("Samples and ranking", [PageFigure(sheets_as_svg(encoded), words)])]


def _curves(played: Any) -> Part:
    panels = []
    for name, title in CURVES.items():
        points = played.curve(name)
        if points:
            line = Line(name=name, x=[float(step) for step, _ in points], y=[value for _, value in points])
            panels.append(Panel(title=title, x_label="step", y_label="", lines=[line]))
    return PageFigure(plot_panels(panels), "On training batches.") if panels else Text("Nothing was logged.")
