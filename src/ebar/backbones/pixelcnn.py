"""PixelCNN. van den Oord et al. 2016 (arXiv:1601.06759).

Gated PixelCNN. van den Oord et al. 2016 (arXiv:1606.05328).
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.raster import MaskedConvolution, Raster, RasterState, RasterStepper, by_group, places_of


class ResidualBlock(nn.Module):
    """1 × 1 to half the features, 3 × 3, 1 × 1 back, each after a rectifier; added to what came in."""

    def __init__(self, features: int, *, channels: int):
        super().__init__()
        self.narrow = MaskedConvolution(2 * features, features, channels=channels)
        self.look = MaskedConvolution(features, features, above=1, side=1, channels=channels)
        self.widen = MaskedConvolution(features, 2 * features, channels=channels)


class PixelCnn(Raster):
    """One stack of masked convolutions: 7 × 7 with mask A, residual blocks with mask B, two layers of 1 × 1.

    Masks leave a blind spot to the upper right, which `GatedPixelCnn` has not. With several channels (red, green,
    blue), each sees those before it in its own pixel. Blocks are 2·`features` wide outside, `features` inside.
    """

    outputs = 2

    def make(self, layers: int) -> None:
        channels, features = self.channels, self.features
        self.first = MaskedConvolution(channels, 2 * features, above=3, side=3, own="before", channels=channels)
        self.blocks = nn.ModuleList(ResidualBlock(features, channels=channels) for _ in range(layers - 1))
        self.hidden = MaskedConvolution(2 * features, self.output, channels=channels)

    @property
    def stack(self) -> list[ResidualBlock]:
        return cast(list[ResidualBlock], list(self.blocks))

    def scan(
        self, pixels: Float[Tensor, "batch channels rows columns"], above: Sequence[Tensor]
    ) -> tuple[Float[Tensor, "batch places width"], list[Tensor]]:
        seen = [torch.cat([above[0], pixels], 2)]
        x = self.first(seen[0])
        for block, rows in zip(self.stack, above[1:], strict=True):
            seen.append(torch.cat([rows, F.relu(block.narrow(F.relu(x)))], 2))
            x = x + block.widen(F.relu(block.look(seen[-1])))
        return places_of(F.relu(self.hidden(F.relu(x))), self.channels), seen

    def stepper(self, state: RasterState) -> "PixelCnnStepper":
        """One place at a time; the contribution of the rows above is computed once, at the beginning of a row."""
        return PixelCnnStepper(self, state)


class PixelCnnStepper(RasterStepper):
    """`narrow[l]` is what block l's 3 × 3 kernel reads along the row, places side by side after one of zeros.

    `outside[l]` is what comes into block l, `inside[l]` what its kernel makes, in the pixel the draw is at.
    """

    buffers = ("narrow", "inside", "outside")

    @torch.no_grad()
    def __init__(self, backbone: PixelCnn, state: RasterState):
        self.network = backbone
        channels, features, blocks = backbone.channels, backbone.features, backbone.stack
        self.first = by_group(backbone.first, channels)
        self.parts = [
            (by_group(block.narrow, channels), by_group(block.look, channels), by_group(block.widen, channels))
            for block in blocks
        ]
        self.last = by_group(backbone.hidden, channels)
        rows = len(state.row)
        zeros = state.row.new_zeros
        self.narrow = [zeros(rows, (1 + backbone.image_width) * features) for _ in blocks]
        self.inside = [zeros(rows, features) for _ in blocks]
        self.outside = [zeros(rows, 2 * features) for _ in range(len(blocks) + 1)]
        super().__init__(backbone, state)

    def begin(self) -> None:
        looks = [self.network.first] + [block.look for block in self.network.stack]
        self.said = [
            look.from_above(rows)[:, :, 0].permute(2, 0, 1).contiguous()
            for look, rows in zip(looks, self.above, strict=True)
        ]
        for part in self.narrow:
            part.zero_()

    def finish(self) -> None:
        features = self.network.features
        rows = [part[:, features:].view(len(part), -1, features).permute(0, 2, 1)[:, :, None] for part in self.narrow]
        self.above = [self.seen_pixels(), *(row.contiguous() for row in rows)]

    def at(self, place: int) -> Float[Tensor, "rows width"]:
        channels, features = self.network.channels, self.network.features
        column, channel = divmod(place, channels)
        group = features // channels
        own = slice(channel * group, (channel + 1) * group)
        wide = slice(2 * channel * group, 2 * (channel + 1) * group)
        here = slice((1 + column) * features + channel * group, (1 + column) * features + (channel + 1) * group)
        patch = self.pixels[:, column * channels : (column + 4) * channels]
        torch.addmm(self.said[0][column][:, wide], patch, self.first[channel][0], out=self.outside[0][:, wide])
        for number, (narrow, look, widen) in enumerate(self.parts):
            x, row, inside = self.outside[number], self.narrow[number], self.inside[number]
            weight, bias = narrow[channel]
            torch.addmm(bias, x.relu(), weight, out=row[:, here]).relu_()
            patch = row[:, column * features : (column + 2) * features]
            torch.addmm(self.said[number + 1][column][:, own], patch, look[channel][0], out=inside[:, own]).relu_()
            weight, bias = widen[channel]
            after = self.outside[number + 1][:, wide]
            torch.addmm(bias, inside, weight, out=after)
            after += x[:, wide]
        weight, bias = self.last[channel]
        return torch.addmm(bias, self.outside[-1].relu(), weight).relu_()


class GatedLayer(nn.Module):
    """A vertical stack that knows the rows above, and a horizontal one that knows them through it and its own row.

    Each is gated: tanh(a)·σ(b), written with tanh(a)/2 = σ(2a) − ½ because σ is several times cheaper on a CPU. Both
    factors of 2 are part of the weights; those that make 2a begin twice as large.
    """

    def __init__(self, inputs: int, features: int, *, reach: int, first: bool, channels: int):
        super().__init__()
        self.first, self.channels = first, channels
        # In the first layer the row above is the last that may be seen: pixels are no features of rows above them.
        self.vertical = MaskedConvolution(
            inputs, 2 * features, above=reach - 1 if first else reach, side=reach, own="all"
        )
        self.link = MaskedConvolution(2 * features, 2 * features, own="all")
        self.horizontal = MaskedConvolution(
            inputs, 2 * features, side=reach, own="before" if first else "up to", channels=channels
        )
        self.out = MaskedConvolution(features, features, channels=channels)
        with torch.no_grad():
            for part, groups in ((self.vertical, 1), (self.link, channels), (self.horizontal, channels)):
                for tensor in (part.weight, part.bias):
                    tensor.view(groups, 2, -1)[:, 0] *= 2

    def down(
        self, above: Float[Tensor, "batch inputs reach columns"], vertical: Float[Tensor, "batch inputs rows columns"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows above and the new ones together, the vertical stack's next features, what the horizontal adds."""
        seen = torch.cat([above, vertical], 2)
        before = self.vertical(seen[:, :, :-1] if self.first else seen)
        return seen, gated(before, 1), self.link(before)


