"""Networks that give each token of a text a vector that has seen the whole text, for the heads of tasks.

What is read is [A SEP CLS] or [A SEP B SEP CLS], padded on the right: CLS is the last token of a text, and its vector
stands for all of it.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.backbones.local_xl import LocalBidirectional
from ebar.backbones.pretrained.reading import positions_in_table
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.backbones.xlnet import XlNet
from ebar.errors import UserError
from ebar.models.xlnet_weights import xlnet_from_hugging_face
from ebar.tables import Table
from ebar.types import Sequences

# Networks that a task can be learnt with from scratch, by name.
ENCODERS: Table[Any] = Table(
    "network",
    {"xlnet": XlNet, "bidirectional": BidirectionalTransformer, "local_bidirectional": LocalBidirectional},
    given=("vocabulary",),
)


@runtime_checkable
class TaskEncoder(Protocol):
    """Reads texts: `ContentStream` (XLNet), `BothWays` (a bidirectional Transformer), `HuggingFaceEncoder`."""

    @property
    def width(self) -> int:
        """Of a vector."""

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows, the special ones counted."""

    @property
    def table(self) -> Float[Tensor, "vocabulary size"]:
        """The vector of each token before any layer."""

    def __call__(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts length width"]:
        """Vectors of padding mean nothing."""


class OwnEncoder(nn.Module):
    """What encoders of ebar's own backbones share."""

    backbone: Any

    def __init__(self, backbone: XlNet | BidirectionalTransformer | LocalBidirectional):
        super().__init__()
        self.backbone = backbone

    @property
    def width(self) -> int:
        return int(self.backbone.width)

    @property
    def vocabulary(self) -> int:
        return int(self.backbone.vocabulary)


class ContentStream(OwnEncoder):
    """XLNet as it is fine-tuned: the content stream alone, every token sees every other (Yang et al. 2019, 2.5)."""

    backbone: XlNet

    @property
    def table(self) -> Float[Tensor, "vocabulary size"]:
        return self.backbone.embedding

    def forward(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts length width"]:
        inside = Sequences(tokens, lengths).mask()
        content: Tensor = self.backbone(
            tokens, inside=None if bool(inside.all()) else inside, segments=segments
        ).content
        return content


class BothWays(OwnEncoder):
    """A bidirectional Transformer, with full or local attention. It knows where A ends by the separator alone."""

    backbone: BidirectionalTransformer | LocalBidirectional

    @property
    def table(self) -> Float[Tensor, "vocabulary size"]:
        return self.backbone.inputs[: self.vocabulary]

    def forward(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts length width"]:
        return self.backbone(Sequences(tokens, lengths))  # type: ignore[no-any-return]


class HuggingFaceEncoder(nn.Module):
    """An encoder of transformers that reads CLS first, as BERT does: it is given [CLS A SEP B SEP].

    Its vectors come back in the order of ebar's inputs, that of CLS last. A network without token types (RoBERTa) knows
    where A ends by the separator alone.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        config: Any = network.config
        self.types = int(getattr(config, "type_vocab_size", 0) or 0)
        self.positions = positions_in_table(network)
        self.padding = int(getattr(config, "pad_token_id", None) or 0)

    @property
    def width(self) -> int:
        return int(self.network.config.hidden_size)  # type: ignore[arg-type, union-attr]

    @property
    def vocabulary(self) -> int:
        return len(self.table)

    @property
    def table(self) -> Float[Tensor, "vocabulary size"]:
        return self.network.get_input_embeddings().weight  # type: ignore[operator, no-any-return]

    def forward(
        self, tokens: Int[Tensor, "texts length"], segments: Int[Tensor, "texts length"], lengths: Int[Tensor, " texts"]
    ) -> Float[Tensor, "texts length width"]:
        length = tokens.shape[1]
        if self.positions is not None and self.positions < length:
            raise UserError(f"The encoder has {self.positions} positions, fewer than the {length} tokens of a text.")
        inside = Sequences(tokens, lengths).mask()
        last = (lengths - 1).clamp(min=0)[:, None]
        steps = torch.arange(length, device=tokens.device)
        # In place t of what it reads stands token t − 1, and CLS, the last, in place 0.
        read = torch.where(steps == 0, last, (steps - 1).clamp(min=0))
        options: dict[str, Tensor] = {"attention_mask": inside.long()}
        if self.types > 1:
            options["token_type_ids"] = torch.where(inside & (steps > 0), segments.gather(1, read), 0).clamp(max=1)
        ids = torch.where(inside, tokens.gather(1, read), self.padding)
        hidden: Tensor = self.network(input_ids=ids, **options).last_hidden_state
        back = torch.where(steps == last, 0, (steps + 1).clamp(max=length - 1))
        return hidden.gather(1, back[:, :, None].expand(-1, -1, hidden.shape[2]))


def is_xlnet(network: Any) -> bool:
    """Whether it is an XLNet of transformers, which becomes one of ebar's."""
    return getattr(getattr(network, "config", None), "model_type", None) == "xlnet"


def task_encoder(network: Any) -> TaskEncoder:
    """An encoder of whatever reads texts both ways: a network of ebar's or of transformers, or a model made of one."""
    for one in (network, getattr(network, "encoder", None)):  # its own, where it is a model of other tasks
        if isinstance(one, TaskEncoder) and isinstance(one, nn.Module):
            return one
    found = getattr(network, "backbone", network)
    if isinstance(found, XlNet):
        return ContentStream(found)
    if isinstance(found, BidirectionalTransformer | LocalBidirectional):
        return BothWays(found)
    if isinstance(found, nn.Module) and hasattr(found, "get_input_embeddings") and hasattr(found, "config"):
        if is_xlnet(found):
            return task_encoder(xlnet_from_hugging_face(found))
        if getattr(found.config, "is_decoder", False) or not hasattr(found.config, "hidden_size"):
            raise UserError(f"{type(found).__name__} reads from left to right: give an encoder, which reads both ways.")
        return HuggingFaceEncoder(found)
    raise UserError(
        f"{type(found).__name__} does not read a text both ways, which a labelled task needs: give an XLNet, a "
        "bidirectional Transformer, or an encoder of transformers."
    )
