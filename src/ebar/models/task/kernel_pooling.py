"""K-NRM: a ranking model that learns only how much each degree of likeness of words counts. Xiong et al. 2017.

End-to-End Neural Ad-hoc Ranking with Kernel Pooling (arXiv:1706.06613):

    M_ij = cos(query word i, document word j)
    φ_k  = Σᵢ log Σⱼ exp(−(M_ij − μ_k)² / (2·σ_k²))
    score = tanh(w·φ + b)

Here the vectors of words are those of a pretrained encoder's tokens, before any layer, and stay as they are: what the
score tells is how good these vectors are (Yang et al. 2019, ClueWeb09-B).
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ebar.data.labelled import Inputs
from ebar.models.task.encoders import TaskEncoder
from ebar.models.task.heads import passage_places

SMALLEST = 1e-10  # of what a logarithm is taken of, where no word is alike
SCALE = 0.01  # of φ, as in the authors' code: unscaled, the sums over words would saturate tanh


def kernels(number: int = 11) -> tuple[Float[Tensor, " kernels"], Float[Tensor, " kernels"]]:
    """Means and widths: one narrow kernel at 1 for the same word, the others evenly spread over −1 … 1, width 0.1."""
    if number < 2:
        raise ValueError(f"kernel pooling needs 2 kernels or more, not {number}")
    step = 2.0 / (number - 1)
    centres = [1.0, *(1.0 - step / 2 - step * place for place in range(number - 1))]
    return torch.tensor(centres), torch.tensor([1e-3, *([0.1] * (number - 1))])


def pooled(
    likeness: Float[Tensor, "texts query document"],
    query: Bool[Tensor, "texts query"],
    document: Bool[Tensor, "texts document"],
    means: Float[Tensor, " kernels"],
    widths: Float[Tensor, " kernels"],
) -> Float[Tensor, "texts kernels"]:
    """φ: log-sums over the words of the document, added over those of the query; other places do not count."""
    closeness = torch.exp(-((likeness[..., None] - means) ** 2) / (2 * widths**2))
    sums = torch.where(document[:, None, :, None], closeness, 0.0).sum(2)
    return torch.where(query[:, :, None], sums.clamp(min=SMALLEST).log(), 0.0).sum(1)


class KernelPooling(nn.Module):
    """Relevance of a document (the second text of a pair) to a query (the first), from the likeness of their words."""

    origin: dict[str, Any] | None = None  # the kind and the options of the network, where it was made by name

    def __init__(self, encoder: TaskEncoder, *, number: int = 11):
        super().__init__()
        means, widths = kernels(number)
        table = encoder.table.detach()
        self.register_buffer("vectors", F.normalize(table, dim=1))
        self.register_buffer("means", means.to(table), persistent=False)
        self.register_buffer("widths", widths.to(table), persistent=False)
        self.out = nn.Linear(number, 1)

    def scores(self, inputs: Inputs, task: str) -> Float[Tensor, "rows choices outputs"]:
        """Like those of a `TaskModel` with one output."""
        rows, choices = inputs.lengths.shape
        tokens, segments, lengths = (part.flatten(0, 1) for part in inputs)
        found = torch.tanh(self.out(SCALE * self.features(tokens, segments, lengths)))
        return found.view(rows, choices, 1)

    def features(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts kernels"]:
        """φ of each text."""
        query, document = (passage_places(segments, lengths, segment) for segment in (0, 1))
        vectors = F.embedding(tokens, self.vectors)  # type: ignore[arg-type]
        ends = int((segments == 0).sum(1).max())  # no place of a query is past this
        likeness = vectors[:, :ends] @ vectors.transpose(1, 2)
        return pooled(likeness, query[:, :ends], document, self.means, self.widths)  # type: ignore[arg-type]