class GatedPixelCnn(Raster):
    """Two stacks of gated masked convolutions without a blind spot: all pixels before one, near enough, are seen.

    The first layer has kernels of 7 × 7, the others of 3 × 3; two layers of 1 × 1 end it. With several channels
    (red, green, blue), each sees those before it in its own pixel.
    """

    def make(self, layers: int) -> None:
        channels, features = self.channels, self.features
        self.layers = nn.ModuleList(
            GatedLayer(
                channels if first else features, features, reach=3 if first else 1, first=first, channels=channels
            )
            for first in [True] + [False] * (layers - 1)
        )
        self.hidden = MaskedConvolution(features, self.output, channels=channels)

    @property
    def stack(self) -> list[GatedLayer]:
        return cast(list[GatedLayer], list(self.layers))

    def scan(
        self, pixels: Float[Tensor, "batch channels rows columns"], above: Sequence[Tensor]
    ) -> tuple[Float[Tensor, "batch places width"], list[Tensor]]:
        seen = []
        vertical = horizontal = pixels
        for layer, rows in zip(self.stack, above, strict=True):
            both, vertical, added = layer.down(rows, vertical)
            seen.append(both)
            fresh = layer.out(gated(layer.horizontal(horizontal) + added, self.channels))
            horizontal = fresh if layer.first else horizontal + fresh
        return places_of(F.relu(self.hidden(F.relu(horizontal))), self.channels), seen

    def stepper(self, state: RasterState) -> "GatedPixelCnnStepper":
        """One place at a time; the vertical stack of a row is computed once, at its beginning."""
        return GatedPixelCnnStepper(self, state)


