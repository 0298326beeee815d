"""Tables C.1 and C.2 and Figures C.5 and C.6 of Dai 2019 (thesis), read off runs of `ebar classify`.

At scale cpu Table C.1 has runs of its own; the others, which compare methods, share shorter ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.badgan import cells as trainings
from ebar.recipes.badgan.cells import CIFAR, ENT, FM, LD, MNIST, PT, SUPERVISED, SVHN, VI, runs_of
from ebar.recipes.claims import Claim
from ebar.recipes.figures import Figure, Figures, found, grouped, over_seeds, row_of
from ebar.recipes.layout import Curves, Layout, Points, sheets
from ebar.recipes.recipe import Caption, Cell, Laid, Recipe, Result, Row
from ebar.recipes.rows import text
from ebar.types import Estimate

PAPER = "Dai 2019 (thesis)"
READ: dict[str, Any] = {"run": trainings.run_cell, "runs": "badgan/few_labels"}
ERROR, LAST = "test error of the best epoch, %", "test error of the last epoch, %"
VALIDATION = "validation error of the best epoch, %"
TRUE, FAKE = "test images with a logit above 0, %", "generated images without one, %"
GAIN, OVER_FM = f"test error − {SUPERVISED}, %", f"test error − {FM}, %"
MOST = 2.5  # per cent, of the method that is chosen
CHOSEN = "test error of the method chosen by validation error, %"
LARGEST, TENTH = "largest log p of generated images, nats", "10th centile of log p of training images, nats"
ABOVE = "generated images above that centile, %"
BY_EPOCH, TRUE_BY_EPOCH, FAKE_BY_EPOCH = (
    "validation error by epoch, %", "validation images with a logit above 0, by epoch, %",
    "generated images without one, by epoch, %",
)  # fmt: skip
TESTED = "test images"
BY = ("corpus", "method", "centile")
# Errors of 10,000 test images of MNIST, in %, with the document's deviations; % of SVHN and CIFAR-10.
PRINTED_C1 = {
    "CatGAN": ("191 ± 10", "–", "19.58 ± 0.46"), "SDGM": ("132 ± 7", "16.61 ± 0.24", "–"),
    "Ladder network": ("106 ± 37", "–", "20.40 ± 0.47"), "ADGM": ("96 ± 2", "22.86", "–"),
    "FM (Salimans et al. 2016)": ("93 ± 6.5", "8.11 ± 1.3", "18.63 ± 2.32"),
    "ALI": ("–", "7.42 ± 0.65", "17.99 ± 1.62"), "VAT small": ("136", "6.83", "14.87"),
    "best model of the document": ("79.5 ± 9.8", "4.25 ± 0.03", "14.41 ± 0.30"),
    "Triple GAN": ("91 ± 58", "5.77 ± 0.17", "16.99 ± 0.36"), "Π model": ("–", "5.43 ± 0.25", "16.55 ± 0.29"),
    "VAT+EntMin+Large": ("–", "4.28", "13.15"),
}  # fmt: skip
PRINTED_C2 = {
    (MNIST, FM, None): 0.850, (MNIST, VI, None): 0.865, (MNIST, LD, 10): 0.795, (MNIST, ENT, 10): 0.892,
    (MNIST, LD, 2): 0.777, (MNIST, LD, 20): 0.801, (MNIST, LD, 100): 0.850,
    (SVHN, FM, None): 6.83, (SVHN, VI, None): 5.29, (SVHN, PT, None): 4.63, (SVHN, "FM+PT+Ent", None): 4.25,
    (SVHN, "FM+PT+LD+Ent", None): 4.19, (CIFAR, FM, None): 16.14, (CIFAR, VI, None): 14.41,
    (CIFAR, "FM+VI+Ent", None): 15.82,
}  # fmt: skip
LARGEST_PAPER = {
    (MNIST, FM, None): -297.0, (MNIST, LD, 10): -659.0, (SVHN, "FM+PT+Ent", None): -5809.0,
    (SVHN, "FM+PT+LD+Ent", None): -5919.0,
}  # fmt: skip
PAIRED = "Paired by seed, which draws the labelled images too. Intervals are over seeds; all share their test images."
ABLATIONS = [
    *((SVHN, method) for method in (FM, VI, PT, "FM+PT+Ent", "FM+PT+LD+Ent")),
    *((CIFAR, method) for method in (FM, VI, "FM+VI+Ent")),
]  # fmt: skip


def percent(path: str) -> Callable[..., Estimate | None]:
    """Reads a share of a result as a percentage; None where there is none."""

    def read(result: Any, **each: Any) -> Estimate | None:
        part, name = path.split(".")
        known = result[part] is not None and name in result[part]
        return found(result, path).mapped(lambda share: 100 * share) if known else None

    return read


def density(path: str) -> Callable[..., float | None]:
    """Reads a log-density of a result, where it was measured."""
    return lambda result, **each: None if result["density"] is None else float(found(result["density"], path))


def share(name: str, path: str, **more: Any) -> Figure:
    """A share in per cent; `shared` says what all seeds have in common, whose error then belongs in the interval."""
    return Figure(name=name, at=percent(path), range=(0.0, 100.0), **more)


def _against(other: str) -> Callable[[Cell], dict[str, Any]]:
    return lambda cell: {"method": other, "centile": None}


ERRORS = Figures(
    share(ERROR, "best.error", shared=TESTED, paper=PRINTED_C2),
    share(LAST, "last.error", shared=TESTED),
    share(VALIDATION, "validation.error"),
    share(TRUE, "best.true_share", shared=TESTED),
    share(FAKE, "best.fake_share"),
    by=BY,
)
LABELS_ALONE, MATCHING_ALONE = (
    Figures(Figure(name=name, at=percent("best.error"), minus=_against(other), where={"corpus": MNIST}), by=BY)
    for name, other in ((GAIN, SUPERVISED), (OVER_FM, FM))
)
DENSITIES = Figures(
    Figure(name=LARGEST, at=density("largest"), paper=LARGEST_PAPER),
    share(ABOVE, "density.above"),
    Figure(name=TENTH, at=density("centiles.10"), paper={(SVHN, "FM+PT+Ent", None): -5622.0}),
    by=BY,
)


def chosen_method(results: Sequence[Result]) -> list[Row]:
    """Of the data that we have, the method with the lowest mean validation error, and its test error."""
    groups = {group: runs for group, runs in grouped(results, BY).items() if group[0] == MNIST}

    def mean(part: str, runs: Sequence[Result]) -> list[float]:
        return [100 * float(result[part]["error"]["value"]) for _, result in runs]

    best = min(groups, key=lambda group: sum(mean("validation", groups[group])) / len(groups[group]))
    return [over_seeds(CHOSEN, dict(zip(BY, best, strict=True)), mean("best", groups[best]), least=0.0)]


def few_errors(rows: Sequence[Row]) -> str:
    """What is asked for is the mean over seeds, not the whole interval."""
    (row,) = (row for row in rows if row.name == CHOSEN)
    mean = float(row.value or 0.0)
    verdict = "Reached" if mean <= MOST else "Not reached"
    return (
        f"**{verdict}**: the method chosen by validation error, {row.settings['method']}, errs on {text(mean)} % of "
        f"test images in the mean over seeds (asked for: at most {MOST} %)."
    )


def curves(*names: tuple[str, str]) -> Callable[[Sequence[Result]], list[Row]]:
    """Figures after each epoch, the mean over seeds."""

    def rows(results: Sequence[Result]) -> list[Row]:
        found = []
        for group, runs in grouped(results, BY).items():
            for name, key in names:
                each: dict[int, list[float]] = {}
                for _, result in runs:
                    for epoch, value in result["curve"][key]:
                        each.setdefault(epoch, []).append(100 * value)
                settings = dict(zip(BY, group, strict=True))
                # A game that halted has fewer epochs: those that all seeds have are compared.
                found += [
                    replace(over_seeds(name, {**settings, "epoch": epoch}, values, least=0.0), warning=None)
                    for epoch, values in each.items() if len(values) == len(runs)
                ]  # fmt: skip
        return found

    return rows


def printed(rows: Sequence[Row], elsewhere: str = "") -> Laid:
    """The document's own table."""
    header = ["method", "MNIST (errors of 10,000)", "SVHN (%)", "CIFAR-10 (%)"]
    cells = [[name, *values] for name, values in PRINTED_C1.items()]
    return Laid("Table C.1 as the document has it.", header, cells, [])


