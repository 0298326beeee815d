"""One token at a time through a Hugging Face model, the keys and values of a prefix shared by its continuations."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.models.drawing import Advances

if TYPE_CHECKING:
    from ebar.models.pretrained import Pretrained, ShownPretrained

ROOM = 16  # places to write to at first; twice as many whenever they are full
IDLE = 0.25  # of all slots: rows that have ended are computed on until they are more, as leaving them out is copying
NAME = "ebar_shared_prefix"  # our attention among those of transformers
# What transformers hands to every attention and ours may leave aside: it has one query per row, and dropout is off.
HARMLESS = {"position_ids", "use_cache", "is_causal", "cache_position", "position_embeddings", "cache", "dropout"}


class PretrainedState(NamedTuple):
    """A cache shared by all rows that go on from the same one of its rows: `select` copies nothing.

    The cache itself is never written to: `continued` makes a copy that may be.
    """

    cache: Any  # of transformers: one row for each prefix that was read
    rows: Int[Tensor, " rows"]  # the row of the cache that each row goes on from
    place: int  # tokens of the space read so far
    counts: Bool[Tensor, "held seen"] | None = None  # False on what pads a shorter prefix, on its left; None: all count

    def select(self, rows: Int[Tensor, " selected"]) -> "PretrainedState":
        return self._replace(rows=self.rows[rows])

    @property
    def in_order(self) -> bool:
        """Each row goes on from its own row of the cache."""
        held = len(self.counts) if self.counts is not None else held_rows(self.cache)
        return len(self.rows) == held and bool((self.rows == torch.arange(held, device=self.rows.device)).all())


def continued(state: PretrainedState) -> Any:
    """A cache of its own for each row, which the network may grow without changing the state's."""
    cache = copied_cache(state.cache)
    if not state.in_order:
        cache.reorder_cache(state.rows)
    return cache


def copied_cache(cache: Any) -> Any:
    """The same tensors in new layers; those that transformers writes over in place (recurrent layers') are new too."""
    made = copy.copy(cache)
    made.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in made.layers:
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                setattr(layer, name, {key: _own(item) for key, item in value.items()})
    return made


def held_rows(cache: Any) -> int:
    """How many rows a cache holds."""
    for layer in cache.layers:
        for value in vars(layer).values():
            for item in value.values() if isinstance(value, dict) else [value]:
                if isinstance(item, Tensor) and item.dim() > 1:
                    return len(item)
    return 0


def _own(item: Any) -> Any:
    return item.clone() if isinstance(item, Tensor) else item


