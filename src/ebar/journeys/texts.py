"""A language model under a rule for its texts, or under a reward of them, and what that takes.

Under a rule, P(x) = q(x)·1[x obeys], its log Z being the log-probability that a text of the model does. Draws are
masked, token by token, and weighed: see `samplers.masked`. What a grammar allows is what llguidance makes of it, the
order of a schema's keys and the white space between them included.

Under a reward, p ∝ q·e^(r/β) is the π that maximises E_π[r] − β·KL(π‖q). The most there is to be had is β·log Z, which
no training can exceed, and KL(p‖q) = E_p[r]/β − log Z. Beside it stands best-of-n at a KL that is not above p's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.energies.linear import Linear
from ebar.energies.reward import Reward
from ebar.errors import UserError
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.evaluation.best_of_n import expected_best, kl_bound, n_for
from ebar.features.feature import Features, bind, negated
from ebar.features.regular import Regular
from ebar.features.rules import Canonical, Grammar, RegularRule, Rule, json_schema
from ebar.journeys.control.constraints import Constraint, Constraints
from ebar.journeys.control.continuing import Texts, continued_from, policy_of, reading_for
from ebar.journeys.control.report import Tuned
from ebar.journeys.control.tuning import Tuning, tune
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size
from ebar.maths.proportions import wilson
from ebar.maths.randomness import default_generator
from ebar.models.tilted import Tilted, propose
from ebar.progress import bar
from ebar.samplers.draw import draw, shares
from ebar.samplers.importance import Resampling, multinomial
from ebar.samplers.masked import Masked, MaskedDraws
from ebar.types import Estimate, Sampler, Sequences, Weighted

Figure = Estimate | float | int | str
Some = TypeVar("Some")
REMEDY = "give one that is pretrained or made for data"


def _in_parts(n: int, rows: int, some: Callable[[int], Some]) -> list[Some]:
    """n draws, at most so many rows of them at a time."""
    parts = []
    with bar("drawing", n, "draws") as progress:
        for size in shares(n, None, rows):
            parts.append(some(size))
            progress.advance(size)
    return parts


def _chosen(
    x: Sequences, log_weights: Float[Tensor, " draws"], n: int, text: Callable[[Sequences], list[str]],
    generator: Generator | None,
) -> Texts:  # fmt: skip
    """n of the draws, in proportion to their weights."""
    generator = default_generator(log_weights.device) if generator is None else generator
    chosen = multinomial(log_weights[None].to(generator.device), n, generator)[0]
    x = x.select(chosen.to(x.tokens.device))
    return Texts(text(x), Weighted(x, torch.zeros(1, n, device=x.tokens.device)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Grammatical:
    """P(x) = q(x)·1[x obeys a rule]."""

    p: Tilted
    proposal: Masked
    reading: Reading
    canonical: bool
    rows: int

    def draw(self, n: int = 1000, *, generator: Generator | None = None) -> MaskedDraws:
        """n masked draws with their weights; some are cut off, and have none."""
        generator = default_generator(device_of(self.p.base)) if generator is None else generator
        parts = _in_parts(n, self.rows, lambda size: self._weighed(self.proposal.walk(size, generator=generator)))
        drawn = MaskedDraws(
            Sequences.join([part.x for part in parts]),
            *(torch.cat(columns) for columns in zip(*(part[1:] for part in parts), strict=True)),
        )
        if bool((drawn.log_weights == -math.inf).all()):
            length = self.p.base.space.length
            raise UserError(
                f"None of the {n:,} texts was whole within {length:,} tokens: allow longer ones, draw more, or give a "
                "grammar whose texts end."
            )
        return drawn

    def _weighed(self, drawn: MaskedDraws) -> MaskedDraws:
        """Without a weight where the tokens must be canonical, and are not."""
        if not self.canonical:
            return drawn
        kept = bind(Canonical(), self.reading)(drawn.x) > 0
        return drawn._replace(log_weights=torch.where(kept, drawn.log_weights, -math.inf))

    def check(self, drawn: MaskedDraws) -> dict[str, Estimate | float]:
        """What draws tell of P: log Z, the share cut off, how far masking alone is from p, and what share is canonical.

        Canonical tokens are those that the tokeniser makes of a text. P has all spellings unless it was asked for
        canonical ones alone, whose log Z is less by the log of their share.
        """
        log_weights = drawn.log_weights.double().cpu()[None]
        cut = (log_weights == -math.inf).double()
        log_g = drawn.log_q.double().cpu() - torch.where(cut[0] > 0, 0.0, log_weights[0])
        count, total = float(cut.sum()), float(cut.numel())
        figures: dict[str, Estimate | float] = {
            "log_z": log_mean(log_weights)[0].estimate,
            "share cut off": Estimate(count / total, *wilson(count, total), total),
            "KL(p‖masking), nats": kl_to_model(log_weights[0], log_g, log_g),
            "effective samples per draw": float(effective_sample_size(log_weights)[0]) / log_weights.shape[1],
        }
        if self.reading.encode is not None:
            canonical = bind(Canonical(), self.reading)(drawn.x).cpu()[None]
            figures["share of p in canonical tokens"] = weighted_mean(
                log_weights, canonical, low=0.0, high=1.0, name="canonical tokens"
            )[0]
        return figures

    def texts(self, drawn: MaskedDraws, n: int, *, generator: Generator | None = None) -> Texts:
        """n whole texts, chosen among the draws in proportion to their weights."""
        return _chosen(drawn.x, drawn.log_weights, n, self.text, generator)

    def sample(self, n: int = 10, *, draws: int = 1000, generator: Generator | None = None) -> Texts:
        """n whole texts, from so many draws: near p where the effective samples are many more than n."""
        return self.texts(self.draw(draws, generator=generator), n, generator=generator)

    def text(self, x: Sequences) -> list[str]:
        """What sequences spell."""
        return [self.reading.text(row) for row in x.rows()]


def grammar(
    model: Any, rule: Grammar | Regular | str | Mapping[str, Any], *, prompt: str = "", length: int | None = None,
    canonical: bool = False, rows: int = 64,
) -> Grammatical:  # fmt: skip
    """A model under a rule for whole texts: `Grammar` of Lark's kind, a JSON schema, or a regular expression (`whole`).

    Draws go on from the `prompt`, which the rule does not read, and have at most `length` tokens, the end included;
    `rows` of them are drawn at a time. With `canonical`, P has only the tokens that the tokeniser would make of a text.
    The model must be one whose texts end.
    """
    reading = reading_for(model, None, REMEDY)
    base = continued_from(model, prompt, reading, length)
    reading = replace(reading, longest=base.space.length, before="")
    wanted = json_schema(rule) if isinstance(rule, str | Mapping) else rule
    feature = bind(wanted, reading)
    opposite = negated(feature)
    assert opposite is not None
    forbidden = [opposite, *([bind(Canonical(absent=True), reading)] if canonical else [])]
    energy = Linear(Features(forbidden), torch.full((len(forbidden),), -math.inf, dtype=torch.float64))
    follows: Rule = RegularRule(wanted, reading) if isinstance(wanted, Regular) else wanted.bind(reading).rule
    return Grammatical(
        p=Tilted(base, energy), proposal=Masked(base, follows), reading=reading, canonical=canonical, rows=rows
    )


class RewardedDraws(NamedTuple):
    """Draws of the model, and what a reward gives them."""

    x: Sequences
    log_q: Float[Tensor, " draws"]
    rewards: Float[Tensor, " draws"]


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
    def draw(self, n: int = 4000, *, generator: Generator | None = None) -> RewardedDraws:
        """n draws of the model with their rewards, which serve any β."""
        generator = default_generator(device_of(self.p.base)) if generator is None else generator

        def some(size: int) -> RewardedDraws:
            x, log_q = propose(self.p.base, size, None, generator)
            return RewardedDraws(x, log_q.double().cpu(), self.energy.rewards(x).cpu())

        x, log_q, rewards = zip(*_in_parts(n, self.rows, some), strict=True)
        return RewardedDraws(Sequences.join(list(x)), torch.cat(log_q), torch.cat(rewards))

    def check(
        self, n: int = 4000, *, drawn: RewardedDraws | None = None, best_of: Sequence[int] = (),
        generator: Generator | None = None,
    ) -> dict[str, Figure]:  # fmt: skip
        """log Z, the value β·log Z, the expected reward of model and p, KL(p‖q), and best-of-n beside it.

        All from n draws of the model, or from those that are there. `best_of` adds numbers of draws to the one whose KL
        is not above p's.
        """
        n = n if drawn is None else len(drawn.rewards)
        beta, most = self.energy.beta, n // 4  # of so many draws no more can be the best
        if wrong := [count for count in best_of if not 1 <= count <= most]:
            raise UserError(
                f"The best of {wrong[0]:,} cannot be told from {n:,} draws: give numbers from 1 to {most:,}, "
                "or more draws."
            )
        _, log_q, rewards = self.draw(n, generator=generator) if drawn is None else drawn
        log_weights = rewards / beta
        check_weights(log_weights[None])
        if bool((log_weights == -math.inf).all()):
            raise UserError(f"All of the {n:,} draws have a reward of −inf: draw more, or forbid less.")
        log_z, kl = log_mean(log_weights[None])[0].estimate, kl_to_model(log_weights, log_q, log_q)
        # What p forbids counts nothing under p; under the model a reward of −∞ is a mean of −∞.
        seen = torch.where(rewards == -math.inf, 0.0, rewards)
        figures: dict[str, Figure] = {
            "log_z": log_z,
            "value: β·log Z": log_z.mapped(lambda value: beta * value),
            "model: expected reward": _mean(torch.zeros_like(rewards), rewards),
            "p: expected reward": _mean(log_weights, seen),
            "KL(p‖model), nats": kl,
            "effective samples per draw": float(effective_sample_size(log_weights)) / n,
        }
        same = max(1, min(n_for(kl.value), most)) if math.isfinite(kl.value) else 1
        for count in dict.fromkeys([same, *best_of]):
            figures[f"best of {count:,}: expected reward"] = expected_best(rewards, count)
            figures[f"best of {count:,}: KL is at most"] = kl_bound(count)
        if same == most:
            figures["best of n"] = f"p is further from the model than the best of {most:,}; more draws would show it"
        return figures

    def texts(self, drawn: RewardedDraws, n: int, *, generator: Generator | None = None) -> Texts:
        """n texts, chosen among draws of the model in proportion to e^(r/β)."""
        return _chosen(drawn.x, drawn.rewards / self.energy.beta, n, self.text, generator)

    def sample(self, n: int = 10, *, sampler: Sampler | None = None, generator: Generator | None = None) -> Texts:
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
        return tune(
            self.p, policy, constraints, tuning, place, continues=self.continues, ahead=None, text=self.text,
            rows=self.rows,
        )  # fmt: skip


def reward(
    model: Any, function: Callable[[list[str]], Sequence[float]], *, beta: float, prompt: str = "",
    reads_prompt: bool = True, length: int | None = None, rows: int = 256,
) -> Rewarded:  # fmt: skip
    """A model under a reward: `function` gives a number for each of a list of texts; −inf forbids one.

    Draws go on from the `prompt`, which the reward reads too unless `reads_prompt` is false, and have `length` tokens.
    """
    reading = reading_for(model, None, REMEDY)
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
