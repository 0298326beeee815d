"""Scheduled sampling: a model learns to go on from its own predictions (Bengio et al. 2015, arXiv:1506.03099).

In two passes, so that a Transformer stays parallel (Mihaylova & Martins 2019, arXiv:1906.07651): the first reads the
true tokens and predicts, the second reads them with some replaced by predictions. The prediction *of* token t replaces
token t, as input of what comes after it.

Maximum likelihood: the cross-entropy between the data and a model.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar import together
from ebar.backbones.backbone import Reads
from ebar.errors import UserError, choose
from ebar.models.construction import Autoregressive
from ebar.models.drawing import inverted
from ebar.models.stepwise import ScoresGiven, belongs, teacher_forced
from ebar.objectives.contrastive import TokenScores, token_scores
from ebar.types import Clock, Context, Distribution, Loss, Sequences, Space, Stepwise

Batch = Sequences | tuple[Sequences, Context | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaximumLikelihood:
    """−Σᵢ log q(xᵢ|Cᵢ) / Σᵢ |xᵢ|, the mean over tokens; with `per="sequence"`, over sequences.

    Over the whole data both have one optimum, q = data: the denominator does not depend on q. Over a
    mini-batch they differ: per token the ratio is biased by O(1/batch), and its value compares across batches.
    A sequence the model gives no chance has an infinite loss: the loop stops there and keeps the batch.
    """

    model: Distribution
    per: Literal["token", "sequence"] = "token"
    label_smoothing: float = 0.0
    """Share of each token's target that is spread evenly over the vocabulary; figures are without it."""
    player: str = "model"

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing)

    @property
    def validation(self) -> "MaximumLikelihood":
        """What held-out data is measured by."""
        return MaximumLikelihood(model=self.model, per=self.per, player=self.player)

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        x, context = parted(batch)
        terms = choose({"token": int(x.lengths.sum()), "sequence": len(x.lengths)}, self.per, "unit of a mean")
        if isinstance(self.model, Stepwise):
            space = self.model.space.after(context)
            scores = self._scores(inside(x, space), context)
            nll, loss = token_cross_entropy(scores, x, space, self.label_smoothing, context)
        elif self.label_smoothing > 0:
            raise UserError(f"{type(self.model).__name__} shows no token's distribution, so no label can be smoothed.")
        else:
            nll = loss = -self.model.log_prob(x, context).sum()
        value = loss / terms
        yield Loss(value, self.player, {f"nll_per_{self.per}": float(nll.detach() / terms)}, weight=float(terms))

    def _scores(self, x: Sequences, context: Context | None) -> TokenScores:
        """Of the tokens; a smoothed label needs all logits, the true one alone need not have them."""
        assert isinstance(self.model, Stepwise)
        plain = self.label_smoothing == 0
        if plain and isinstance(self.model, ScoresGiven) and self.model.without_logits(x.tokens.numel()):
            log_probs = self.model.given_log_probs(x.tokens, context)
            return TokenScores(log_probs, torch.zeros_like(log_probs), torch.zeros_like(log_probs))
        return token_scores(teacher_forced(self.model, x.tokens, context), x.tokens, mean=not plain)


def parted(batch: Batch) -> tuple[Sequences, Context | None]:
    """A batch as sequences and what they are conditional on."""
    return (batch, None) if isinstance(batch, Sequences) else batch


def inside(x: Sequences, space: Space) -> Sequences:
    """The part that a model of this space can read: padding may hold anything, a token outside the vocabulary too."""
    width = min(x.tokens.shape[1], space.length)
    return Sequences(torch.where(x.mask(), x.tokens, 0)[:, :width], x.lengths.clamp(max=width))


