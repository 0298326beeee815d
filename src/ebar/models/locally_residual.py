"""RALM of Deng et al. 2020: a residual that is normalised at every step, where the joint model is normalised once."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.backbone import Stepper
from ebar.models.drawing import stepper_of
from ebar.models.stepwise import ByChainRule, teacher_forced
from ebar.types import Context, Space, State, Stepwise


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
