"""Several processes, and parts of a batch in each, that compute one batch to the numbers of the whole batch at once.

Every part has some consecutive rows. What is random is drawn for the rows of all by each of them, from a generator in
the same state, and each keeps its own: numbers belong to a row, not to a process or to a moment. What is normalised
over a batch (weights, baselines) is joined first. Alone, or outside `sharing`, nothing is joined and numbers are drawn
as always.

Parts of one process are computed one after another, so that only one of them is in memory. One that joins cannot know
yet what the later ones have: it is given up (`Waits`), all are computed without gradients up to there, and then once
more with what is joined (`ebar.training.loop`). Until it has joined, an objective changes nothing that it cannot change
twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Generator, Tensor

from ebar.maths.randomness import folded
from ebar.maths.rows import Place
from ebar.modes import modules_in

Found = TypeVar("Found")


class Waits(BaseException):  # not to be caught by what catches errors
    """A part has joined, and the others have not come as far."""


class Parts:
    """What the parts of one batch that this process computes one after another know of one another.

    All of them go through the same events, in the same order: a draw, a value found once, rows joined.
    """

    def __init__(self, number: int):
        self.number = number
        self.events: list[Any] = []
        self.kept: dict[tuple[int, int], tuple[Any, int]] = {}  # of a part: what it found, and the event after that
        self.offered: dict[int, list[Tensor]] = {}

    def join(self) -> None:
        """After each part has offered its rows: they are joined."""
        if len(self.offered) != self.number:
            raise ValueError("one part of a batch joins its rows where another does not")
        self.events.append(_of_everyone([self.offered[part] for part in range(self.number)]))
        self.offered = {}


class Share:
    """One part, on its way through the events."""

    def __init__(self, place: Place, part: int = 0, parts: Parts | None = None):
        self.place, self.part, self.parts = place, part, Parts(1) if parts is None else parts
        self.at = 0

    def event(self, make: Callable[[], Found]) -> Found:
        """What the first part made of this event."""
        events = self.parts.events
        if self.at == len(events):
            made = make()
            events.append(made)
        found: Found = events[self.at]
        self.at += 1
        return found

    def join(self, own: list[Tensor]) -> list[list[Tensor]]:
        """The rows of each part of each process, in their order."""
        if self.parts.number == 1:
            return _of_everyone([own])
        if self.at == len(self.parts.events):
            self.parts.offered[self.part] = [rows.detach() for rows in own]
            raise Waits
        found: list[list[Tensor]] = self.event(list)
        return found


_share: ContextVar[Share | None] = ContextVar("share", default=None)  # None: the rows at hand are all there are
_by_row: ContextVar[bool] = ContextVar("by_row", default=False)
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
def sharing(share: Share | None) -> Iterator[None]:
    """Inside, the rows at hand are a part of a batch: all parts draw and join the same number of times.

    None: the rows at hand are all there are again.
    """
    before = _share.set(share)
    try:
        yield
    finally:
        _share.reset(before)


def is_shared() -> bool:
    """Whether the rows at hand are a part of a batch that has others."""
    return _share.get() is not None


def counts() -> bool:
    """Whether the rows at hand are more than a stand-in."""
    share = _share.get()
    return share is None or share.place.counted


def in_all(rows: int) -> int:
    """How many there are in the whole batch, of what each row has as many of."""
    return place_of(rows)[1]


def place_of(rows: int) -> tuple[int, int]:
    """Where this part's begin among those of the whole batch, and how many there are in all.

    `rows` is the number of rows at hand, or of what each of them has as many of.
    """
    share = _share.get()
    if share is None:
        return 0, rows
    place = share.place
    if rows % place.rows:
        raise ValueError(f"{place.rows} rows of a batch cannot have {rows} of anything evenly")
    each = rows // place.rows
    return place.first * each, place.everywhere * each


def drawn(rows: int, draw: Callable[[int], Tensor], generator: Generator) -> Tensor:
    """`draw(rows)` random rows, by the generator: those that one process would have drawn for these among all others.

    Every part draws all of them, from the state that the generator was in for the first part.
    """
    share = _share.get()
    if share is None:
        return draw(rows)
    first, everywhere = place_of(rows)
    now = generator.get_state()
    state = share.event(lambda: now)
    again = state is not now  # the generator has gone on from there already
    if again:
        generator.set_state(state)
    found = draw(everywhere)[first : first + rows]
    if again:
        generator.set_state(now)
    return found


def once(find: Callable[[], Found]) -> Found:
    """What the first part of this process finds, for all its parts: it must not depend on the rows at hand."""
    share = _share.get()
    return find() if share is None else share.event(find)


def kept(find: Callable[[], Found]) -> Found:
    """What this part finds, without gradients; where it is computed once more this is not found anew."""
    share = _share.get()
    if share is None or share.parts.number == 1:
        return find()
    known, place = share.parts.kept, (share.part, share.at)
    if place not in known:
        found = find()
        known[place] = found, share.at
    found, share.at = known[place]
    return found


@contextmanager
def by_row() -> Iterator[None]:
    """Inside, models draw each row with numbers of its own, as they do where rows are shared (`Uniform`)."""
    before = _by_row.set(True)
    try:
        yield
    finally:
        _by_row.reset(before)


def draws_by_row() -> bool:
    """Whether each row of a draw has numbers of its own."""
    return _by_row.get() or is_shared()


def is_even(rows: int) -> bool:
    """Whether each row at hand has as many of something, so that it has a place in the whole batch."""
    share = _share.get()
    return share is None or rows % share.place.rows == 0


def own_seed(rows: int, generator: Generator) -> int:
    """A seed drawn once for all parts; each has one of its own where what is to be drawn has no place in the batch."""
    seed = once(lambda: int(torch.randint(2**62, (), device=generator.device, generator=generator)))
    share = _share.get()
    return seed if share is None or is_even(rows) else folded(seed, share.place.first)


class Uniform:
    """Numbers below 1 for draws that take several steps: those of a row, whatever becomes of the others.

    Only a seed is drawn from the generator. Rows that are not as many for each row of the batch have other numbers in
    parts than they would have in one piece.
    """

    def __init__(self, rows: int, generator: Generator):
        self.rows, self.device = rows, generator.device
        self.seed = own_seed(rows, generator)
        self.first, self.everywhere = place_of(rows) if is_even(rows) else (0, rows)

    def of(self, block: slice) -> Iterator[Float[Tensor, " block"]]:
        """The numbers of some of the rows, step by step."""
        generator = Generator(self.device).manual_seed(self.seed)
        while True:
            numbers = torch.rand(self.everywhere, dtype=torch.float64, device=self.device, generator=generator)
            yield numbers[self.first : self.first + self.rows][block]


def joined(*rows: Shaped[Tensor, "_ ..."]) -> list[Tensor]:
    """Each tensor with the rows of all parts, in their order; second dimensions that differ are filled up with zeros.

    Only the rows at hand have a gradient: give `alike` what is computed from them all.
    """
    share = _share.get()
    if share is None:
        return list(rows)
    own = [tensor if share.place.counted else tensor[:0] for tensor in rows]
    here = share.part * world_size() + rank()
    found = []
    for tensor, everyone in zip(own, share.join(own), strict=True):
        width = everyone[here].shape[1:2]
        live = _padded(tensor, *width) if width else tensor
        found.append(torch.cat([*everyone[:here], live, *everyone[here + 1 :]]))
    return found


def alike(value: Float[Tensor, ""], weight: int, total: int) -> Float[Tensor, ""]:
    """A value that all parts compute alike from what is joined, as a term of a loss that has this weight of the total.

    The loss is the mean over parts by their weights, in which each part brings the gradient of its own rows alone.
    """
    return _Scaled.apply(value, total / weight) if is_shared() else value  # type: ignore[no-untyped-call]


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


def _of_everyone(own: list[list[Tensor]]) -> list[list[Tensor]]:
    """Of each tensor the rows of every part of every process: all first parts, all second parts …, all of one width."""
    return [_gathered(list(parts)) for parts in zip(*own, strict=True)]


def _gathered(parts: list[Tensor]) -> list[Tensor]:
    sizes = torch.tensor([[len(part), *part.shape[1:2]] for part in parts])
    each = torch.stack(gather(sizes), 1)  # part, process
    rows = int(each[..., 0].max())
    wide = [_padded(part, int(each[..., 1].max())) if part.dim() > 1 else part for part in parts]
    padded = torch.stack([torch.cat([part, part.new_zeros(rows - len(part), *part.shape[1:])]) for part in wide])
    truth = padded.dtype == torch.bool  # gloo has no such numbers
    everyone = torch.stack(gather(padded.to(torch.uint8) if truth else padded.detach()), 1)
    everyone = everyone.bool() if truth else everyone
    counts = each[..., 0].flatten().tolist()
    return [one[:count] for one, count in zip(everyone.flatten(0, 1), counts, strict=True)]


def _padded(rows: Tensor, width: int) -> Tensor:
    """Second dimensions filled up with zeros."""
    return torch.nn.functional.pad(rows, [0, 0] * (rows.dim() - 2) + [0, width - rows.shape[1]])


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None
