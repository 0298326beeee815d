"""E-ARM's second term: at each step k the joint p_θ(x₍≤k₎) is drawn to the data's.

    p_θ(xₖ, x₍<k₎) = q̃(x₍<k₎)·e^{logit(xₖ|x₍<k₎)} / Zₖ,     Zₖ = E_q[e^{LSE(x₍<k₎)}]                       (equation 4)

    Lₖ = E_data[−logit(xₖ) − log q̃(x₍<k₎)] + E_q[w·(log q̃(x₍<k₎) + LSE(x₍<k₎))],     w = e^{LSE} / Zₖ      (equation 12)

The gradient of Lₖ, w held fixed, is that of KL(p_data ‖ p_θ) over x₍≤k₎. Its value here is that KL's too, but for the
data's entropy and the factors held fixed: log Zₖ stands for the second expectation. LSE stands where equation 12 has
the logit of a drawn xₖ: given x₍<k₎, the mean over xₖ ~ q of the logit's gradient is LSE's, so xₖ need not be drawn.
Sequences that have ended before k are no part of step k: data, q and Zₖ are those of the sequences that reach it.
In log q̃ only the `recent` last factors have a gradient (the older ones would be trained k times over).

What a loss needs of the logits of many tokens, in as few passes over [tokens, vocabulary] as there can be.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ebar import together

NUMBERS = 2**17  # logits in a block: small enough to stay in the cache between one operation and the next


class TokenScores(NamedTuple):
    """Of each token, given those before it; on padding they are the scores of whatever stands there."""

    logit: Float[Tensor, "*places"]
    log_partition: Float[Tensor, "*places"]  # LSE: log Σ exp logit over the vocabulary
    mean: Float[Tensor, "*places"]  # of the logits that are not −inf; 0 where it was not asked for

    @property
    def log_prob(self) -> Float[Tensor, "*places"]:
        """log q(xₖ | x₍<k₎)."""
        return self.logit - self.log_partition


def token_scores(
    logits: Float[Tensor, "*places vocabulary"], tokens: Int[Tensor, "*places"], *, mean: bool = False
) -> TokenScores:
    """Scores of the tokens, with a gradient made in one sweep where autograd's own would take five."""
    flat = _Scores.apply(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1), mean)  # type: ignore[no-untyped-call]
    return TokenScores(*(each.view(tokens.shape) for each in flat))


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, mean: bool) -> tuple[Tensor, Tensor, Tensor]:
        logit = logits.gather(1, tokens[:, None]).squeeze(1)
        log_partition, means = torch.empty_like(logit), torch.zeros_like(logit)
        for block in _blocks(logits):
            torch.logsumexp(logits[block], 1, out=log_partition[block])
            if mean:
                torch.mean(logits[block], 1, out=means[block])
        # Where some logits are −inf (nothing but the end stands in the last place), the mean is over the others.
        partial = (~means.isfinite()).nonzero().squeeze(1)
        if len(partial):
            rows = logits[partial]
            allowed = rows.isfinite()
            means[partial] = torch.where(allowed, rows, 0.0).sum(1) / allowed.sum(1)
        ctx.save_for_backward(logits, tokens, log_partition, partial)
        ctx.mean = mean
        return logit, log_partition, means

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logit: Tensor, of_log_partition: Tensor, of_mean: Tensor) -> tuple[Tensor, None, None]:
        logits, tokens, log_partition, partial = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for block in _blocks(logits):
            part = gradient[block]
            torch.sub(logits[block], log_partition[block, None], out=part)
            part.exp_().mul_(of_log_partition[block, None])
            if ctx.mean:
                part.add_(of_mean[block, None] / logits.shape[1])
        if len(partial):
            rows = logits[partial]
            allowed = rows.isfinite()
            share = (rows - log_partition[partial, None]).exp() * of_log_partition[partial, None]
            gradient[partial] = share + of_mean[partial, None] * allowed / allowed.sum(1, keepdim=True)
        # One token a row: nothing is added to twice, so that no atomic addition is needed.
        places = torch.arange(len(tokens), device=tokens.device) * logits.shape[1] + tokens
        flat = gradient.view(-1)
        flat[places] = flat[places] + of_logit
        return gradient, None, None


