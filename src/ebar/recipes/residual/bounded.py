"""An energy that is bounded by construction beside one that is not: what it costs, and what can then be certified.

One base and one pool of its draws for both; the energies differ in nothing but the bound.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebar.energies.bounded import bound_of
from ebar.estimators.joint_perplexity import JointPerplexity, joint_perplexity
from ebar.maths.jackknife import half_width, log_mean_bounds
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Row
from ebar.recipes.residual.run import base_figures, best_figures, once, trained
from ebar.recipes.residual.settings import CELLS, LANGUAGE_MODEL
from ebar.recipes.statistics import as_dot
from ebar.report.plots import Dots
from ebar.types import Estimate

BOUND = 3.0
BOUNDED, UNBOUNDED = f"{BOUND:g}·tanh(raw/{BOUND:g})", "raw"
PERPLEXITY = "perplexity per token"
CERTIFIED = "perplexity per token, certified for these prefixes"
HERE = "nats per token, joint − base LM, on these prefixes"
ELSEWHERE = "nats per token, joint − base LM, on others like them"
PAIRED = "nats per token, bounded − unbounded, paired over prefixes"


def cells(scale: str) -> list[Cell]:
    """One for each corpus."""
    if scale == "demo":
        (demo,) = CELLS["demo"]
        return [{"seed": 0, **demo, "kind": "bit", "energy": demo["energies"]["bit"]}]
    if scale == "cpu":
        energy = LANGUAGE_MODEL["energies"]["pretrained"]
        return [
            {"seed": 0, "corpus": corpus, **LANGUAGE_MODEL, "kind": "pretrained", "energy": energy}
            for corpus in ("gmb-news", "gutenberg-novels")
        ]
    return [
        {"seed": 0, **cell, "kind": "pretrained", "energy": cell["energies"]["pretrained"]} for cell in CELLS["paper"]
    ]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The energies of data and draws under both, as numbers: all figures are made of them."""
    cell = {**cell, "energies": {cell["kind"]: cell["energy"]}, "last_step": {"prefixes": 0, "candidates": None}}
    rival = once(folder / "base.json", lambda: base_figures(cell, folder))
    found = {
        name: once(folder / f"{name}.json", partial(_energies, name, bound, cell, folder))
        for name, bound in (("bounded", BOUND), ("unbounded", None))
    }
    return {"base": rival, **found}


def _energies(name: str, bound: float | None, cell: Cell, folder: Path) -> dict[str, Any]:
    joint, evaluation = trained(cell, cell["kind"], {**cell["energy"], "bound": bound}, cell["seed"], folder, name)
    return {
        "of_data": evaluation.of_data.tolist(),
        "of_draws": evaluation.of_draws.tolist(),
        "bound": bound_of(joint.energy),
        "held_out": best_figures(folder / name / "energy"),
    }


def figures(results: Sequence[Result]) -> list[Row]:
    """Perplexity, verdicts and widths of both, and their difference."""
    rows = []
    for cell, result in results:
        for name, label in (("bounded", BOUNDED), ("unbounded", UNBOUNDED)):
            rows += _rows({"corpus": cell["corpus"], "energy": label}, joint_of(result, name), result[name])
        rows.append(_paired(cell, result))
    return rows


def joint_of(result: Mapping[str, Any], name: str) -> JointPerplexity:
    """The perplexity of one of the two, from the numbers that were kept."""
    nats, tokens = _tensor(result["base"]["nats"]), torch.tensor(result["base"]["tokens"])
    own = result[name]
    return joint_perplexity(-nats, _tensor(own["of_data"]), _tensor(own["of_draws"]), tokens, bound=own["bound"])


