"""Dynamic evaluation: the model goes on learning from the text it is tested on, each segment once it is scored.

Krause et al. 2018 (arXiv:1709.07432). With g the gradient of a segment's mean cost per token, θ₀ the trained weights:

    θ ← θ + λ·d·(θ₀ − θ) − η·g / (r + ε),     r = √(mean of g² over training text),     d = r / mean of r

d, the decay's rate of each weight, is at most 1/λ, and the mean of r is that over weight tensors of each one's mean.
Without gradient statistics it is plain stochastic gradient descent: r + ε and d are 1.

This is the scaling of the authors' later code, in which r is a mean over batches. In the earlier one, whose η, λ and
ε the papers of its time state (Yang et al. 2018), r was a sum: `from_old_scaling` converts.
"""

import copy
import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.evaluation.blocks import BLOCKS, block_mean
from ebar.evaluation.cross_entropy import StreamCost
from ebar.evaluation.reading import at_beginning, check_stream, segment_log_probs
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Estimate, Stepwise

LEARNING_RATE, DECAY, EPSILON = 5e-5, 2e-3, 2e-5  # of the authors' later code, for statistics of 100 rows of 5 tokens


class GradientStatistics(NamedTuple):
    """How large gradients are on training text: the mean of g² of each weight that can move, by parameter's name."""

    mean_squares: dict[str, Tensor]
    batches: int


class DynamicCost(NamedTuple):
    """What a text costs the model as it is and as it learns on; intervals are over blocks of the text."""

    static: StreamCost
    dynamic: StreamCost
    difference: Estimate  # nats per token, dynamic minus static, paired

    @property
    def perplexity_ratio(self) -> Estimate:
        """Dynamic over static, paired."""
        return self.difference.mapped(math.exp)


class Rates(NamedTuple):
    """η, λ and ε."""

    learning_rate: float
    decay: float
    epsilon: float


def from_old_scaling(statistics: GradientStatistics, *, learning_rate: float, decay: float, epsilon: float) -> Rates:
    """Rates of the authors' earlier code as this one takes them.

    There r was √Σg², √batches times ours, and d was r over the *sum* of the tensors' means: so η and ε are divided by
    √batches, λ by the number of weight tensors.
    """
    root = math.sqrt(statistics.batches)
    return Rates(learning_rate / root, decay / len(statistics.mean_squares), epsilon / root)


def gradient_statistics(
    model: Stepwise, stream: Int[Tensor, " tokens"], *, rows: int = 100, segment: int = 5, batches: int | None = None
) -> GradientStatistics:
    """The mean square of the gradient of a batch's mean cost per token, over batches of training text.

    The text is cut into `rows` columns that are read side by side, `segment` tokens of each in a batch; at most so many
    `batches`. The gradient of a batch is a mean over rows × segment tokens: other numbers of rows want other rates. The
    weights of words that a short text lacks have a mean square near 0, and only ε holds their steps down: raise it.
    """
    length = len(stream) // rows
    check_stream(model, len(stream), segment)
    if length <= segment:
        raise UserError(
            f"{len(stream):,} tokens of training text are too few for {rows} rows of segments of {segment}: ask for "
            "fewer rows, or give a longer text."
        )
    named = _movable(model)
    carried, columns = at_beginning(model, stream[: rows * length].view(rows, length))
    sums = [torch.zeros_like(weight) for weight in named.values()]
    count = columns.shape[1] // segment if batches is None else min(batches, columns.shape[1] // segment)
    with torch.enable_grad(), evaluation_mode(model), bar("gradients", count, "batches") as progress:
        for tokens in torch.split(columns[:, : count * segment], segment, 1):
            log_probs, carried = segment_log_probs(model, tokens, carried)
            for total, gradient in zip(sums, _gradients(-log_probs.mean(), named), strict=True):
                total.addcmul_(gradient, gradient)
            progress.advance(1)
    return GradientStatistics({name: total / count for name, total in zip(named, sums, strict=True)}, count)


