"""Backbones of which a token needs no more than the last places: a stack of layers that mix neighbouring places.

What is kept of a text is bounded however long it grows, so a sample may be longer than anything that was trained on.
Each layer is x + mixer(norm x), then x + feed-forward(norm x), normalised before each part as our Transformer's are:
no warm-up is needed (Xiong et al. 2020), and both are compared with nothing else changed.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.decoder import served
from ebar.backbones.local_attention import aligned, known
from ebar.backbones.transformer_layer import dropped, linear
from ebar.types import Context, Sequences


@runtime_checkable
class Mixer(Protocol):
    """What a layer does with places before a token: local attention, or a convolution."""

    out: nn.Linear

    @property
    def kept(self) -> int:
        """How many places before a token it may look at, at most."""

    def remember(self, inputs: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places ..."]:
        """What it needs of places when they have passed."""

    def __call__(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before ..."],
        place: Int[Tensor, " rows"] | int,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places ..."]]:  # fmt: skip
        """What is added to each place, and the memory with them; `place` is how many places lie before them."""


@runtime_checkable
class Cache(Protocol):
    """A mixer while sampling, changed in place: what is seen of one place after another, before the last product."""

    def step(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]: ...

    def keep(self, rows: Int[Tensor, " kept"]) -> None: ...


class BoundedState(NamedTuple):
    """What each layer remembers of the last places, the last one last; where rows have read unequally much, zeros
    stand before the shorter."""

    memory: tuple[Float[Tensor, "rows before ..."], ...]
    place: Int[Tensor, " rows"] | int
    """How many tokens have been read, beginning and prefix included; a number where all rows have read as many."""

    def select(self, rows: Int[Tensor, " selected"]) -> "BoundedState":
        place = self.place if isinstance(self.place, int) else self.place[rows]
        return BoundedState(tuple(layer[rows] for layer in self.memory), place)


class BoundedMemory(NamedTuple):
    """Of a text read in segments: each layer's last inputs, the layers one after another, and how much was read.

    Inputs, not keys and values: after a step of training the same memory is read with the new weights.
    """

    inputs: Float[Tensor, "rows places width"]
    place: Int[Tensor, " rows"]


class BoundedLayer(nn.Module):
    """x + mixer(norm x), then x + feed-forward(norm x); dropout is on what each part adds.

    What goes into the sum is smaller the more layers there are, at first, as in `TransformerLayer`.
    """

    def __init__(self, mixer: Any, width: int, *, feedforward: int, dropout: float, layers: int):
        super().__init__()
        self.dropout = dropout
        self.mixer_norm, self.mixer = nn.LayerNorm(width), mixer
        self.feedforward_norm = nn.LayerNorm(width)
        self.wide, self.narrow = linear(width, feedforward), linear(feedforward, width)
        for last in (mixer.out, self.narrow):
            last.weight.data.mul_(1 / math.sqrt(2 * layers))

    def added(
        self, x: Float[Tensor, "*places width"], mixed: Float[Tensor, "*places width"]
    ) -> Float[Tensor, "*places width"]:
        """The next layer's input."""
        x = x + dropped(mixed, self.dropout, self.training)
        return x + dropped(self.narrow(F.gelu(self.wide(self.feedforward_norm(x)))), self.dropout, self.training)


