"""What a model's last layer gave for each token, beside the token's log-probability: all of one parallel pass."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from ebar.types import Context, Space


class TokenOutputs(NamedTuple):
    """Place t is that of the hidden vector that predicts token t."""

    log_probs: Float[Tensor, "rows length"]
    raw: Float[Tensor, "rows length width"]  # before dropout
    dropped: Float[Tensor, "rows length width"]  # after it: what the head saw


@runtime_checkable
class GivesOutputs(Protocol):
    """A model that shows what its last layer gave: a backbone with a head, or one in the middle of a stream."""

    @property
    def space(self) -> Space: ...

    def outputs(self, tokens: Int[Tensor, "rows length"], context: Context | None = None) -> TokenOutputs: ...
