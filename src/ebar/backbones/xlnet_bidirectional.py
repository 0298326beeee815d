"""The content stream of an XLNet as a network that sees both sides of every token."""

from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.xlnet import XlNet
from ebar.types import Sequences


class XlNetBidirectional(nn.Module):
    """Tokens → hidden vectors; each place sees all others or, where the XLNet attends locally, its neighbourhood.

    `mask_token` is what stands where a token is hidden, for masked language modelling; tokens of text are numbered
    from 0 to `vocabulary` − 1, and what the XLNet knows besides them spells nothing.
    """

    def __init__(self, network: XlNet, vocabulary: int, mask_token: int):
        super().__init__()
        self.network, self.vocabulary, self.mask_token = network, vocabulary, mask_token

    @property
    def width(self) -> int:
        return self.network.width

    @property
    def inputs(self) -> nn.Parameter:
        """Vectors of the tokens, and of those that spell nothing."""
        return self.network.embedding

    def forward(self, x: Sequences) -> Float[Tensor, "rows length width"]:
        """The vector of each token; those of padding mean nothing."""
        inside = x.mask()
        return self.network(x.tokens, inside=None if bool(inside.all()) else inside).content  # type: ignore[no-any-return]
