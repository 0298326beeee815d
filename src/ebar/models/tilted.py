"""The algebra itself: a base distribution tilted by an energy.

Asking an energy or a model for numbers, as samplers and estimators do: without dropout, shapes checked.

How the tokens of a model spell text, so that features need not be bound by hand.

RALM of Deng et al. 2020: a residual that is normalised at every step, where the joint model is normalised once.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar import together
from ebar.automata.lift import Reading
from ebar.backbones.backbone import Stepper
from ebar.features.feature import Feature, Features, bind
from ebar.maths.orders import arranged
from ebar.maths.rows import count_rows, take
from ebar.models.drawing import stepper_of
from ebar.models.stepwise import ByChainRule, teacher_forced
from ebar.models.truncated import Prompted
from ebar.modes import evaluation_mode
from ebar.shapes import counted, of_shape
from ebar.types import (
    Context,
    Distribution,
    Energy,
    SamplesWithLogProb,
    Scored,
    Sequences,
    Space,
    Space_co,
    State,
    Stepwise,
    X,
    context_rows,
)


def measured_energy(energy: Energy[X], x: X, context: Context | None = None) -> Float[Tensor, " batch"]:
    """E(x, C) in evaluation mode, whatever mode the energy is in."""
    with evaluation_mode(energy):
        return checked_energy(energy, x, context)


@torch.no_grad()
def propose(
    source: Distribution[X, Any], n: int, context: Context | None, generator: Generator
) -> tuple[X, Float[Tensor, " batch"]]:
    """n draws for each row of the context and their log-probability, in evaluation mode.

    Where the source knows the log-probability from drawing (`SamplesWithLogProb`), the draws are not scored again.
    A part of a batch draws its own rows, if the source draws token by token; otherwise those of the whole batch are
    drawn, once in each process, and the part has its own of them.
    """
    if together.is_shared() and not draws_tokens(source):
        return _own_of_all(source, n, context, generator)
    with evaluation_mode(source), together.whole_weights(source):
        if isinstance(source, SamplesWithLogProb):
            x, log_prob = source.sample_with_log_prob(n, context, generator=generator)
        else:
            x = source.sample(n, context, generator=generator)
            log_prob = score(source, x, context)
    drawn = (context_rows(context) * n,)
    if isinstance(x, Sequences):
        of_shape(x.lengths, drawn, f"The lengths of {n} draws for each context")
    else:
        of_shape(x, (*drawn, *source.space.shape), f"The points of {n} draws for each context")
    return x, of_shape(log_prob, drawn, f"The log-probabilities of {n} draws for each context")


def draws_tokens(source: object) -> bool:
    """Whether it draws token by token, so that a row can have random numbers of its own."""
    return isinstance(source.model if isinstance(source, Prompted) else source, ByChainRule)


def _own_of_all(
    source: Distribution[X, Any], n: int, context: Context | None, generator: Generator
) -> tuple[X, Float[Tensor, " batch"]]:
    """This part's rows of what is drawn for all of them."""
    rows = n * context_rows(context)
    if not together.is_even(rows):
        own = Generator(generator.device).manual_seed(together.own_seed(rows, generator))
        with together.sharing(None):
            return propose(source, n, context, own)
    first, everywhere = together.place_of(rows)
    whole = None
    if context is not None:
        orders = () if context.order is None else (context.order + 1,)  # padded with −1
        tokens, lengths, *ordered = together.joined(context.given.tokens, context.given.lengths, *orders)
        whole = Context(Sequences(tokens, lengths), ordered[0] - 1 if ordered else None)

    def of_all() -> tuple[X, Float[Tensor, " batch"]]:
        with together.sharing(None):
            return propose(source, n if context is not None else everywhere, whole, generator)

    x, log_prob = together.once(of_all)
    return take(x, slice(first, first + rows)), log_prob[first : first + rows]


def checked_energy(energy: Energy[X], x: X, context: Context | None = None) -> Float[Tensor, " batch"]:
    """E(x, C) in the energy's own mode, as an objective wants it that trains the energy.

    In a context with an order an energy is given the arranged text, which holds the given tokens, and no context. Those
    with an attribute `any_order` that is True read the order themselves, as all of ebar's own do.
    """
    found: Any = x
    if context is not None and context.order is not None and not getattr(energy, "any_order", False):
        found, context = arranged(found, context), None
    return of_shape(energy(found, context), (count_rows(x),), f"The energy of {counted(x)}")


