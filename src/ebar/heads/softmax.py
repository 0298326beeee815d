"""One linear map and a softmax, as it is or after a projection that raises the dimension."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.heads.output import OneSoftmax, chosen_size, output_layer


class Softmax(OneSoftmax):
    """logits = W·hidden + b, W uniform in ±0.1 and b zero at first, as in the code of Parshakova et al. 2019.

    `tied`: W is the backbone's input vectors, which then have the hidden vectors' size. The matrix of its
    log-probabilities, contexts × tokens, has at most rank d + 2 for hidden vectors of size d, whatever the backbone:
    one for b, one for the normalisers (not d, as is often said). A language of higher rank is out of its reach
    (Yang et al. 2018, arXiv:1711.03953, Corollary 1).
    """

    def __init__(self, width: int, vocabulary: int, embedding: Any = None, *, tied: bool = False):
        super().__init__()
        self.linear = output_layer(width, vocabulary, embedding, tied=tied)


class WideSoftmax(OneSoftmax):
    """logits = W·tanh(V·hidden + c) + b: a softmax of higher dimension than the hidden vectors have.

    The first of the easy fixes of Yang et al. 2018 (arXiv:1711.03953; Dai's thesis, A.2.3): rank d + 2 with d = `size`
    as large as one can pay for, twice the width unless said, and the input vectors' where tied. The tanh is what makes
    it wide: after a linear map the rank would stay that of the hidden vectors. It is a mixture of one softmax.
    """

    def __init__(
        self, width: int, vocabulary: int, embedding: Any = None, *, size: int | None = None, tied: bool = False
    ):
        super().__init__()
        size = chosen_size(size, 2 * width, embedding, tied=tied)
        self.projection = nn.Linear(width, size)
        self.linear = output_layer(size, vocabulary, embedding, tied=tied)

    def vectors(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch size"]:
        return torch.tanh(self.projection(hidden))
