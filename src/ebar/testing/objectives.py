"""Laws of objectives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, nn

from ebar.maths.rows import count_rows, take
from ebar.testing.laws import require, require_close
from ebar.types import Clock, Loss, Objective

START = Clock(step=0, epoch=0)


def check_objective(
    objective: Objective, batch: Any, modules: Sequence[nn.Module], *, clock: Clock = START, additive: bool = True
) -> None:
    """Finite losses with a gradient for the modules, decided by the generator alone; modes are left as they were.

    `additive`: the mean over the pieces of a batch, weighted by `Loss.weight`, is the loss of the whole batch, which is
    what accumulation and several processes compute. Say False where an objective normalises over its batch. Dropout
    must be 0 for the comparison of pieces.
    """
    modes = [module.training for module in modules]
    for module in modules:
        module.zero_grad()
    losses = _losses(objective, batch, clock)
    require(len(losses) > 0, "an objective yields at least one loss")
    for loss in losses:
        require(loss.value.shape == (), "a loss is one number")
        require(loss.value.isfinite(), f"the loss of {loss.player} is finite")
        require(loss.weight > 0, "a loss says over how many terms it is a mean")
        require(all(isinstance(figure, float) for figure in loss.metrics.values()), "metrics are plain numbers")
        if loss.value.requires_grad:
            loss.value.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    learning = [weight for module in modules for weight in module.parameters() if weight.requires_grad]
    moved = any(weight.grad is not None and bool(weight.grad.any()) for weight in learning)
    require(moved, "some loss has a gradient for the modules")
    require([module.training for module in modules] == modes, "an objective leaves modules in the mode they were in")
    again = _losses(objective, batch, clock)
    require_close(
        torch.stack([loss.value for loss in again]), torch.stack([loss.value for loss in losses]),
        "the generator and torch's own state decide a loss", tolerance=0.0,
    )  # fmt: skip
    if additive:
        _check_pieces(objective, batch, clock, losses)


def _losses(objective: Objective, batch: Any, clock: Clock) -> list[Loss]:
    torch.manual_seed(0)
    return list(objective.losses(batch, clock, generator=Generator().manual_seed(1)))


def _check_pieces(objective: Objective, batch: Any, clock: Clock, whole: list[Loss]) -> None:
    rows = count_rows(batch)
    cut = max(1, rows // 3)
    pieces = [_losses(objective, take(batch, part), clock) for part in (slice(0, cut), slice(cut, rows))]
    for number, loss in enumerate(whole):
        weights = torch.tensor([piece[number].weight for piece in pieces], dtype=torch.float64)
        values = torch.stack([piece[number].value.detach().double() for piece in pieces])
        total = ((weights * values).sum() / weights.sum()).to(loss.value.dtype)
        require_close(total, loss.value.detach(), "pieces of a batch, weighted, make up the whole", tolerance=1e-4)
