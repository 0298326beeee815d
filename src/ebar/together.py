"""Several processes that compute one batch together, to the numbers that one process would have.

Each of them has some consecutive rows of the batch. What is random is drawn for the rows of all processes by every one
of them, from generators that stand alike, and each keeps its own rows: numbers belong to a row, not to a process. What
is normalised over a batch (weights, baselines) is gathered first. Alone, or outside `sharing`, nothing is gathered and
numbers are drawn as always.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

from ebar.modes import modules_in

# None: this process's rows are all there are. Else whether they count, or only stand in where there are none for it.
_counted: ContextVar[bool | None] = ContextVar("counted", default=None)
_whole: ContextVar[bool] = ContextVar("whole", default=False)  # whether weights have been gathered already


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is. Rank 0 writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(tensor: Tensor) -> list[Tensor]:
    """The tensor of each process, by rank; they share their shape."""
    if world_size() == 1:
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(world_size())]
    dist.all_gather(gathered, tensor.contiguous())
    return gathered


@contextmanager
def sharing(counted: bool | None = True) -> Iterator[None]:
    """Inside, the rows of all processes are one batch: all must draw and join the same number of times.

    A process without rows of its own stands in with some that are not `counted`. None: each process for itself again.
    """
    before = _counted.set(counted if world_size() > 1 else None)
    try:
        yield
    finally:
        _counted.reset(before)


def is_shared() -> bool:
    """Whether the rows at hand are a part of a batch that other processes have the rest of."""
    return _counted.get() is not None


def counts() -> bool:
    """Whether the rows at hand are more than a stand-in."""
    return _counted.get() is not False


def in_all(rows: int) -> int:
    """The sum over all processes."""
    return sum(_each(rows)) if is_shared() else rows


def place_of(rows: int) -> tuple[int, int]:
    """Where this process's rows begin among those of all, and how many there are in all."""
    if not is_shared():
        return 0, rows
    each = _each(rows)
    return sum(each[: rank()]) if counts() else 0, sum(each)


def drawn(rows: int, draw: Callable[[int], Tensor]) -> Tensor:
    """`draw(rows)` random rows: those that one process would have drawn for these rows among all others."""
    if not is_shared():
        return draw(rows)
    first, everywhere = place_of(rows)
    found = draw(everywhere)
    return found[first : first + rows] if counts() else found.new_zeros(rows, *found.shape[1:])


def joined(rows: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "all ..."]:
    """The rows of all processes, in their order; second dimensions that differ are filled up with zeros.

    Its gradient is that of the sum of all processes' losses: where each of them computes the same from what is joined,
    and the loss is a weighted mean over processes, each row has the gradient that it would have in one process.
    """
    if not is_shared():
        return rows
    own = rows if counts() else rows[:0]
    width = own.shape[1] if own.dim() > 1 else 0
    each, widths = zip(*(pair.tolist() for pair in gather(torch.tensor([len(own), width]))), strict=True)
    if own.dim() > 1:
        filling = [0, 0] * (own.dim() - 2) + [0, max(widths) - width]
        own = torch.nn.functional.pad(own, filling)
    if own.dtype == torch.bool:
        return _Join.apply(own.to(torch.uint8), each).bool()  # type: ignore[no-untyped-call, no-any-return]
    return _Join.apply(own, each)  # type: ignore[no-untyped-call, no-any-return]


def is_spread(part: object) -> bool:
    """Whether a module's weights are spread over processes (`ebar.training.sharding`)."""
    if world_size() == 1:
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(part, FSDPModule)


def is_share(tensor: Tensor) -> bool:
    """Whether it is this process's share of a tensor that is spread over several."""
    if world_size() == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


@contextmanager
def whole_weights(*parts: object) -> Iterator[None]:
    """Inside, weights that are spread over processes are whole, gathered once. All processes must enter it.

    A model whose weights are spread gathers them in each call, so that a process that calls it once more than others do
    would wait for ever. Inside, each may call it as often as its own rows need.
    """
    spread: list[Any] = [] if _whole.get() or world_size() == 1 else list(filter(is_spread, modules_in(*parts)))
    before = _whole.set(_whole.get() or bool(spread))
    try:
        for part in spread:
            part.unshard()
            part.set_reshard_after_forward(False, recurse=False)
        yield
    finally:
        for part in spread:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()
        _whole.reset(before)


def _each(rows: int) -> list[int]:
    """How many rows each process has; those that only stand in are none."""
    return [int(count) for count in gather(torch.tensor(rows if counts() else 0))]


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, each: tuple[int, ...]) -> Tensor:
        ctx.each = each
        padded = own.new_zeros(max(each), *own.shape[1:])
        padded[: len(own)] = own
        return torch.cat([part[:count] for part, count in zip(gather(padded), each, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        first = sum(ctx.each[: rank()])
        return total[first : first + ctx.each[rank()]], None
