"""Energies learnt on images: runs of `ebar game train` on one digit or on whole sets, and what is measured of them."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ebar.backbones.weight_normalised import ConvolutionalEncoder
from ebar.build.game import build_networks, read_game_data
from ebar.config.game import MANUAL, GameConfig
from ebar.config.reader import read_tree
from ebar.data.images import read_image_file
from ebar.data.labelled_images import LabelledFile, read_labelled_images
from ebar.evaluation.accuracy import error_rate
from ebar.evaluation.classifier_score import classifier_score
from ebar.evaluation.linear_probe import Labelled, fixed_features, linear_probe
from ebar.evaluation.ranking import distance_to_mean, rank_by_energy, rank_correlation, share_of
from ebar.maths.randomness import folded
from ebar.recipes.cegan.methods import played
from ebar.recipes.grid import file_of
from ebar.recipes.recipe import Cell
from ebar.report.image_sheet import image_sheet
from ebar.store.writing import plain, replace
from ebar.training.randomness import seeded

RANDOM = "Random"  # in place of a method: a discriminator with the weights that it had at first
TOY = "toy"
# Set → training and test images, below EBAR_DATA; labels are beside them or in them. CIFAR-10: its binary files, the
# five for training put together.
FILES = {
    "mnist": ("mnist/train-images-idx3-ubyte.gz", "mnist/t10k-images-idx3-ubyte.gz"),
    "fashion-mnist": ("fashion-mnist/train-images-idx3-ubyte.gz", "fashion-mnist/t10k-images-idx3-ubyte.gz"),
    "cifar-10": ("cifar-10/train.bin", "cifar-10/test_batch.bin"),
    "svhn": ("svhn/train_32x32.mat", "svhn/test_32x32.mat"),
    "nist": ("nist/digit-1-train.npz", "nist/digit-1-test.npz"),
    "celeba": ("celeba/train.npz", "celeba/test.npz"),
}
UNLABELLED = ("nist", "celeba")  # images of one digit, 28×28; faces, cut and scaled to 64×64


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What the cell asks for: a ranking, a linear probe, a classifier's score, a sheet of samples."""
    how, random = cell["measures"], Generator().manual_seed(folded(cell["seed"], "measures"))
    paths = {part: _written(folder / f"{part}.npz", cell, part) for part in ("train", "test")}
    if cell["method"] == RANDOM:
        return {"probe": plain(_probe(_untrained(cell, paths), paths, how["probe"], random)), "halted": None}
    game = played(cell, folder, **paths)
    assert game.result is not None
    found: dict[str, Any] = {
        "steps": game.result.position.step,
        "halted": game.result.reason if game.result.status == "halted" else None,
    }
    if "ranked" in how:
        mean = game.data.rows().mean(0)
        real = game.data.rows("test", how["ranked"])
        found["ranking"] = ranking(game.energy, real, game.sample(len(real), generator=random), mean, how["ends"])
    if "probe" in how:
        found["probe"] = plain(_probe(game.energy, paths, how["probe"], random))
    if "score" in how:
        samples = game.sample(how["score"]["samples"], generator=random)
        seeded(cell["seed"])  # of the classifier's first weights, however the game came to its end
        found["score"] = _scores(samples, paths, how["score"], random)
    if "sheet" in how:
        found["sheet"] = _sheet(game.sample(how["sheet"], generator=random))
    return found


def ranking(
    energy: nn.Module, real: Float[Tensor, "real ..."], made: Float[Tensor, "made ..."], mean: Float[Tensor, "..."],
    ends: int,
) -> dict[str, Any]:  # fmt: skip
    """Real and generated images in one ranking: its correlation with the distance to the mean, and both its ends."""
    images, is_real = torch.cat([real, made]), torch.arange(len(real) + len(made)) < len(real)
    ranked, distances = rank_by_energy(energy, images), distance_to_mean(images, mean)
    first, last = ranked.first(ends), ranked.last(ends)
    shares = share_of(ranked, is_real, count=ends)
    return {
        "correlation": {
            "all": plain(rank_correlation(ranked, distances)),
            "real": plain(rank_correlation(ranked, distances, of=is_real)),
        },
        "real": {"likeliest": shares[0], "unlikeliest": shares[1]},
        "distance": {
            "likeliest": float(distances[first].mean()), "unlikeliest": float(distances[last].mean()),
            "all": float(distances.mean()),
        },
        "sheets": {
            "likeliest": _sheet(images[first], is_real[first]), "unlikeliest": _sheet(images[last], is_real[last]),
            "mean": _sheet(mean[None]),
        },
    }  # fmt: skip