def gated(
    x: Float[Tensor, "batch doubled rows columns"], channels: int
) -> Float[Tensor, "batch features rows columns"]:
    """tanh(a)·σ(b)/2 from 2a and b, side by side in each channel's group."""
    batch, doubled, rows, columns = x.shape
    both = torch.sigmoid(x).view(batch, channels, 2, -1, rows, columns)
    return ((both[:, :, 0] - 0.5) * both[:, :, 1]).reshape(batch, doubled // 2, rows, columns)


class GatedPixelCnnStepper(RasterStepper):
    """`stacks[l]` is layer l's horizontal input along the row, places side by side after one of zeros."""

    buffers = ("fresh", "stacks", "gates")

    @torch.no_grad()
    def __init__(self, backbone: GatedPixelCnn, state: RasterState):
        self.network = backbone
        channels, features = backbone.channels, backbone.features
        self.kernels = [by_group(layer.horizontal, channels) for layer in backbone.stack]
        self.outs = [by_group(layer.out, channels) for layer in backbone.stack]
        self.last = by_group(backbone.hidden, channels)
        rows = len(state.row)
        self.stacks = [
            state.row.new_zeros(rows, (1 + backbone.image_width) * features) for _ in range(len(backbone.layers))
        ]
        self.gates = [state.row.new_zeros(rows, features) for _ in backbone.layers]
        super().__init__(backbone, state)

    def begin(self) -> None:
        self.said = []
        self.fresh: list[Tensor] = []
        vertical = self.pixels.new_zeros(len(self.pixels), self.network.channels, 1, self.network.image_width)
        for layer, above in zip(self.network.stack, self.above, strict=True):
            self.fresh.append(vertical)
            _, vertical, added = layer.down(above, vertical)
            # One contiguous block for each place.
            self.said.append((added + layer.horizontal.bias[:, None, None])[:, :, 0].permute(2, 0, 1).contiguous())
        for stack in self.stacks:
            stack.zero_()

    def finish(self) -> None:
        self.above = [self.seen_pixels(), *self.fresh[1:]]

    def at(self, place: int) -> Float[Tensor, "rows width"]:
        channels, features = self.network.channels, self.network.features
        column, channel = divmod(place, channels)
        group = features // channels
        own = slice((1 + column) * features + channel * group, (1 + column) * features + (channel + 1) * group)
        for number in range(len(self.network.layers)):
            if number == 0:
                patch = self.pixels[:, column * channels : (column + 4) * channels]
            else:
                patch = self.stacks[number - 1][:, column * features : (column + 2) * features]
            weight, _ = self.kernels[number][channel]
            said = self.said[number][column][:, 2 * channel * group : 2 * (channel + 1) * group]
            both = torch.addmm(said, patch, weight).sigmoid_()
            gate = self.gates[number]
            torch.mul(both[:, :group].sub_(0.5), both[:, group:], out=gate[:, channel * group : (channel + 1) * group])
            weight, bias = self.outs[number][channel]
            fresh = self.stacks[number][:, own]
            torch.addmm(bias, gate, weight, out=fresh)
            if number > 0:
                fresh += self.stacks[number - 1][:, own]
        weight, bias = self.last[channel]
        top = self.stacks[-1][:, (1 + column) * features : (2 + column) * features]
        return torch.addmm(bias, top.relu(), weight).relu_()
