"""Table 5: bits per dimension of PixelCNN and Gated PixelCNN with and without E-ARM."""

from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.crossed import with_items
from ebar.recipes.earm.image_settings import BACKBONES, IMAGES, cells
from ebar.recipes.earm.images import run_cell
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

# Data → backbone and branch → test and training figures.
DOCUMENT = {
    "mnist": {
        ("pixelcnn", "base"): (0.17, 0.13), ("pixelcnn", "earm"): (0.15, 0.12),
        ("gated_pixelcnn", "base"): (0.14, 0.11), ("gated_pixelcnn", "earm"): (0.12, 0.10),
    },
    "cifar-10": {
        ("pixelcnn", "base"): (3.14, 3.08), ("pixelcnn", "earm"): (3.07, 2.98),
        ("gated_pixelcnn", "base"): (3.03, 2.90), ("gated_pixelcnn", "earm"): (2.97, 2.91),
    },
}  # fmt: skip
BRANCHES = {"base": "", "earm": " with E-ARM"}
BITS, TRAINING = "test bits per dimension", "training bits per dimension"
DIFFERENCE = f"{BITS}, E-ARM − without, paired"


def figures(results: Sequence[Result]) -> list[Row]:
    """Test and training figures of both branches, and their difference."""
    rows = []
    for (backbone,), runs in grouped(results, ("backbone",)).items():
        found = [result for _, result in runs]
        for branch, suffix in BRANCHES.items():
            settings = {"model": BACKBONES[backbone] + suffix}
            for part, name in (("test", BITS), ("train", TRAINING)):
                values = [float(one[branch][part]["value"]) for one in found]
                told = _told(runs[0][0]["corpus"], name, settings["model"])
                single = as_estimate(found[0][branch][part])
                row = over_seeds(name, settings, values, single=single, document=told)
                rows.append(with_items(row, single, "images"))
        differences = [float(one["difference"]["value"]) for one in found]
        single = as_estimate(found[0]["difference"])  # over the test images
        row = over_seeds(DIFFERENCE, {"model": BACKBONES[backbone]}, differences, single=single)
        rows.append(with_items(row, single, "images"))
    return rows


def _told(corpus: str, name: str, model: str) -> float | None:
    """The document's figure of the same data."""
    names = {
        BACKBONES[backbone] + BRANCHES[branch]: (backbone, branch) for backbone in BACKBONES for branch in BRANCHES
    }
    found = DOCUMENT.get(corpus, {}).get(names[model])
    return None if found is None or name not in (BITS, TRAINING) else found[name == TRAINING]


def correct(recorded: Recorded) -> list[Row]:
    """Records of the first format have MNIST's test and training figures in one, beside those of any data."""
    corpus = recorded.cells[0]["corpus"]
    return [replace(row, document=_told(corpus, row.name, str(row.settings["model"]))) for row in recorded.rows]


def images(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    count = cells[0]["test_images"]
    return f"{min(2000, count) if row.name == TRAINING else count:,} {IMAGES}"


def departures(cells: Sequence[Cell]) -> list[str]:
    """How images became binary decides the figure, and the document does not say how its own did."""
    if cells[0]["corpus"] != "mnist":
        return []
    return [
        "Our images of MNIST are binary, by one Bernoulli draw for each pixel. The document does not say how its own "
        "were made so, if they were: its figures are of the same images, but perhaps not of the same quantity.",
        "Each network was trained once: an interval over test images says nothing of another training, and the paired "
        "differences, a few ten-thousandths of a bit, may be smaller than trainings differ.",
    ]


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Test figures with their intervals."""
    named = {str(row.settings["model"]): as_dot(row) for row in rows if row.name == BITS}
    return [Dots(title="Test images", x_label="bits per dimension", rows=named)]


RECIPE = Experiment(
    title="PixelCNN and Gated PixelCNN with and without E-ARM",
    source="document 003, Table 5; at scale cpu MNIST, one Bernoulli draw per pixel (seed 0)",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/images",
    reading=Reading(items=images, correct=correct, departures=departures),
)
