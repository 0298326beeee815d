"""Models that show the vectors their logits are read from, beside the logits.

What a text may still become is written in a language model's own hidden state: a look-ahead that learns reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.backbone import Stepper
from ebar.errors import UserError
from ebar.models.drawing import Placed, PlacedSteps, stepper_of
from ebar.models.stepwise import check_order
from ebar.types import Context, Space, State


@dataclass(frozen=True, slots=True)
class Shown:
    """Logits and the hidden vectors behind them; an index takes both."""

    logits: Float[Tensor, "*batch vocabulary"]
    hidden: Float[Tensor, "*batch width"]

    def __getitem__(self, index: Any) -> "Shown":
        return Shown(self.logits[index], self.hidden[index])


def split(given: Any) -> tuple[Float[Tensor, "*batch vocabulary"], Float[Tensor, "*batch width"] | None]:
    """Logits, and hidden vectors where they are shown."""
    return (given.logits, given.hidden) if isinstance(given, Shown) else (given, None)


@runtime_checkable
class Showing(Protocol):
    """`start`, `advance` and the steps of a model, with what is shown in the place of logits."""

    def start(self, rows: int, context: Context | None = None) -> tuple[Any, State]: ...

    def advance(self, tokens: Int[Tensor, "rows length"], state: Any) -> tuple[Any, State]: ...

    def stepper(self, state: Any) -> Stepper: ...


class ShownThrough:
    """A model of `space` made of an inner one: `shown` is what it makes of what that gives, from a place on."""

    def __init__(self, inner: Any, space: Space, shown: Callable[[Any, int], Shown]):
        self.inner, self.space, self.shown = inner, space, shown

    def start(self, rows: int, context: Context | None = None) -> tuple[Shown, Placed]:
        check_order(self.space, context)
        given, state = self.inner.start(rows, context)
        return self._after_step(given, 0), Placed(state, 0)

    def advance(self, tokens: Int[Tensor, "rows length"], state: Placed) -> tuple[Shown, Placed]:
        given, after = self.inner.advance(tokens, state.inner)
        return self.shown(given, state.place + 1), Placed(after, state.place + tokens.shape[1])

    def stepper(self, state: Placed) -> Stepper:
        return PlacedSteps(stepper_of(self.inner, state.inner), state.place, self._after_step)

    def _after_step(self, given: Any, place: int) -> Shown:
        return self.shown(given[:, None], place)[:, 0]


@runtime_checkable
class ShowsHidden(Protocol):
    """A stepwise model that can show its hidden vectors. To have it, a model of your own needs these two."""

    @property
    def output_vectors(self) -> Float[Tensor, "vocabulary size"]:
        """One vector for each token, such as the weights of the last layer; without gradient."""

    def showing(self) -> Showing:
        """The same model, with `Shown` where it gives logits; states are the model's own."""


def shows_hidden(model: object) -> ShowsHidden:
    """The model, where it can show its hidden vectors."""
    inner = getattr(model, "model", None)  # of what stands around another model
    if not isinstance(model, ShowsHidden) or (inner is not None and not isinstance(inner, ShowsHidden)):
        raise UserError(
            f"{type(inner or model).__name__} does not show its hidden states, from which a look-ahead could learn: "
            "give the model `output_vectors` and `showing` (see ebar.models.hidden), or learn in 0 rounds."
        )
    return model
