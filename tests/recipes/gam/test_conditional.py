"""The languages are what the recipe says, and λ(C) beats r and one λ for all."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.recipes.gam import conditional
from ebar.recipes.gam.conditional import MOTIFS, RECIPE, conditional_entropy, languages, sample
from ebar.recipes.recipe import Recipe


def test_the_number_of_ones_in_the_context_decides_the_motif(generator):
    x, context = sample(4000, generator=generator)
    has = Features([Motif(motif=motif, alphabet="01", end=2) for motif in MOTIFS])(x)
    ones = context.given.tokens.sum(1)
    for number in range(4):
        own = has[ones == number, number]
        # 4.5 standard errors of a share of 0.9, two-sided, four times: a false alarm in 36,000 runs.
        assert abs(own.mean() - 0.9) < 4.5 * 0.3 / len(own) ** 0.5


def test_the_entropy_is_that_of_the_pairs_own_log_probabilities(generator):
    x, context = sample(4000, generator=generator)
    ones = context.given.tokens.sum(1)
    costs = torch.zeros(4000, dtype=torch.float64)
    for number, language in enumerate(languages()):
        rows = (ones == number).nonzero().squeeze(1)
        costs[rows] = -language.distribution().log_prob(x.select(rows))
    assert abs(costs.mean() - conditional_entropy()) < 4.5 * costs.std() / 4000**0.5
    assert conditional_entropy() < 20 * math.log(2)


@pytest.mark.filterwarnings("ignore:.*have an effective sample size below:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Some data have a feature:RuntimeWarning")
def test_coefficients_of_the_context_beat_one_for_all_and_that_beats_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(conditional, "TEST", 500)
    monkeypatch.setattr(conditional, "LOG_Z_DRAWS", 1000)
    cell = {"seed": 0, "data": 250, "hidden": 16, "epochs": 10, "steps": 40, "draws": 150}
    results: list[Any] = [(cell, RECIPE.run(cell, tmp_path))]
    found = results[0][1]
    assert found["cross_entropy_r"] > conditional_entropy()
    assert found["gain_conditional"] > found["gain_constant"] + 0.2  # the seed is fixed
    assert found["gain_constant"] > 0
    rows = RECIPE.rows(results)
    assert rows[0].settings["entropy"] == conditional_entropy()
    RECIPE.plot(rows, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert isinstance(RECIPE, Recipe)
