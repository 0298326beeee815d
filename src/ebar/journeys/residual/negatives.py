"""Draws of q for many prefixes, on disk: the negatives of noise-contrastive estimation, and what log Z is estimated by.

    <folder>/header.json              what they were drawn for: prefixes, model, number of draws, seed
    <folder>/part-000000.safetensors  tokens and lengths of a block of draws, or their energies

A part depends on the seed and its number alone and is written completely or not at all, so that an interrupted call
can be repeated and gives the same draws. Without prefixes every row has draws of the whole sequence.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors.torch import save
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.models.tilted import measured_energy, propose
from ebar.progress import bar
from ebar.shards import Workers, keep_parts, part_name, shard_seed
from ebar.store.stages import description_of, open_stage, read_tensors
from ebar.training.batches import to_device
from ebar.types import Context, Distribution, Sequences

MEMORY = 1 << 28  # bytes of parts kept in memory


class Part(NamedTuple):
    """A block of draws: some contexts with all of their draws, or some of the draws of one context."""

    contexts: range
    draws: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """How rows × draws are cut into parts of at most `at_once`."""

    rows: int
    draws: int
    at_once: int

    @property
    def contexts_at_once(self) -> int:
        return max(1, self.at_once // self.draws)

    @property
    def pieces(self) -> int:
        """Parts that the draws of one context are cut into: several only where it has more than `at_once`."""
        return -(-self.draws // self.at_once)

    def __len__(self) -> int:
        return -(-self.rows // self.contexts_at_once) * self.pieces

    def part(self, number: int) -> Part:
        block, piece = divmod(number, self.pieces)
        first = block * self.contexts_at_once
        begin, end = (past * self.draws // self.pieces for past in (piece, piece + 1))
        return Part(range(first, min(first + self.contexts_at_once, self.rows)), range(begin, end))

    def parts_of(self, row: int) -> range:
        """The parts that hold a context's draws."""
        first = row // self.contexts_at_once * self.pieces
        return range(first, first + self.pieces)


