"""What a feature is, and how a family of them is evaluated: vectorised, and once per sample."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

from ebar.automata.deterministic import Dfa
from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.maths.orders import arranged
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, spread


@runtime_checkable
class Feature(Protocol):
    """A bounded real function of a whole sequence (and of its context, where it wants to look)."""

    @property
    def name(self) -> str: ...

    @property
    def low(self) -> float:
        """No value is below this: what rejection sampling's bound is made of."""
        ...

    @property
    def high(self) -> float: ...

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]: ...


@runtime_checkable
class Followed(Protocol):
    """A feature that is the indicator of a regular language: an automaton follows it along the prefix."""

    @property
    def automaton(self) -> Dfa: ...


@runtime_checkable
class Bindable(Protocol):
    """A feature that is made without knowing a model's tokens, and bound to them."""

    def bind(self, reading: Reading) -> "Feature":
        """The feature for a model's tokens; itself where it is bound already."""
        ...


def bind(feature: Any, reading: Reading) -> "Feature":
    """The feature for a model's tokens, which `reading` describes (`Corpus.reading`).

    A feature that is bound already, or that needs no binding, is returned unchanged.
    """
    found: Feature = feature.bind(reading) if isinstance(feature, Bindable) else feature
    return found


def negated(feature: Any) -> "Feature | None":
    """The opposite of a feature that is there or not; None for one that has degrees and no opposite."""
    if not hasattr(feature, "absent") or not is_dataclass(feature):
        return None
    own: Any = feature
    changed: dict[str, Any] = {"absent": not own.absent}
    if any(field.name == "name" for field in fields(own)):
        changed["name"] = own.name.removeprefix("no ") if own.absent else f"no {own.name}"
    opposite: Feature = replace(own, **changed)
    return opposite


class _Kept(NamedTuple):
    seen: tuple[TensorWeakRef, ...]  # besides the tokens: lengths and context
    versions: tuple[int, ...]
    values: Float[Tensor, "batch features"]


class Features:
    """φ(x) = (φ₁(x), …, φₖ(x)), each evaluated once for a given batch and kept as long as the batch lives.

    Features are about x, not about a prefix before it. In a context with an order they are about the arranged text.
    """

    def __init__(self, features: "tuple[Feature, ...] | list[Feature]"):
        self.features = tuple(features)
        self._kept: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> list[str]:
        return [feature.name for feature in self.features]

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, "batch features"]:
        # Known again by the very tensors and their versions: a batch changed in place is seen anew.
        tensors = [*x] if context is None else [*x, *context.given]
        if context is not None and context.order is not None:
            tensors.append(context.order)
        if any(tensor.is_inference() for tensor in tensors):  # these have no version
            return self._evaluate(x, context)
        versions = tuple(tensor._version for tensor in tensors)
        if x.tokens in self._kept:
            kept: _Kept = self._kept[x.tokens]
            same = all(seen() is tensor for seen, tensor in zip(kept.seen, tensors[1:], strict=False))
            if same and kept.versions == versions:
                return kept.values
        values = self._evaluate(x, context)
        self._kept[x.tokens] = _Kept(tuple(TensorWeakRef(tensor) for tensor in tensors[1:]), versions, values)
        return values

    def _evaluate(self, x: Sequences, context: Context | None) -> Float[Tensor, "batch features"]:
        rows = spread(context, len(x.lengths))
        if rows is not None and rows.order is not None:
            x, rows = arranged(x, rows), Context(rows.given)
        with evaluation_mode(*self.features):
            columns = [_checked(feature, x, rows) for feature in self.features]
        return torch.stack(columns, 1) if columns else torch.zeros(len(x.lengths), 0, device=x.tokens.device)


def _checked(feature: Feature, x: Sequences, context: Context | None) -> Float[Tensor, " batch"]:
    count = len(x.lengths)
    values = of_shape(feature(x, context), (count,), f"Feature {feature.name!r} of {count} sequences")
    if not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values)).nonzero()[0])
        raise UserError(f"Feature {feature.name!r} is not finite on the sequence {x.prefix(row)}.")
    return values
