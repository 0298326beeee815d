"""Rewards against enumeration: every text of a tiny model is known."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Generator

from ebar.cli import main
from ebar.errors import UserError
from ebar.evaluation.best_of_n import exact_best, kl_bound
from ebar.journeys.texts import reward
from ebar.maths.enumeration import all_sequences
from ebar.models.pretrained import Pretrained
from ebar.types import Estimate


def letters(texts: list[str]) -> Sequence[float]:
    return [text.count("a") - 0.5 * text.count("b") for text in texts]


def within(found: object, truth: float) -> bool:
    """Twice the 95 % interval: outside once in 10⁴."""
    assert isinstance(found, Estimate)
    middle = found.value
    return middle - 2 * (middle - found.low) <= truth <= middle + 2 * (found.high - middle)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_figures_are_those_of_all_texts(beta: float, model: Pretrained) -> None:
    ruled = reward(model, letters, beta=beta)
    x = all_sequences(model.space)
    with torch.no_grad():
        log_q, rewards = model.log_prob(x).double(), ruled.energy.rewards(x)
    log_p = log_q + rewards / beta
    log_z = float(log_p.logsumexp(0))
    log_p = log_p - log_z
    expected, kl = float(log_p.exp() @ rewards), float(log_p.exp() @ (log_p - log_q))
    assert kl == pytest.approx(expected / beta - log_z, abs=1e-6)
    found = ruled.check(4000, best_of=[2, 8], generator=Generator().manual_seed(1))
    assert within(found["log_z"], log_z)
    assert within(found["value: β·log Z"], beta * log_z)
    assert within(found["model: expected reward"], float(log_q.exp() @ rewards))
    assert within(found["p: expected reward"], expected)
    assert within(found["KL(p‖model), nats"], kl)
    for n in (2, 8):
        best = exact_best(log_q, rewards, n)
        assert within(found[f"best of {n}: expected reward"], best.reward)
        assert best.kl <= kl_bound(n)
        # No model at the same KL has more: p is the best there is at its own.
        assert best.reward - beta * best.kl <= beta * log_z + 1e-9


def test_a_reward_of_minus_infinity_is_a_hard_constraint(model: Pretrained) -> None:
    ruled = reward(model, lambda texts: [0.0 if "a" in text else -math.inf for text in texts], beta=1.0)
    x = all_sequences(model.space)
    with torch.no_grad():
        log_z = float((model.log_prob(x).double() + ruled.energy.rewards(x)).logsumexp(0))
    found = ruled.check(4000, generator=Generator().manual_seed(2))
    assert within(found["log_z"], log_z)
    assert all("a" in text for text in ruled.sample(20, generator=Generator().manual_seed(3)))
    nothing = reward(model, lambda texts: [-math.inf] * len(texts), beta=1.0)
    with pytest.raises(UserError, match="All of the 50 draws have a reward of −inf"):
        nothing.check(50)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused_in_one_sentence(wrong: float, model: Pretrained) -> None:
    with pytest.raises(UserError, match="let the function give a number"):
        reward(model, lambda texts: [wrong] * len(texts), beta=1.0).check(50)
    with pytest.raises(UserError, match="above 0, not 0"):
        reward(model, letters, beta=0.0)


@pytest.mark.parametrize("wrong", [0, -2, 13])
def test_numbers_of_draws_that_cannot_be_told_are_refused_before_any_is_made(wrong: int, model: Pretrained) -> None:
    def never(texts: list[str]) -> Sequence[float]:
        raise AssertionError("drawn already")

    with pytest.raises(UserError, match="cannot be told from 50 draws: give numbers from 1 to 12"):
        reward(model, never, beta=1.0).check(50, best_of=[2, wrong])


def test_the_command_shows_figures_and_texts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.py").write_text("def cheerful(texts):\n    return [text.count('a') for text in texts]\n")
    words = ["control", "reward", "--model", str(folder), "--reward", f"{tmp_path / 'scores.py'}:cheerful"]
    more = ["--beta", "0.5", "--length", "4", "--draws", "400", "--best_of", "4", "--n", "3", "--sampler.kind", "smc"]
    assert main([*words, *more, "--json", "true"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["texts"]) >= 3
    assert found["figures"]["p: expected reward"]["value"] > found["figures"]["model: expected reward"]["value"]
    assert main([*words, *more]) == 0
    assert "best of 4: expected reward" in capsys.readouterr().out


def test_tuning_to_a_reward_gains_what_it_costs(model: Pretrained) -> None:
    """E_π[r] − β·KL(π‖q) rises from E_q[r] towards β·log Z, which nothing exceeds: all by enumeration."""
    beta = 0.5
    ruled = reward(model, letters, beta=beta)
    x = all_sequences(model.space)
    with torch.no_grad():
        log_q, rewards = model.log_prob(x).double(), ruled.energy.rewards(x)
    most, start = beta * float((log_q + rewards / beta).logsumexp(0)), float(log_q.exp() @ rewards)
    tuned = ruled.tune(
        steps=30, draws=128, learning_rate=0.02, warmup=2, evaluate_every=30, evaluation_draws=300, final_draws=1000,
        lora_rank=None, seed=0,
    )  # fmt: skip
    with torch.no_grad():
        log_pi = tuned.model.log_prob(x).double()
    value = float(log_pi.exp() @ (rewards - beta * (log_pi - log_q)))
    assert start + 0.5 * (most - start) < value <= most + 1e-6
    assert within(tuned.end["mean of reward"], float(log_pi.exp() @ rewards))
    with pytest.raises(UserError, match="Nothing looks ahead to a reward"):
        ruled.tune(method="distillation")
