"""Training on a long text: batches are the next segments of its columns, and the model's memory goes along with them.

    batch 0:  column 0 [the first tokens]   column 1 [the first tokens of the next piece]   …
    batch 1:  column 0 [what comes next]    column 1 [what comes next]                      …

Rows of a batch know their column. Their memory is looked up before a step and written back after it, so that parts of
a batch and several processes, which have rows of their own, give the numbers that one would. It is emptied where an
epoch begins, and kept in checkpoints.
"""

import copy
from collections.abc import Generator as Steps
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Generator, Tensor, nn

from ebar import together
from ebar.data.pretraining_inputs import PretrainingBatch, PretrainingText, read_inputs
from ebar.data.stream import Stream
from ebar.errors import UserError
from ebar.maths.rows import count_rows, named_tensors, put, take
from ebar.models.construction import Autoregressive
from ebar.models.continued import Carried, Continued, Segment, begin, carrying
from ebar.training.batches import to_device
from ebar.types import Clock, Loss, Objective, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A source of batches: the segments of a stream that is read in so many columns."""

    stream: Stream
    columns: int
    seed: int = 0
    device: str = "cpu"

    @staticmethod
    def to_train(stream: Stream, columns: int, *, seed: int, device: str) -> "Columns":
        """A text that does not fill a batch is refused."""
        if len(stream.tokens) < columns * stream.length:
            raise UserError(
                f"The training text has {len(stream.tokens):,} tokens, fewer than one batch of {columns:,} columns of "
                f"{stream.length:,}: give more text, a smaller training.batch_size or a smaller data.length."
            )
        return Columns(stream=stream, columns=columns, seed=seed, device=device)

    @staticmethod
    def held_out(stream: Stream, columns: int, *, device: str) -> "Columns":
        """As many columns, but none shorter than a segment: each begins without memory."""
        return Columns(stream=stream, columns=max(1, min(columns, len(stream))), device=device)

    def __len__(self) -> int:
        return self.batches_in(0)

    def batches_in(self, epoch: int) -> int:
        """Lengths of segments may be drawn anew in each epoch."""
        return len(self._segments(epoch))

    def at(self, epoch: int, start: int) -> Iterator[Segment]:
        texts, lengths = self.stream.columns(self.columns), self._segments(epoch)
        begin = sum(lengths[:start])
        for number, length in enumerate(lengths[start:], start):
            yield to_device(self._segment(texts[:, begin : begin + length], number == 0), self.device)
            begin += length

    def _segments(self, epoch: int) -> list[int]:
        total = len(self.stream.tokens) // self.columns
        return self.stream.segments(total, seed=self.seed, epoch=epoch)

    def _segment(self, tokens: Int[Tensor, "columns length"], first: bool) -> Segment:
        rows, length = tokens.shape
        # A step on fewer tokens is a smaller step (Merity et al. 2018), where lengths are drawn at random.
        rate = 1.0 if self.stream.varied is None else length / self.stream.length
        return Segment(
            x=Sequences(tokens.long(), torch.full((rows,), length)),
            column=torch.arange(rows),
            begins=torch.full((rows,), first),
            rate=torch.full((rows,), rate, dtype=torch.float64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingColumns:
    """A source of batches: the inputs of a text to pretrain on that is read in so many columns."""

    text: PretrainingText
    columns: int
    seed: int = 0
    device: str = "cpu"
    _backwards: PretrainingText = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_backwards", self.text.backwards())

    @staticmethod
    def to_train(text: PretrainingText, columns: int, *, seed: int, device: str) -> "PretrainingColumns":
        """A text that does not fill a batch is refused."""
        if text.inputs(columns) == 0:
            raise UserError(
                f"The training text has {len(text.tokens):,} tokens, fewer than one batch of {columns:,} columns of "
                f"{text.form.length:,}: give more text, a smaller training.batch_size or a smaller data.length."
            )
        return PretrainingColumns(text=text, columns=columns, seed=seed, device=device)

    @staticmethod
    def held_out(text: PretrainingText, columns: int, *, device: str) -> "PretrainingColumns":
        """As many columns, but none shorter than an input; the same inputs whenever they are asked for."""
        return PretrainingColumns(
            text=text, columns=max(1, min(columns, len(text.tokens) // text.form.length)), device=device
        )

    def __len__(self) -> int:
        return self.text.inputs(self.columns)

    def at(self, epoch: int, start: int) -> Iterator[PretrainingBatch]:
        for number in range(start, len(self)):
            batch = read_inputs(self.text, self._backwards, self.columns, number, seed=self.seed, epoch=epoch)
            yield to_device(batch, self.device)


class StreamMemory(nn.Module):
    """Where the model stands in each column, as buffers: a player without optimiser keeps it in the checkpoints.

    `objective` is the state of the objective itself, where it has any.
    """

    def __init__(self, carried: Any, objective: nn.Module | None = None):
        super().__init__()
        self._form, self.columns = carried, count_rows(carried)
        for name, tensor in named_tensors(carried, "carried").items():
            self.register_buffer(name.replace(".", "_"), tensor.clone())
        self.objective = objective
        self.gone_on = torch.zeros(self.columns, dtype=torch.uint8)  # which columns this process has, since `gather`

    @property
    def carried(self) -> Any:
        """The buffers as what they are: a tree of tensors, a row for each column."""
        return _filled(self._form, iter(self.buffers(recurse=False)))

    def gather(self) -> None:
        """Each process has gone on with its own rows only: now all have all of them. All processes must call it."""
        if together.world_size() == 1:
            return
        owned = [mask.bool() for mask in together.gather(self.gone_on)]
        for tensor in self.buffers(recurse=False):
            for part, columns in zip(together.gather(tensor), owned, strict=True):
                tensor[columns] = part[columns]
        self.gone_on.zero_()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        stored = {name: state_dict.get(prefix + name) for name, _ in self.named_buffers(recurse=False)}
        own = dict(self.named_buffers(recurse=False))
        other = [name for name, value in stored.items() if value is None or value.shape != own[name].shape]
        carries = {name for name in state_dict if name.startswith(f"{prefix}carried_")}
        if other or carries - {prefix + name for name in own}:
            error_msgs.append(
                "it carries another memory (of another number of columns, another size or another backbone): give the "
                "options it was begun with, or choose another name"
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


@runtime_checkable
class GoesOn(Protocol):
    """An objective whose losses depend on what is remembered of earlier batches."""

    def empty_memory(self, rows: int) -> Any:
        """Of columns of which nothing has been read: a tree of tensors, rows first."""

    def losses_after(self, memory: Any, batch: Any, clock: Clock, *, generator: Generator) -> Steps[Loss, None, Any]:
        """The losses of the next batch; the memory after it is returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftToRight:
    """Any objective that reads tokens, on segments of a text that its model goes on with."""

    objective: Objective
    model: Autoregressive

    def empty_memory(self, rows: int) -> Carried:
        return begin(self.model, rows)

    def losses_after(
        self, memory: Carried, batch: Segment, clock: Clock, *, generator: Generator
    ) -> Steps[Loss, None, Carried]:
        tokens, rate = batch.x.tokens, float(batch.rate[0])
        continued = Continued(self.model, memory, own=tokens)
        for loss in _with_model(self.objective, continued).losses(batch.x, clock, generator=generator):
            yield loss._replace(rate=loss.rate * rate)
        if (after := continued.after) is None:  # nobody has read just these tokens
            with torch.no_grad():
                _, after = continued.read(tokens)
        return after