def departures(cells: Sequence[Cell]) -> list[str]:
    """What sets the runs apart from the document's."""
    tree = cells[0]["configuration"]
    noise = max((cell["density"] or {}).get("noise", 0) for cell in cells)
    said = [
        f"The document trains for 2000 epochs of 500 steps or more on MNIST, these runs for "
        f"{tree['training']['epochs']}: its figures are not to be expected of them.",
        "The document's code takes the test set for validation and for the threshold ε, and logs its lowest error. "
        f"Here {tree['data']['validation_size']:,} training images choose the epoch, ε is a centile of unlabelled "
        "training images, and test images are measured once, of the best epoch and of the last.",
        "FM+PT is not in the document's table for MNIST; weights of PT and Ent are its code's for SVHN, of VI that for "
        "CIFAR-10. The start of LD is the same share of training as in its code, 9000 steps of 1.2·10⁶.",
        "The density is a small PixelCNN with mixtures of logistics, trained on unlabelled images of the run"
        + (f" with up to {noise} levels of noise in each pixel" if noise else "")
        + ": its log-densities are not those of the document's PixelCNN++.",
    ]
    widths = tree["classifier"].get("widths")
    if widths is not None:
        said.append(
            f"The classifier's hidden layers have {', '.join(map(str, widths))} units (document: 1000, 500, 250, 250, "
            f"250), the generator's {', '.join(map(str, tree['generator']['widths']))} (500, 500); a step has "
            f"{tree['training']['labelled_size']} labelled images (100)."
        )
    ended = "The generator's first biases are the logits of the mean image, so that it need not first learn to be dark."
    return [*said, ended] if tree["training"]["epochs"] < 100 else said


