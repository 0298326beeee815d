"""Table 5: bits per dimension of PixelCNN and Gated PixelCNN with and without E-ARM."""

from collections.abc import Sequence

from ebar.recipes.earm.image_settings import BACKBONES, cells
from ebar.recipes.earm.images import run_cell
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

# Test (training) figures on MNIST; the document does not say how its images were made binary, if they were.
DOCUMENT = {
    ("pixelcnn", "base"): "0.17 (0.13)", ("pixelcnn", "earm"): "0.15 (0.12)",
    ("gated_pixelcnn", "base"): "0.14 (0.11)", ("gated_pixelcnn", "earm"): "0.12 (0.10)",
}  # fmt: skip
BITS = "test bits per dimension"
DIFFERENCE = f"{BITS}, E-ARM − without, paired"


def figures(results: Sequence[Result]) -> list[Row]:
    """Test and training figures of both branches, and their difference."""
    rows = []
    for (backbone,), runs in grouped(results, ("backbone",)).items():
        found = [result for _, result in runs]
        for branch, suffix in (("base", ""), ("earm", " with E-ARM")):
            settings = {"model": BACKBONES[backbone] + suffix}
            for part, name in (("test", BITS), ("train", "training bits per dimension")):
                values = [float(one[branch][part]["value"]) for one in found]
                told = DOCUMENT[backbone, branch] if part == "test" else None
                single = as_estimate(found[0][branch][part])
                rows.append(over_seeds(name, settings, values, single=single, document=told))
        differences = [float(one["difference"]["value"]) for one in found]
        single = as_estimate(found[0]["difference"])  # over the test images
        rows.append(over_seeds(DIFFERENCE, {"model": BACKBONES[backbone]}, differences, single=single))
    return rows


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
)