def _blocks(logits: Tensor) -> list[slice]:
    size = max(1, NUMBERS // max(logits.shape[1], 1)) if logits.device.type == "cpu" else max(len(logits), 1)
    return [slice(begin, begin + size) for begin in range(0, len(logits), size)]


class ScoredTokens(NamedTuple):
    """Sequences with the scores of their tokens."""

    scores: TokenScores  # each [rows, steps]
    mask: Bool[Tensor, "rows steps"]  # where a row holds a token, its end included
    weights: Float[Tensor, " rows"] | None = None  # of the rows, where they are an enumeration; else all alike


class Contrast(NamedTuple):
    """Lₖ of each group of rows that share a Zₖ, and what the weights were like."""

    terms: Float[Tensor, "groups steps"]  # 0 where there is no Lₖ
    exists: Bool[Tensor, "groups steps"]  # both data and fakes reach the step
    data: Float[Tensor, "groups steps"]  # weight of the data rows that reach it
    effective: Float[Tensor, "groups steps"]  # effective number of fakes
    alive: Float[Tensor, "groups steps"]  # number of fakes that reach it
    gap: Float[Tensor, "groups steps"]  # E_q[LSE] − E_data[LSE]
    gain: Float[Tensor, "groups steps"]  # E_data[LSE] − log E_q[e^LSE]: nats by which p_θ fits x₍≤k₎ better than q


def of_all_parts(*scored: ScoredTokens, weight: int) -> tuple[tuple[ScoredTokens, ...], int]:
    """The rows of all parts of a batch, and the sum of the weights that their losses have.

    The mean of the logits, which no contrast needs, is left out, and so are rows that are an enumeration.
    """
    if not together.is_shared():
        return scored, weight
    rows = [torch.stack([one.scores.logit, one.scores.log_partition], -1) for one in scored]
    [weights, *found] = together.joined(torch.tensor([weight]), *rows, *(one.mask for one in scored))
    logits, masks = found[: len(scored)], found[len(scored) :]
    scores = [TokenScores(both[..., 0], both[..., 1], torch.zeros_like(both[..., 0])) for both in logits]
    return tuple(map(ScoredTokens, scores, masks)), int(weights.sum())


def contrast(
    real: ScoredTokens,
    fake: ScoredTokens,
    *,
    groups: int = 1,
    recent: int | None = 2,
    data_term: bool = True,
    variance_reduced: bool = True,
    drawn_last: bool = False,
    temper: float = 1.0,
    clip: float | None = None,
    log_z: Float[Tensor, " steps"] | None = None,
) -> Contrast:
    """Lₖ for each step that both have places for. Rows of a group are consecutive, and groups of equal size.

    `variance_reduced` takes from w what leaves the mean as it is: w − 1 stands before each factor of log q̃. The 1
    runs over every row that *holds a token* in that factor's place, the end included; over the rows that go on it
    would not be 0 in the mean. `drawn_last` takes the logit of the fake's own xₖ in place of LSE. `log_z`, where it
    is known, makes the estimate unbiased; otherwise Zₖ is the fakes' own mean.
    """
    steps = min(real.mask.shape[1], fake.mask.shape[1])
    real_log_prob, real_logit, real_lse, real_mask = _grouped(real, groups, steps)
    fake_log_prob, fake_logit, fake_lse, fake_mask = _grouped(fake, groups, steps)
    real_rows, fake_rows = _row_weights(real, groups), _row_weights(fake, groups)
    with torch.no_grad():
        reach = torch.where(real_mask, real_rows, 0.0)
        data = reach.sum(1)
        share = reach / data.clamp(min=torch.finfo(data.dtype).tiny)[:, None]  # of each data row in its step's mean
        drawn = torch.where(fake_mask, fake_rows, 0.0)
        log_sum = torch.logsumexp(torch.where(fake_mask, fake_lse + fake_rows.log(), -math.inf), 1)
        if log_z is None:
            weights = normalised_weights(fake_lse, drawn, temper=temper, clip=clip)
            log_z = log_sum - fake_rows.sum(1).log()
            exists = (data > 0) & fake_mask.any(1)
        else:
            weights = (fake_lse - log_z[:steps]).exp() * drawn / fake_rows.sum(1, keepdim=True)
            log_z = log_z[:steps].expand_as(data)
            exists = data > 0
        held = drawn / drawn.sum(1, keepdim=True).clamp(min=torch.finfo(drawn.dtype).tiny)
    positive = real_logit
    if data_term:
        positive = positive + past(real_log_prob, recent)
    attraction = (share * positive).sum(1)
    repulsion = (weights * ((fake_logit if drawn_last else fake_lse) + past(fake_log_prob, recent))).sum(1)
    if variance_reduced:
        repulsion = repulsion - past((held * fake_log_prob).sum(1), recent)
    with torch.no_grad():
        log_z = torch.where(exists, log_z, 0.0)
        effective = weights.sum(1).square() / weights.square().sum(1).clamp(min=torch.finfo(weights.dtype).tiny)
        real_mean, fake_mean = (share * real_lse).sum(1), (held * fake_lse).sum(1)
        gain = real_mean - log_sum + drawn.sum(1).log()
    terms = torch.where(exists, repulsion - repulsion.detach() + log_z - attraction, 0.0)
    return Contrast(terms, exists, data, effective, fake_mask.sum(1).to(data), fake_mean - real_mean, gain)


def normalised_weights(
    log_weights: Float[Tensor, "groups rows steps"],
    drawn: Float[Tensor, "groups rows steps"],
    *,
    temper: float = 1.0,
    clip: float | None = None,
) -> Float[Tensor, "groups rows steps"]:
    """w/B: shares of e^{temper·LSE} among the rows that reach a step; none above `clip` times the even share.

    They sum to 1 whatever the clipping: a shift of all logits must neither gain nor lose.
    """
    reached = torch.where(drawn > 0, temper * log_weights + drawn.log(), -math.inf)
    anyone = (drawn > 0).any(1, keepdim=True)
    weights = torch.where(anyone, torch.softmax(torch.where(anyone, reached, 0.0), 1), 0.0)
    if clip is not None:
        even = drawn / drawn.sum(1, keepdim=True).clamp(min=torch.finfo(drawn.dtype).tiny)
        weights = torch.minimum(weights, clip * even)
        weights = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return weights


def past(log_probs: Float[Tensor, "*rows steps"], recent: int | None) -> Float[Tensor, "*rows steps"]:
    """log q̃(x₍<k₎): the factors before k, of which only the recent ones are of any consequence to a gradient."""
    steps = log_probs.shape[-1]
    if recent is None:
        return torch.nn.functional.pad(log_probs.cumsum(-1)[..., : steps - 1], (1, 0))
    total = torch.zeros_like(log_probs)
    for back in range(1, min(recent, steps - 1) + 1):
        total = total + torch.nn.functional.pad(log_probs[..., : steps - back], (back, 0))
    return total


def _grouped(scored: ScoredTokens, groups: int, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log q, logit, LSE and mask as [groups, rows, steps]; the scores are 0 where no token is."""
    mask = scored.mask[:, :steps]
    wanted = (scored.scores.log_prob, scored.scores.logit, scored.scores.log_partition)
    parts = [torch.where(mask, each[:, :steps], 0.0).view(groups, -1, steps) for each in wanted]
    return parts[0], parts[1], parts[2], mask.view(groups, -1, steps)


def _row_weights(scored: ScoredTokens, groups: int) -> Float[Tensor, "groups rows 1"]:
    rows = scored.scores.logit.new_ones(len(scored.mask)) if scored.weights is None else scored.weights
    return rows.view(groups, -1, 1)
