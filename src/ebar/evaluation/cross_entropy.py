"""What data cost a model: cross-entropy, bits per dimension, and the perplexity of one long text."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.exact import Model
from ebar.estimators.moments import weighted_mean
from ebar.maths.importance import all_warnings
from ebar.maths.log_space import exponential
from ebar.models.stepwise import token_log_probs
from ebar.models.tilted import score
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.shards import Workers, run_shards
from ebar.types import Context, Distribution, Estimate, Sequences, Stepwise

BATCH = 1024  # sequences scored at once


class CrossEntropy(NamedTuple):
    """−log p of data, in nats, three ways. Intervals are over the draw of the data set, sequences being independent.

    `per_token` is the mean over sequences of NLL/length, the end token counted: what the GAM authors report.
    `pooled_per_token` is total NLL over total length, whose exponential is the usual perplexity.
    """

    per_sequence: Estimate
    per_token: Estimate
    pooled_per_token: Estimate

    @property
    def perplexity(self) -> Estimate:
        """exp of the pooled figure, ends and all."""
        return self.pooled_per_token.mapped(exponential)


def cross_entropy(
    model: Model, data: Sequences, *, context: Context | None = None, log_z: Estimate | None = None,
    workers: Workers | None = None,
) -> CrossEntropy:  # fmt: skip
    """The cross-entropy of data under a model; an unnormalised one needs its log Z (of the one condition it is in).

    log Z was estimated from other draws than the data, so its error and theirs add in quadrature. A sequence the
    model cannot make costs infinitely much, and so does the mean. With `workers`, data are scored in shards by them.
    """
    if isinstance(model, Distribution) == (log_z is not None):
        raise ValueError("an unnormalised model needs log_z, and a normalised one has none")
    costs = negative_log_scores(model, data, context, workers=workers)[None]
    lengths = data.lengths.to(costs)[None]
    equal = torch.zeros_like(costs)
    log_z = log_z or Estimate.exact(0.0)
    return CrossEntropy(
        _plus(weighted_mean(equal, costs)[0], log_z, 1.0),
        _plus(weighted_mean(equal, costs / lengths)[0], log_z, float((1 / lengths).mean())),
        # Total over total is the mean of cost per token, each sequence weighted by its length.
        _plus(weighted_mean(lengths.log(), costs / lengths)[0], log_z, float(1 / lengths.mean())),
    )


def cross_entropy_difference(
    model: Distribution, other: Distribution, data: Sequences, *, context: Context | None = None
) -> Estimate:
    """Cost per token of a model minus that of another, total over total; the interval is over sequences, paired."""
    costs = (negative_log_scores(model, data, context) - negative_log_scores(other, data, context))[None]
    lengths = data.lengths.to(costs)[None]
    return weighted_mean(lengths.log(), costs / lengths)[0]


def negative_log_scores(
    model: Model, data: Sequences, context: Context | None = None, *, workers: Workers | None = None
) -> Float[Tensor, " batch"]:
    """−log_prob (or −log_score) of each sequence, in float64; a context has one row for each."""
    total, device = len(data.lengths), data.lengths.device
    rows = torch.split(torch.arange(total, device=device), BATCH)
    jobs = ((data.select(own), None if context is None else context.select(own)) for own in rows)
    parts = []
    with bar("scoring", total, "sequences") as progress:
        for _, costs in run_shards(_costs, model, jobs, workers=workers, in_order=True):
            parts.append(costs.to(device))
            progress.advance(len(costs))
    return torch.cat(parts)


@torch.no_grad()
def _costs(model: Model, job: tuple[Sequences, Context | None]) -> Float[Tensor, " batch"]:
    return -score(model, *job).double()


def _plus(cost: Estimate, log_z: Estimate, share: float) -> Estimate:
    value = cost.value + share * log_z.value
    if not math.isfinite(value):
        reason = "a sequence has no chance under the model, so the mean cost is infinite: relax its constraints"
        return cost._replace(value=value, low=value, high=value, warning=all_warnings(cost.warning, reason))
    down = math.hypot(cost.value - cost.low, share * (log_z.value - log_z.low))
    up = math.hypot(cost.high - cost.value, share * (log_z.high - log_z.value))
    return cost._replace(
        value=value, low=value - down, high=value + up, warning=all_warnings(cost.warning, log_z.warning)
    )


def _bits(nats: float) -> float:
    return nats / math.log(2)


def bits_per_dimension(
    model: Distribution, data: Sequences, *, context: Context | None = None, workers: Workers | None = None
) -> Estimate:
    """−log₂ p(x) over the number of tokens, the mean over images; the interval is over the draw of the images.

    With a context (a given part of each image) only what is not given counts.
    """
    return cross_entropy(model, data, context=context, workers=workers).per_token.mapped(_bits)


def bits_difference(
    model: Distribution, other: Distribution, data: Sequences, *, context: Context | None = None
) -> Estimate:
    """Bits per dimension of a model minus those of another, paired over images."""
    return cross_entropy_difference(model, other, data, context=context).mapped(_bits)


ELEMENTS = 2**25  # logits computed at a time


class StreamCost(NamedTuple):
    """The cost of a stream. Intervals are over windows or blocks as if independent, which those of one text are not
    quite."""

    per_token: Estimate  # nats
    total: float  # nats, of all tokens together
    tokens: int

    @property
    def perplexity(self) -> Estimate:
        return self.perplexity_per(self.tokens)

    def perplexity_per(self, units: int) -> Estimate:
        """exp(nats per unit): per word, where the text has `units` of them, whatever the tokens are."""
        return self.per_token.mapped(lambda nats: exponential(self.tokens / units * nats))

    def bits_per(self, units: int) -> Estimate:
        """Per byte or character, where the text has `units` of them."""
        factor = self.tokens / units / math.log(2)
        return self.per_token.mapped(lambda nats: factor * nats)


def stream_cost(
    model: Stepwise, stream: Int[Tensor, " tokens"], *, stride: int | None = None, workers: Workers | None = None
) -> StreamCost:
    """−log p of each token given those before it in its window, windows being as long as the model's sequences.

    Windows move on by `stride` tokens and only their last `stride` are scored, but for the first, which is scored
    whole: a small stride gives every token nearly a whole window of context, at length/stride times the work. Without
    one, windows follow one another and tokens at their beginning have little context. The last window ends where
    the stream does.
    """
    space = model.space
    if space.end is not None:
        raise UserError("A stream is scored by a model of windows, whose sequences have one length and no end.")
    total, length = len(stream), space.length
    stride = length if stride is None else stride
    if not 1 <= stride <= length:
        raise UserError(f"Windows of {length} tokens move on by 1 to {length} of them, not by {stride}.")
    if total < length:
        raise UserError(f"The text has {total:,} tokens, too few for one window of {length:,}.")
    # Window w ends at ends[w] and scores what the one before has not.
    ends = torch.tensor([*range(length, total, stride), total])
    scored = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long))
    windows = torch.split(torch.arange(len(ends)), max(1, ELEMENTS // (length * space.vocabulary)))
    jobs = (
        (stream[(ends[some, None] - length + torch.arange(length)).to(stream.device)], scored[some])
        for some in windows
    )  # fmt: skip
    costs = []
    with bar("scoring", len(ends), "windows") as progress:
        for _, own in run_shards(_window_costs, model, jobs, workers=workers, in_order=True):
            costs.append(own)
            progress.advance(len(own))
    return cost_of_windows(torch.cat(costs), scored)


@torch.no_grad()
def _window_costs(
    model: Stepwise, job: tuple[Int[Tensor, "windows length"], Int[Tensor, " windows"]]
) -> Float[Tensor, " windows"]:
    """Of the last tokens of each window, so many as are scored of it."""
    tokens, scored = job
    rows, length = tokens.shape
    with evaluation_mode(model):
        log_probs = token_log_probs(model, Sequences(tokens, torch.full((rows,), length, device=tokens.device)))
    counted = torch.arange(length) >= length - scored[:, None]
    return -torch.where(counted.to(log_probs.device), log_probs, 0.0).double().sum(1).cpu()


def cost_of_windows(costs: Float[Tensor, " windows"], scored: Int[Tensor, " windows"]) -> StreamCost:
    """Of pieces of a text, each with its cost and the number of tokens that were scored in it."""
    sizes = scored.double()
    per_token = weighted_mean(sizes.log()[None], (costs / sizes)[None], low=0.0, name="cost")[0]
    return StreamCost(per_token, float(costs.sum()), int(scored.sum()))
