"""A reward of texts: what there is to be had of it, and at what distance from the model.

p ∝ q·e^(r/β) is the π that maximises E_π[r] − β·KL(π‖q). The most there is to be had is β·log Z, which no training can
exceed, and KL(p‖q) = E_p[r]/β − log Z. Beside it stands best-of-n at a KL that is not above p's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.energies.suffix import Reward
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.evaluation.best_of_n import expected_best, kl_bound, n_for
from ebar.journeys.control.constraints import Constraint, Constraints
from ebar.journeys.control.continuing import Texts, continued_from
from ebar.journeys.control.policies import policy_of, save_policy
from ebar.journeys.control.report import Tuned
from ebar.journeys.control.tuning import Tuning, tune
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import default_generator
from ebar.models.tilted import Tilted, propose, reading_of_model
from ebar.progress import bar
from ebar.samplers.draw import draw, shares
from ebar.samplers.importance import Resampling
from ebar.types import Estimate, Sampler, Sequences

Figure = Estimate | float | int | str


@dataclass(frozen=True, kw_only=True, eq=False)
class Rewarded:
    """P(x) = q(x)·e^(r(x)/β)."""

    p: Tilted
    energy: Reward
    text: Callable[[Sequences], list[str]]
    rows: int
    continues: Callable[[Any], Any]  # a model of the same tokens, over the same texts after the same prompt
    model: Any  # without the prompt

    @torch.no_grad()
    def check(
        self, n: int = 4000, *, best_of: Sequence[int] = (), generator: Generator | None = None
    ) -> dict[str, Figure]:  # fmt: skip
        """log Z, the value β·log Z, the expected reward of model and p, KL(p‖q), and best-of-n beside it.

        All from n draws of the model. `best_of` adds numbers of draws to the one whose KL is not above p's.
        """
        beta, most = self.energy.beta, n // 4  # of so many draws no more can be the best
        if wrong := [count for count in best_of if not 1 <= count <= most]:
            raise UserError(
                f"The best of {wrong[0]:,} cannot be told from {n:,} draws: give numbers from 1 to {most:,}, "
                "or more draws."
            )
        generator = default_generator(device_of(self.p.base)) if generator is None else generator
        log_q, rewards = self._draws(n, generator)
        log_weights = rewards / beta
        check_weights(log_weights[None])
        if bool((log_weights == -math.inf).all()):
            raise UserError(f"All of the {n:,} draws have a reward of −inf: draw more, or forbid less.")
        log_z, kl = log_mean(log_weights[None])[0].estimate, kl_to_model(log_weights, log_q, log_q)
        # What p forbids counts nothing under p; under the model a reward of −∞ is a mean of −∞.
        seen = torch.where(rewards == -math.inf, 0.0, rewards)
        figures: dict[str, Figure] = {
            "log_z": log_z,
            "value: β·log Z": log_z._replace(
                value=beta * log_z.value, low=beta * log_z.low, high=beta * log_z.high
            ),
            "model: expected reward": _mean(torch.zeros_like(rewards), rewards),
            "p: expected reward": _mean(log_weights, seen),
            "KL(p‖model), nats": kl,
            "effective samples per draw": float(effective_sample_size(log_weights)) / n,
        }  # fmt: skip
        same = max(1, min(n_for(kl.value), most)) if math.isfinite(kl.value) else 1
        for count in dict.fromkeys([same, *best_of]):
            figures[f"best of {count:,}: expected reward"] = expected_best(rewards, count)
            figures[f"best of {count:,}: KL is at most"] = kl_bound(count)
        if same == most:
            figures["best of n"] = f"p is further from the model than the best of {most:,}; more draws would show it"
        return figures

    def sample(
        self, n: int = 10, *, sampler: Sampler | None = None, generator: Generator | None = None
    ) -> Texts:  # fmt: skip
        """n texts and their weights, by default by resampling draws of the model."""
        drawn = draw(sampler or Resampling(), self.p, n, generator=generator)
        return Texts(self.text(drawn.x), drawn)

    def tune(self, folder: Path | str | None = None, **options: Any) -> Tuned:
        """A model π of its own, brought to p by policy gradient; `options` are those of `Tuning`.

        By KL(p‖π) on draws of the model and then of π itself; with divergence="reverse_kl" and proposal="policy" it is
        what reinforcement learning with a KL penalty does: KL(π‖p) = log Z − (E_π[r] − β·KL(π‖q))/β. The reward must be
        a number for every text that is drawn.
        """
        tuning = Tuning(**{"method": "policy_gradient", "proposal": "model", **options})
        if tuning.proposal == "look_ahead" or tuning.method != "policy_gradient":
            raise UserError("Nothing looks ahead to a reward: tune by policy_gradient, with proposal model or policy.")
        place = None if folder is None else Path(folder)
        policy = policy_of(self.model, lora_rank=tuning.lora_rank, seed=tuning.seed)
        feature = replace(self.energy.score, name="reward")
        # No mean of it is asked for: all steps are made.
        constraints = Constraints([Constraint(feature, math.nan, feature)])
        tuned = tune(
            self.p, self.continues(policy), constraints, tuning, place, ahead=None, text=self.text, rows=self.rows
        )
        if place is not None:
            save_policy(policy, place / "model")
        return replace(tuned, model=policy)

    def _draws(self, n: int, generator: Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """log q and r of draws of the model."""
        parts = []
        with bar("drawing", n, "draws") as progress:
            for size in shares(n, None, self.rows):
                x, log_q = propose(self.p.base, size, None, generator)
                parts.append((log_q.double().cpu(), self.energy.rewards(x).cpu()))
                progress.advance(size)
        return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])


def reward(
    model: Any, function: Callable[[list[str]], Sequence[float]], *, beta: float, prompt: str = "",
    reads_prompt: bool = True, length: int | None = None, rows: int = 256,
) -> Rewarded:  # fmt: skip
    """A model under a reward: `function` gives a number for each of a list of texts; −inf forbids one.

    Draws go on from the `prompt`, which the reward reads too unless `reads_prompt` is false, and have `length` tokens.
    """
    reading = reading_of_model(model)
    if reading is None:
        raise UserError("This model does not say what its tokens spell: give one that is pretrained or made for data.")
    base = continued_from(model, prompt, reading, length)
    reading = reading.going_on_from(prompt, base.space.length, reads_prompt=reads_prompt)
    energy = Reward(function, beta, reading)

    def text(x: Sequences) -> list[str]:
        return [reading.text(x.prefix(row)) for row in range(len(x.lengths))]

    return Rewarded(
        p=Tilted(base, energy).eval().requires_grad_(False), energy=energy, text=text, rows=rows, model=model,
        continues=lambda policy: continued_from(policy, prompt, reading, length),
    )  # fmt: skip


def _mean(log_weights: torch.Tensor, values: torch.Tensor) -> Estimate:
    if bool((values == -math.inf).any()):
        return Estimate(-math.inf, -math.inf, -math.inf, float(len(values)), "some texts have a reward of −inf")
    return weighted_mean(log_weights[None], values[None], name="reward")[0]
