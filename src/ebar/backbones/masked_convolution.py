"""Convolutions that look only at what comes before, in raster order. van den Oord et al. 2016 (arXiv:1601.06759)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

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
