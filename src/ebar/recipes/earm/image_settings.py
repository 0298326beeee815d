"""The settings of the image experiments."""

from typing import Any

from ebar.recipes.recipe import Cell

BACKBONES = {"pixelcnn": "PixelCNN", "gated_pixelcnn": "Gated PixelCNN"}

SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "corpus": "toy", "images": 60, "held_out": 20, "test_images": 20, "rows": 10, "features": 4, "layers": 1,
        "epochs": 2, "start_epoch": 1, "learning_rate": 1e-2, "warmup": 2, "samples": 10,
        "earm": {"weight": 0.05, "window": 10},
    },
    "cpu": {
        "corpus": "mnist", "images": 25_000, "held_out": 1000, "test_images": 10_000, "rows": 32, "features": 16,
        "layers": 5, "epochs": 4, "start_epoch": 3, "learning_rate": 4e-3, "warmup": 50, "samples": 50,
        "earm": {"weight": 0.05, "window": 50},
    },
    # The document gives no more than the names of the networks: depth and width are those of their own papers.
    "paper": {
        "corpus": "cifar-10", "images": 45_000, "held_out": 5000, "test_images": 10_000, "rows": 128, "features": 128,
        "layers": 15, "epochs": 200, "start_epoch": 15, "learning_rate": 1e-3, "warmup": 500, "samples": 100,
        "earm": {"weight": 0.05, "window": 50},
    },
}  # fmt: skip
# Many small steps take the gated network further than few large ones; the fakes are as many as in a large one.
OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("cpu", "gated_pixelcnn"): {
        "images": 30_000, "rows": 8, "features": 20, "layers": 6, "epochs": 5, "start_epoch": 4, "warmup": 200,
        "earm": {"weight": 0.05, "window": 50, "draws": 4},
    },
}  # fmt: skip
IMAGES = "images, one training"
SEEDS = {"demo": 1, "cpu": 1, "paper": 3}


def cells(scale: str) -> list[Cell]:
    """Both networks over all seeds."""
    return [
        {"backbone": backbone, "seed": seed, **SCALES[scale], **OWN.get((scale, backbone), {})}
        for seed in range(SEEDS[scale])
        for backbone in BACKBONES
    ]
