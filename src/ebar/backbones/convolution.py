"""Convolutions whose kernels are normalised: LightConv and DynamicConv. Wu et al. 2019 (arXiv:1901.10430).

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

from ebar.backbones.bounded import BoundedBackbone, BoundedState, BoundedStepper, each_layers
from ebar.backbones.decoder import checked_sizes
from ebar.backbones.local_attention import aligned
from ebar.backbones.transformer_layer import dropped, linear

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
