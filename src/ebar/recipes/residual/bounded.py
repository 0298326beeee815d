"""An energy that is bounded by construction beside one that is not: what it costs, and what can then be certified.

One base and one set of its draws for both; the energies differ in nothing but the bound.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ebar.estimators.joint_perplexity import JointPerplexity
from ebar.maths.jackknife import half_width, log_mean_bounds
from ebar.recipes.figures import Figure, Figures
from ebar.recipes.layout import Layout, Points, chosen
from ebar.recipes.recipe import Caption, Cell, Recipe, Result, Row
from ebar.recipes.residual.configurations import CELLS, LANGUAGE_MODEL
from ebar.recipes.residual.run import base_figures, best_figures, trained
from ebar.store.writing import once, plain
from ebar.types import Estimate

BOUND = 3.0
LABELS = {"bounded": f"{BOUND:g}·tanh(raw/{BOUND:g})", "unbounded": "raw"}
PERPLEXITY = "perplexity per token"
CERTIFIED = "perplexity per token, certified for these prefixes"
HERE = "nats per token, joint − base LM, on these prefixes"
ELSEWHERE = "nats per token, joint − base LM, on others like them"
PAIRED = "nats per token, bounded − unbounded, paired over prefixes"


def cells(scale: str) -> list[Cell]:
    """One for each corpus."""
    kind = "bit" if scale == "demo" else "pretrained"
    known = CELLS[scale]
    if scale == "cpu":
        known = [{"corpus": corpus, **LANGUAGE_MODEL} for corpus in ("gmb-news", "gutenberg-novels")]
    return [{"seed": 0, **cell, "kind": kind, "energy": cell["energies"][kind]} for cell in known]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The figures of both, and their costs of every continuation."""
    cell = {**cell, "energies": {cell["kind"]: cell["energy"]}, "last_step": {"prefixes": 0, "candidates": None}}
    rival = once(folder / "base.json", lambda: base_figures(cell, folder))
    return {"tokens": rival["tokens"]} | {
        name: once(folder / f"{name}.json", partial(_energy, name, bound, cell, folder))
        for name, bound in (("bounded", BOUND), ("unbounded", None))
    }


def _energy(name: str, bound: float | None, cell: Cell, folder: Path) -> dict[str, Any]:
    _, found = trained(cell, cell["kind"], {**cell["energy"], "bound": bound}, cell["seed"], folder, name)
    accuracy = float(best_figures(folder / name / "energy")["accuracy"])
    return {
        "figures": plain(_figures(found.perplexity) | {"held-out class accuracy of the energy": accuracy}),
        "costs": (found.of_data + log_mean_bounds(-found.of_draws).corrected).tolist(),
    }


def _figures(joint: JointPerplexity) -> dict[str, Estimate | float]:
    figures: dict[str, Estimate | float] = {
        "perplexity per token of the base LM": joint.base,
        PERPLEXITY: joint.perplexity,
        HERE: joint.here._replace(warning=joint.verdict),
        ELSEWHERE: joint.difference._replace(warning=joint.verdict_elsewhere),
    }
    sure = joint.certified
    if sure is not None:
        low, high = map(math.exp, sure.cost)
        figures[CERTIFIED] = joint.perplexity._replace(low=low, high=high, warning=None)
        normal = math.log(joint.high) - math.log(joint.low)
        ratio = (sure.cost[1] - sure.cost[0]) / normal if normal else math.inf
        figures["width of the certified interval, in widths of the normal one"] = ratio
        if sure.elsewhere is not None:
            low, high = sure.elsewhere
            figures[f"{ELSEWHERE}, certified"] = joint.difference._replace(low=low, high=high, warning=None)
        figures["bound on |E|"] = sure.bound
    light = "k̂ < 0.7" if sure is None else "effective sample size of 30"
    figures[f"share of the prefixes with {light}"] = joint.share_light
    figures["mean log Z"] = sum(row.estimate.value for row in joint.log_z) / len(joint.log_z)
    return figures


def _energies(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Both energies as runs of their own, and their difference."""
    runs = [(label, result[name]["figures"]) for name, label in LABELS.items()]
    runs.append((" − ".join(LABELS.values()), {PAIRED: plain(_paired(result))}))
    return [({"corpus": cell["corpus"], "energy": label}, own) for label, own in runs]


def _names(run: dict[str, Any]) -> dict[str, str]:
    return {name: name for name in run}


def _paired(result: dict[str, Any]) -> Estimate:
    """The interval is over prefixes, and for others like them; both models are measured with the same draws."""
    tokens, bounded, unbounded = (
        torch.tensor(values, dtype=torch.float64)
        for values in (result["tokens"], result["bounded"]["costs"], result["unbounded"]["costs"])
    )
    gaps = bounded - unbounded
    value = gaps.sum() / tokens.sum()
    width = half_width((value * tokens - gaps) / (tokens.sum() - tokens))
    return Estimate(float(value), float(value - width), float(value + width), len(gaps))


def _notes(rows: Sequence[Row]) -> list[str]:
    """Whether the bound costs anything, and what the intervals are over."""
    said = []
    for row in chosen(rows, PAIRED, {}):
        value, low, high = (float(number or 0.0) for number in (row.value, row.low, row.high))
        side = "no higher than" if high <= 0 else "higher than" if low > 0 else "not told apart from"
        said.append(
            f"{row.settings['corpus']}: the bounded energy's perplexity is {side} the unbounded one's ({value:+.4f} "
            f"nats per token, {low:+.4f} to {high:+.4f} over prefixes, one seed each)."
        )
    return [
        *said,
        "A certified interval holds with a chance of 95 % or more whatever the law of the weights: given these "
        "prefixes, only log Z is random, and the weights are bounded. Others are by normal approximation. One seed of "
        "each energy: what another seed would give is in none of the intervals.",
        "Where an encoder ends in a layer norm, as BiT*'s does, that norm and the head's weights bound the raw energy "
        "too: then it can be certified without a tanh.",
    ]


def _over(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of one run is over."""
    draws = row.name in (PERPLEXITY, CERTIFIED, HERE)
    return "draws for log Z, on these prefixes" if draws else "prefixes and their draws, one seed"


RECIPE = Recipe(
    title="A bounded energy, and what can be certified of it",
    source="ebar's own; base, data and BiT* as in residual/perplexity",
    grid=cells,
    run=run_cell,
    figures=Figures(
        Figure(name="{figure}", at="{figure}", bare=True, each={"figure": _names}),
        by=("corpus", "energy"), parts=_energies,
    ),
    tables=Layout(rows=("corpus", "figure"), columns=("energy",)),
    plots=Points(
        of=[HERE], label="{energy}", title="{corpus}", panels=("corpus",),
        x_label="nats per token, joint − base, on these prefixes",
    ),
    notes=_notes,
    reading=Caption(items=_over),
)  # fmt: skip