class PretrainedStepper:
    """A draw under way. Rows stand in slots, in groups of `per` that share a prefix; a slot whose row has ended idles.

    Attention is one softmax over two products: all rows of a prefix with its keys at once, each row with its own.
    transformers would hold the prefix once per row, and copy all of it at every step.
    """

    def __init__(self, model: "Pretrained | ShownPretrained", state: PretrainedState):
        self.model, self.place = model, state.place
        self.before: PretrainedState | None = state  # until a step has shown that the network asks our attention
        self.plain: Advances | None = None
        self.slots: Tensor  # where each row is
        with torch.no_grad():
            used, prefix = torch.unique(state.rows, return_inverse=True)
            self.cache = copied_cache(state.cache)
            self.cache.layers = [_shared_layer(layer, used) for layer in self.cache.layers]
            self.counts = None if state.counts is None else state.counts[used]
            self._seat(prefix, None)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Any:
        if self.plain is not None:
            return self.plain.step(tokens)
        seated = tokens if self.in_order else tokens.new_zeros(self.held).index_copy_(0, self.slots, tokens)
        positions = None
        if self.counts is not None:
            read = self.counts.sum(1)[self.groups]
            positions = read.repeat_interleave(self.per)[:, None] + self.cache.layers[0].own
        with _attending(self) as asked:
            try:
                logits = self.model.next_logits(seated[:, None], self.cache, self.place + 1, positions=positions)
            except Exception:  # a network with an attention of its own stumbles over a cache without the prefix
                if self.before is None:
                    raise
                asked.clear()
        if self.before is not None:
            if asked != list(range(len(self.cache.layers))):
                self.plain = Advances(self.model, self.before)
                return self.plain.step(tokens)
            self.before = None
        self.place += 1
        return logits if self.in_order else logits[self.slots]

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        if self.plain is not None:
            self.plain.keep(rows)
            return
        if self.before is not None:
            self.before = self.before.select(rows)
        slots = self.slots[rows]
        different = len(torch.unique(slots)) == len(slots)
        if different and (1 - IDLE) * self.held <= len(slots):
            self.slots, self.in_order = slots, False
        else:
            self._seat(self.groups[slots // self.per], slots)

    def _seat(self, prefix: Int[Tensor, " rows"], slots: Int[Tensor, " rows"] | None) -> None:
        """Give each row a slot in a group of its prefix; `slots`: where the rows were, if they have read anything.

        Groups are as large as they can be with few slots idle: where one prefix has many more rows than another,
        it has several groups.
        """
        prefixes = len(self.cache.layers[0].keys)
        counts = torch.bincount(prefix, minlength=prefixes)
        self.per = max(1, int(counts.max()))
        while self.per > 1 and self.per * int((-(-counts // self.per)).sum()) * (1 - IDLE) > len(prefix):
            self.per = -(-self.per // 2)
        groups = -(-counts // self.per)
        self.groups = torch.arange(prefixes, device=prefix.device).repeat_interleave(groups)
        self.held = len(self.groups) * self.per
        order = prefix.argsort(stable=True)
        rank = torch.empty_like(prefix)
        rank[order] = torch.arange(len(prefix), device=prefix.device) - (counts.cumsum(0) - counts)[prefix[order]]
        self.slots = (groups.cumsum(0) - groups)[prefix] * self.per + rank
        self.in_order = self.held == len(prefix) and bool((self.slots.diff() == 1).all())
        came = None if slots is None else slots.new_zeros(self.held).index_copy_(0, self.slots, slots)
        for layer in self.cache.layers:
            layer.seat(self.groups, came)
        self.hidden = None if self.counts is None else ~self.counts[self.groups]

    def attend(
        self, number: int, query: Float[Tensor, "held heads 1 size"], scale: float
    ) -> Float[Tensor, "held 1 heads size"]:
        """softmax over prefix and own places together."""
        layer = self.cache.layers[number]
        held, heads, _, size = query.shape
        groups, shared, seen, _ = layer.group_keys.shape
        group, per, width = heads // shared, self.per, layer.values.shape[-1]
        # Rows of a group side by side, for each of the heads that share keys.
        together = query.view(groups, per, shared, group, size).permute(0, 2, 1, 3, 4)
        together = together.reshape(groups * shared, per * group, size)
        scores = torch.bmm(together, layer.group_keys.flatten(0, 1).transpose(1, 2))
        if self.hidden is not None:
            mask = self.hidden[:, None, None].expand(-1, shared, 1, -1).flatten(0, 1)
            scores = scores.masked_fill_(mask, -math.inf)
        alone = torch.bmm(query.reshape(held * shared, group, size), layer.own_keys.flatten(0, 1).transpose(1, 2))
        alone = alone.view(groups, per, shared, group, -1).permute(0, 2, 1, 3, 4)
        both = torch.cat([scores, alone.reshape(groups * shared, per * group, -1)], 2).mul_(scale)
        weights = torch.softmax(both, -1, dtype=torch.promote_types(both.dtype, torch.float32)).to(query.dtype)
        seen_there = torch.bmm(weights[:, :, :seen], layer.group_values.flatten(0, 1))
        seen_there = seen_there.view(groups, shared, per, group, width).permute(0, 2, 1, 3, 4)
        own = weights[:, :, seen:].view(groups, shared, per, group, -1).permute(0, 2, 1, 3, 4)
        seen_here = torch.bmm(own.reshape(held * shared, group, -1), layer.own_values.flatten(0, 1))
        return (seen_there.reshape(held, heads, width) + seen_here.view(held, heads, width))[:, None]


class _CannotShareError(Exception):
    """This attention does more than ours: a cap, a window, a bias."""


_ACTIVE: list[tuple[PretrainedStepper, list[int]]] = []  # transformers' attentions are found by name, so by no argument


@contextmanager
def _attending(stepper: PretrainedStepper) -> Iterator[list[int]]:
    """Within, the network asks our attention; what comes is the list of the layers that did."""
    import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    config: Any = stepper.model.network.config
    usual, asked = config._attn_implementation, list[int]()
    config._attn_implementation = NAME
    _ACTIVE.append((stepper, asked))
    try:
        yield asked
    finally:
        _ACTIVE.pop()
        config._attn_implementation = usual


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None,
    scaling: float | None = None, **more: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    if attention_mask is not None or any(more[name] for name in more.keys() - HARMLESS):
        raise _CannotShareError
    stepper, asked = _ACTIVE[-1]
    asked.append(module.layer_idx)
    scale = 1 / math.sqrt(query.shape[-1]) if scaling is None else scaling
    return stepper.attend(module.layer_idx, query, scale), None


def can_step(cache: Any) -> bool:
    """Whether all that the cache holds is every key and value read so far: no window, no recurrent state."""
    plain = import_module("transformers.cache_utils").DynamicLayer
    return all(type(layer) is plain and layer.is_initialized for layer in cache.layers)


_CLASSES: list[Any] = []


def _shared_layer(layer: Any, used: Int[Tensor, " used"]) -> Any:
    """Some rows of a layer of transformers' cache, which stay as they are, and room for what is read after them."""
    if not _CLASSES:
        _CLASSES.append(_shared_class())
    made = _CLASSES[0]()
    made.dtype, made.device, made.is_initialized = layer.keys.dtype, layer.keys.device, True
    everything = len(used) == len(layer.keys)
    made.keys, made.values = (part if everything else part[used] for part in (layer.keys, layer.values))
    return made


def _shared_class() -> Any:
    """Made when first needed: transformers is an extra, and slow to import."""
    plain: Any = import_module("transformers.cache_utils").DynamicLayer

    class SharedLayer(plain):  # type: ignore[misc]
        """`keys`, `values`: of the prefixes, `group_…` of each group's; `own_…`: of what each slot has read since."""

        own = 0
        room_keys: Tensor
        room_values: Tensor

        @property
        def own_keys(self) -> Tensor:
            return self.room_keys[:, :, : self.own]

        @property
        def own_values(self) -> Tensor:
            return self.room_values[:, :, : self.own]

        def get_seq_length(self) -> int:
            return int(self.keys.shape[2]) + self.own

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            if self.own == 0:
                self.room_keys, self.room_values = _room(key_states, ROOM), _room(value_states, ROOM)
            elif self.own == self.room_keys.shape[2]:
                self.room_keys = _room(self.room_keys, 2 * self.own)
                self.room_values = _room(self.room_values, 2 * self.own)
            self.room_keys[:, :, self.own] = key_states[:, :, 0]
            self.room_values[:, :, self.own] = value_states[:, :, 0]
            self.own += 1
            return self.own_keys, self.own_values

        def seat(self, groups: Tensor, came: Tensor | None) -> None:
            whole = len(groups) == len(self.keys) and bool((groups.diff() == 1).all())
            self.group_keys, self.group_values = (part if whole else part[groups] for part in (self.keys, self.values))
            if self.own and came is not None:
                self.room_keys, self.room_values = self.room_keys[came], self.room_values[came]

    return SharedLayer


def _room(part: Float[Tensor, "held heads places size"], room: int) -> Float[Tensor, "held heads room size"]:
    made = part.new_empty(part.shape[0], part.shape[1], room, part.shape[3])
    made[:, :, : part.shape[2]] = part
    return made
