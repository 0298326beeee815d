"""The recipe's parts at small size, and what it makes of its runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.recipes.gam import policy_gradient
from ebar.recipes.gam.policy_gradient import ARMS, BUDGETS, DEMO, RECIPE, REFERENCE, SEEDS, target
from ebar.recipes.recipe import Recipe


def test_the_target_is_far_from_its_base_and_has_the_motif() -> None:
    assert isinstance(RECIPE, Recipe)
    wanted = target()
    assert exact.divergence("total_variation", wanted, wanted.base).item() > 0.5
    assert isinstance(wanted.energy, Linear)
    motif = wanted.energy.features
    assert exact.moments(wanted, motif).item() > 0.9
    assert exact.moments(wanted.base, motif).item() < 0.2


# On-policy, few draws can leave the policy no nearer than it began: that is for the recipe to show, not promised here.
@pytest.mark.parametrize(
    ("arm", "draws", "nearer"),
    [
        (REFERENCE, 1024, True),
        ("distillation, ahead", 512, True),
        ("DPG, replaced", 4096, True),
        ("JS, on", 512, False),
    ],
)
def test_each_way_runs_and_leaves_the_base_alone(
    arm: str, draws: int, nearer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_gradient, "LONGEST", 300)  # steps of distillation
    wanted = target()
    before = [parameter.clone() for parameter in wanted.parameters()]
    result = RECIPE.run({"arm": arm, "draws": draws, "seed": 0}, tmp_path)
    start = exact.divergence("total_variation", wanted, wanted.base).item()
    assert result["total_variation"] < (start - 0.03 if nearer else 1.0)
    assert result["steps"] > 0
    assert all(torch.equal(old, new) for old, new in zip(before, wanted.parameters(), strict=True))
    json.dumps(result, allow_nan=False)


def made_up(scale: str) -> list[tuple[Any, dict[str, Any]]]:
    """Distillation is at 0.2 + seed/100, everything else 0.1 above it."""
    results = []
    for cell in RECIPE.grid(scale):
        value = 0.2 + cell["seed"] / 100 + (0.0 if cell["arm"] == REFERENCE else 0.1)
        result = {"total_variation": value, "kl": value, "steps": 3, "replaced": 0, "seconds": 1.0, "warnings": []}
        results.append((cell, result))
    return results


@pytest.mark.parametrize("scale", BUDGETS)
def test_differences_are_paired_by_seed(scale: str, tmp_path: Path) -> None:
    rows = RECIPE.rows(made_up(scale))
    paired = [row for row in rows if row.name == "total_variation_minus_distillation"]
    assert len(paired) == len(BUDGETS[scale]) * (len(DEMO if scale == "demo" else ARMS) - 1)
    for row in paired:
        assert (row.value, row.low, row.high) == pytest.approx((0.1, 0.1, 0.1))  # pairing leaves no spread
    (own,) = (
        row for row in rows if row.name == "kl" and row.settings == {"arm": REFERENCE, "draws": BUDGETS[scale][0]}
    )
    assert own.value == pytest.approx(0.2 + (len(SEEDS[scale]) + 1) / 200)
    assert own.low is not None
    assert own.low < 0.2 + (len(SEEDS[scale]) + 1) / 200
    RECIPE.plot(rows, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_warnings_of_runs_reach_the_rows() -> None:
    results = made_up("demo")
    results[-1][1]["warnings"] = ["the draws are worth nothing"]
    warned = {row.warning for row in RECIPE.rows(results)}
    assert warned == {None, "1 of 2 runs: the draws are worth nothing"}