READING = Caption(
    items="test images, one training",
    shared="All seeds share their test images; where an interval says so, it holds their error too.",
    departures=departures,
    elsewhere=lambda cells: "2000 epochs" if cells[0]["configuration"]["training"]["epochs"] < 100 else None,
)
FEWER = Claim(says="a generator and unlabelled images help", figure=GAIN, below=0.0, where={"method": FM})
TABLE_C1 = Recipe(
    title="Few labels: supervised only, feature matching, and its entropy and density terms",
    source=f"{PAPER}, Table C.1 (= 6.4)",
    grid=runs_of([SUPERVISED, FM, PT, VI, LD], others=[(SVHN, "FM+PT+Ent"), (CIFAR, VI)]),
    figures=[ERRORS, LABELS_ALONE, chosen_method, curves((BY_EPOCH, "error"))],
    tables=[
        Layout(rows=BY[:2], figures=(ERROR, LAST, VALIDATION)),
        Layout(rows=BY[:2], figures=(TRUE, FAKE), caption="Assumption 1, of the best epoch."),
        Layout(rows=BY[:2], figures=(GAIN,), caption=PAIRED),
        Layout(rows=BY[:2], figures=(CHOSEN,)),
        printed,
    ],
    plots=[
        Points(of=[ERROR], label="{corpus} {method}", title="Test error", x_label="%"),
        Curves(of={BY_EPOCH: "{method}"}, x="epoch", by=("method",), title="Validation error, %", log_y=True),
    ],
    claims=[FEWER, few_errors],
    **READ,
    reading=READING,
)
TABLE_C2 = Recipe(
    title="Ablation: entropy of the generator, low density, conditional entropy, and the threshold ε",
    source=f"{PAPER}, Table C.2",
    grid=runs_of([FM, VI, LD, ENT], trainings.CENTILES, ABLATIONS, shorter=True),
    figures=[ERRORS, MATCHING_ALONE, DENSITIES, chosen_method],
    tables=[
        Layout(rows=BY, figures=(ERROR, LAST, VALIDATION)),
        Layout(rows=BY, figures=(OVER_FM,), caption=PAIRED),
        Layout(rows=BY, figures=(LARGEST, TENTH, ABOVE), caption="Max log-p."),
        Layout(rows=BY, figures=(TRUE, FAKE), caption="Assumption 1, of the best epoch."),
    ],
    plots=Points(of=[ERROR], label="{corpus} {method} {centile}", title="Test error", x_label="%"),
    claims=[
        Claim(says="low density lowers the error", figure=OVER_FM, below=0.0, where={"method": LD, "centile": 10}),
        Claim(says="conditional entropy does not help on MNIST", figure=OVER_FM, above=0.0, where={"method": ENT}),
    ],
    **READ,
    reading=READING,
)


