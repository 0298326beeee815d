"""What a head is: hidden vector → scores of the next token."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Head(Protocol):
    """log_softmax of what it returns is the distribution of the next token."""

    @property
    def free_logits(self) -> bool:
        """True: logits before the softmax, whose shift is free. False: already log-probabilities."""
        ...

    def __call__(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]: ...


@runtime_checkable
class ScoresTargets(Protocol):
    """Knows the log-probability of given targets in less memory than those of the whole vocabulary take."""

    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]: ...


def target_log_probs(
    head: Head, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """log p(target | hidden) of each target."""
    if isinstance(head, ScoresTargets):
        return head.log_probs(hidden, targets)
    return torch.log_softmax(head(hidden), -1).gather(-1, targets[..., None]).squeeze(-1)
