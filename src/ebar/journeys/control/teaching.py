"""What π learns from, by policy gradient or by distillation, and what is measured of it while it learns.

By policy gradient draws are weighed; by distillation π learns in every place what draws that look ahead would choose
there, all tokens at once. Measured are how near π is to p, how far from q, and whether it has arrived.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.estimators.divergences import kl_from_model, kl_to_model
from ebar.estimators.exact import device_of
from ebar.estimators.moments import means_by_name
from ebar.evaluation.diversity import unique_ratios
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.report import MODEL, TARGET
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.maths.randomness import folded
from ebar.models.stepwise import teacher_forced
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.objectives import PolicyGradient
from ebar.samplers.draw import shares
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws
from ebar.store.writing import from_plain
from ebar.training.stopping import Best
from ebar.training.train import History
from ebar.types import Clock, Distribution, Estimate, Loss, Sequences

LARGEST = 30.0  # weight of a draw that looks ahead, in means; above, it counts as this (Ionides 2008)


class WeighedTexts(NamedTuple):
    """Draws with log P/g."""

    x: Sequences
    log_weights: Float[Tensor, " draws"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FreshDraws:
    """Batches of draws, none of which comes twice: an epoch is as many as are made together, from a seed of its own."""

    target: Tilted
    ahead: Guided | None  # None: draws of the base
    batch_size: int
    rows: int
    seed: int

    def __len__(self) -> int:
        return max(1, self.rows // self.batch_size)

    @torch.no_grad()
    def at(self, epoch: int, start: int) -> Iterator[WeighedTexts]:
        generator = Generator(device=device_of(self.target.base)).manual_seed(folded(self.seed, epoch))
        n = len(self) * self.batch_size
        if self.ahead is None:
            x, log_q = propose(self.target.base, n, None, generator)
            log_g = log_q
        else:
            x, log_g, log_q = self.ahead.walk(n, generator=generator)
        log_weights = log_q.double() - log_g.double() - measured_energy(self.target.energy, x).double()
        check_weights(log_weights[None])
        for number in range(start, len(self)):
            rows = slice(number * self.batch_size, (number + 1) * self.batch_size)
            yield WeighedTexts(x.select(rows), log_weights[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Distillation:
    """Learns from draws and their weights. With g the proposal that looks ahead, which made them, and w = P/(g·Z),

        ∇KL(p‖π) = −E_g Σₜ { bₜ·Σᵥ g(v|x₍<t₎)·∇log π(v|x₍<t₎) + (w − bₜ)·∇log π(xₜ|x₍<t₎) }

    for every b that is known before xₜ is: here what the weight has come to, which is w once nothing is open. The
    better g foresees, the less is left to the second term; likelihood of the drawn tokens alone, b = 0, has more
    variance.

    Beside them are draws of π itself, `own` for each of g's. There b = 1 and the second term is 0: where π has gone and
    p would not have, it learns from g how to come back to what must be (Agarwal et al. 2024, arXiv:2306.13649). Trap:
    where g is not p, this part draws π to g.

    Draws of the base, without look-ahead, are learnt from by their weights alone.
    """

    model: Any  # π
    ahead: Guided | None
    log_z: float  # of p, from draws of its own
    own: float
    player: str = "model"

    def losses(self, batch: WeighedTexts, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        log_weights = batch.log_weights - self.log_z
        if self.ahead is None:
            log_policy = score(self.model, batch.x)
            value = -(log_weights.exp().to(log_policy) * log_policy).mean()
        else:
            value = self._value(self.ahead, batch.x, _cut(log_weights), generator)
        metrics = {"effective_sample_size": float(effective_sample_size(log_weights))}
        yield Loss(value, self.player, metrics, weight=float(len(log_weights)))

    def _value(
        self, ahead: Guided, x: Sequences, weights: Float[Tensor, " draws"], generator: Generator
    ) -> Float[Tensor, ""]:
        """Per text; of the draws of g it estimates KL(p‖π) − KL(p‖g)."""
        n = len(weights)
        with torch.no_grad():
            if own := round(self.own * n):
                x = Sequences.join([x, propose(self.model, own, None, generator)[0]])
            log_law, log_so_far = ahead.laws(x)
            so_far = _cut(log_so_far.double() - self.log_z)
            so_far[n:] = 1.0
            rest = torch.zeros_like(so_far)
            rest[:n] = weights[:, None] - so_far[:n]
        tokens = torch.where(x.mask(), x.tokens, 0)
        log_policy = torch.log_softmax(teacher_forced(self.model, tokens), -1)
        gap = torch.where(log_law.isneginf(), 0.0, log_law - log_policy)
        each = so_far.to(gap) * (log_law.exp() * gap).sum(-1)
        each = each + rest.to(gap) * gap.gather(2, tokens[..., None]).squeeze(2)
        return torch.where(x.mask(), each, 0.0).sum(1).mean()


def _cut(log_weights: Tensor) -> Tensor:
    return log_weights.clamp(max=math.log(LARGEST)).exp()


RATES = (1e-4, 3e-4, 1e-3, 3e-3)  # tried by a pilot
PILOT_STEPS = 12  # with each of them


def distillation(
    target: Tilted, policy: Any, tuning: Any, ahead: Guided | None, drawn: ScoredDraws, *, rows: int, seed: int
) -> tuple[Distillation, FreshDraws]:
    """From draws that look ahead or, if the model is to propose, of the model; Z is that of given draws."""
    if tuning.proposal == "policy":
        raise UserError("Distillation needs draws that find p from the start: use --proposal look_ahead or model.")
    log_z = float(log_mean_exp(drawn.log_weights))
    if log_z == -math.inf:
        count = len(drawn.log_weights)
        raise UserError(f"None of {count:,} draws is a text of p: give more --evaluation_draws, or fit with --rounds.")
    ahead = ahead if tuning.proposal == "look_ahead" else None
    given = tuning.draws if ahead is None else max(1, round((1 - tuning.own) * tuning.draws))
    return (
        Distillation(model=policy, ahead=ahead, log_z=log_z, own=tuning.draws / given - 1),
        FreshDraws(target=target, ahead=ahead, batch_size=given, rows=rows, seed=seed),
    )


def policy_gradient(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Any, ahead: Guided | None
) -> PolicyGradient:
    """A baseline is unbiased only where draws can be anything that π can make: a proposal that looks ahead never goes
    where it is forbidden. π itself, once it is the proposal, goes there, and what it must not make pushes it away: near
    p that has far less variance than the likelihood of p's texts.
    """
    forbids = any(one.pointwise for one in constraints)
    proposals: dict[str, Distribution | None] = {"look_ahead": ahead, "model": target.base, "policy": None}
    return PolicyGradient(
        target=target,
        model=policy,
        proposal=proposals[tuning.proposal],
        divergence=tuning.divergence,
        baseline="once_replaced" if forbids and tuning.proposal == "look_ahead" else "automatic",
        replace=tuning.replace and tuning.proposal != "policy",
    )


def searched_rate(
    policy: nn.Module, drawn: ScoredDraws, batch_size: int, seed: int, *, rates: Sequence[float] = RATES,
    steps: int = PILOT_STEPS,
) -> float:  # fmt: skip
    """The learning rate with which a few steps of Adam bring π nearest to p, from the same weights each time.

    Half of the draws are learnt from, by likelihood, and the other half tells how near: the mean of −log π under p.
    The smallest rate where none helps. π is left as it was.
    """
    learns = [weight for weight in policy.parameters() if weight.requires_grad]
    first = [weight.detach().clone() for weight in learns]
    half = len(drawn.log_weights) // 2
    model: Any = policy
    shares = torch.softmax(drawn.log_weights, 0)

    @torch.no_grad()
    def distance() -> float:
        place = torch.arange(half, len(shares))
        own = shares[half:] / shares[half:].sum()
        values = [model.log_prob(drawn.x.select(part)).double().cpu() for part in torch.split(place, batch_size)]
        log_policy = torch.cat(values)
        return float(-torch.where(own > 0, own * log_policy, 0.0).sum())

    if not (bool((shares[:half] > 0).any()) and bool((shares[half:] > 0).any())):
        return min(rates)
    best, found = distance(), min(rates)
    for rate in rates:
        generator = Generator().manual_seed(seed)
        optimiser = torch.optim.Adam(learns, lr=rate)
        for _ in range(steps):
            chosen = torch.multinomial(shares[:half], batch_size, replacement=True, generator=generator)
            loss = -model.log_prob(drawn.x.select(chosen.to(drawn.x.lengths.device))).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learns, 1.0)
            optimiser.step()
        if math.isfinite(reached := distance()) and reached < best:
            best, found = reached, rate
        with torch.no_grad():
            for weight, was in zip(learns, first, strict=True):
                weight.copy_(was)
                weight.grad = None
    return found


ORDERS = (1, 2)  # of n-grams
FALLEN = 0.5  # of the best effective size so far, below which draws have lost sight of p
# Fields of an estimate, and what stands behind its name in a line of metrics.
ENDS = {"value": "", "low": " low", "high": " high", "effective_sample_size": " effective_sample_size"}
Figures = dict[str, Estimate]


@torch.no_grad()
def tuning_figures(
    policy: Any, target: Tilted, constraints: Constraints, drawn: ScoredDraws,
    text: Callable[[Sequences], list[str]], *, rows: int, seed: int, draws: int | None = None,
) -> tuple[Figures, list[str]]:  # fmt: skip
    """KL(p‖π) on given draws; KL(π‖q), moments and distinct n-grams on `draws` fresh ones of π; and these as text."""
    n, features = len(drawn.log_g), constraints.features
    places = [torch.arange(start, min(start + rows, n)) for start in range(0, n, rows)]
    log_policy = torch.cat([policy.log_prob(drawn.x.select(place)).double().cpu() for place in places])
    generator = Generator(device=device_of(target.base)).manual_seed(folded(seed, "judge"))
    parts = [propose(policy, size, None, generator) for size in shares(draws or n, None, rows)]
    log_q = torch.cat([score(target.base, x).double().cpu() for x, _ in parts])
    log_own = torch.cat([log_prob.double().cpu() for _, log_prob in parts])
    x = Sequences.join([part for part, _ in parts])
    texts = text(x)
    found = {TARGET: kl_to_model(drawn.log_weights, drawn.log_g, log_policy), MODEL: kl_from_model(log_own, log_q)}
    means = means_by_name(features(x).double().cpu(), features)
    found |= {f"mean of {name}": one for name, one in means.items()}
    return found | {f"distinct-{order}": _distinct(texts, order) for order in ORDERS}, texts


def arrived(figures: Figures, constraints: Constraints, tolerance: float) -> bool:
    """Whether the interval of every moment of π comes within the tolerance of what was asked."""
    for one in constraints:
        found = figures[f"mean of {one.feature.name}"]
        if not found.low - tolerance <= one.moment <= found.high + tolerance:  # NaN has not arrived
            return False
    return True


def has_fallen(history: History, every: int) -> bool:
    """Whether the draws of the last `every` steps are worth less than half of what those of earlier ones were.

    Where π is its own proposal, it has then left out part of p.
    """
    sizes = [value for line in history for name, value in line.items() if name.endswith("effective_sample_size")
             and not name.startswith("validation.")]  # fmt: skip
    parts = [sizes[start : start + every] for start in range(0, len(sizes), every)]
    means = [sum(part) / len(part) for part in parts]
    return len(means) > 1 and means[-1] < FALLEN * max(means[:-1])


def nearest(figures: Mapping[int, Figures]) -> int:
    """The step at which π was nearest to p, the first of several: q itself is a candidate, NaN is none."""
    best = Best()
    for step, one in figures.items():
        best = best.update(one[TARGET].value, step)
    return max(figures) if best.step is None else best.step


def _distinct(texts: list[str], order: int) -> Estimate:
    """Different n-grams of words, as a share of all."""
    if all(len(text.split()) < order for text in texts):
        return Estimate(math.nan, 0.0, 1.0, 0.0, f"no text has {order} words")
    return unique_ratios({"π": texts}, orders=[order])["π"][order].pooled


def numbers_of(figures: Figures) -> dict[str, float]:
    """A line of metrics holds numbers only: the ends of an interval beside its middle."""
    return {f"{name}{words}": float(getattr(one, end)) for name, one in figures.items() for end, words in ENDS.items()}


def evaluations(history: History, names: Figures) -> dict[int, Figures]:
    """The figures that `numbers_of` wrote, by step."""
    return {
        int(line["step"]): {
            name: from_plain(Estimate, {end: line[f"validation.{name}{words}"] for end, words in ENDS.items()})
            for name in names
        }
        for line in history
        if f"validation.{TARGET}" in line
    }
