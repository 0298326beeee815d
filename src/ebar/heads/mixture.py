"""Several softmaxes for each context, mixed: probabilities are, or the vectors before one softmax.

Yang et al. 2018 (arXiv:1711.03953), and appendix A of Dai's thesis. Their parts, which both heads share: vectors
tanh(V·hidden + c), one for each component; weights of the components softmax(U·hidden), without a bias; one output
layer for all components, with a bias.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ebar.devices import in_full_precision
from ebar.heads.output import OneSoftmax, Tied, chosen_size, in_parts, layer_log_probs, output_layer

LOGITS = 2**22  # of all components that are held at a time


class Components(nn.Module):
    """hidden → vectors tanh(V·hidden + c) of the components, and the logarithms of their weights.

    Dropout on the vectors is locked (Gal & Ghahramani 2016, arXiv:1512.05287): one mask for all places of a sequence.
    A sequence that is read in parts has a mask for each part.
    """

    def __init__(self, width: int, components: int, size: int, dropout: float):
        super().__init__()
        if components < 1:
            raise ValueError(f"a mixture has at least one component, not {components}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        self.dropout = dropout
        self.size = size
        self.latent = nn.Linear(width, components * size)
        self.prior = nn.Linear(width, components, bias=False)

    def forward(
        self, hidden: Float[Tensor, "*batch width"]
    ) -> tuple[Float[Tensor, "*batch components size"], Float[Tensor, "*batch components"]]:
        latent = torch.tanh(self.latent(hidden))
        if self.training and self.dropout:
            places = latent if latent.ndim < 3 else latent[..., :1, :]
            latent = latent * F.dropout(torch.ones_like(places), self.dropout)
        log_prior = torch.log_softmax(self.prior(hidden), -1)
        return latent.view(*log_prior.shape, self.size), log_prior


class OfComponents(nn.Module):
    """Vectors of components, and one output layer."""

    def __init__(
        self, width: int, vocabulary: int, embedding: Any = None, *, components: int = 10, size: int | None = None,
        dropout: float = 0.0, tied: bool = False,
    ):  # fmt: skip
        super().__init__()
        size = chosen_size(size, width, embedding, tied=tied)
        self.components = Components(width, components, size, dropout)
        self.linear = output_layer(size, vocabulary, embedding, tied=tied)


class MixtureOfSoftmaxes(OfComponents):
    """log p = log Σₖ πₖ·softmax(W·hₖ + b): several softmaxes mixed, which has no bound on its rank.

    The matrix of its log-probabilities, contexts × tokens, can have any rank, where that of a softmax and of a mixture
    of contexts is at most d + 2 (d for the vectors, one for b, one for the normalisers; not d). hₖ = tanh(V·hidden + c)
    has `size` dimensions, those of the hidden vectors unless said and those of the input vectors where tied; the
    weights πₖ have no bias. With one component it is the softmax of the tanh projection, not the plain one.
    It gives log-probabilities, summed in log space: the original adds 1e-8 to a probability instead. `dropout` is on
    the vectors hₖ, one mask for all places of a sequence. Yang et al. 2018 (arXiv:1711.03953).
    """

    free_logits = False

    @in_full_precision
    def forward(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """A few rows at a time, which are computed once more for a gradient: no batch × components × vocabulary."""
        latent, log_prior = self.components(hidden)
        rows = [latent.reshape(-1, *latent.shape[-2:]), log_prior.reshape(-1, log_prior.shape[-1])]
        vocabulary = len(self.linear.bias)
        size = max(1, LOGITS // (vocabulary * log_prior.shape[-1]))
        return in_parts(partial(_mixed, layer=self.linear), rows, size).view(*hidden.shape[:-1], vocabulary)

    @in_full_precision
    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Of the targets, without holding the logits of any component."""
        latent, log_prior = self.components(hidden)
        each = targets[..., None].expand_as(log_prior)
        return torch.logsumexp(log_prior + layer_log_probs(self.linear, latent, each), -1)


class MixtureOfContexts(OfComponents, OneSoftmax):
    """logits = W·(Σₖ πₖ·hₖ) + b: the vectors mixed before one softmax, whose rank is bounded as that of a softmax.

    The baseline to a mixture of softmaxes, with the same parameters and options: its log-probabilities have at most
    rank d + 2, d being the vectors' `size`, however many components there are. Yang et al. 2018 (arXiv:1711.03953).
    """

    def vectors(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch size"]:
        latent, log_prior = self.components(hidden)
        return (log_prior.exp()[..., None, :] @ latent).squeeze(-2)  # type: ignore[no-any-return]


def _mixed(
    latent: Float[Tensor, "rows components size"],
    log_prior: Float[Tensor, "rows components"],
    *,
    layer: nn.Linear | Tied,
) -> Float[Tensor, "rows vocabulary"]:
    log_probs = torch.log_softmax(layer(latent), -1)
    return torch.logsumexp(log_prior[..., None] + log_probs, 1)