def token_cross_entropy(
    scores: TokenScores, x: Sequences, space: Space, label_smoothing: float = 0.0, context: Context | None = None
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """−Σ log q over all tokens, as it is and smoothed; infinite where a row is no sequence of the space.

    Smoothed, a token costs (1 − ε)·(−log q) + ε·(mean over the allowed vocabulary of −log q). Szegedy et al. 2016.
    """
    mask = x.mask()[:, : scores.logit.shape[1]]
    plain = torch.where(mask, -scores.log_prob, 0.0).sum(1)
    nll = torch.where(belongs(x, space, context), plain, math.inf).sum()
    if label_smoothing == 0:
        return nll, nll
    uniform = torch.where(mask, scores.log_partition - scores.mean, 0.0).sum()
    return nll, (1 - label_smoothing) * nll + label_smoothing * uniform


def check_smoothing(label_smoothing: float) -> None:
    """At 1 nothing of the data would be left."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing}")


Decay = Literal["exponential", "sigmoid", "linear"]
Mixing = Literal["sample", "argmax", "top_k"]
Own = TypeVar("Own", bound="FromPredictions")


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPredictions:
    """Cross-entropy of the true tokens where each token read is the true one with a chance that falls with the step.

    Neither the end nor padding is ever put in place of a token: a model that has ended is not asked to go on.
    """

    model: Stepwise
    decay: Decay = "linear"
    """Chance of the true token at step i: exponential kⁱ, sigmoid k / (k + e^(i/k)), linear k − slope·i."""
    k: float = 1.0
    """Of the decay: below 1 for exponential, at least 1 for sigmoid, the chance at first for linear."""
    slope: float | None = 1e-5
    """What the chance loses with each step, for linear; none: it reaches `floor` at the end of training."""
    floor: float = 0.0
    """Least chance of the true token."""
    mixing: Mixing = "sample"
    """What replaces it: a token drawn, the likeliest, or the mean vector of the likeliest `top` by their chances."""
    top: int = 5
    """How many tokens top_k mixes."""
    label_smoothing: float = 0.0
    """Share of each token's target that is spread evenly over the vocabulary; figures are without it."""
    player: str = "model"

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing)
        check_decay(self.decay, self.k, self.slope, self.floor)
        choose(dict.fromkeys(("sample", "argmax", "top_k")), self.mixing, "way of mixing")
        if self.top < 1:
            raise ValueError(f"top_k mixes at least 1 token, not {self.top}")

    @property
    def validation(self) -> MaximumLikelihood:
        """What held-out data is measured by."""
        return MaximumLikelihood(model=self.model, player=self.player)

    def for_steps(self: Own, steps: int) -> Own:
        """The objective for a training of so many steps."""
        return self if self.slope is not None else replace(self, slope=(self.k - self.floor) / steps)

    def chance_of_truth(self, step: int) -> float:
        """The chance that a token read is the true one."""
        return chance_of_truth(step, self.decay, self.k, self.slope, self.floor)

    def from_truth(self, batch: Batch, clock: Clock, generator: Generator) -> Iterator[Loss]:
        """The losses where every token read is the true one."""
        plain = MaximumLikelihood(model=self.model, label_smoothing=self.label_smoothing, player=self.player)
        return plain.losses(batch, clock, generator=generator)

    def from_predictions(self, batch: Batch, clock: Clock, generator: Generator) -> Iterator[Loss]:
        """The losses in two passes."""
        x, context = parted(batch)
        space = self.model.space.after(context)
        safe = inside(x, space)
        chance = self.chance_of_truth(clock.step)
        logits = None
        if chance < 1:
            with torch.no_grad():
                logits = teacher_forced(self.model, safe.tokens, context)
        logits = self.second_pass(safe, context, logits, chance, generator)
        scores = token_scores(logits, safe.tokens, mean=self.label_smoothing > 0)
        nll, loss = token_cross_entropy(scores, x, space, self.label_smoothing, context)
        terms = int(x.lengths.sum())
        metrics = {"nll_per_token": float(nll.detach() / terms), "chance_of_truth": chance}
        yield Loss(loss / terms, self.player, metrics, weight=float(terms))

    def second_pass(
        self,
        x: Sequences,
        context: Context | None,
        predicted: Float[Tensor, "rows length vocabulary"] | None,
        chance: float,
        generator: Generator,
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of the true tokens from inputs some of which are replaced, given the logits of the first pass."""
        if predicted is None:
            return teacher_forced(self.model, x.tokens, context)
        length, device = x.tokens.shape[1], generator.device
        coins, numbers = together.drawn(
            len(x.tokens),
            lambda rows: torch.rand((rows, 2, length), dtype=torch.float64, device=device, generator=generator),
            generator,
        ).unbind(1)
        # The last token of a row is read by none.
        replaced = (coins.to(x.tokens.device) >= chance) & Sequences(x.tokens, x.lengths - 1).mask()
        logits = predicted.detach()[replaced]
        if self.model.space.end is not None:
            logits[:, self.model.space.end] = -math.inf
        if self.mixing == "top_k":
            return self._from_vectors(x, context, logits, replaced)
        log_probs = torch.log_softmax(logits, 1)
        numbers = numbers[replaced.to(device)]
        tokens = log_probs.argmax(1) if self.mixing == "argmax" else inverted(log_probs, numbers)
        return teacher_forced(self.model, x.tokens.masked_scatter(replaced, tokens), context)

    def _from_vectors(
        self,
        x: Sequences,
        context: Context | None,
        logits: Float[Tensor, "replaced vocabulary"],
        replaced: Bool[Tensor, "rows length"],
    ) -> Float[Tensor, "rows length vocabulary"]:  # fmt: skip
        model = self.model
        if not (isinstance(model, Autoregressive) and isinstance(model.backbone, Reads)):
            raise UserError(f"{type(model).__name__} reads no vectors in place of tokens: choose sample or argmax.")
        inputs = model.backbone.embed(x.tokens[:, :-1])
        best, tokens = logits.topk(min(self.top, logits.shape[1]), 1)
        mixed = (torch.softmax(best, 1)[:, :, None] * model.backbone.embed(tokens)).sum(1)
        places = replaced[:, :-1, None].expand_as(inputs)
        return model.from_inputs(inputs.masked_scatter(places, mixed), context)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSampling(FromPredictions):
    """Cross-entropy of the true tokens where each token read is the true one with a chance that falls with the step."""

    start_epoch: int = 0
    """Epochs by maximum likelihood before it; the chance falls with the steps from the first one on all the same."""

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        way = self.from_truth if clock.epoch < self.start_epoch else self.from_predictions
        return way(batch, clock, generator)


def check_decay(decay: Decay, k: float, slope: float | None, floor: float) -> None:
    """A chance is a number between 0 and 1, and falls."""
    sound = choose({"exponential": 0 < k <= 1, "sigmoid": k >= 1, "linear": 0 <= k <= 1}, decay, "decay")
    if not sound:
        raise ValueError(f"k must lie in (0, 1] for exponential, in [1, ∞) for sigmoid, in [0, 1] for linear, not {k}")
    if (slope is not None and slope < 0) or not 0 <= floor <= 1:
        raise ValueError("slope must be at least 0, and floor between 0 and 1")


def chance_of_truth(step: int, decay: Decay, k: float, slope: float | None = 0.0, floor: float = 0.0) -> float:
    """The chance that a token read is the true one."""
    if decay == "exponential":
        chance = k**step
    elif decay == "sigmoid":
        chance = 1 / (1 + math.exp(min(step / k - math.log(k), 700.0)))
    elif slope is None:
        raise ValueError("the chance of the true token has no slope yet: give one, or call for_steps")
    else:
        chance = k - slope * step
    return max(floor, chance)
