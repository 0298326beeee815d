"""The likeliest span of each passage, by one model or by several together."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.models.task.heads import SpanHead
from ebar.models.task.model import Read

BEAM = 5  # first tokens for which the last one is looked for
LONGEST = 64  # tokens of an answer


class Spans(NamedTuple):
    """One span of each passage."""

    first: Int[Tensor, " rows"]
    last: Int[Tensor, " rows"]
    probability: Float[Tensor, " rows"]
    answerable: Float[Tensor, " rows"]  # the probability that there is an answer at all


def best_spans(members: Sequence[tuple[SpanHead, Read]], *, beam: int = BEAM, longest: int = LONGEST) -> Spans:
    """The likeliest among the spans that begin with one of the `beam` likeliest first tokens.

    Of several models the probabilities are averaged, those of first tokens and then those of whole spans. With a beam
    as long as the text nothing is missed.
    """
    begins = torch.stack([head.first_log_probs(read.hidden, read.places) for head, read in members])
    rows, length = begins.shape[1:]
    top = begins.exp().mean(0).topk(min(beam, length)).indices
    joint = torch.stack(
        [
            (own.gather(1, top)[:, :, None] + head.last_log_probs(read.hidden, read.places, top)).exp()
            for own, (head, read) in zip(begins, members, strict=True)
        ]
    ).mean(0)
    steps = torch.arange(length, device=top.device)
    joint = torch.where(steps < top[:, :, None] + longest, joint, 0.0)
    probability, place = joint.view(rows, -1).max(1)
    answerable = torch.stack([head.answerable_logits(read.hidden, read.lengths).sigmoid() for head, read in members])
    first = top.gather(1, place[:, None] // length)[:, 0]
    return Spans(first, place % length, probability, answerable.mean(0))
