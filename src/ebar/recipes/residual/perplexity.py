"""Perplexities of the joint models as intervals, beside the base's, RALM's and BALM's."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.recipes.residual.readings import NAMES, by_task, named
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot, as_estimate, over_seeds
from ebar.report.plots import Dots

PERPLEXITY = "perplexity per token"
DIFFERENCE = "nats per token, joint − base LM, paired over prefixes"
MOVED = "nats that log Z moves by when draws are doubled"
# On CC-News and the Toronto Books, in the document's own tokens.
DOCUMENT = {
    ("gmb-news", "base"): "14.89", ("gmb-news", "ralm"): "14.89", ("gmb-news", "balm"): "13.92",
    ("gmb-news", "unit"): "13.81–13.82", ("gmb-news", "bit"): "13.01–13.03", ("gmb-news", "pretrained"): "12.93–12.95",
    ("gutenberg-novels", "base"): "18.14", ("gutenberg-novels", "ralm"): "18.17", ("gutenberg-novels", "balm"): "18.24",
    ("gutenberg-novels", "unit"): "17.46–17.48", ("gutenberg-novels", "pretrained"): "16.17–16.18",
}  # fmt: skip
ORDER = ("pretrained", "bit", "unit")  # the document's, best first


def figures(results: Sequence[Result]) -> list[Row]:
    """Each model's perplexity, and how far the joint models are from the base."""
    rows = []
    for cell, result in results:
        for kind, rival in result["rivals"].items():
            value = math.exp(math.fsum(rival["nats"]) / sum(rival["tokens"]))
            rows.append(
                Row(
                    name=PERPLEXITY,
                    settings={**named(cell, kind), "parameters": rival["parameters"]},
                    value=value,
                    low=None,
                    high=None,
                    document=_told(cell, kind),
                )
            )
        for kind, runs in result["energies"].items():
            rows += _joint(cell, kind, runs)
    return rows


def _joint(cell: Any, kind: str, runs: list[dict[str, Any]]) -> Iterable[Row]:
    about = named(cell, kind)
    for seed, run in enumerate(runs):
        joint = run["joint"]
        yield Row(
            name=PERPLEXITY,
            settings={**about, "energy seed": seed, "parameters": run["parameters"]},
            value=float(joint["value"]),
            low=float(joint["low"]),
            high=float(joint["high"]),
            document=_told(cell, kind),
            warning=joint["verdict"],
        )
        yield Row(name=MOVED, settings={**about, "energy seed": seed}, value=float(joint["moved"]), low=None, high=None)
        yield Row(
            name="share of the prefixes with k̂ < 0.7", settings={**about, "energy seed": seed},
            value=float(joint["share_light"]), low=None, high=None,
        )  # fmt: skip
    differences = [float(run["joint"]["difference"]["value"]) for run in runs]
    yield over_seeds(DIFFERENCE, about, differences, single=as_estimate(runs[0]["joint"]["difference"]))
    accuracies = [float(run["held_out"]["accuracy"]) for run in runs]
    yield over_seeds("held-out class accuracy of the energy", about, accuracies)


def _told(cell: Any, kind: str) -> str | None:
    return DOCUMENT.get((cell["corpus"], kind)) if cell["base"] == "transformer" else None


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Joint − base in nats, by base and corpus."""
    return [
        Dots(
            title=title,
            x_label="nats per token, joint − base",
            rows={str(row.settings["model"]): as_dot(row) for row in here if row.name == DIFFERENCE},
        )
        for title, here in by_task(rows).items()
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """Which order the energies come in, where it is not the document's, and what the data may be."""
    said = []
    for title, here in by_task(rows).items():
        said += [*_order(title, here), *_beside_balm(title, here)]
        if here[0].settings["base"] == "SmolLM2-135M":
            said.append("The novels are probably in SmolLM2's training data: its perplexity on them flatters it.")
    said.append(
        "An interval is for the prefixes given: from the lower confidence limit of T to the upper one of 2J − T. "
        "“By normal approximation” is said only where k̂ < 0.7 for 95 % of the prefixes and doubling the draws moves "
        "log Z by less than 0.05 nats; otherwise the page says “not established”."
    )
    return said


def _order(title: str, rows: Sequence[Row]) -> list[str]:
    gains = {str(row.settings["model"]): row for row in rows if row.name == DIFFERENCE}
    document = [NAMES[kind] for kind in ORDER if NAMES[kind] in gains]
    if len(document) < 2:
        return []
    ours = sorted(document, key=lambda model: gains[model].value or 0.0)
    text = f"{title}: best first {', '.join(ours)}"
    if ours == document:
        return [f"{text}, as in the document."]
    reason = "" if "BiT" not in ours else (
        " A bidirectional energy from scratch has seen a few hundred thousand tokens here and billions there; one that "
        "starts from the base's own weights begins with what the base knows."
    )  # fmt: skip
    overlapping = any(
        one is not other and _meet(gains[one], gains[other]) for one in ours for other in ours
    )  # fmt: skip
    weak = " Their intervals overlap, so that the order is no finding." if overlapping else ""
    return [f"{text}; the document has {', '.join(document)}.{reason}{weak}"]


def _beside_balm(title: str, rows: Sequence[Row]) -> list[str]:
    """In the document every joint model is below a plain one of matched size."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.name == PERPLEXITY and row.value is not None:
            values.setdefault(str(row.settings["model"]), []).append(row.value)
    means = {model: math.fsum(found) / len(found) for model, found in values.items()}
    balm = means.get(NAMES["balm"])
    above = [NAMES[kind] for kind in ORDER if balm is not None and means.get(NAMES[kind], 0.0) > balm]
    if not above:
        return []
    return [
        f"{title}: BALM is below {' and '.join(above)}, unlike in the document. A base of this size gains by more "
        "layers at once; an energy of its size, on the same text, learns little that the base has not learnt."
    ]


def _meet(one: Row, other: Row) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    if any(end is None for end in ends):
        return True
    return bool(one.low <= other.high and other.low <= one.high)  # type: ignore[operator]


RECIPE = Experiment(
    title="Perplexity of a language model with a discriminator as part of it",
    source="document 002, “Estimated Perplexities” (CC-News, Toronto Books); at scale cpu GMB news and novels",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    runs="residual/text",
)