def _sheet(images: Tensor, framed: Tensor | None = None) -> str:
    return base64.b64encode(image_sheet(images, framed, columns=25, scale=1)).decode()


def _untrained(cell: Cell, paths: dict[str, str]) -> nn.Module:
    """The discriminator that the cell's game would begin with."""
    tree = dict(cell["configuration"])
    tree["data"] = {**tree["data"], **paths}
    config = read_tree({"seed": cell["seed"], **tree}, MANUAL, GameConfig)
    seeded(config.seed)
    made: nn.Module = build_networks(config, read_game_data(config).shape)["discriminator"]
    return made


def _probe(energy: Any, paths: dict[str, str], how: dict[str, Any], random: Generator) -> Any:
    options = {key: value for key, value in how.items() if key not in ("train", "test")}
    train, test = (_labelled(paths[part], how[part], random) for part in ("train", "test"))
    return linear_probe(energy.features, train, test, **options, generator=random)


def _scores(samples: Tensor, paths: dict[str, str], how: dict[str, Any], random: Generator) -> dict[str, Any]:
    """The classifier's score of samples, and of test images, which no generator is expected to exceed by much."""
    train, test = (_labelled(paths[part], how[part], random) for part in ("train", "test"))
    network = train_classifier(train, epochs=how["epochs"], features=how["features"], random=random)
    logits = {name: fixed_features(network, images) for name, images in (("samples", samples), ("test", test.x))}
    found = {name: plain(classifier_score(one.log_softmax(1))) for name, one in logits.items()}
    return {**found, "error": plain(error_rate(logits["test"].argmax(1), test.labels.long()))}


def train_classifier(train: Labelled, *, epochs: int, features: int, random: Generator) -> nn.Module:
    """Convolutions and a linear layer, by cross-entropy: the judge of the samples, which never sees one in training."""
    shape = tuple(train.x.shape[1:])
    encoder = ConvolutionalEncoder(shape, features=features)
    network = nn.Sequential(encoder, nn.Linear(encoder.width, int(train.labels.max()) + 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(train.x), generator=random), 100):
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(network(train.x[rows]), train.labels[rows].long()))
            optimiser.step()
    return network.eval()


# Data -------------------------------------------------------------------------------------------------------------


def _written(path: Path, cell: Cell, part: str) -> str:
    """The cell's images, of one class where it names one, with their labels: an .npz archive that a game can read."""
    if not path.exists():
        found = _read(cell, part)
        if cell["digit"] is not None and cell["set"] not in UNLABELLED:
            found = found.select((found.labels == cell["digit"]).nonzero()[:, 0])
        file = io.BytesIO()
        np.savez(file, images=found.images.permute(0, 2, 3, 1).numpy(), labels=found.labels.numpy())
        replace(path, file.getvalue())
    return str(path)


def _read(cell: Cell, part: str) -> LabelledFile:
    name, test = cell["set"], part == "test"
    if name.startswith(TOY):
        return toy_images(40 if test else 120, size=int(name.split()[1]), seed=int(test))
    path = file_of(FILES[name][test])
    if name not in UNLABELLED:
        return read_labelled_images(path)
    images = read_image_file(path).pixels.permute(0, 3, 1, 2)
    return LabelledFile(images, torch.full((len(images),), -1))


def _labelled(path: str, most: int, random: Generator) -> Labelled:
    """Some of the images that were written, drawn without repetition, with their labels."""
    found = read_labelled_images(Path(path))
    chosen = found.select(torch.randperm(len(found.labels), generator=random)[:most])
    return Labelled(chosen.images.float() / 255, chosen.labels)


def toy_images(n: int, *, size: int, seed: int) -> LabelledFile:
    """Made-up images of two classes, slanted bars and rings, grey where they have 28 rows and else coloured."""
    generator = Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    place = torch.linspace(-1, 1, size)
    up, across = place[:, None], place[None, :]
    slant, thick, radius = (torch.rand(n, 1, 1, generator=generator) for _ in range(3))
    bars = (across - (slant - 0.5) * up).abs() < 0.1 + 0.1 * thick
    rings = ((across.square() + up.square()).sqrt() - 0.4 - 0.3 * radius).abs() < 0.1 + 0.1 * thick
    shown = torch.where(labels[:, None, None] == 0, bars, rings)[:, None].float()
    colour = 1.0 if size == 28 else 0.3 + 0.7 * torch.rand(n, 3, 1, 1, generator=generator)
    return LabelledFile((shown * colour * 255).to(torch.uint8), labels)
