"""What a head is: hidden vector → scores of the next token."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

LARGE = 2**12  # a vocabulary
LOGITS = 2**24  # that a loss may hold: 64 megabytes, and as much again for their gradient


@runtime_checkable
class Head(Protocol):
    """log_softmax of what it returns is the distribution of the next token."""

    @property
    def free_logits(self) -> bool:
        """True: logits before the softmax, whose shift is free. False: already log-probabilities."""

    def __call__(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]: ...


@runtime_checkable
class ScoresTargets(Protocol):
    """Knows the log-probability of given targets in less memory than those of the whole vocabulary take."""

    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]: ...


@runtime_checkable
class ScoresIntensities(Protocol):
    """Knows tokens as levels of an intensity, and the mass around any intensity between them, with its gradient."""

    def log_mass(
        self, hidden: Float[Tensor, "*batch width"], intensities: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]: ...


def without_logits(head: Head, places: int, vocabulary: int) -> bool:
    """Whether the log-probabilities of so many targets are better computed without those of the whole vocabulary.

    Heads that mix or factor the vocabulary have more to hold than its logits. A softmax's logits are the quicker way
    while there are few of them.
    """
    if not isinstance(head, ScoresTargets):
        return False
    return not head.free_logits or (vocabulary >= LARGE and places * vocabulary > LOGITS)


def target_log_probs(
    head: Head, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """log p(target | hidden) of each target."""
    if isinstance(head, ScoresTargets):
        return head.log_probs(hidden, targets)
    return torch.log_softmax(head(hidden), -1).gather(-1, targets[..., None]).squeeze(-1)