def score(
    model: Distribution[X, Any] | Scored[X], x: X, context: Context | None = None
) -> Float[Tensor, " batch"]:  # fmt: skip
    """log_prob where there is one, log_score otherwise, in evaluation mode."""
    with evaluation_mode(model):
        if isinstance(model, Distribution):
            return of_shape(model.log_prob(x, context), (count_rows(x),), f"log_prob of {counted(x)}")
        return of_shape(model.log_score(x, context), (count_rows(x),), f"log_score of {counted(x)}")


class Tilted(nn.Module, Generic[X, Space_co]):
    """P(x|C) = base(x|C)·exp(−energy(x, C)).

    A GAM when the energy is linear in features, a Residual EBM when it is a network.
    It has no `sample` and no `log_prob`: those need Z, and Z belongs to `samplers` and `estimators`.
    `log_score` is without dropout, whatever the mode, like `log_prob`; an objective that trains the energy asks the
    energy itself.
    """

    def __init__(self, base: Distribution[X, Space_co], energy: Energy[X]):
        super().__init__()
        self.base = base
        self.energy = energy

    @property
    def space(self) -> Space_co:
        return self.base.space

    def log_score(self, x: X, context: Context | None = None) -> Float[Tensor, " batch"]:
        return score(self.base, x, context) - measured_energy(self.energy, x, context)


def reading_of_model(model: Any) -> Reading | None:
    """Known of a model that was made for data or is pretrained, and of whatever is made of one: tilted, truncated."""
    while model is not None:
        if (reading := getattr(model, "reading", None)) is not None:
            found: Reading = reading
            return found
        model = next((getattr(model, name) for name in ("base", "model") if hasattr(model, name)), None)
    return None


def bound_features(features: Features[X] | Sequence[Feature[X]], model: Any) -> Features[X]:
    """The features for a model's tokens; where its reading is not known, only such as are bound already can be used."""
    if isinstance(features, Features):
        return features
    reading = reading_of_model(model)
    bound: list[Any] = [feature if reading is None else bind(feature, reading) for feature in features]
    return Features(bound)


class LocallyResidualState(NamedTuple):
    """Where both models stand."""

    base: State
    residual: State

    def select(self, rows: Int[Tensor, " selected"]) -> "LocallyResidualState":
        return LocallyResidualState(self.base.select(rows), self.residual.select(rows))


class LocallyResidual(ByChainRule):
    """log p(xₜ|x₍<t₎, C) = log base(xₜ|x₍<t₎, C) + log residual(xₜ|x₍<t₎, C) + const, over the vocabulary.

    The base is frozen: it has no gradient and no dropout, whatever the mode. Give the optimiser
    `model.residual.parameters()`. What is added is the residual's logits: their shift is free where the residual's is.
    """

    def __init__(self, base: Stepwise, residual: Stepwise):
        super().__init__()
        if base.space != residual.space:
            raise ValueError(f"both models must be of one space, not of {base.space} and {residual.space}")
        self.base: Any = base
        self.residual: Any = residual
        self.train(bool(getattr(residual, "training", True)))  # a trained one is not set back to training

    @property
    def space(self) -> Space:
        return self.residual.space  # type: ignore[no-any-return]

    @property
    def free_logits(self) -> bool:
        return bool(self.residual.free_logits)

    def train(self, mode: bool = True) -> "LocallyResidual":
        super().train(mode)
        self.base.eval()
        return self

    def added(
        self, base: Float[Tensor, "*batch vocabulary"], residual: Float[Tensor, "*batch vocabulary"]
    ) -> Float[Tensor, "*batch vocabulary"]:
        """What is impossible for either is impossible."""
        both = torch.log_softmax(base, -1) + residual
        return both if self.free_logits else torch.log_softmax(both, -1)

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], LocallyResidualState]:
        with torch.no_grad():
            base, before = self.base.start(rows, context)
        residual, state = self.residual.start(rows, context)
        return self.added(base, residual), LocallyResidualState(before, state)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: LocallyResidualState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], LocallyResidualState]:
        with torch.no_grad():
            base, before = self.base.advance(tokens, state.base)
        residual, after = self.residual.advance(tokens, state.residual)
        return self.added(base, residual), LocallyResidualState(before, after)

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass of each model."""
        with torch.no_grad():
            base = teacher_forced(self.base, tokens, context)
        return self.added(base, teacher_forced(self.residual, tokens, context))

    def stepper(self, state: LocallyResidualState) -> Stepper:
        """Each model's own way to draw."""
        return _Steps(self, stepper_of(self.base, state.base), stepper_of(self.residual, state.residual))


class _Steps:
    """The steppers of both models."""

    def __init__(self, model: LocallyResidual, base: Stepper, residual: Stepper):
        self.model, self.base, self.residual = model, base, residual

    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        return self.model.added(self.base.step(tokens), self.residual.step(tokens))

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.base.keep(rows)
        self.residual.keep(rows)
