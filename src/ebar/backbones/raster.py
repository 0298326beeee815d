"""Images read in raster order, pixel by pixel, the channels of a pixel one after another.

Convolutions look only at what comes before. van den Oord et al. 2016 (arXiv:1601.06759).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.backbone import check_layers
from ebar.errors import UserError
from ebar.types import Context

Own = Literal["before", "up to", "all"]


class MaskedConvolution(nn.Module):
    """A kernel that ends in the row it computes, or above it.

    It has `above` rows above its own, `side` columns to the left of its own and, above, as many to the right; in its
    own row it sees nothing to the right. With several channels, features are in as many groups, channel by channel,
    and in its own place a group sees the groups `before` it (mask A) or `up to` it and itself (mask B); `all` is for
    features that know nothing of their own row, which may be seen on both sides. A kernel of one row has no columns
    to the right unless it sees all.

    Weights are uniform in ±1/√(inputs seen), as torch has it for those of a kernel without mask.
    """

    def __init__(
        self, inputs: int, outputs: int, *, above: int = 0, side: int = 0, own: Own = "up to", channels: int = 1,
    ):  # fmt: skip
        super().__init__()
        self.above, self.left = above, side
        self.right = side if above > 0 or own == "all" else 0
        mask = torch.ones(outputs, inputs, above + 1, self.left + 1 + self.right)
        if own != "all":
            group_in = torch.arange(channels).repeat_interleave(inputs // channels)
            group_out = torch.arange(channels).repeat_interleave(outputs // channels)[:, None]
            mask[:, :, -1, side] = (group_in < group_out if own == "before" else group_in <= group_out).float()
            mask[:, :, -1, side + 1 :] = 0
        seen = mask.sum((1, 2, 3)).clamp(min=1)
        bound = seen.rsqrt()
        self.weight = nn.Parameter(torch.empty_like(mask).uniform_(-1, 1) * bound[:, None, None, None])
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-1, 1) * bound)
        self.register_buffer("mask", mask, persistent=False)

    mask: Tensor

    def kernel(self) -> Float[Tensor, "outputs inputs rows columns"]:
        """The weights that count."""
        return self.weight * self.mask

    def forward(
        self, x: Float[Tensor, "batch inputs rows_and_above columns"]
    ) -> Float[Tensor, "batch outputs rows columns"]:
        """`x` begins with the `above` rows above the first to be computed."""
        if self.left or self.right:
            x = F.pad(x, (self.left, self.right))
        return _convolved(x, self.kernel(), self.bias)

    @torch.no_grad()
    def in_own_row(self) -> Float[Tensor, "patch outputs"]:
        """The part of the kernel that reads its own row, from the left up to its own place: columns × inputs."""
        own = self.kernel()[:, :, -1, : self.left + 1]
        return own.permute(2, 1, 0).reshape(-1, own.shape[0]).contiguous()

    @torch.no_grad()
    def from_above(
        self, rows: Float[Tensor, "batch inputs above columns"]
    ) -> Float[Tensor, "batch outputs one columns"]:
        """The part that reads the rows above, bias included."""
        return _convolved(F.pad(rows, (self.left, self.right)), self.kernel()[:, :, :-1], self.bias)


def by_group(
    convolution: MaskedConvolution, channels: int
) -> list[tuple[Float[Tensor, "patch group"], Float[Tensor, " group"]]]:
    """For each group of outputs, what makes it from its own row: weights and bias."""
    weights = convolution.in_own_row().chunk(channels, 1)
    biases = convolution.bias.detach().chunk(channels)
    return [(weight.contiguous(), bias) for weight, bias in zip(weights, biases, strict=True)]


FEW = 4  # inputs, up to which torch's convolutions are slow at finding their kernel's gradient


def _convolved(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Features innermost in memory (`channels_last`), which is fastest on a CPU."""
    _, inputs, rows, columns = kernel.shape
    if inputs > FEW:
        return F.conv2d(x, kernel, bias)
    patches = x.unfold(2, rows, 1).unfold(3, columns, 1).permute(0, 2, 3, 1, 4, 5)
    return F.linear(patches.flatten(3), kernel.flatten(1), bias).permute(0, 3, 1, 2)


class RasterState(NamedTuple):
    """What convolutions need of the rows of pixels that are finished, and the row they are in.

    Activations are kept of as many rows as a kernel reaches up, not of the whole image.
    """

    above: tuple[Float[Tensor, "rows features reach columns"], ...]
    row: Float[Tensor, "rows known"]
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "RasterState":
        return RasterState(tuple(part[rows] for part in self.above), self.row[rows], self.place)