class BoundedBackbone(nn.Module):
    """Tokens → hidden vectors of the top layer, normalised; a context is a prefix, read after the beginning.

    There are no positions in the input: mixers know how far one place is from another.
    """

    def __init__(
        self, vocabulary: int, mixers: Sequence[Any], *, hidden: int, feedforward: int | None, dropout: float
    ):  # fmt: skip
        super().__init__()
        self.vocabulary, self.dropout, self.scale = vocabulary, dropout, math.sqrt(hidden)
        self.inputs = nn.Parameter(torch.randn(vocabulary + 1, hidden) / self.scale)  # the last is the beginning's
        self.layers = nn.ModuleList(
            BoundedLayer(mixer, hidden, feedforward=feedforward or 4 * hidden, dropout=dropout, layers=len(mixers))
            for mixer in mixers
        )
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    @property
    def embedding(self) -> nn.Parameter:
        """The input vectors, a row for each token, then the beginning's: what a head may tie to."""
        return self.inputs

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length width"]:
        """Times √width, so that a unit of learning moves them as it moves a matrix (Vaswani et al. 2017, §3.4)."""
        return F.embedding(tokens, self.inputs) * self.scale

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], BoundedState]:
        given = self._no_prefix() if context is None else context.given
        # Padding may hold anything, so it is made to hold the beginning.
        tokens = F.pad(torch.where(given.mask(), given.tokens, self.vocabulary), (1, 0), value=self.vocabulary)
        places = tokens.shape[1]
        hidden, whole = self._through(self.embed(tokens), self._before(len(tokens)))
        place: Tensor | int = places if bool((given.lengths == places - 1).all()) else given.lengths + 1
        memory = tuple(_last(part, place, mixer.kept) for part, mixer in zip(whole, self._mixers(), strict=True))
        first, state = aligned(hidden, place - 1, 1)[:, 0], BoundedState(memory, place)
        return served(first, state, rows)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: BoundedState
    ) -> tuple[Float[Tensor, "rows length width"], BoundedState]:
        hidden, whole = self._through(self.embed(tokens), state)
        memory = tuple(
            _last(part, part.shape[1], mixer.kept) for part, mixer in zip(whole, self._mixers(), strict=True)
        )
        return hidden, BoundedState(memory, state.place + tokens.shape[1])

    def read(
        self, inputs: Float[Tensor, "rows length width"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One pass over the beginning and the inputs; each prefix is read once, before them."""
        if context is None:
            beginning = (self.inputs[-1] * self.scale).expand(len(inputs), 1, -1)
            return self._through(torch.cat([beginning, inputs], 1), self._before(len(inputs)))[0]
        first, state = self.start(len(inputs), context)
        return torch.cat([first[:, None], self._through(inputs, state)[0]], 1)

    def empty_memory(self, rows: int) -> BoundedMemory:
        places = sum(mixer.kept for mixer in self._mixers())
        nothing = self.inputs.new_zeros(rows, places, self.width)
        return BoundedMemory(nothing.detach(), torch.zeros(rows, dtype=torch.long, device=nothing.device))

    def read_segment(
        self, tokens: Int[Tensor, "rows length"], memory: BoundedMemory
    ) -> tuple[Float[Tensor, "rows length width"], BoundedMemory]:
        """Segments may have any length: where they are cut changes no number, but where gradients end."""
        state, after = self.enter_segment(memory), []
        x = dropped(self.embed(tokens), self.dropout, self.training)
        for layer, inputs, remembered in zip(self._layers(), self._inputs(memory), state.memory, strict=True):
            kept = inputs.shape[1]
            after.append(_last(torch.cat([inputs, x.detach()], 1), kept + x.shape[1], kept))
            x = layer.added(x, layer.mixer(layer.mixer_norm(x), remembered, state.place)[0])
        return self.norm(x), BoundedMemory(torch.cat(after, 1), memory.place + tokens.shape[1])

    def enter_segment(self, memory: BoundedMemory) -> BoundedState:
        """What the layers remember, by their weights of today."""
        place = _as_number(memory.place)
        most = place if isinstance(place, int) else int(memory.place.max())
        remembered = []
        for layer, inputs in zip(self._layers(), self._inputs(memory), strict=True):
            some = inputs[:, max(0, inputs.shape[1] - most) :]
            remembered.append(_cleared(layer.mixer.remember(layer.mixer_norm(some)), place))
        return BoundedState(tuple(remembered), place)

    def _inputs(self, memory: BoundedMemory) -> tuple[Float[Tensor, "rows kept width"], ...]:
        """The last inputs of each layer."""
        return torch.split(memory.inputs, [mixer.kept for mixer in self._mixers()], 1)

    def _through(
        self, inputs: Float[Tensor, "rows length width"], state: BoundedState
    ) -> tuple[Float[Tensor, "rows length width"], list[Float[Tensor, "rows places ..."]]]:
        """Hidden vectors, and what each layer remembers of the state's places and these."""
        x, whole = dropped(inputs, self.dropout, self.training), []
        for layer, memory in zip(self._layers(), state.memory, strict=True):
            mixed, together = layer.mixer(layer.mixer_norm(x), memory, state.place)
            x = layer.added(x, mixed)
            whole.append(together)
        return self.norm(x), whole

    def _before(self, rows: int) -> BoundedState:
        """Nothing has been read, not even the beginning."""
        nothing = self.inputs.new_zeros(rows, 0, self.width)
        return BoundedState(tuple(mixer.remember(nothing) for mixer in self._mixers()), 0)

    def _no_prefix(self) -> Sequences:
        none = torch.zeros(1, dtype=torch.long, device=self.inputs.device)
        return Sequences(none[:, None][:, :0], none)

    def _layers(self) -> list[BoundedLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _mixers(self) -> list[Mixer]:
        return [layer.mixer for layer in self._layers()]


class BoundedStepper:
    """A draw under way: each layer's cache is changed in place, and never grows."""

    def __init__(self, backbone: BoundedBackbone, caches: Sequence[Cache]):
        self.backbone, self.caches = backbone, caches
        self.layers: list[BoundedLayer] = list(backbone.layers)  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        x = self.backbone.embed(tokens[:, None])[:, 0]
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = x + layer.mixer.out(cache.step(layer.mixer_norm(x)))
            x = x + layer.narrow(F.gelu(layer.wide(layer.feedforward_norm(x))))
        return self.backbone.norm(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        for cache in self.caches:
            cache.keep(rows)


def each_layers(sizes: int | Sequence[int], layers: int, name: str) -> list[int]:
    """One size for each layer, where they differ; a list of another length is refused."""
    each = [sizes] * layers if isinstance(sizes, int) else list(sizes)
    if len(each) != layers:
        raise ValueError(f"{name} has {len(each)} numbers for {layers} layers: give one, or one for each layer")
    if min(each) < 1:
        raise ValueError(f"{name} must be at least 1, not {min(each)}")
    return each


def _last(
    whole: Float[Tensor, "rows places ..."], end: Int[Tensor, " rows"] | int, kept: int
) -> Float[Tensor, "rows some ..."]:
    """The last places before `end`; zeros stand before what is shorter. A copy, which holds on to nothing."""
    some = min(kept, whole.shape[1] if isinstance(end, Tensor) else end)
    return _cleared(aligned(whole, end - some, some), end).clone()


def _cleared(
    memory: Float[Tensor, "rows before ..."], place: Int[Tensor, " rows"] | int
) -> Float[Tensor, "rows before ..."]:
    """Zero where there was no text yet."""
    if isinstance(place, int):
        return memory
    before = memory.shape[1]
    inside = torch.arange(before, device=memory.device) >= before - known(place, before)[:, None]  # type: ignore[index]
    return torch.where(inside.view(*inside.shape, *[1] * (memory.ndim - 2)), memory, 0.0)


def _as_number(place: Int[Tensor, " rows"]) -> Int[Tensor, " rows"] | int:
    """One number where all rows have read as much, as those of a stream have."""
    if len(place) == 0:
        return 0
    return int(place[0]) if bool((place == place[0]).all()) else place
