"""The adaptive softmax: rare tokens are scored in two steps, a cluster and a token of it, by shorter vectors.

Grave et al. 2017 (arXiv:1609.04309); with input vectors cut the same way, Baevski & Auli 2019 (arXiv:1809.10853).
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.devices import in_full_precision

SHARES = (0.075, 0.15, 0.75)  # of the vocabulary: where Dai et al. 2019 cut that of WikiText-103


class AdaptiveSoftmax(nn.Module):
    """p(token) = p(cluster)·p(token | cluster); tokens before the first cutoff are outcomes of the first step.

    Tokens are numbered from the most frequent to the rarest. The hidden vector is projected to width / divideⁱ for
    cluster i; with `divide` 1 it is taken as it is. Where the backbone's input vectors are cut, `cutoffs` and `divide`
    are theirs unless said. `tied`: the tokens' vectors are those of the input; `tie_projections` says, from the first
    cluster on, whose projections are.
    """

    free_logits = False

    def __init__(
        self, width: int, vocabulary: int, embedding: Any = None, *, cutoffs: tuple[int, ...] | None = None,
        divide: int | None = None, tied: bool = False, tie_projections: tuple[bool, ...] = (),
    ):  # fmt: skip
        super().__init__()
        inputs = embedding if hasattr(embedding, "cutoffs") else None
        if cutoffs is None:
            cutoffs = default_cutoffs(vocabulary) if inputs is None else inputs.cutoffs
        if divide is None:
            divide = 1 if inputs is None else inputs.divide
        self.bounds: list[int] = [0, *cutoffs, vocabulary]
        if any(low >= high for low, high in pairwise(self.bounds)):
            raise ValueError(f"cutoffs must grow and lie between 0 and the vocabulary, {vocabulary}, not {cutoffs}")
        clusters = len(self.bounds) - 1
        if divide < 1 or width // divide ** (clusters - 1) < 1:
            raise ValueError(f"a width of {width} cannot be divided by {divide} for each of {clusters - 1} cutoffs")
        self.divide, self.tied = divide, tied
        self.tie_projections = (*tie_projections, *[False] * clusters)[:clusters]
        self._check_ties(embedding, inputs, width)
        self._inputs = (embedding,)  # in a tuple: its parameters are the backbone's, and not named twice
        widths = [width // divide**cluster for cluster in range(clusters)]
        sizes = [high - low for low, high in pairwise(self.bounds)]
        # One table where all vectors are equally long, as the input vectors have.
        shapes = list(zip(sizes, widths, strict=True)) if divide > 1 else [(vocabulary, width)]
        self.tables = nn.ParameterList(torch.randn(rows, size) * 0.02 for rows, size in ([] if tied else shapes))
        self.projections = nn.ParameterDict(
            {
                str(cluster): nn.Parameter(torch.randn(width, size) * 0.01)
                for cluster, size in enumerate(widths)
                if divide > 1 and not self.tie_projections[cluster]
            }
        )
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.cluster_weight = nn.Parameter(torch.randn(clusters - 1, width) * 0.02)
        self.cluster_bias = nn.Parameter(torch.zeros(clusters - 1))

    def _check_ties(self, embedding: Any, inputs: Any, width: int) -> None:
        if not self.tied and not any(self.tie_projections):
            return
        if embedding is None:
            raise ValueError("there are no input vectors to tie to: leave tied and tie_projections out")
        if self.divide == 1:
            if any(self.tie_projections):
                raise ValueError("with divide 1 nothing is projected: leave tie_projections out")
            table = embedding if inputs is None else embedding.tables[0]
            if (inputs is not None and inputs.divide > 1) or table.shape[1] != width:
                raise ValueError("the input vectors have other widths than the hidden vector: leave tied out")
        elif inputs is None or inputs.divide != self.divide or [0, *inputs.cutoffs] != self.bounds[:-1]:
            raise ValueError(
                "the input vectors are not cut in the same way: give the backbone these cutoffs and divide"
            )

    @in_full_precision
    def forward(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """Log-probabilities of the whole vocabulary."""
        head = self._head(hidden)
        parts = [head[..., : self.bounds[1]]]
        for cluster in range(1, len(self.bounds) - 1):
            parts.append(head[..., self._column(cluster), None] + self._tail(hidden, cluster))
        return torch.cat(parts, -1)

    @in_full_precision
    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Of each target, in the targets' order; a cluster is scored only where a target lies in it."""
        flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.flatten()
        head = self._head(flat)
        column = wanted.clamp(max=self.bounds[1] - 1)
        for cluster in range(1, len(self.bounds) - 1):
            column = torch.where(wanted >= self.bounds[cluster], self._column(cluster), column)
        found = head.gather(1, column[:, None]).squeeze(1)
        for cluster in range(1, len(self.bounds) - 1):
            low, high = self.bounds[cluster], self.bounds[cluster + 1]
            rows = ((wanted >= low) & (wanted < high)).nonzero().squeeze(1)
            if len(rows):
                inside = self._tail(flat[rows], cluster).gather(1, wanted[rows, None] - low).squeeze(1)
                found = found.index_add(0, rows, inside)
        return found.view(targets.shape)

    def _column(self, cluster: int) -> int:
        """Where the first step has the chance of a cluster."""
        return self.bounds[1] + cluster - 1

    def _head(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch outcomes"]:
        """Log-probabilities of the first step: the most frequent tokens, then the clusters."""
        weight, bias = self._weight(0), self.bias[: self.bounds[1]]
        weight, bias = torch.cat([weight, self.cluster_weight]), torch.cat([bias, self.cluster_bias])
        return torch.log_softmax(F.linear(self._projected(hidden, 0), weight, bias), -1)

    def _tail(self, hidden: Float[Tensor, "*batch width"], cluster: int) -> Float[Tensor, "*batch tokens"]:
        """Log-probabilities of the tokens of a cluster, given the cluster."""
        bias = self.bias[self.bounds[cluster] : self.bounds[cluster + 1]]
        return torch.log_softmax(F.linear(self._projected(hidden, cluster), self._weight(cluster), bias), -1)

    def _weight(self, cluster: int) -> Float[Tensor, "tokens size"]:
        tables: Any = self.tables
        if self.tied:
            tables = getattr(self._inputs[0], "tables", self._inputs)
        if self.divide > 1:
            return tables[cluster]  # type: ignore[no-any-return]
        return tables[0][self.bounds[cluster] : self.bounds[cluster + 1]]  # type: ignore[no-any-return]

    def _projected(self, hidden: Float[Tensor, "*batch width"], cluster: int) -> Float[Tensor, "*batch size"]:
        if self.divide == 1:
            return hidden
        tied = self.tie_projections[cluster]
        projection: Tensor = self._inputs[0].projections[cluster] if tied else self.projections[str(cluster)]
        return hidden @ projection


def default_cutoffs(vocabulary: int) -> tuple[int, ...]:
    """Shares of the vocabulary, rounded up; a small one has fewer clusters, and one of a single token none."""
    cuts = {-int(-share * vocabulary // 1) for share in SHARES}
    return tuple(sorted(cut for cut in cuts if 0 < cut < vocabulary))