@dataclass(frozen=True, slots=True, kw_only=True)
class OnStream:
    """An objective whose model goes on, in each row, from what it remembers of the row's column."""

    objective: GoesOn
    memory: StreamMemory

    @staticmethod
    def of(objective: Any, model: object, columns: Columns | PretrainingColumns) -> "OnStream":
        """For a model whose backbone carries a memory, and an objective that reads tokens or keeps its own memory."""
        state = getattr(objective, "memory", None)
        goes_on = objective if isinstance(objective, GoesOn) else _left_to_right(objective, model)
        empty = goes_on.empty_memory(columns.columns)
        memory = StreamMemory(empty, state if isinstance(state, nn.Module) else None)
        return OnStream(objective=goes_on, memory=memory)

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        """The objective's own; the memory after them is written back when all have been taken."""
        after = yield from self.objective.losses_after(self._before(batch), batch, clock, generator=generator)
        put(self.memory.carried, batch.column, after)
        if together.counts():
            self.memory.gone_on[batch.column.cpu()] = 1

    def _before(self, batch: Any) -> Any:
        if bool(batch.begins.all()):
            return self.objective.empty_memory(len(batch.begins))
        carried = take(self.memory.carried, batch.column)
        if bool(batch.begins.any()):
            fresh = self.objective.empty_memory(int(batch.begins.sum()))
            put(carried, batch.begins.nonzero().squeeze(1), fresh)
        return carried


def _left_to_right(objective: Any, model: object) -> LeftToRight:
    own, _ = carrying(model)
    if getattr(objective, "model", None) is not model:
        raise UserError(f"{type(objective).__name__} has no model that could go on with a stream.")
    reads_vectors = (("negatives", "langevin", "autoregressive"), ("mixing", "top_k", "sample"))
    for option, value, other in reads_vectors:
        if getattr(objective, option, None) == value:
            raise UserError(
                f"With {option} {value} an objective puts vectors in place of tokens, which a model does not read "
                f"in the middle of a stream: choose {option} {other}."
            )
    return LeftToRight(objective=objective, model=own)


def gather_memories(module: nn.Module) -> None:
    """Makes memories whole that are held in parts by several processes, all of which must call it."""
    for part in module.modules():
        if isinstance(part, StreamMemory):
            part.gather()


def _with_model(objective: Objective, model: Continued) -> Objective:
    """The same objective, its state included, for the model where it stands now."""
    same = copy.copy(objective)
    object.__setattr__(same, "model", model)  # a frozen dataclass, whose own copy this is
    return same


def _filled(form: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree of the same form with other tensors, in the order of `named_tensors`."""
    if isinstance(form, Tensor):
        return next(leaves)
    branches = [_filled(branch, leaves) for branch in form]
    return type(form)(*branches) if hasattr(form, "_fields") else type(form)(branches)
