"""PixelCNN. van den Oord et al. 2016 (arXiv:1601.06759)."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.masked_convolution import MaskedConvolution, by_group
from ebar.backbones.raster import Raster, RasterState, RasterStepper, places_of


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

    @property
    def kept(self) -> Sequence[tuple[int, int]]:
        return [(self.channels, 3)] + [(self.features, 1)] * len(self.blocks)

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
