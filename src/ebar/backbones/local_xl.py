"""Local-XL: Transformers whose attention is local and relative. Dai 2019 (thesis), chapter 5.

Time and memory grow with the length of a text, not with its square. A layer sees at most 2C − 1 places back, so what
lies further back than the sum of that over the layers changes nothing.

Convolutions whose kernels are normalised: LightConv and DynamicConv. Wu et al. 2019 (arXiv:1901.10430).

They are local attention by a part of its score (`local_attention`): the weight of the place d before a token is
softmax(θ)_d for each head, or softmax(W x)_d, where x is the token's own vector. The channels of a head share a kernel.
Around it, as in the paper: a linear map with a gate before, a linear map after.

Trap: before the beginning there are zeros, which take their part of the softmax, so that the first tokens see less of
themselves than attention would. `renormalise` leaves them out.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.bounded import BoundedBackbone, BoundedLayer, BoundedState, BoundedStepper, each_layers
from ebar.backbones.decoder import checked_sizes
from ebar.backbones.local_attention import TERMS, LocalAttention, aligned, masked_softmax
from ebar.backbones.transformer import picked
from ebar.backbones.transformer_layer import dropped, linear
from ebar.types import Sequences


class LocalXl(BoundedBackbone):
    """Tokens → hidden vectors; each place sees its own chunk up to itself and the chunk before it.

    `chunk` is one number, or one for each layer. With `window` each place sees exactly the last `chunk` places, itself
    included. `terms` of the score are all, or some of content, bias, dynamic and light, joined by +. Chunks are counted
    from the beginning of the text, prefix included, so that all ways to read it give the same numbers.
    `feedforward` is 4 × hidden unless said.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, chunk: int | list[int] = 64, window: bool = False, terms: str = "all",
    ):  # fmt: skip
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        chunks, some = each_layers(chunk, layers, "chunk"), named_terms(terms)
        mixers = [LocalAttention(hidden, heads, chunk=one, window=window, terms=some) for one in chunks]
        super().__init__(vocabulary, mixers, hidden=hidden, feedforward=feedforward, dropout=dropout)

    def stepper(self, state: BoundedState) -> BoundedStepper:
        """The sampling step, its memory written in place."""
        layers = zip(self._mixers(), state.memory, strict=True)
        return BoundedStepper(self, [LocalCache(mixer, memory, state.place) for mixer, memory in layers])  # type: ignore[arg-type]


