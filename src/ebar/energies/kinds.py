"""The energies that residual models can be given by name, and what each is told."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ebar.bounds import Amount, Bound, Count, Location, Natural, Share

Gaps = Annotated[float, Bound("above 0 and 1 or less", lambda value: 0 < value <= 1)]
PoolOver = Literal["continuation", "all"]


@dataclass(frozen=True, kw_only=True)
class UnitEnergy:
    """UniT: reads from left to right, as the base does."""

    start: Literal["base", "fresh"] = "base"
    """Begin with a copy of the base's weights, or with random ones."""
    lora: Count | None = None
    """Rank of the matrices that learn beside a pretrained base's own; by default its own learn."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: Amount | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


@dataclass(frozen=True, kw_only=True)
class BitEnergy:
    """BiT: a bidirectional Transformer from scratch."""

    layers: Count = 4
    """Of the Transformer."""
    hidden: Count = 256
    """Numbers in a vector."""
    heads: Count = 4
    """Of attention, in each layer."""
    dropout: Share = 0.1
    """Chance that a number is left out while it learns."""
    warm_up: Natural = 3
    """Passes over the text in which it first learns to fill gaps; 0 for none: on real text it then seldom learns."""
    warm_up_learning_rate: Amount = 5e-4
    """Of AdamW, there."""
    masked: Gaps = 0.15
    """Share of the tokens that are gaps, there."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: Amount | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


@dataclass(frozen=True, kw_only=True)
class PretrainedEnergy:
    """BiT*: a pretrained network over the text, in tokens of its own."""

    encoder: Location
    """Folder, hub name or file of an encoder, or of a causal model."""
    lora: Count | None = None
    """Rank of the matrices that learn beside its own; by default its own learn."""
    frozen_layers: Natural = 0
    """So many layers, the lowest first and the embeddings with them, stay as they are."""
    cut_prefix: bool = False
    """Where a text takes more tokens than the encoder has positions, leave out the beginning of the prefix."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: Amount | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


ENERGIES = {"unit": UnitEnergy, "bit": BitEnergy, "pretrained": PretrainedEnergy}