def _rows(settings: Mapping[str, Any], joint: JointPerplexity, run: Mapping[str, Any]) -> list[Row]:
    rows = [
        _row("perplexity per token of the base LM", settings, joint.base),
        _row(PERPLEXITY, settings, joint.perplexity),
        _row(HERE, settings, joint.here._replace(warning=joint.verdict)),
        _row(ELSEWHERE, settings, joint.difference._replace(warning=joint.verdict_elsewhere)),
    ]
    if joint.certified is not None:
        sure = joint.certified
        ends = [math.exp(end) for end in sure.cost]
        rows.append(_row(CERTIFIED, settings, joint.perplexity._replace(low=ends[0], high=ends[1], warning=None)))
        normal = math.log(joint.high) - math.log(joint.low)
        ratio = (sure.cost[1] - sure.cost[0]) / normal if normal else math.inf
        rows.append(_row("width of the certified interval, in widths of the normal one", settings, ratio))
        if sure.elsewhere is not None:
            low, high = sure.elsewhere
            own = joint.difference._replace(low=low, high=high, warning=None)
            rows.append(_row(f"{ELSEWHERE}, certified", settings, own))
    light = "effective sample size of 30" if joint.certified is not None else "k̂ < 0.7"
    if joint.certified is not None:
        rows.append(_row("bound on |E|", settings, joint.certified.bound))
    return [
        *rows,
        _row(f"share of the prefixes with {light}", settings, joint.share_light),
        _row("mean log Z", settings, sum(row.estimate.value for row in joint.log_z) / len(joint.log_z)),
        _row("held-out class accuracy of the energy", settings, float(run["held_out"]["accuracy"])),
    ]


def _row(name: str, settings: Mapping[str, Any], figure: Estimate | float) -> Row:
    if isinstance(figure, float):
        return Row(name=name, settings=settings, value=figure, low=None, high=None)
    return Row(
        name=name, settings=settings, value=figure.value, low=figure.low, high=figure.high, warning=figure.warning
    )


def _paired(cell: Cell, result: Mapping[str, Any]) -> Row:
    """The interval is over prefixes, and for others like them; both models are measured with the same draws."""
    costs = [
        _tensor(result[name]["of_data"]) + log_mean_bounds(-_tensor(result[name]["of_draws"])).corrected
        for name in ("bounded", "unbounded")
    ]
    tokens = _tensor(result["base"]["tokens"])
    gaps = costs[0] - costs[1]
    value = gaps.sum() / tokens.sum()
    left_out = (value * tokens - gaps) / (tokens.sum() - tokens)
    width = half_width(left_out)
    settings = {"corpus": cell["corpus"], "energy": f"{BOUNDED} − {UNBOUNDED}"}
    return _row(PAIRED, settings, Estimate(float(value), float(value - width), float(value + width), len(gaps)))


def _tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Joint − base on these prefixes, bounded and not, by corpus."""
    corpora = dict.fromkeys(str(row.settings["corpus"]) for row in rows)
    return [
        Dots(
            title=corpus,
            x_label="nats per token, joint − base, on these prefixes",
            rows={
                str(row.settings["energy"]): as_dot(row)
                for row in rows
                if row.name == HERE and row.settings["corpus"] == corpus
            },
        )
        for corpus in corpora
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """Whether the bound costs anything, and what the intervals are over."""
    said = []
    for row in rows:
        if row.name == PAIRED and row.value is not None and row.low is not None and row.high is not None:
            told = "no higher" if row.high <= 0 else "higher" if row.low > 0 else "not told apart from"
            tail = "" if told == "not told apart from" else " than"
            said.append(
                f"{row.settings['corpus']}: the bounded energy's perplexity is {told}{tail} the unbounded one's "
                f"({row.value:+.4f} nats per token, {row.low:+.4f} to {row.high:+.4f} over prefixes, one seed each)."
            )
    said.append(
        "A certified interval holds with a chance of 95 % or more whatever the law of the weights: given these "
        "prefixes, only log Z is random, and the weights are bounded. Others are by normal approximation. One seed of "
        "each energy: what another seed would give is in none of the intervals."
    )
    said.append(
        "Where an encoder ends in a layer norm, as BiT*'s does, that norm and the head's weights bound the raw energy "
        "too: then it can be certified without a tanh."
    )
    return said


def over(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of one run is over."""
    if row.name in (PERPLEXITY, CERTIFIED, HERE):
        return "draws for log Z, on these prefixes"
    return "prefixes and their draws, one seed"


RECIPE = Experiment(
    title="A bounded energy, and what can be certified of it",
    source="ebar's own; base, data and BiT* as in residual/perplexity",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    reading=Reading(items=over),
)
