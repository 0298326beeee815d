"""The case study on points of the plane: complement generator and feature matching, Figures C.1 to C.4."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.data.labelled_images import FewLabels
from ebar.data.labelled_points import ManifoldData
from ebar.evaluation.decision_regions import Regions, decision_regions
from ebar.evaluation.few_labels import class_logits, fake_share
from ebar.evaluation.grid import Grid as Nodes
from ebar.evaluation.grid import grid_around
from ebar.journeys.classify.journey import Classified, ClassifyTraining, classify
from ebar.maths.manifolds import MANIFOLDS
from ebar.maths.randomness import folded
from ebar.models.classifiers import MlpClassifier
from ebar.models.generators import ComplementGenerator, MlpGenerator
from ebar.modes import evaluation_mode
from ebar.objectives.bad_gan import BadGanTerms
from ebar.recipes.figures import over_seeds
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Recipe, Result, Row
from ebar.recipes.training import grouped_options
from ebar.report.regions import Plane, plot_planes
from ebar.training.optimisers import Adam
from ebar.training.randomness import seeded

SUPERVISED, MATCHING, COMPLEMENT = "supervised only", "feature matching", "complement generator"
CIRCLES, SPINS = "two_circles", "four_spins"
LABELS = {"demo": {CIRCLES: 4, SPINS: 8}, "cpu": {CIRCLES: 20, SPINS: 40}, "paper": {CIRCLES: 20, SPINS: 40}}
WIDTHS = {"demo": [12, 12, 12], "cpu": [100, 100, 100], "paper": [100, 100, 100]}
METHODS = (SUPERVISED, MATCHING, COMPLEMENT)
EPOCHS = {
    "demo": dict.fromkeys(METHODS, 2), "cpu": {**dict.fromkeys(METHODS, 30), SUPERVISED: 4},
    "paper": dict.fromkeys(METHODS, 500),
}  # fmt: skip
SCALES: Mapping[str, Mapping[str, Any]] = {
    "demo": {"data.size": 200, "data.held_out": 200, "generator.hidden": 8, "training.batch_size": 50,
             "measures.nodes": 12, "measures.points": 40},
    **{scale: {
        "data.size": 10_000, "data.held_out": 10_000, "generator.hidden": 128, "training.batch_size": 200,
        "measures.nodes": 90, "measures.points": 500,
    } for scale in ("cpu", "paper")},
}  # fmt: skip


def _runs(scale: str) -> list[dict[str, Any]]:
    """Each method on both manifolds; of feature matching on two circles, the features have 2 dimensions."""
    found = []
    for manifold in (CIRCLES, SPINS):
        for method, epochs in EPOCHS[scale].items():
            plane = [2] if (manifold, method) == (CIRCLES, MATCHING) else []
            found.append(
                {
                    "manifold": manifold, "method": method, "labels": LABELS[scale][manifold],
                    "classifier.widths": WIDTHS[scale] + plane, "optimiser.learning_rate": 1e-3 if plane else 2e-3,
                    "training.epochs": epochs,
                }
            )  # fmt: skip
    return found


def _cell(settings: dict[str, Any]) -> Cell:
    labels, groups = grouped_options(settings)
    return {**labels, **groups}


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """One training to its end; what the classifier makes of points on the manifold, off it, and of generated ones."""
    played = play(cell, folder)
    pair, data, seed = played.last, played.data, cell["seed"]
    drawn = cell["manifold"] == SPINS or cell["method"] == MATCHING
    outside = ComplementGenerator(shape=(2,), manifold=cell["manifold"])
    nodes = Nodes(outside.low.double(), outside.high.double(), cell["measures"]["nodes"])
    classifier: Any = pair.classifier
    regions = decision_regions(classifier.logits, nodes)
    errors = int((class_logits(classifier, data.test).argmax(1) != data.test_labels).sum())
    found = {
        "errors": errors,
        "figures": played.evaluate(last=True),
        "outside": fake_share(class_logits(classifier, outside.sample(len(data.test), generator=_drawn(seed, 1)))),
        "boundary_in_fake": regions.boundary_in_fake(),
        "shown": shown(played, regions, nodes, cell) if seed == 0 and drawn else None,
    }
    if pair.generator is not None:
        made = pair.generator.sample(len(data.test), generator=_drawn(seed, 2))
        manifold = MANIFOLDS.choose(cell["manifold"])()
        found["on_manifold"] = float((manifold.distances(made) <= manifold.width).any(1).double().mean())
    return found


def play(cell: Cell, folder: Path) -> Classified:
    """The journey of `ebar classify`, with points for images."""
    randomness = seeded(cell["seed"])
    data = ManifoldData(manifold=cell["manifold"], **cell["data"]).read(labels=cell["labels"], seed=cell["seed"])
    classifier = MlpClassifier(
        shape=data.shape, classes=data.classes, widths=tuple(cell["classifier"]["widths"]), input_noise=0.0,
        hidden_noise=0.0, leak=0.2,
    )  # fmt: skip
    generator: Any = ComplementGenerator(shape=data.shape, manifold=cell["manifold"])
    if cell["method"] == MATCHING:
        generator = MlpGenerator(shape=data.shape, latent=10, law="uniform", deviation=0.1, **cell["generator"])
    return classify(
        data,
        classifier=classifier,
        generator=generator,
        terms=BadGanTerms(supervised=cell["method"] == SUPERVISED),
        training=ClassifyTraining(labelled_size=cell["labels"], **cell["training"]),
        optimiser=Adam(betas=(0.5, 0.999), **cell["optimiser"]),
        seed=cell["seed"],
        randomness=randomness,
        folder=folder / "run",
    )


def _drawn(*seed: int) -> Generator:
    return Generator().manual_seed(folded(*seed, "synthetic"))


# What is looked at --------------------------------------------------------------------------------------------------


def shown(played: Classified, regions: Regions, nodes: Nodes, cell: Cell) -> dict[str, Any]:
    """The plane of points and, where features have 2 dimensions, that of features, as plain numbers."""
    classifier: Any = played.last.classifier
    data, most = played.data, cell["measures"]["points"]
    points = {"labelled": data.labelled, "unlabelled": data.unlabelled[:most], "members": data.test[:most]}
    if played.last.generator is not None:
        points["generated"] = played.last.generator.sample(most, generator=_drawn(cell["seed"], 3))
    found = {"points": _plane(nodes, regions, points, data, most)}
    if classifier.width == 2:
        with torch.no_grad(), evaluation_mode(classifier):
            features = {name: classifier.features(x) for name, x in points.items()}
        plane = grid_around(torch.cat(list(features.values())), size=nodes.size, widened=0.1)
        found["features"] = _plane(plane, decision_regions(classifier.head, plane), features, data, most)
    return found


def _plane(nodes: Nodes, regions: Regions, points: Mapping[str, Tensor], data: FewLabels, most: int) -> dict[str, Any]:
    return {
        "low": nodes.low.tolist(),
        "high": nodes.high.tolist(),
        # A line of text for each row: a record of single numbers would be ten times as long.
        "classes": ["".join(map(str, row)) for row in regions.classes.tolist()],
        "energies": _lines(regions.energies.clamp(-2, 2), 1),  # no more than where they change their sign is drawn
        **{name: _lines(x, 2) for name, x in points.items()},
        "labels": {"labelled": data.labels.tolist(), "members": data.test_labels[:most].tolist()},
    }


def _lines(rows: Tensor, digits: int) -> list[str]:
    return [" ".join(f"{number:.{digits}f}" for number in row) for row in rows.tolist()]


def _planes(results: Sequence[Result]) -> list[Row]:
    """What is drawn of the first seed, beside its errors."""
    return [
        Row(name=DRAWN, settings={"manifold": cell["manifold"], "method": cell["method"]},
            value=float(result["errors"]), over="one training", values=[result["shown"]])
        for cell, result in results if result["shown"] is not None
    ]  # fmt: skip


def _picture(rows: Sequence[Row], path: Path) -> None:
    """Figures C.1 to C.4, each a row of squares: data, complement generator, feature space, feature matching."""
    found = {
        (row.settings["manifold"], row.settings["method"]): (row.values or [{}])[0] for row in rows if row.name == DRAWN
    }  # fmt: skip
    circles, spins = (found[manifold, MATCHING]["points"] for manifold in (CIRCLES, SPINS))
    ours, theirs = (found[SPINS, method]["points"] for method in (COMPLEMENT, MATCHING))
    features = found[CIRCLES, MATCHING]["features"]
    squares: list[tuple[Any, ...]] = [
        ("C.1: two circles", circles, "labelled", "members"),
        ("C.1: four spins", spins, "labelled", "members"),
        ("four spins, labels only", found[SPINS, SUPERVISED]["points"], "classes", "labelled"),
        ("C.2: complement, classes", ours, "classes", "energies", "labelled"),
        ("C.2: true (bright) or fake", ours, "energies", "unlabelled"),
        ("complement: generated", ours, "generated", "unlabelled"),
        ("C.3: features", features, "classes", "energies", "generated", "members"),
        ("feature matching, classes", circles, "classes", "energies", "labelled"),
        ("feature matching: generated", circles, "unlabelled", "generated"),
        ("C.4: matching, generated", theirs, "unlabelled", "generated"),
        ("C.4: classes", theirs, "classes", "energies", "labelled"),
        ("C.4: true (bright) or fake", theirs, "energies", "unlabelled"),
    ]
    plot_planes([[_square(*one) for one in squares[at : at + 3]] for at in range(0, len(squares), 3)], path)


def _square(title: str, plane: Mapping[str, Any], *parts: str) -> Plane:
    """Some parts of a plane."""
    known: dict[str, Any] = {}
    for part in parts:
        if part == "classes":
            known[part] = [[int(digit) for digit in row] for row in plane[part]]
            continue
        known[part] = [[float(word) for word in row.split()] for row in plane[part]]
        if part in plane["labels"]:
            labels = plane["labels"][part]
            known[part] = {
                label: [place for place, own in zip(known[part], labels, strict=True) if own == label]
                for label in sorted(set(labels))
            }
    return Plane(title=title, low=tuple(plane["low"]), high=tuple(plane["high"]), **known)


# What is counted ----------------------------------------------------------------------------------------------------

DRAWN = "errors of the first seed"
ERRORS = "errors on the manifold"
FAKE_BOUNDARY = "class boundary in the fake region"
TRUE, FAKE, OUTSIDE = "data taken for true", "generated taken for fake", "off the manifold, taken for fake"
ON = "generated on the manifold"
BY = ("manifold", "method")


def _over_seeds(name: str, settings: Mapping[str, Any], values: list[float]) -> Row:
    """Of figures that all seeds have in common too, the interval is said to be over seeds."""
    row = over_seeds(name, settings, values)
    return replace(row, over=f"{len(values)} seeds") if len(values) > 1 else row


def _figure(name: str, at: str, most: float = 1.0) -> Figure:
    return Figure(name=name, at=at, range=(0.0, most), summary=_over_seeds)


RECIPE = Recipe(
    title="Complement generator and feature matching on points of the plane",
    source="Dai 2019 (thesis), Figures C.1 to C.4; Dai et al. 2017b (arXiv:1705.09783), Figures 1 to 4",
    grid=Grid(
        axes={"run": {scale: _runs(scale) for scale in SCALES}}, scales=SCALES,
        seeds={"demo": 1, "cpu": 3, "paper": 10}, make=_cell,
    ),
    run=run_cell,
    figures=[
        Figures(
            _figure(ERRORS, "errors", math.inf),
            _figure(FAKE_BOUNDARY, "boundary_in_fake"),
            _figure(TRUE, "figures.true_share"),
            _figure(OUTSIDE, "outside"),
            by=BY,
        ),
        Figures(
            _figure(FAKE, "figures.fake_share"),
            _figure(ON, "on_manifold"),
            by=BY,
            parts=lambda cell, result: [(cell, result)] if "on_manifold" in result else [],
        ),
        _planes,
    ],
    tables=Layout(
        rows=BY, figures=(ERRORS, FAKE_BOUNDARY, TRUE, OUTSIDE, FAKE, ON),
        names={CIRCLES: "two circles", SPINS: "four spins"},
    ),
    picture=_picture,
    claims=[
        Claim(says="with a complement generator no point of the manifold is taken for another class", figure=ERRORS,
              below=0.5, where={"method": COMPLEMENT}),
        Claim(says="its class boundary lies in the fake data area", figure=FAKE_BOUNDARY, above=0.99,
              where={"method": COMPLEMENT}),
        Claim(says="feature matching classifies two circles perfectly, with features of 2 dimensions", figure=ERRORS,
              below=0.5, where={"method": MATCHING, "manifold": CIRCLES}),
        Claim(says="many samples of feature matching fall into the data manifold", figure=ON, above=0.1,
              where={"method": MATCHING, "manifold": SPINS}),
    ],
    reading=Caption(
        items="held-out points, one training",
        departures=lambda cells: [
            "The document shows its two data sets and tells no numbers of them, of its networks or of its training: "
            "shapes, sizes and settings are ours, those of scale paper too, which has more seeds and longer trainings.",
            f"Errors are of {cells[0]['data']['held_out']:,} held-out points of the manifold, after the last epoch. "
            "The boundary is of neighbouring nodes of two classes, on the grid of the picture.",
            "White lines, and black ones where no classes are drawn, are true-fake boundaries: log Σ exp of the logits "
            "is 0. The picture is of the first seed.",
        ],
    ),
)  # fmt: skip