class Raster(nn.Module, ABC):
    """What every network that reads images in raster order shares.

    A token is a level of intensity, and the network sees it as a number from −1 (level 0) to 1; around the image
    there are zeros. A context is the beginning of the image.
    """

    completes = True  # places are those of the image: see `Space.completes`

    outputs = 1  # unless said, the last layer has so many times the features

    def __init__(
        self, vocabulary: int, *, image_height: int = 28, image_width: int = 28, channels: int = 1,
        features: int = 32, layers: int = 6, output: int | None = None,
    ):  # fmt: skip
        super().__init__()
        if vocabulary < 2:
            raise ValueError(f"pixels have at least two levels, not {vocabulary}")
        if image_height < 1 or image_width < 1 or channels < 1:
            raise ValueError(f"there is no image of {image_height} × {image_width} pixels with {channels} channels")
        check_layers(layers)
        output = self.outputs * features if output is None else output
        for name, size in (("features", features), ("output", output)):
            if size < 1 or size % channels:
                raise ValueError(f"{name} must be a multiple of the {channels} channels, not {size}")
        self.vocabulary, self.image_height, self.image_width = vocabulary, image_height, image_width
        self.channels, self.features, self.output = channels, features, output
        self.in_a_row = image_width * channels
        self.length = image_height * self.in_a_row
        # For each convolution that reaches up: how many features of how many rows above it reads.
        self.kept = [(channels, 3)] + [(features, 1)] * (layers - 1)
        self.make(layers)

    @abstractmethod
    def make(self, layers: int) -> None:
        """Make the convolutions, with random weights."""

    @property
    def width(self) -> int:
        """Of a hidden vector."""
        return self.output // self.channels

    @abstractmethod
    def scan(
        self, pixels: Float[Tensor, "batch channels rows columns"], above: Sequence[Tensor]
    ) -> tuple[Float[Tensor, "batch places width"], list[Tensor]]:
        """Some rows of pixels at once: a hidden vector for each place, from what comes before it.

        Given what is `kept` of the rows above; returned are, for each of `kept`, the rows above and the new ones.
        """

    @property
    def reach(self) -> int:
        """How many rows above can matter."""
        return sum(rows for _, rows in self.kept)

    def embed(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length 1"]:
        """Intensities from −1 to 1."""
        return tokens[:, :, None].to(next(self.parameters()).dtype) * (2 / (self.vocabulary - 1)) - 1

    def embed_intensities(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch length 1"]:
        """Intensities from 0 to 1 in raster order, as those of tokens are given to `read`."""
        return 2 * images.permute(0, 2, 3, 1).flatten(1)[:, :, None] - 1

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows width"], RasterState]:
        prefix = self._prefix(context)
        hidden, state = self._go_on(*self._cropped(prefix))
        times = torch.arange(len(prefix), device=prefix.device).repeat_interleave(rows // len(prefix))
        return hidden[times, -1], state.select(times)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: RasterState
    ) -> tuple[Float[Tensor, "rows length width"], RasterState]:
        """One pass over the rows of pixels that the tokens lie in."""
        hidden, after = self._go_on(self.embed(tokens).squeeze(2), state)
        return hidden[:, 1:], after

    def read(
        self, inputs: Float[Tensor, "rows length 1"], context: Context | None = None
    ) -> Float[Tensor, "rows places width"]:
        """One pass over the rows of pixels that matter; after the last pixel of the image the hidden vector is 0."""
        prefix = self._prefix(context)
        prefix = prefix.repeat_interleave(len(inputs) // len(prefix), 0)
        crop, state = self._cropped(prefix)
        hidden, _ = self._go_on(torch.cat([crop, inputs.squeeze(2)], 1), state)
        return hidden[:, crop.shape[1] :]

    def _prefix(self, context: Context | None) -> Float[Tensor, "rows length"]:
        if context is None:
            return next(self.parameters()).new_zeros(1, 0)
        lengths = context.given.lengths
        length = int(lengths.max())
        if int(lengths.min()) < length:
            raise UserError("The given beginnings of images must all have as many pixels: cut them to one length.")
        return self.embed(context.given.tokens[:, :length]).squeeze(2)

    def _cropped(self, prefix: Float[Tensor, "rows length"]) -> tuple[Float[Tensor, "rows rest"], RasterState]:
        """What matters of a prefix, as if the image began there: what is wrong above it cannot reach further down."""
        first = max(0, prefix.shape[1] // self.in_a_row - self.reach) * self.in_a_row
        shapes = [(len(prefix), rows, self.image_width, size) for size, rows in self.kept]
        above = tuple(prefix.new_zeros(shape).permute(0, 3, 1, 2) for shape in shapes)  # features innermost in memory
        return prefix[:, first:], RasterState(above, prefix[:, :0], first)

    def _go_on(
        self, inputs: Float[Tensor, "rows length"], state: RasterState
    ) -> tuple[Float[Tensor, "rows places width"], RasterState]:
        """Hidden vectors before each input and after the last."""
        end = state.place + inputs.shape[1]
        if end > self.length:
            size = f"{self.image_height} × {self.image_width} × {self.channels}"
            raise UserError(f"An image of {size} has {self.length} tokens, and {end} were given.")
        if state.place == self.length:
            return inputs.new_zeros(len(inputs), 1, self.width), state
        known = state.row.shape[1]
        pixels = torch.cat([state.row, inputs], 1)
        scanned = min(end, self.length - 1) // self.in_a_row - (state.place - known) // self.in_a_row + 1
        grid = F.pad(pixels, (0, scanned * self.in_a_row - pixels.shape[1]))
        grid = grid.view(len(grid), scanned, self.image_width, self.channels).permute(0, 3, 1, 2)
        hidden, seen = self.scan(grid, state.above)
        finished = pixels.shape[1] // self.in_a_row
        above = tuple(part[:, :, finished : finished + rows] for part, (_, rows) in zip(seen, self.kept, strict=True))
        places = hidden[:, known : known + inputs.shape[1] + 1]
        if end == self.length:
            places = torch.cat([places, places.new_zeros(len(places), 1, self.width)], 1)
        return places, RasterState(above, pixels[:, finished * self.in_a_row :], end)


def places_of(
    features: Float[Tensor, "batch features rows columns"], channels: int
) -> Float[Tensor, "batch places width"]:
    """Group by group, the features of a pixel are its channels' hidden vectors."""
    batch, size, _, _ = features.shape
    return features.permute(0, 2, 3, 1).reshape(batch, -1, size // channels)


class RasterStepper(ABC):
    """A draw under way: keeps the place, and the pixels of the row it is in.

    The contribution of the rows above is computed once, at the beginning of a row, for all its places.
    """

    said: list[Tensor]  # by the rows above, to each place of the row: [places, rows, features]
    buffers: ClassVar[tuple[str, ...]]  # names of further lists of tensors with a row for each draw

    def __init__(self, backbone: Raster, state: RasterState):
        self.backbone, self.above, self.margin = backbone, list(state.above), 3 * backbone.channels
        self.row, self.place = state.place // backbone.in_a_row, state.row.shape[1]
        self.pixels = state.row.new_zeros(len(state.row), self.margin + backbone.in_a_row)
        self.pixels[:, self.margin : self.margin + self.place] = state.row
        if self.row < backbone.image_height:
            self.begin()
            for place in range(self.place + 1):  # the next one's hidden vector is known, but not what it is made of
                self.at(place)

    @abstractmethod
    def begin(self) -> None:
        """A row begins: `above` is what is kept of the rows before it."""

    @abstractmethod
    def finish(self) -> None:
        """A row ends: renew `above`."""

    @abstractmethod
    def at(self, place: int) -> Float[Tensor, "rows width"]:
        """The hidden vector of a place in the row, all places before it being done."""

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows width"]:
        self.pixels[:, self.margin + self.place] = self.backbone.embed(tokens[:, None])[:, 0, 0]
        self.place += 1
        if self.place == self.backbone.in_a_row:
            self.finish()
            self.row, self.place = self.row + 1, 0
            if self.row == self.backbone.image_height:
                return self.pixels.new_zeros(len(self.pixels), self.backbone.width)
            self.pixels.zero_()
            self.begin()
        return self.at(self.place)

    @torch.no_grad()
    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.pixels = self.pixels[rows]
        self.said = [part[:, rows] for part in self.said]
        for name in ("above", *self.buffers):
            setattr(self, name, [part[rows] for part in getattr(self, name)])

    def seen_pixels(self) -> Float[Tensor, "rows channels reach columns"]:
        """The last three rows of pixels, the one just finished included."""
        size = self.backbone
        row = self.pixels[:, self.margin :].view(-1, size.image_width, size.channels)
        return torch.cat([self.above[0][:, :, 1:], row.permute(0, 2, 1)[:, :, None]], 2)
