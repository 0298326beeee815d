"""Distributional policy gradient: a policy is brought to a target that can only be scored.

    ∇D_f(π‖p) = E_q[(π/q)·f'(π/p)·∇log π],     p = P/Z

DPG is f = −log (Parshakova et al. 2019, arXiv:1912.08517), GDC adds the moving proposal (Khalifa et al. 2021,
arXiv:2012.11635), CDPG one Z for each context (Korbak et al. 2022, arXiv:2112.00791), f-DPG the other divergences
(Go et al. 2023, arXiv:2302.08215).

Means over a stream are buffers: a checkpoint has them, whatever the number of terms so far.
"""

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar import together
from ebar.errors import UserError, choose
from ebar.maths.divergences import DIVERGENCES
from ebar.maths.importance import SMALLEST_SAMPLE, check_weights
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.models.tilted import Tilted, measured_energy, propose, score
from ebar.types import Clock, Context, Distribution, Loss, Sequences, Target


class WeightedSums(nn.Module):
    """Σw, Σw² and Σw·v of weights known by their logarithms, relative to the largest so far."""

    log_largest: Tensor
    weight: Tensor
    squares: Tensor
    values: Tensor
    count: Tensor

    def __init__(self, values: int):
        super().__init__()
        self.register_buffer("log_largest", torch.tensor(-math.inf, dtype=torch.float64))
        for name in ("weight", "squares"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("values", torch.zeros(values, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, log_weights: Float[Tensor, " draws"], values: Float[Tensor, "values draws"] | None = None) -> None:
        self.count += len(log_weights)
        largest = torch.maximum(self.log_largest, log_weights.max())
        if largest == -math.inf:
            return
        shrink = torch.exp(self.log_largest - largest)
        weights = torch.exp(log_weights - largest)
        self.weight.mul_(shrink).add_(weights.sum())
        self.squares.mul_(shrink**2).add_(weights.square().sum())
        if values is not None:
            # A draw of weight zero counts for nothing, whatever its value.
            self.values.mul_(shrink).add_(torch.where(weights == 0, 0.0, weights * values).sum(1))
        self.log_largest.copy_(largest)

    def log_mean(self) -> Float[Tensor, ""]:
        """log Σw/n; −∞ where all weights were zero."""
        return self.log_largest + self.weight.log() - self.count.double().log()

    def means(self) -> Float[Tensor, " values"]:
        """Σw·v / Σw."""
        return self.values / self.weight

    def effective_sample_size(self) -> Float[Tensor, ""]:
        """(Σw)² / Σw²; 0 where all weights were zero."""
        return torch.where(self.squares > 0, self.weight.square() / self.squares, 0.0)

    def clear(self) -> None:
        for buffer in (self.weight, self.squares, self.values, self.count):
            buffer.zero_()
        self.log_largest.fill_(-math.inf)


class RunningMean(nn.Module):
    """The mean of what was added, where what is older than some `window` terms is slowly forgotten; 0 at first."""

    value: Tensor
    count: Tensor

    def __init__(self, window: int = 1024):
        super().__init__()
        self.window = window
        self.register_buffer("value", torch.zeros((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, terms: Float[Tensor, " terms"]) -> None:
        if len(terms) == 0:
            return
        self.count.add_(len(terms)).clamp_(max=max(self.window, len(terms)))
        self.value += (terms.mean() - self.value) * (len(terms) / self.count)


LEAST_MASS = 0.5  # of p, that recent draws must find: below, the proposal has lost sight of the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """A source for objectives that draw their own data: each batch is as many empty rows as there are draws to make.

    Rows can be cut up as any others are. For conditional targets the batches are contexts instead.
    """

    draws: int = 128
    """In each step."""
    steps: int = 100
    """In what is called an epoch."""

    def __len__(self) -> int:
        return self.steps

    def at(self, epoch: int, start: int) -> Iterator[Float[Tensor, "draws 0"]]:
        for _ in range(start, self.steps):
            yield torch.empty(self.draws, 0)


class PolicyGradientMemory(nn.Module):
    """What policy gradient knows of earlier steps. All of it is buffers: give it to a player without optimiser."""

    replaced: Tensor
    warned: Tensor
    checked: Tensor

    def __init__(self, policy: nn.Module | None):
        super().__init__()
        self.ever = WeightedSums(0)  # log P/q of all draws: Z
        self.lately = WeightedSums(2)  # since the last check, with log P/π and log P/q: KL(p‖π) and KL(p‖q)
        self.baseline = RunningMean()
        self.register_buffer("replaced", torch.zeros((), dtype=torch.long))  # how often π has become the proposal
        self.register_buffer("warned", torch.zeros((), dtype=torch.bool))
        self.register_buffer("checked", torch.zeros((), dtype=torch.long))  # the step of the last check
        self.policy = None if policy is None else copy.deepcopy(policy).requires_grad_(False)


class Drawn(NamedTuple):
    """What is known of draws without the policy's gradient: a row for each context, one without contexts."""

    log_q: Float[Tensor, "rows draws"]
    log_weights: Float[Tensor, "rows draws"]  # log P/q
    log_pi: Float[Tensor, "rows draws"]


class Weighed(NamedTuple):
    """What a step makes of its draws."""

    divergence: Float[Tensor, "rows draws"]  # of which the mean is an estimate; 0 where nothing of p was drawn
    weights: Float[Tensor, "rows draws"]  # of ∇log π
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGradient:
    """Each step draws anew from q, weighs the draws, and moves π by them; the loss is the divergence they estimate.

    Without a proposal q is π itself, on-policy. With one (the target's base, a look-ahead `guided` …) it stays, or
    with `replace` becomes a copy of π as soon as KL(p‖π) < KL(p‖q) since the last check. A batch is n empty rows
    (see `Rounds`), or contexts, with `draws` draws for each.

    Z is the mean of P/q over all draws so far; Z(C) that of the present draws of C: self-normalised, with a bias of
    O(1/draws). Until a draw has P > 0 nothing moves. Everything is without dropout, the
    gradient too: what is drawn, weighed and moved is one and the same π, or π/q would be noise.
    `memory` belongs to a player without optimiser, so that checkpoints have it. Each part of a batch draws its own
    rows, and all are weighed together. A proposal that does not go token by token, as one that looks ahead, draws for
    the whole batch at once.
    """

    target: Target
    model: Distribution  # π, a module
    proposal: Distribution | None = None
    divergence: Literal["kl", "reverse_kl", "jensen_shannon", "total_variation"] = "kl"
    """kl is KL(p‖π), DPG; reverse_kl is KL(π‖p), infinite where π goes and P is zero."""
    baseline: Literal["automatic", "none", "running", "known", "once_replaced"] = "automatic"
    """Subtracted from f': E_π[f'], a running mean or, for kl, the known −1; automatic is known for kl, else running. It
    leaves the gradient unbiased only where draws can be all that π can make: once_replaced is none until the policy
    has become the proposal, then automatic."""
    replace: bool = False
    """Whether a better policy becomes the proposal."""
    check_every: int = 10
    """Steps between checks of whether it is better, and of the effective sample size of the draws."""
    draws: int = 64
    """For each context."""
    player: str = "model"
    memory: PolicyGradientMemory = field(init=False)

    def __post_init__(self) -> None:
        choose(DIVERGENCES, self.divergence, "divergence")
        choose(dict.fromkeys(("automatic", "none", "running", "known", "once_replaced")), self.baseline, "baseline")
        if self.baseline == "known" and self.divergence != "kl":
            raise UserError(f"The baseline of {self.divergence} is not known: choose running or none.")
        if self.replace and self.proposal is None:
            raise UserError("On-policy the policy is its own proposal: give another one to replace, or leave it out.")
        if self.check_every < 1 or self.draws < 1:
            raise UserError("Policy gradient needs at least one draw, and at least one step between checks.")
        if not isinstance(self.model, nn.Module):
            raise ValueError("a policy that learns is a module")
        object.__setattr__(self, "memory", PolicyGradientMemory(self.model if self.replace else None))

    def losses(
        self, batch: Context | Float[Tensor, "draws 0"], clock: Clock, *, generator: Generator
    ) -> Iterator[Loss]:
        context, n = (batch, self.draws) if isinstance(batch, Context) else (None, len(batch))
        if clock.step % self.check_every == 0 and int(self.memory.checked) != clock.step:
            self._check()
            self.memory.checked.fill_(clock.step)  # once a step, into however many parts it is cut
        x, log_q, log_weights = together.kept(lambda: self._draw(n, context, generator))
        # On-policy the two are one number, and the one with a gradient is wanted last.
        log_policy = None if self.proposal is None else score(self.model, x, context)
        log_pi = log_q if log_policy is None else log_policy.detach().double()
        shape = (1, -1) if context is None else (-1, n)
        drawn = Drawn(*(rows.view(shape) for rows in together.joined(log_q, log_weights, log_pi)))
        found = together.once(lambda: self._weigh(drawn, context is not None))
        first, _ = together.place_of(len(log_q))
        own = slice(first, first + len(log_q))
        self._refuse_infinite(found.divergence.flatten()[own], x)
        weights = found.weights.flatten()[own]
        log_policy = score(self.model, x, context) if log_policy is None else log_policy
        # Weight 0 may meet log π = −∞, and their product must be 0 in the gradient too.
        terms = torch.where(weights == 0, 0.0, weights.to(log_policy) * torch.where(weights == 0, 0.0, log_policy))
        surrogate = terms.mean()
        estimate = found.divergence.mean().to(surrogate)
        loss = surrogate + (estimate - surrogate).detach()  # the surrogate's gradient, the divergence's value
        yield Loss(loss, self.player, found.metrics, weight=float(len(log_q)))

    @torch.no_grad()
    def _draw(
        self, n: int, context: Context | None, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " draws"], Float[Tensor, " draws"]]:
        """Draws, log q and log P/q."""
        q = self._proposal()
        with together.by_row():
            x, log_q = propose(q, n, context, generator)
        target = self.target
        if isinstance(target, Tilted) and target.base is q:
            log_weights = -measured_energy(target.energy, x, context)
        else:
            log_weights = score(target, x, context) - log_q
        log_weights = log_weights.double()
        check_weights(log_weights.view(-1, n))
        return x, log_q.double(), log_weights

    def _proposal(self) -> Distribution:
        if self.proposal is None:
            return self.model
        copied = self.memory.policy
        return copied if isinstance(copied, Distribution) and bool(self.memory.replaced > 0) else self.proposal

    @torch.no_grad()
    def _weigh(self, drawn: Drawn, contexts: bool) -> Weighed:
        """(π/q)·(f'(π/p) − B) of all draws of the step, which are remembered. f homogeneous makes b·∂f/∂b, with
        b = π/q, the first part of it."""
        log_z = self._log_z(drawn, contexts)
        seen = (log_z > -math.inf).expand_as(drawn.log_pi)
        log_a = torch.where(seen, drawn.log_weights - log_z, 0.0)
        log_b = torch.where(seen, drawn.log_pi - drawn.log_q, 0.0)
        terms = DIVERGENCES[self.divergence](log_a, log_b)
        slope = terms.slope_b
        kind: str = self.baseline
        if kind == "once_replaced":
            kind = "automatic" if bool(self.memory.replaced > 0) else "none"
        if kind == "automatic":
            kind = "known" if self.divergence == "kl" else "running"
        if kind == "known":
            weights = slope + log_b.exp()
        elif kind == "running":
            weights = slope - self.memory.baseline.value * log_b.exp()
            # Only now: a baseline that knows the draws is biased.
            self.memory.baseline.add(slope[seen])
        else:
            weights = slope
        self._remember(drawn, log_z, contexts)
        return Weighed(
            torch.where(seen, terms.value, 0.0),
            torch.where(seen, weights, 0.0),
            self._metrics(drawn, log_z, contexts),
        )

    def _log_z(self, drawn: Drawn, contexts: bool) -> Float[Tensor, "rows 1"]:
        """−∞ where nothing of the target has been drawn."""
        if contexts:
            return log_mean_exp(drawn.log_weights)[:, None]
        self.memory.ever.add(drawn.log_weights.flatten())
        return self.memory.ever.log_mean().reshape(1, 1)

    def _refuse_infinite(self, divergence: Float[Tensor, " draws"], x: Sequences) -> None:
        infinite = divergence == math.inf
        if bool(infinite.any()):
            sequence = x.prefix(int(infinite.nonzero()[0]))
            if self.divergence == "kl":
                message = "The target wants {} and the policy can never make it: start from one that can."
            else:
                message = "The policy can make {}, which the target forbids: use kl or jensen_shannon."
            raise UserError(message.format(sequence))

    def _remember(self, drawn: Drawn, log_z: Float[Tensor, "rows 1"], contexts: bool) -> None:
        """Without contexts the estimate of Z still changes, so log Z is subtracted when the sums are read."""
        seen = (log_z > -math.inf).expand_as(drawn.log_pi)
        log_weights = drawn.log_weights - (log_z if contexts else 0.0)
        log_weights = torch.where(seen, log_weights, -math.inf)
        log_target = log_weights + drawn.log_q
        values = torch.stack([(log_target - drawn.log_pi).flatten(), log_weights.flatten()])
        self.memory.lately.add(log_weights.flatten(), values)

    def _divergences(self, contexts: bool) -> tuple[float, float] | None:
        """KL(p‖π) and KL(p‖q) over the draws since the last check: −log Z + Σ w·log(P/·) / Σ w."""
        lately, ever = self.memory.lately, self.memory.ever
        if lately.effective_sample_size() == 0:
            return None
        log_z = 0.0 if contexts else float(ever.log_mean())
        policy, proposal = (lately.means() - log_z).tolist()
        return policy, proposal

    def _check(self) -> None:
        """Replace the proposal by a better policy, warn of a small effective sample size, and reset the sums."""
        lately = self.memory.lately
        if lately.count == 0:
            return
        if self.memory.policy is not None:
            policy, proposal = lately.means().tolist() if lately.effective_sample_size() > 0 else (0.0, 0.0)
            if policy < proposal:
                assert isinstance(self.model, nn.Module)
                _copy(self.model, self.memory.policy)
                self.memory.replaced += 1
        if (problem := self._problem()) is not None and not bool(self.memory.warned):
            self.memory.warned.fill_(True)
            warnings.warn(problem, RuntimeWarning, stacklevel=3)
        lately.clear()

    def _problem(self) -> str | None:
        lately, ever = self.memory.lately, self.memory.ever
        count, size = int(lately.count), float(lately.effective_sample_size())
        if size < min(SMALLEST_SAMPLE, count / 2):
            few = f"the last {count:,} draws have an effective sample size of only {size:.1f}"
            return f"{few}: draw more, or from a better proposal"
        found = math.exp(min(0.0, float(lately.log_mean() - ever.log_mean()))) if ever.count > 0 else 1.0
        if found < LEAST_MASS:
            return f"the last {count:,} draws found {found:.0%} of the target's mass: the proposal has collapsed"
        return None

    def _metrics(self, drawn: Drawn, log_z: Float[Tensor, "rows 1"], contexts: bool) -> dict[str, float]:
        seen = log_z > -math.inf
        metrics = {
            "effective_sample_size": float(effective_sample_size(drawn.log_weights).mean()),
            "replaced": float(self.memory.replaced),
            "unseen": float((~seen).double().mean()),  # the share of contexts no draw of which has P > 0
        }
        if bool(seen.any()):
            metrics["log_z"] = float(log_z[seen].mean())
        if (known := self._divergences(contexts)) is not None:
            metrics["kl"], metrics["kl_proposal"] = known
        return metrics


@torch.no_grad()
def _copy(module: nn.Module, to: nn.Module) -> None:
    """All weights, whole where they are spread over processes."""
    with together.whole_weights(module):
        for own, other in zip(
            (*to.parameters(), *to.buffers()), (*module.parameters(), *module.buffers()), strict=True
        ):
            own.copy_(other)
