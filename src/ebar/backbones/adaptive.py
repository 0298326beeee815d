"""Input vectors that are shorter for rarer tokens (Baevski & Auli 2019, arXiv:1809.10853).

Tokens are numbered from the most frequent to the rarest, and cut into clusters at `cutoffs`.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class AdaptiveEmbedding(nn.Module):
    """Tokens of cluster i have vectors of width / divideⁱ, projected to the width; the last token is the beginning's.

    With `divide` 1 all tokens have one table and nothing is projected: the cutoffs then matter to a head only.
    """

    def __init__(self, vocabulary: int, width: int, *, cutoffs: tuple[int, ...], divide: int = 1):
        super().__init__()
        bounds = [0, *cutoffs, vocabulary]
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"cutoffs must grow and lie between 0 and the vocabulary, {vocabulary}, not {cutoffs}")
        if divide < 1 or width // divide ** len(cutoffs) < 1:
            raise ValueError(f"a width of {width} cannot be divided by {divide} for each of {len(cutoffs)} cutoffs")
        self.vocabulary, self.cutoffs, self.divide = vocabulary, tuple(cutoffs), divide
        sizes = [(vocabulary, width)]
        if divide > 1:
            sizes = [(high - low, width // divide**i) for i, (low, high) in enumerate(pairwise(bounds))]
        self.tables = nn.ParameterList(torch.randn(rows, size) * 0.02 for rows, size in sizes)
        self.projections = nn.ParameterList(
            torch.randn(width, size) * 0.01 for _, size in (sizes if divide > 1 else [])
        )
        self.beginning = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        flat = tokens.flatten()
        bounds = [0, *self.cutoffs, self.vocabulary] if self.divide > 1 else [0, self.vocabulary]
        vectors = self.beginning.expand(len(flat), -1)
        for number, (low, high) in enumerate(pairwise(bounds)):
            chosen = ((flat >= low) & (flat < high)).nonzero().squeeze(1)
            if len(chosen) == 0:
                continue
            found = F.embedding(flat[chosen] - low, self.tables[number])
            if self.divide > 1:
                found = F.linear(found, self.projections[number])
            vectors = vectors.index_copy(0, chosen, found)
        return vectors.view(*tokens.shape, len(self.beginning))