def _sheets(results: Sequence[Result]) -> list[Row]:
    """What each sheet shows, beside the test error of its run."""
    read = percent("best.error")
    return [
        row_of(ERROR, {key: cell[key] for key in BY}, error, picture=result["sheet"])
        for cell, result in results if (error := read(result))
    ]  # fmt: skip


SHOWN = runs_of([FM, PT, VI, LD], others=[(SVHN, FM), (SVHN, "FM+PT+Ent"), (CIFAR, FM), (CIFAR, VI)], shorter=True)
FIGURE_C5 = Recipe(
    title="Images of the generator: feature matching alone, with entropy terms, with low density",
    source=f"{PAPER}, Figure C.5 (SVHN and CIFAR-10); at scale cpu MNIST",
    grid=lambda scale: [cell for cell in SHOWN(scale) if cell["seed"] == 0],  # one is enough to be looked at
    figures=_sheets,
    picture=sheets("{corpus}, {method}"),
    **READ,
    reading=replace(READING, elsewhere=lambda cells: None),
)
FIGURE_C6 = Recipe(
    title="How far Assumption 1 holds, epoch by epoch",
    source=f"{PAPER}, Figure C.6 (SVHN and CIFAR-10, test images); at scale cpu MNIST, held-out training images",
    grid=runs_of([FM, LD], others=[(SVHN, "FM+PT+Ent"), (CIFAR, VI)], shorter=True),
    figures=[
        curves((TRUE_BY_EPOCH, "true_share"), (FAKE_BY_EPOCH, "fake_share")),
        Figures(share(TRUE, "best.true_share", shared=TESTED), share(FAKE, "best.fake_share"), by=BY),
    ],
    tables=Layout(rows=BY[:2], figures=(TRUE, FAKE), caption="Of the best epoch."),
    plots=Curves(
        of={TRUE_BY_EPOCH: "data, {method}", FAKE_BY_EPOCH: "generated, {method}"}, x="epoch", by=("method",),
        title="Examples that satisfy the assumption, %", dashed=(FAKE_BY_EPOCH,), levels={"document: above": 90.0},
    ),
    claims=[
        Claim(says="most images have a logit above 0", figure=TRUE, above=90.0),
        Claim(says="most generated images have none", figure=FAKE, above=90.0,
              because="runs of 15 epochs, where the document's have 2,000, cannot be expected to reach it; the curves "
              "say how far they came."),
    ],
    **READ,
    reading=READING,
)  # fmt: skip
