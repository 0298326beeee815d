"""How well a model of windows predicts a stream of text, every token scored once."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.moments import weighted_mean
from ebar.models.stepwise import token_log_probs
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Estimate, Sequences, Stepwise

ELEMENTS = 2**25  # logits computed at a time


class StreamCost(NamedTuple):
    """The cost of a stream. Intervals are over windows as if independent, which those of one text are not quite."""

    per_token: Estimate  # nats
    total: float  # nats, of all tokens together
    tokens: int

    @property
    def perplexity(self) -> Estimate:
        return self.perplexity_per(self.tokens)

    def perplexity_per(self, units: int) -> Estimate:
        """exp(nats per unit): per word, where the text has `units` of them, whatever the tokens are."""
        return self._scaled(self.tokens / units, exponential=True)

    def bits_per(self, units: int) -> Estimate:
        """Per byte or character, where the text has `units` of them."""
        return self._scaled(self.tokens / units / math.log(2), exponential=False)

    def _scaled(self, factor: float, *, exponential: bool) -> Estimate:
        own = self.per_token
        values = [factor * value for value in (own.value, own.low, own.high)]
        if exponential:
            values = [math.exp(value) if value < 700 else math.inf for value in values]
        return own._replace(value=values[0], low=values[1], high=values[2])


@torch.no_grad()
def stream_cost(model: Stepwise, stream: Int[Tensor, " tokens"], *, stride: int | None = None) -> StreamCost:
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
    ends = torch.arange(length, total, stride)
    ends = torch.cat([ends, torch.tensor([total])])
    scored = torch.diff(ends, prepend=torch.zeros(1, dtype=torch.long))
    costs = []
    with evaluation_mode(model), bar("scoring", len(ends), "windows") as progress:
        for some in torch.split(torch.arange(len(ends)), max(1, ELEMENTS // (length * space.vocabulary))):
            places = (ends[some, None] - length + torch.arange(length)).to(stream.device)
            x = Sequences(stream[places], torch.full((len(some),), length, device=stream.device))
            counted = torch.arange(length) >= length - scored[some, None]
            log_probs = token_log_probs(model, x)
            costs.append(-torch.where(counted.to(log_probs.device), log_probs, 0.0).double().sum(1).cpu())
            progress.advance(len(some))
    return _summary(torch.cat(costs), scored)


def _summary(costs: Float[Tensor, " windows"], scored: Int[Tensor, " windows"]) -> StreamCost:
    sizes = scored.double()
    per_token = weighted_mean(sizes.log()[None], (costs / sizes)[None], low=0.0, name="cost")[0]
    return StreamCost(per_token, float(costs.sum()), int(scored.sum()))
