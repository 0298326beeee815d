"""Relative effective context length: up to where a longer context helps a model of a group. Dai et al. 2019, App. C.

With l_i(c, t) the cost of token t for model i, which reads the c tokens before it, b(c, t) = minᵢ l_i(c, t) the best
that any model of the group does with c tokens, and T the share r of all positions where b(c, t) is largest:

    f_i(c, c′) = mean over T of min(b(c, t), l_i(c′, t)),     g_i(c, c′) = 1 − exp(f_i(c, c′) − f_i(c, c))

g is the relative fall in perplexity over the group's best with the shorter context: all models have to improve on the
same. The length of model i is the first c from which going on to the next length gains less than 1 %. It belongs to a
group of models, of about one size: among others a model has another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.segments import BLOCKS, Carried, at_beginning, block_mean, segment_log_probs
from ebar.maths.importance import all_warnings
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Estimate, Stepwise

THRESHOLD = 0.01  # of the gain, below which a longer context is of no use
ELEMENTS = 2**22  # tokens × rows read at a time


class ContextLength(NamedTuple):
    """For one model: up to where context helps, and what each step gains. Intervals are over blocks of positions."""

    length: Estimate  # low and high are the lengths that the ends of the gains' intervals would give
    gains: list[Estimate]  # from each length to the next


@torch.no_grad()
def context_losses(
    model: Stepwise, stream: Int[Tensor, " tokens"], lengths: Sequence[int], positions: Int[Tensor, " positions"]
) -> Float[Tensor, "lengths positions"]:
    """l(c, t): the cost in nats of the tokens in some positions of a text, given the c tokens before each.

    A model whose windows are shorter than c + 1 reads as many as it can, so that longer contexts gain it nothing.
    """
    if len(lengths) == 0 or min(lengths) < 1 or len(positions) == 0 or int(positions.min()) < max(lengths):
        raise UserError("Each position needs as many tokens before it as the longest context has, and that 1 or more.")
    stream, found = stream.to(device_of(model)), []
    with evaluation_mode(model), bar("contexts", len(lengths) * len(positions), "positions") as progress:
        for length in lengths:
            parts = []
            for some in torch.split(positions.to(stream.device), max(1, ELEMENTS // (64 * (length + 1)))):
                windows = stream[some[:, None] + torch.arange(-length, 1, device=stream.device)]
                parts.append(-_last_log_probs(model, windows).double().cpu())
                progress.advance(len(some))
            found.append(torch.cat(parts))
    return torch.stack(found)


def _last_log_probs(model: Stepwise, windows: Int[Tensor, "rows length"]) -> Float[Tensor, " rows"]:
    begun, _ = at_beginning(model, windows)
    if begun.memory is not None:  # read at once, as one segment after nothing
        return segment_log_probs(model, windows, begun)[0][:, -1]
    return segment_log_probs(model, windows[:, -1:], Carried(windows[:, :-1]))[0][:, 0]


def relative_gain(
    losses: Float[Tensor, "models lengths positions"], short: int, long: int, *, share: float = 0.1
) -> list[Estimate]:
    """g of each model, from the length numbered `short` to that numbered `long`, on the `share` of hardest positions.

    Which positions are hard is told by the shorter context alone and taken as given; the interval is over blocks of
    them, in the order of the text.
    """
    if not 0 < share <= 1:
        raise UserError(f"The share of hard positions must lie above 0 and not above 1, not be {share}.")
    best = losses[:, short].amin(0)
    count = max(1, round(share * len(best)))
    hard = best.topk(count).indices.sort().values
    # f(c, c) is the mean of b itself, so that f(c, c′) − f(c, c) is one of min(0, l − b).
    falls = (losses[:, long][:, hard] - best[hard]).clamp(max=0)
    found = []
    for fall in falls:
        mean = block_mean(fall, blocks=min(BLOCKS, count))
        gain, low, high = (1 - float(torch.tensor(own).double().exp()) for own in (mean.value, mean.high, mean.low))
        found.append(mean._replace(value=gain, low=max(0.0, low), high=high))
    return found


def relative_effective_context_lengths(
    losses: Float[Tensor, "models lengths positions"], lengths: Sequence[int], *, share: float = 0.1,
    threshold: float = THRESHOLD,
) -> list[ContextLength]:  # fmt: skip
    """Of each model of a group, from its costs at rising context lengths. Published values are for steps of 100."""
    if losses.shape[1] != len(lengths) or len(lengths) < 2 or list(lengths) != sorted(set(lengths)):
        raise UserError("Costs are needed at two context lengths or more, which rise.")
    steps = [relative_gain(losses, short, short + 1, share=share) for short in range(len(lengths) - 1)]
    found = []
    for gains in (list(own) for own in zip(*steps, strict=True)):
        value, low, high = (
            _reached([getattr(gain, end) for gain in gains], lengths, threshold) for end in ("value", "low", "high")
        )
        open_end = "context still helped at the longest length tried" if value == lengths[-1] else None
        first = gains[0]
        warning = all_warnings(first.warning, open_end)
        length = Estimate(value, low, high, first.effective_sample_size, warning, first.level)
        found.append(ContextLength(length, gains))
    return found


def _reached(gains: Sequence[float], lengths: Sequence[int], threshold: float) -> float:
    small = [number for number, gain in enumerate(gains) if gain < threshold]
    return float(lengths[small[0] if small else len(gains)])