def dynamic_evaluation(
    model: Stepwise, stream: Int[Tensor, " tokens"], *, statistics: GradientStatistics | None = None,
    learning_rate: float = LEARNING_RATE, decay: float = DECAY, epsilon: float = EPSILON, segment: int = 5,
    blocks: int = BLOCKS,
) -> DynamicCost:  # fmt: skip
    """The cost of a text as the model learns on, beside its cost as the model is, over the same segments.

    Every token is scored before the model learns from it. Without dropout; parameters that take no gradient stay.

    What learns is a copy. The caller's model is never written to, so nothing has to be put back, whatever interrupts
    the work; nor does it cost memory, for θ₀ has to be kept anyway. `torch.func.functional_call` would not do: it
    replaces weights in `forward` only, and recurrent layers keep references of their own to them.
    """
    check_stream(model, len(stream), segment)
    for name, value in (("learning_rate", learning_rate), ("decay", decay), ("epsilon", epsilon)):
        if not 0 <= value < math.inf:
            raise UserError(f"{name} must be 0 or more, not {value}.")
    _movable(model)  # refuses before the copy is made
    learner = copy.deepcopy(model)
    rule = _Rule.of(model, learner, statistics, Rates(learning_rate, decay, epsilon))
    static, dynamic, done = [], [], 0
    with torch.enable_grad(), evaluation_mode(model, learner), bar("learning on", len(stream), "tokens") as progress:
        (carried, rest), (learnt, _) = at_beginning(model, stream[None]), at_beginning(learner, stream[None])
        for tokens in torch.split(rest, segment, 1):
            with torch.no_grad():
                before, carried = segment_log_probs(model, tokens, carried)
            log_probs, learnt = segment_log_probs(learner, tokens, learnt)
            gradients = _gradients(-log_probs.mean(), rule.named)
            if not bool(log_probs.isfinite().all()):
                raise UserError(
                    f"A token after the {len(stream) - rest.shape[1] + done:,}th has no finite cost: the updates have "
                    "run away, or the model gives it no chance at all; lower learning_rate or raise epsilon."
                )
            rule.apply(gradients)
            static.append(-before[0].double().cpu())
            dynamic.append(-log_probs[0].detach().double().cpu())
            done += tokens.shape[1]
            progress.advance(tokens.shape[1])
    costs = torch.cat(static), torch.cat(dynamic)
    found = [StreamCost(block_mean(own, blocks=blocks, low=0.0), float(own.sum()), len(own)) for own in costs]
    return DynamicCost(found[0], found[1], block_mean(costs[1] - costs[0], blocks=blocks))


class _Rule(NamedTuple):
    """The step of each weight tensor."""

    named: dict[str, nn.Parameter]
    originals: list[Tensor]  # θ₀
    decays: list[Tensor]  # λ·d
    scales: list[Tensor] | None  # r + ε
    learning_rate: float

    @staticmethod
    def of(model: Stepwise, learner: Stepwise, statistics: GradientStatistics | None, rates: Rates) -> "_Rule":
        originals, named = _movable(model), _movable(learner)
        first = next(iter(named.values()))
        if statistics is None:
            decay = first.new_tensor(min(rates.decay, 1.0)).detach()
            return _Rule(named, list(originals.values()), [decay.to(own) for own in named.values()], None,
                         rates.learning_rate)  # fmt: skip
        if statistics.mean_squares.keys() != named.keys():
            raise UserError("The gradient statistics are of other parameters: gather them with this very model.")
        roots = [statistics.mean_squares[name].to(own).sqrt() for name, own in named.items()]
        mean = torch.stack([root.mean().double().cpu() for root in roots]).mean()
        if not float(mean) > 0:
            raise UserError("No gradient was ever other than 0 on the training text: give more of it.")
        # At most 1: a faster decay would overshoot θ₀.
        decays = [(rates.decay * root / mean.to(root)).clamp(max=1.0) for root in roots]
        scales = [root + rates.epsilon for root in roots]
        if any(bool((scale == 0).any()) for scale in scales):
            raise UserError("Some weights had no gradient on the training text: give an epsilon above 0.")
        return _Rule(named, list(originals.values()), decays, scales, rates.learning_rate)

    @torch.no_grad()
    def apply(self, gradients: list[Tensor]) -> None:
        for row, (weight, gradient) in enumerate(zip(self.named.values(), gradients, strict=True)):
            weight.lerp_(self.originals[row], self.decays[row])
            if self.scales is None:
                weight.add_(gradient, alpha=-self.learning_rate)
            else:
                weight.addcdiv_(gradient, self.scales[row], value=-self.learning_rate)


def _gradients(loss: Float[Tensor, ""], named: dict[str, nn.Parameter]) -> list[Tensor]:
    """Without touching `.grad`, which is the caller's."""
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return [torch.zeros_like(weight) if own is None else own for own, weight in zip(found, named.values(), strict=True)]


def _movable(model: Stepwise) -> dict[str, nn.Parameter]:
    """Parameters that take gradients, shared ones once."""
    every = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    named = {name: weight for name, weight in every.items() if weight.requires_grad}
    if not named:
        raise UserError("Nothing in this model can learn: it has no parameter that takes a gradient.")
    if any(weight.dtype not in (torch.float32, torch.float64) for weight in named.values()):
        raise UserError("An update is too small for weights in half precision: read the model in float32.")
    return named
