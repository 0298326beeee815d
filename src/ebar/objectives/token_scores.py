"""What a loss needs of the logits of many tokens, in as few passes over [tokens, vocabulary] as there can be."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

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
