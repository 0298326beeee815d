"""One linear map and a softmax."""

from jaxtyping import Float
from torch import Tensor, nn


class Softmax(nn.Module):
    """logits = W·hidden + b, W uniform in ±0.1 and b zero at first, as in the code of Parshakova et al. 2019."""

    free_logits = True

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.linear = nn.Linear(width, vocabulary)
        nn.init.uniform_(self.linear.weight, -0.1, 0.1)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        return self.linear(hidden)  # type: ignore[no-any-return]