class LocalBidirectional(nn.Module):
    """Tokens → hidden vectors; each place sees its own chunk and those left and right of it, padding never.

    Otherwise as `BidirectionalTransformer`: a beginning stands before the first token and is one more token after the
    vocabulary, and the mask of masked language modelling is the next. Chunks are counted from the beginning.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, chunk: int | list[int] = 64, window: bool = False, terms: str = "all",
    ):  # fmt: skip
        super().__init__()
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        chunks, some = each_layers(chunk, layers, "chunk"), named_terms(terms)
        self.vocabulary, self.dropout, self.scale = vocabulary, dropout, math.sqrt(hidden)
        self.inputs = nn.Parameter(torch.randn(vocabulary + 2, hidden) / self.scale)
        self.layers = nn.ModuleList(
            BoundedLayer(
                LocalAttention(hidden, heads, chunk=one, window=window, terms=some), hidden,
                feedforward=feedforward or 4 * hidden, dropout=dropout, layers=layers,
            )
            for one in chunks
        )  # fmt: skip
        self.norm = nn.LayerNorm(hidden)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    @property
    def mask_token(self) -> int:
        """Stands where a token is hidden."""
        return self.vocabulary + 1

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        tokens = F.pad(torch.where(inside, x.tokens, self.vocabulary), (1, 0), value=self.vocabulary)
        hidden = dropped(F.embedding(tokens, self.inputs) * self.scale, self.dropout, self.training)
        counts = None if bool(inside.all()) else F.pad(inside, (1, 0), value=True)
        for layer in self.layers:
            hidden = layer.added(hidden, layer.mixer.around(layer.mixer_norm(hidden), counts))  # type: ignore[operator, union-attr]
        return self.norm(hidden)[:, 1:]  # type: ignore[no-any-return]


class LocalCache:
    """Keys and values of the last 2C places (C of a window), each at its place modulo their number."""

    def __init__(
        self, attention: LocalAttention, memory: Float[Tensor, "rows before parts heads size"],
        place: Int[Tensor, " rows"] | int,
    ):  # fmt: skip
        self.attention, self.place = attention, place if isinstance(place, int) else place.clone()
        self.slots = attention.chunk if attention.window else 2 * attention.chunk
        with torch.no_grad():
            rows, before = memory.shape[:2]
            each = torch.arange(self.slots, device=memory.device)
            which = (each - torch.as_tensor(place, device=memory.device).reshape(-1, 1) + before) % self.slots
            room = F.pad(memory.flatten(2), (0, 0, 0, self.slots - before))
            kept = torch.unflatten(picked(room, which.expand(rows, -1)), 2, memory.shape[2:])
            self.memory = kept.permute(2, 0, 3, 1, 4).contiguous()  # [parts, rows, heads, slots, size]
            self.kernels = None if attention.positions is None else attention.kernels(range(self.slots))
        self.each = each

    def step(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        attention, rows = self.attention, len(inputs)
        new = attention.remember(inputs[:, None])[:, 0].transpose(0, 1)
        if isinstance(self.place, int):
            self.memory[:, :, :, self.place % self.slots] = new
        else:
            at = torch.arange(rows, device=inputs.device)
            self.memory.permute(1, 3, 0, 2, 4)[at, self.place % self.slots] = new.transpose(0, 1)
        place = torch.as_tensor(self.place, device=inputs.device).reshape(-1, 1)
        distances = (place - self.each) % self.slots  # of each slot
        reach = place if attention.window else torch.minimum(place, place % attention.chunk + attention.chunk)
        scale = 1 / math.sqrt(attention.size)
        to_keys, to_distances = attention.queries(inputs)
        scores = inputs.new_zeros(rows, attention.heads, self.slots)
        if to_distances is not None and self.kernels is not None:
            by_distance = torch.bmm((to_distances * scale).transpose(0, 1), self.kernels).transpose(0, 1)
            scores = by_distance.gather(2, distances[:, None].expand(rows, attention.heads, -1))
        if to_keys is not None:
            scores = scores + (self.memory[0] @ (to_keys * scale)[..., None])[..., 0]
        weights = masked_softmax(scores, (distances > reach)[:, None])
        self.place = self.place + 1
        return torch.matmul(weights[:, :, None], self.memory[-1])[:, :, 0].flatten(1)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.memory = self.memory[:, rows]
        self.place = self.place if isinstance(self.place, int) else self.place[rows]


def named_terms(terms: str) -> tuple[str, ...]:
    """The terms of the score, from their names."""
    if terms == "all":
        return TERMS
    named = tuple(terms.split("+"))
    if not set(named) <= set(TERMS):
        raise ValueError(f"terms must be all, or some of {', '.join(TERMS)} joined by +, not {terms!r}")
    return named


Kernel = Literal["light", "dynamic"]


class KernelConvolution(nn.Module):
    """Of one layer. Kernels are numbered by distance: 0 is the token itself."""

    def __init__(
        self, width: int, heads: int, places: int, *, kernel: Kernel, kernel_dropout: float, renormalise: bool
    ):  # fmt: skip
        super().__init__()
        self.heads, self.places, self.kernel_dropout, self.renormalise = heads, places, kernel_dropout, renormalise
        self.into = linear(width, 2 * width)
        self.out = linear(width, width)
        self.scores: nn.Linear | nn.Parameter
        if kernel == "dynamic":
            self.scores = nn.Linear(width, heads * places, bias=False)
            nn.init.xavier_uniform_(self.scores.weight)
        else:
            bound = math.sqrt(6 / (places + heads * places))  # Glorot's, of a kernel for each head
            self.scores = nn.Parameter(torch.empty(heads, places).uniform_(-bound, bound))

    @property
    def kept(self) -> int:
        """How many places before a token it may look at, at most."""
        return self.places - 1

    def remember(self, inputs: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows places width"]:
        """What is convolved: half of a linear map, gated by the other half (Dauphin et al. 2017)."""
        return F.glu(self.into(inputs), -1)

    def weights(
        self, gated: Float[Tensor, "rows length width"], place: Int[Tensor, " rows"] | int
    ) -> Float[Tensor, "some_rows some_length heads distances"]:
        """Kernels of each place, summing to 1; DropConnect leaves out single weights while it learns."""
        scores = self.scores if isinstance(self.scores, nn.Parameter) else self.scores(gated)
        scores = scores[None, None] if scores.ndim == 2 else scores.unflatten(2, (self.heads, self.places))
        if self.renormalise:
            length = gated.shape[1]
            reach = torch.as_tensor(place, device=gated.device).reshape(-1, 1) + torch.arange(
                length, device=gated.device
            )
            outside = torch.arange(self.places, device=gated.device) > reach[:, :, None, None]
            scores = scores.masked_fill(outside, -math.inf)
        return dropped(scores.softmax(-1), self.kernel_dropout, self.training)

    def forward(
        self, inputs: Float[Tensor, "rows length width"], memory: Float[Tensor, "rows before width"],
        place: Int[Tensor, " rows"] | int,
    ) -> tuple[Float[Tensor, "rows length width"], Float[Tensor, "rows places width"]]:  # fmt: skip
        gated = self.remember(inputs)
        whole = torch.cat([memory, gated], 1)
        padded = aligned(whole, memory.shape[1] - self.kept, self.kept + inputs.shape[1])
        return self.out(convolved(padded, self.weights(gated, place))), whole


def convolved(
    values: Float[Tensor, "rows places width"], kernels: Float[Tensor, "some_rows some_length heads distances"]
) -> Float[Tensor, "rows length width"]:
    """Σ_d kernel_d · the value d places before, for all but the first `distances` − 1 places.

    By chunks, as one product of a band matrix with the values that a chunk sees: as many multiplications as twice the
    distances, and no copy of the values for each distance.
    """
    rows, width = values.shape[0], values.shape[2]
    heads, distances = kernels.shape[2:]
    length = values.shape[1] - distances + 1
    chunk = max(1, min(length, max(distances, 16)))
    chunks = max(1, -(-length // chunk))
    seen = aligned(values, 0, distances - 1 + chunks * chunk).unfold(1, distances - 1 + chunk, chunk)
    by_head = torch.unflatten(seen, 2, (heads, -1)).transpose(3, 4)  # [rows, chunks, heads, seen, size]
    # From places × distances to places × places: each row of a band begins one further to the right.
    kernels = kernels.expand(-1, length, -1, -1) if kernels.shape[1] != length else kernels
    cut = torch.unflatten(aligned(kernels, 0, chunks * chunk), 1, (chunks, chunk)).transpose(2, 3)
    skewed = F.pad(cut.flip(-1), (0, chunk)).flatten(3)[..., : chunk * (distances - 1 + chunk)]
    band = torch.unflatten(skewed, 3, (chunk, distances - 1 + chunk))
    out = torch.matmul(band, by_head).transpose(2, 3)  # [rows, chunks, chunk, heads, size]
    return out.reshape(rows, chunks * chunk, width)[:, :length]


class Convolution(BoundedBackbone):
    """Tokens → hidden vectors; each place sees the last few by normalised kernels, which are learnt or predicted.

    `kernel` is light, the same kernel everywhere, or dynamic, a kernel made from the place's own vector.
    `kernel_size` is how many places it covers, its own included: one number, or one for each layer (Wu et al. 2019 let
    it grow: 3, 7, 15, 31). `kernel_dropout` leaves out single weights of the kernels while they learn. Zeros before the
    beginning take part in the softmax, as in the paper, unless `renormalise`. `feedforward` is 4 × hidden unless said.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 4, hidden: int = 256, heads: int = 4, feedforward: int | None = None,
        dropout: float = 0.1, kernel: Kernel = "dynamic", kernel_size: int | list[int] = 31,
        kernel_dropout: float = 0.1, renormalise: bool = False,
    ):  # fmt: skip
        checked_sizes(layers, hidden, heads, feedforward, dropout)
        if kernel not in ("light", "dynamic"):
            raise ValueError(f"kernel must be light or dynamic, not {kernel}")
        if not 0 <= kernel_dropout < 1:
            raise ValueError(f"kernel_dropout must be at least 0 and below 1, not {kernel_dropout}")
        mixers = [
            KernelConvolution(
                hidden, heads, places, kernel=kernel, kernel_dropout=kernel_dropout, renormalise=renormalise
            )
            for places in each_layers(kernel_size, layers, "kernel_size")
        ]
        super().__init__(vocabulary, mixers, hidden=hidden, feedforward=feedforward, dropout=dropout)

    def stepper(self, state: BoundedState) -> BoundedStepper:
        """The sampling step, its memory changed in place."""
        layers = zip(self._mixers(), state.memory, strict=True)
        return BoundedStepper(self, [ConvolutionCache(mixer, memory, state.place) for mixer, memory in layers])  # type: ignore[arg-type]


class ConvolutionCache:
    """The last values that a kernel covers, and room for the next one."""

    def __init__(
        self, mixer: KernelConvolution, memory: Float[Tensor, "rows before width"], place: Int[Tensor, " rows"] | int
    ):  # fmt: skip
        self.mixer, self.place = mixer, place
        self.values = aligned(memory, memory.shape[1] - mixer.kept - 1, mixer.places).clone()

    def step(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        self.values = self.values.roll(-1, 1)
        gated = self.mixer.remember(inputs[:, None])
        self.values[:, -1:] = gated
        self.place = self.place + 1
        return convolved(self.values, self.mixer.weights(gated, self.place - 1))[:, 0]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.values = self.values[rows]
        self.place = self.place if isinstance(self.place, int) else self.place[rows]
