"""Laws of backbones and heads."""

from typing import Any

import torch
from torch import Generator, Tensor

from ebar.backbones.backbone import Backbone, Quick, Reads
from ebar.heads.head import Head
from ebar.modes import evaluation_mode
from ebar.testing.laws import require, require_close
from ebar.types import Context


@torch.no_grad()
def check_backbone(
    backbone: Backbone,
    *,
    vocabulary: int,
    length: int,
    rows: int = 4,
    context: Context | None = None,
    tolerance: float | None = None,
) -> None:
    """Read at once, by segments, step by step or by a stepper: the hidden vectors are the same, and causal.

    `rows` is a multiple of the context's rows.
    """
    tokens = torch.randint(0, vocabulary, (rows, length), generator=Generator().manual_seed(1))
    with evaluation_mode(backbone):
        whole = by_segments(backbone, tokens, context, [length])
        require(whole.shape == (rows, length + 1, backbone.width), "a hidden vector stands before and after each token")
        for lengths in ([1] * length, [1, length - 1] if length > 1 else [1]):
            parts = by_segments(backbone, tokens, context, lengths)
            require_close(parts, whole, f"segments of {lengths} and one pass agree", tolerance=tolerance)
        if isinstance(backbone, Reads):
            read = backbone.read(backbone.embed(tokens), context)
            require_close(read, whole, "read and advance agree", tolerance=tolerance)
        if isinstance(backbone, Quick):
            stepped = by_stepper(backbone, tokens, context)
            require_close(stepped, whole, "the stepper and advance agree", tolerance=tolerance)
        for place in range(length):
            changed = tokens.clone()
            changed[:, place] = (changed[:, place] + 1) % vocabulary
            other = by_segments(backbone, changed, context, [length])[:, : place + 1]
            require_close(other, whole[:, : place + 1], f"token {place} changes nothing before it", tolerance=tolerance)


def by_segments(backbone: Backbone, tokens: Tensor, context: Context | None, lengths: list[int]) -> Tensor:
    """Hidden vectors before each token and after the last: `start`, then `advance` by segments."""
    first, state = backbone.start(len(tokens), context)
    parts = [first[:, None]]
    for segment in torch.split(tokens, lengths, 1):
        hidden, state = backbone.advance(segment, state)
        parts.append(hidden)
    return torch.cat(parts, 1)


def by_stepper(backbone: Any, tokens: Tensor, context: Context | None) -> Tensor:
    """The same, token by token, by the stepper."""
    first, state = backbone.start(len(tokens), context)
    stepper = backbone.stepper(state)
    return torch.stack([first, *(stepper.step(token).clone() for token in tokens.unbind(1))], 1)


def check_head(head: Head, *, width: int, vocabulary: int, tolerance: float | None = None) -> None:
    """A distribution over the vocabulary: finite, summing to 1, its log-probabilities of targets those of its logits.

    `free_logits` says whether the logits may be shifted; where it is False they are log-probabilities already. A head
    may have `log_probs(hidden, targets)`, the same numbers for given targets in less memory, and the same gradients.
    """
    generator = Generator().manual_seed(1)
    parameters = list(getattr(head, "parameters", list)())
    dtype = parameters[0].dtype if parameters else torch.float32
    hidden = torch.randn(5, 3, width, generator=generator).to(dtype).requires_grad_()
    with evaluation_mode(head):
        logits = head(hidden)
        require(logits.shape == (5, 3, vocabulary), "a head gives one score for each token of the vocabulary")
        require(logits.isfinite().all(), "scores are finite")
        log_probs = logits.double().log_softmax(-1)
        if not head.free_logits:
            law = "a head without free logits gives log-probabilities, which sum to 1"
            require_close(logits.double(), log_probs, law, tolerance=tolerance or 1e-4)
        for_targets: Any = getattr(head, "log_probs", None)
        if callable(for_targets):
            targets = torch.randint(0, vocabulary, (5, 3), generator=generator)
            wanted = log_probs.gather(-1, targets[..., None])[..., 0]
            found = for_targets(hidden, targets).double()
            law = "log-probabilities of targets agree with the logits"
            require_close(found, wanted, law, tolerance=tolerance or 1e-5)
            learnt = [hidden, *(parameter for parameter in parameters if parameter.requires_grad)]
            weights = torch.randn(found.shape, generator=generator, dtype=torch.float64)
            require(found.requires_grad, "log-probabilities of targets have a gradient")
            law = "log-probabilities of targets have the gradients that the logits give"
            for one, other in zip(*(_gradients(each, weights, learnt) for each in (found, wanted)), strict=True):
                require_close(one, other, law, tolerance=tolerance or 1e-4)


def _gradients(outputs: Tensor, weights: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Of the weighted sum; 0 where an input does not matter."""
    found = torch.autograd.grad((outputs * weights).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(one) if each is None else each for one, each in zip(inputs, found, strict=True)]
