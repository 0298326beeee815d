"""Heads of tasks: from the vectors of a text to scores of classes, or to the span of an answer."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.backbones.transformer import picked
from ebar.devices import in_full_precision
from ebar.maths.pooling import mean_pooled


class SummaryHead(nn.Module):
    """Scores of a whole text: logits = W·dropout(tanh(V·h + b)) + c, with h the vector of CLS or, with `mean`, the mean
    over all places, which needs no training to hold what stands in the text.

    One score for each class; or a single one, for regression, for the relevance of a document, for a choice.
    """

    def __init__(self, width: int, outputs: int, *, dropout: float = 0.1, mean: bool = False):
        super().__init__()
        self.mean = mean
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, outputs)

    @in_full_precision
    def forward(
        self, hidden: Float[Tensor, "texts length width"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts outputs"]:
        if self.mean:
            inside = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
            summary = mean_pooled(hidden, inside)
        else:
            summary = picked(hidden, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        return self.out(self.dropout(torch.tanh(self.project(summary))))  # type: ignore[no-any-return]


class SpanHead(nn.Module):
    """p(first, last) = p(first)·p(last | first): where an answer stands in a passage. Yang et al. 2019's span head.

    The last token is scored from its own vector and the first token's, tanh, a layer norm and a linear map. Unlike
    theirs no span ends before it begins: the probabilities of all spans add up to 1. Whether there is an answer at all
    is a logistic regression on the vector of CLS.
    """

    def __init__(self, width: int, *, dropout: float = 0.1):
        super().__init__()
        self.first = nn.Linear(width, 1)
        self.of_first, self.of_last = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)
        self.answerable = SummaryHead(width, 1, dropout=dropout)

    @in_full_precision
    def first_log_probs(
        self, hidden: Float[Tensor, "texts length width"], places: Bool[Tensor, "texts length"]
    ) -> Float[Tensor, "texts length"]:
        """log p(first), −inf outside the passage. A text without a passage is all passage: nothing else is finite."""
        allowed = places | ~places.any(1, keepdim=True)
        scores: Tensor = self.first(hidden)[:, :, 0]
        return scores.masked_fill(~allowed, -torch.inf).log_softmax(1)

    @in_full_precision
    def last_log_probs(
        self,
        hidden: Float[Tensor, "texts length width"],
        places: Bool[Tensor, "texts length"],
        first: Int[Tensor, "texts some"],
    ) -> Float[Tensor, "texts some length"]:
        """log p(last | first) for some first tokens of each text, −inf before it and outside the passage."""
        begun = self.of_first(picked(hidden, first))
        mixed = self.norm(torch.tanh(begun[:, :, None] + self.of_last(hidden)[:, None]))
        scores: Tensor = self.last(mixed)[..., 0]
        steps = torch.arange(hidden.shape[1], device=hidden.device)
        allowed = (places[:, None] & (steps > first[:, :, None])) | (steps == first[:, :, None])
        return scores.masked_fill(~allowed, -torch.inf).log_softmax(2)

    def answerable_logits(
        self, hidden: Float[Tensor, "texts length width"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, " texts"]:
        """Of there being an answer."""
        return self.answerable(hidden, lengths)[:, 0]  # type: ignore[no-any-return]


def passage_places(
    segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"], segment: int = 0
) -> Bool[Tensor, "texts length"]:
    """The tokens of one segment, without the separator that ends it: where an answer may stand."""
    steps = torch.arange(segments.shape[1], device=segments.device)
    own = (segments == segment) & (steps < lengths[:, None])
    followed = torch.zeros_like(own)
    followed[:, :-1] = own[:, 1:]
    return own & followed
