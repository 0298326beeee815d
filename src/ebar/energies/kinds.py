"""The energies that residual models can be given by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import nn

from ebar.backbones.local_xl import LocalBidirectional
from ebar.backbones.pretrained.reading import with_lora
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.backbones.xlnet import XlNet, XlNetBidirectional
from ebar.bounds import Amount, Bound, Count, Location, Natural, Share
from ebar.data.specials import Specials, specials_of
from ebar.data.tokenisers import Tokeniser
from ebar.energies.neural import Bidirectional, BidirectionalNetwork, Causal, MaskedModel, Neural, Pool, copied_backbone
from ebar.energies.reencoded import LoadedEncoder, Reencoded, freeze, keep_layers, load_encoder
from ebar.errors import UserError
from ebar.tables import Table

Gaps = Annotated[float, Bound("above 0 and 1 or less", lambda value: 0 < value <= 1)]


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Masked language modelling before an energy is trained, by which a bidirectional encoder learns the language."""

    epochs: int = 3
    """Passes over the training chunks; 0 for none: on real text the energy then seldom learns anything."""
    learning_rate: float = 5e-4
    """Of AdamW."""
    masked: float = 0.15
    """Share of the tokens that are masked."""
    model: MaskedModel | None = None
    """The energy's encoder with an output layer; by default one with new weights, from torch's global state."""


class Unit(Neural):
    """UniT: reads from left to right, as the base does.

    Args:
        start: Begin with a copy of the base's weights, or with random ones.
        lora: Rank of the matrices that learn beside a pretrained base's own; by default its own learn.
        pool: Whose vectors are averaged: the continuation's, or the prefix's too.
        bound: Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be
            certified.
    """

    def __init__(
        self, *, base: Any, device: str, tokeniser: Tokeniser | None = None, location: str | None = None,
        fresh: Callable[[], nn.Module] | None = None, start: Literal["base", "fresh"] = "base",
        lora: Count | None = None, pool: Pool = "continuation", bound: Amount | None = None,
    ):  # fmt: skip
        if location is not None:
            # A pretrained base's twin reads the text, as any other pretrained network does.
            if start == "fresh":
                raise UserError(
                    "A UniT beside a pretrained base begins with the base's weights: leave out energy.start."
                )
            encoder: Any = _reading(load_encoder(location, device=device), base, tokeniser, lora)
        elif lora is not None:
            raise UserError("LoRA is for pretrained networks, and this base is a run of ebar's: leave out energy.lora.")
        else:
            encoder = Causal(fresh() if start == "fresh" and fresh is not None else copied_backbone(base))
        super().__init__(encoder, pool=pool, bound=bound)


class Bit(Neural):
    """BiT: a bidirectional Transformer from scratch.

    Args:
        layers: Of the Transformer.
        hidden: Numbers in a vector.
        heads: Of attention, in each layer.
        dropout: Chance that a number is left out while it learns.
        chunk: For long texts: attend to a chunk of so many tokens and its two neighbours, not to all of the text.
        warm_up: Passes over the text in which it first learns to fill gaps; 0 for none: on real text it then seldom
            learns.
        warm_up_learning_rate: Of AdamW, there.
        masked: Share of the tokens that are gaps, there.
        pool: Whose vectors are averaged: the continuation's, or the prefix's too.
        bound: Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be
            certified.
    """

    def __init__(
        self, *, vocabulary: int, layers: Count = 4, hidden: Count = 256, heads: Count = 4, dropout: Share = 0.1,
        chunk: Count | None = None, warm_up: Natural = 3, warm_up_learning_rate: Amount = 5e-4, masked: Gaps = 0.15,
        pool: Pool = "continuation", bound: Amount | None = None,
    ):  # fmt: skip
        sizes: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads, "dropout": dropout}
        network: BidirectionalNetwork = (
            BidirectionalTransformer(vocabulary, **sizes) if chunk is None
            else LocalBidirectional(vocabulary, **sizes, chunk=chunk)
        )  # fmt: skip
        how = WarmUp(epochs=warm_up, learning_rate=warm_up_learning_rate, masked=masked, model=MaskedModel(network))
        super().__init__(Bidirectional(network), pool=pool, bound=bound)
        self.begins_with = how


class XlNetEnergy(Neural):
    """XLNet, whose content stream sees both sides of every token: pretrained, or from scratch.

    Args:
        start: Folder of an `ebar pretrain` run, or of an XLNet of transformers, with the base's tokeniser; by default
            the weights are new, and the sizes are those below.
        layers: Of the network.
        hidden: Numbers in a vector.
        heads: Of attention, in each layer.
        dropout: Chance that a number is left out while it learns.
        chunk: For long texts: attend to a chunk of so many tokens and its two neighbours, not to all of the text.
        warm_up: Passes over the text in which new weights first learn to fill gaps; 0 for none.
        warm_up_learning_rate: Of AdamW, there.
        masked: Share of the tokens that are gaps, there.
        pool: Whose vectors are averaged: the continuation's, or the prefix's too.
        bound: Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be
            certified.
    """

    def __init__(
        self, *, vocabulary: int, tokeniser: Tokeniser | None = None, opened: Callable[[str], Any] | None = None,
        start: Location | None = None, layers: Count = 4, hidden: Count = 256, heads: Count = 4, dropout: Share = 0.1,
        chunk: Count | None = None, warm_up: Natural = 3, warm_up_learning_rate: Amount = 5e-4, masked: Gaps = 0.15,
        pool: Pool = "continuation", bound: Amount | None = None,
    ):  # fmt: skip
        if start is None:
            specials = Specials(*range(vocabulary, vocabulary + len(Specials._fields)))
            sizes: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads, "chunk": chunk}
            made = XlNet(vocabulary + len(specials), **sizes, dropout=dropout, attention_dropout=dropout)
            network = XlNetBidirectional(made, vocabulary, specials.mask)
        else:
            assert opened is not None
            network = _content(opened(str(start)), str(start), tokeniser, vocabulary, chunk)
        super().__init__(Bidirectional(network), pool=pool, bound=bound)
        self.begins_with = WarmUp(
            epochs=warm_up if start is None else 0, learning_rate=warm_up_learning_rate, masked=masked,
            model=MaskedModel(network) if start is None else None,
        )  # fmt: skip


