"""What a feature is, and how a family of them is evaluated: vectorised, and once per sample."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary

from ebar.automata.deterministic import Dfa
from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.maths.orders import arranged
from ebar.maths.rows import count_rows
from ebar.modes import evaluation_mode
from ebar.shapes import counted, of_shape, shown
from ebar.types import Context, Sequences, X, X_contra, spread


@runtime_checkable
class Feature(Protocol[X_contra]):
    """A bounded real function of a whole x, sequence or point (and of its context, where it wants to look)."""

    @property
    def name(self) -> str: ...

    @property
    def low(self) -> float:
        """No value is below this: what rejection sampling's bound is made of."""

    @property
    def high(self) -> float: ...

    def __call__(self, x: X_contra, context: Context | None = None) -> Float[Tensor, " batch"]: ...


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


@runtime_checkable
class SourceBindable(Protocol):
    """A feature that also looks at the source, and is bound to its tokens too."""

    def bind_source(self, reading: Reading) -> "Feature":
        """The feature for a source's tokens; itself where it is bound already."""


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


class Features(Generic[X]):
    """φ(x) = (φ₁(x), …, φₖ(x)), each evaluated once for a given batch and kept as long as the batch lives.

    Features are about x, not about a prefix before it. In a context with an order they are about the arranged text.
    """

    def __init__(self, features: "Sequence[Feature[X]]"):
        self.features = tuple(features)
        self._kept: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process without what is kept of batches here."""
        return Features, (self.features,)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> list[str]:
        return [feature.name for feature in self.features]

    def __call__(self, x: X, context: Context | None = None) -> Float[Tensor, "batch features"]:
        # Known again by the very tensors and their versions: a batch changed in place is seen anew.
        tensors: list[Tensor] = [*x] if isinstance(x, Sequences) else [cast(Tensor, x)]
        if context is not None:
            tensors += [*context.given, *([] if context.order is None else [context.order])]
        # These have no version; and what has a gradient in x is of one graph, which is not kept.
        if any(tensor.is_inference() or tensor.requires_grad for tensor in tensors):
            return self._evaluate(x, context)
        first, *others = tensors
        versions = tuple(tensor._version for tensor in tensors)
        if first in self._kept:
            kept: _Kept = self._kept[first]
            same = all(seen() is tensor for seen, tensor in zip(kept.seen, others, strict=False))
            if same and kept.versions == versions:
                return kept.values
        values = self._evaluate(x, context)
        self._kept[first] = _Kept(tuple(TensorWeakRef(tensor) for tensor in others), versions, values)
        return values

    def _evaluate(self, x: X, context: Context | None) -> Float[Tensor, "batch features"]:
        found: Any = x
        rows = spread(context, count_rows(x))
        if rows is not None and rows.order is not None:
            found, rows = arranged(found, rows), Context(rows.given)
        with evaluation_mode(*self.features):
            columns = [_checked(feature, found, rows) for feature in self.features]
        if columns:
            return torch.stack(columns, 1)
        device = found.tokens.device if isinstance(found, Sequences) else found.device
        return torch.zeros(count_rows(x), 0, device=device)


def _checked(feature: Feature[X], x: X, context: Context | None) -> Float[Tensor, " batch"]:
    values = of_shape(feature(x, context), (count_rows(x),), f"Feature {feature.name!r} of {counted(x)}")
    if not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values)).nonzero()[0])
        raise UserError(f"Feature {feature.name!r} is not finite on {shown(x, row)}.")
    return values