@dataclass(frozen=True, slots=True)
class Negatives:
    """`draws` draws of q for each of `len` contexts, in a folder. A row holds those of one context."""

    folder: Path
    layout: Partition
    _read: "OrderedDict[int, dict[str, Tensor]]" = field(default_factory=OrderedDict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.layout.rows

    @property
    def draws(self) -> int:
        """For each context."""
        return self.layout.draws

    def fetch(self, rows: Int[Tensor, " selected"], *, draws: Int[Tensor, " some"] | None = None) -> Sequences:
        """The draws of some contexts, context-major: all of them, or those of the numbers given."""
        return Sequences.join([self._row(row, draws) for row in rows.tolist()]).trimmed()

    def one_each(self, draws: Int[Tensor, " rows"]) -> Sequences:
        """One draw of each context, by its number."""
        return Sequences.join([self.fetch(torch.tensor([row]), draws=one[None]) for row, one in enumerate(draws)])

    def _row(self, row: int, draws: Int[Tensor, " some"] | None) -> Sequences:
        if not 0 <= row < len(self):
            raise IndexError(f"there are draws of {len(self)} contexts, none of a row {row}")
        numbers = self.layout.parts_of(row)
        inside = row - self.layout.part(numbers[0]).contexts.start
        held = [self._part(number) for number in numbers]
        x = Sequences.join([Sequences(one["tokens"][inside].long(), one["lengths"][inside].long()) for one in held])
        return x if draws is None else x.select(draws)

    def _part(self, number: int) -> dict[str, Tensor]:
        """Read from disk once, as long as there is room for it."""
        if number not in self._read:
            self._read[number] = read_tensors(self.folder / part_name(number))
        self._read.move_to_end(number)
        while len(self._read) > 1 and sum(one.nbytes for held in self._read.values() for one in held.values()) > MEMORY:
            self._read.popitem(last=False)
        return self._read[number]


def draw_negatives(
    folder: Path, q: Distribution, context: Context | None, n: int, *, rows: int | None = None, seed: int,
    at_once: int = 256, what: str = "drawing", stage: str = "", workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Negatives:  # fmt: skip
    """n draws of q for each row of the context, or for each of `rows` without one; those on disk are not drawn again.

    From q's full softmax: a truncated one would break the support condition of noise-contrastive estimation.
    `at_once` draws make a part, which is a shard: it bounds memory, and the draws depend on it. `stage` is their name
    in a run.
    """
    rows = context.rows if context is not None else rows or 0
    if n < 1 or rows < 1 or at_once < 1:
        raise UserError(f"Draws need a prefix and a draw at least, not {rows:,} and {n:,}.")
    layout = Partition(rows=rows, draws=n, at_once=at_once)
    made = {
        "rows": rows, "draws": n, "size of parts": at_once, "seed": seed,
        "prefixes": None if context is None else context.given, "base model": q, "space": q.space,
        **workers.description,
    }  # fmt: skip
    with open_stage(folder, made, seed=seed, name=stage) as opened, bar(what, rows * n, "draws") as progress:
        common = _Drawing(q, context, layout, seed)
        for number in keep_parts(opened, _drawn, common, range(len(layout)), workers=workers):
            part = layout.part(number)
            progress.advance(len(part.contexts) * len(part.draws))
    return Negatives(folder, layout)


class _Drawing(NamedTuple):
    """What all parts have in common."""

    q: Distribution
    context: Context | None
    layout: Partition
    seed: int


def _drawn(common: _Drawing, number: int) -> bytes:
    q, context, part = common.q, common.context, common.layout.part(number)
    device, shape = device_of(q), (len(part.contexts), len(part.draws))
    generator = Generator(device=device).manual_seed(shard_seed(common.seed, number))
    n = shape[1]
    if context is None:
        n = shape[0] * shape[1]
    else:
        rows = torch.arange(part.contexts.start, part.contexts.stop, device=context.given.lengths.device)
        context = to_device(context.select(rows), str(device))
    x, _ = propose(q, n, context, generator)
    kind = torch.uint16 if q.space.vocabulary <= 1 << 16 else torch.int32
    tokens = torch.where(x.mask(), x.tokens, 0).to("cpu", kind)
    return save(
        {
            "tokens": tokens.view(*shape, -1).contiguous(),
            "lengths": x.lengths.to("cpu", torch.int32).view(shape).contiguous(),
        }
    )


def energies_of(
    folder: Path, energy: nn.Module, drawn: Negatives, context: Context | None, *, stage: str = "",
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Float[Tensor, "rows draws"]:  # fmt: skip
    """E(x, C) of every draw, in float64; those that are on disk already are not computed again.

    One prefix at a time: energies then do not depend on how draws are stored.
    """
    found = torch.empty(len(drawn), drawn.draws, dtype=torch.float64)

    def rows_of(number: int) -> list[tuple[Sequences, Context | None]]:
        part = drawn.layout.part(number)
        numbers = torch.arange(part.draws.start, part.draws.stop)
        ones = [torch.tensor([row]) for row in part.contexts]
        return [(drawn.fetch(one, draws=numbers), None if context is None else context.select(one)) for one in ones]

    made = {"energy": energy, "draws": description_of(drawn.folder), **workers.description}
    with open_stage(folder, made, name=stage) as opened, bar("energies", found.numel(), "draws") as progress:
        for number in keep_parts(opened, _energies, energy, range(len(drawn.layout)), workers=workers, job=rows_of):
            part, values = drawn.layout.part(number), opened.tensors(part_name(number), "energies")["energies"]
            found[part.contexts.start : part.contexts.stop, part.draws.start : part.draws.stop] = values
            progress.advance(values.numel())
    return found


@torch.no_grad()
def _energies(energy: nn.Module, rows: list[tuple[Sequences, Context | None]]) -> bytes:
    device = str(next(energy.parameters()).device)
    found = [measured_energy(energy, *to_device(row, device)).double().cpu() for row in rows]
    return save({"energies": torch.stack(found)})
