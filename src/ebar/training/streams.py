"""Training on a long text: batches are the next segments of its columns, and the model's memory goes along with them.

    batch 0:  column 0 [the first tokens]   column 1 [the first tokens of the next piece]   …
    batch 1:  column 0 [what comes next]    column 1 [what comes next]                      …

Rows of a batch know their column. Their memory is looked up before a step and written back after it, so that parts of
a batch and several processes, which have rows of their own, give the numbers that one would. It is emptied where an
epoch begins, and kept in checkpoints.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor, nn

from ebar.data.stream import Stream
from ebar.errors import UserError
from ebar.maths.rows import named_tensors, put, rows_of_process, take
from ebar.models.construction import Autoregressive
from ebar.models.continued import Carried, Continued, Segment, begin, carrying
from ebar.training import distributed
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


class StreamMemory(nn.Module):
    """Where the model stands in each column, as buffers: a player without optimiser keeps it in the checkpoints.

    `objective` is the state of the objective itself, where it has any.
    """

    def __init__(self, carried: Carried, objective: nn.Module | None = None):
        super().__init__()
        self._form, self.columns = carried, len(carried.last)
        for name, tensor in named_tensors(carried, "carried").items():
            self.register_buffer(name.replace(".", "_"), tensor.clone())
        self.objective = objective

    @property
    def carried(self) -> Carried:
        """The buffers as what they are."""
        buffers = iter(self.buffers(recurse=False))
        found: Carried = _filled(self._form, buffers)
        return found

    def gather(self) -> None:
        """Each process has gone on with its own rows only: now all have all of them. All processes must call it."""
        ranks = distributed.world_size()
        if ranks == 1:
            return
        for tensor in self.buffers(recurse=False):
            parts = distributed.gather(tensor)
            own = [rows_of_process(self.columns, rank=rank, ranks=ranks) for rank in range(ranks)]
            tensor.copy_(torch.cat([part[rows] for part, rows in zip(parts, own, strict=True)]))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OnStream:
    """An objective whose model goes on, in each row, from what it remembers of the row's column."""

    objective: Objective
    model: Autoregressive
    memory: StreamMemory

    @staticmethod
    def of(objective: Any, model: object, columns: Columns) -> "OnStream":
        """For a model whose backbone carries a memory, and an objective that reads tokens."""
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
        state = getattr(objective, "memory", None)
        memory = StreamMemory(begin(own, columns.columns), state if isinstance(state, nn.Module) else None)
        return OnStream(objective=objective, model=own, memory=memory)

    def losses(self, batch: Segment, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        """The objective's own, on the segment; the memory after it is written back when all have been taken."""
        tokens, rate = batch.x.tokens, float(batch.rate[0])
        continued = Continued(self.model, self._before(batch), own=tokens)
        for loss in _with_model(self.objective, continued).losses(batch.x, clock, generator=generator):
            yield loss._replace(rate=loss.rate * rate)
        if (after := continued.after) is None:  # nobody has read just these tokens
            with torch.no_grad():
                _, after = continued.read(tokens)
        put(self.memory.carried, batch.column, after)

    def _before(self, batch: Segment) -> Carried:
        if bool(batch.begins.all()):
            return begin(self.model, len(batch.begins))
        carried: Carried = take(self.memory.carried, batch.column)
        if bool(batch.begins.any()):
            put(carried, batch.begins.nonzero().squeeze(1), begin(self.model, int(batch.begins.sum())))
        return carried


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
