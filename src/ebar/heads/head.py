"""What a head is: hidden vector → scores of the next token."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Head(Protocol):
    """log_softmax of what it returns is the distribution of the next token."""

    @property
    def free_logits(self) -> bool:
        """True: logits before the softmax, whose shift is free. False: already log-probabilities."""
        ...

    def __call__(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]: ...
