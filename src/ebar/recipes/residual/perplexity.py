"""Perplexities of the joint models as intervals, beside the base's, RALM's and BALM's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.crossed import crossed, over_items
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Row
from ebar.recipes.residual.perplexity_page import ACCURACY, DIFFERENCE, MOVED, PERPLEXITY, READING, notes, told
from ebar.recipes.residual.readings import by_task, named
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot, as_estimate, over_seeds
from ebar.report.plots import Dots


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
                    document=told(cell, kind),
                )
            )
        for kind in ("ralm", "balm"):
            if kind in result["rivals"]:
                rows.append(_rival(cell, kind, result["rivals"]))
        for kind, runs in result["energies"].items():
            rows += _joint(cell, kind, runs, result["rivals"]["base"]["tokens"])
    return rows


def _rival(cell: Any, kind: str, rivals: Mapping[str, Any]) -> Row:
    """How far a plain model is from the base on the same prefixes."""
    tokens = rivals["base"]["tokens"]
    gains = [own - base for own, base in zip(rivals[kind]["nats"], rivals["base"]["nats"], strict=True)]
    found = over_items(gains, tokens)
    over = f"{len(tokens)} prefixes, one seed"
    return Row(
        name=DIFFERENCE, settings=named(cell, kind), value=found.value, low=found.low, high=found.high, over=over
    )


def _joint(cell: Any, kind: str, runs: list[dict[str, Any]], tokens: list[int]) -> Iterable[Row]:
    about = named(cell, kind)
    for seed, run in enumerate(runs):
        joint = run["joint"]
        yield Row(
            name=PERPLEXITY,
            settings={**about, "energy seed": seed, "parameters": run["parameters"]},
            value=float(joint["value"]),
            low=float(joint["low"]),
            high=float(joint["high"]),
            document=told(cell, kind),
            warning=joint["verdict"],
        )
        yield Row(name=MOVED, settings={**about, "energy seed": seed}, value=float(joint["moved"]), low=None, high=None)
        yield Row(
            name="share of the prefixes with k̂ < 0.7", settings={**about, "energy seed": seed},
            value=float(joint["share_light"]), low=None, high=None,
        )  # fmt: skip
    differences = [float(run["joint"]["difference"]["value"]) for run in runs]
    single = as_estimate(runs[0]["joint"]["difference"])
    row = over_seeds(DIFFERENCE, about, differences, single=single, warning=None if single is None else single.warning)
    yield row if len(runs) == 1 else _with_both(row, [run["gains"] for run in runs], tokens)
    accuracies = [float(run["held_out"]["accuracy"]) for run in runs]
    yield over_seeds(ACCURACY, about, accuracies)


def _with_both(row: Row, gains: list[list[float]], tokens: list[int]) -> Row:
    """Seeds of an energy are measured on the same prefixes: the errors of both are in the interval."""
    found = crossed(gains, tokens)
    assert row.value is not None
    low, high = row.value - (found.value - found.low), row.value + (found.high - found.value)
    over = f"{len(gains)} energy seeds and {len(tokens)} prefixes, which they share"
    return replace(row, low=low, high=high, over=over, values=gains)


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Each model − base in nats, by base and corpus."""
    return [
        Dots(
            title=title,
            x_label="nats per token − base",
            rows={str(row.settings["model"]): as_dot(row) for row in here if row.name == DIFFERENCE},
        )
        for title, here in by_task(rows).items()
    ]


RECIPE = Experiment(
    title="Perplexity of a language model with a discriminator as part of it",
    source="document 002, “Estimated Perplexities” (CC-News, Toronto Books); at scale cpu GMB news and novels",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    runs="residual/text",
    reading=READING,
)