def xlnet_energy(model: Any, *, pool: Pool = "continuation", bound: float | None = None) -> Neural:
    """An energy from a copy of a pretrained XLNet's weights, for a base with its tokeniser: it needs no warm-up."""
    backbone = copied_backbone(model)
    if not isinstance(backbone, XlNet):
        raise UserError(f"A {type(backbone).__name__} is no XLNet: take ebar.unit_from(model) instead.")
    energy = Neural(Bidirectional(XlNetBidirectional(backbone, backbone.vocabulary, 0)), pool=pool, bound=bound)
    energy.begins_with = WarmUp(epochs=0)  # type: ignore[assignment]
    return energy


def _content(
    model: Any, name: str, tokeniser: Tokeniser | None, vocabulary: int, chunk: int | None
) -> XlNetBidirectional:
    """The network of a pretrained model, which reads the base's tokens."""
    backbone, own = model.backbone, model.tokeniser
    if not isinstance(backbone, XlNet):
        raise UserError(f"{name} holds a {type(backbone).__name__}, and this energy starts from an XLNet.")
    if own is None or tokeniser is None or own != tokeniser or vocabulary > backbone.vocabulary:
        raise UserError(
            f"{name} has another tokeniser than the base: train the base with its tokeniser (data.tokeniser_file), or"
            " save it with ebar.save_as_hugging_face and take energy.kind pretrained, which reads text."
        )
    if chunk is not None:
        backbone.chunks = [chunk] * len(backbone.layers)
    return XlNetBidirectional(backbone, vocabulary, specials_of(own).mask)


class PretrainedEnergy(Neural):
    """BiT*: a pretrained network over the text, in tokens of its own.

    Args:
        encoder: Folder, hub name or file of an encoder, or of a causal model.
        layers: Keep so many of its layers, the lowest; by default all.
        lora: Rank of the matrices that learn beside its own; by default its own learn.
        frozen_layers: So many layers, the lowest first and the embeddings with them, stay as they are.
        cut_prefix: Where a text takes more tokens than the encoder has positions, leave out the beginning of the
            prefix.
        pool: Whose vectors are averaged: the continuation's, or the prefix's too.
        bound: Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be
            certified.
    """

    def __init__(
        self, *, base: Any, device: str, tokeniser: Tokeniser | None, encoder: Location, layers: Count | None = None,
        lora: Count | None = None, frozen_layers: Natural = 0, cut_prefix: bool = False, pool: Pool = "continuation",
        bound: Amount | None = None,
    ):  # fmt: skip
        loaded = load_encoder(encoder, device=device)
        if layers is not None:
            keep_layers(loaded.network, layers)
        if frozen_layers:
            freeze(loaded.network, frozen_layers)
        super().__init__(_reading(loaded, base, tokeniser, lora, cut_prefix=cut_prefix), pool=pool, bound=bound)


def _reading(
    loaded: LoadedEncoder, base: Any, tokeniser: Tokeniser | None, lora: int | None, *, cut_prefix: bool = False
) -> Reencoded:
    network = loaded.network if lora is None else with_lora(loaded.network, rank=lora, kind="encoder")
    assert tokeniser is not None
    return Reencoded(network, loaded.tokeniser.original, tokeniser, end=base.space.end, cut_prefix=cut_prefix)


ENERGIES: Table[Any] = Table(
    "energy",
    {"unit": Unit, "bit": Bit, "xlnet": XlNetEnergy, "pretrained": PretrainedEnergy},
    given=("base", "vocabulary", "tokeniser", "device", "location", "fresh", "opened"),
)
"""Name → a class whose instances are energies: `nn.Module`s that give E(x, context) of each row, a cost.

`ENERGIES["mine"] = Mine` puts one into `ebar residual train --energy.kind mine --energy.option …`. Its options are the
keyword arguments of its constructor, its help the first line of its docstring. Of the following it receives those that
its constructor names: `base`, the language model; `vocabulary`, how many tokens the base knows; `tokeniser`, which the
base's tokens spell text by; `device`, where it will compute; `location`, where a pretrained base was loaded from, None
for one of ebar's; `fresh`, a function that makes a backbone like the base's with new weights, None beside a pretrained
base; `opened`, a function that opens a folder with a pretrained XLNet. First weights are drawn from torch's global
state. An energy with an attribute `begins_with`, a `WarmUp`, is warmed up so.
"""
