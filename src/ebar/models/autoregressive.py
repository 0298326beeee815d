"""A backbone and a head: a distribution read token by token."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.automata.reading import Reading
from ebar.backbones.backbone import Backbone, Quick, Reads, Stepper
from ebar.errors import UserError
from ebar.heads.head import Head
from ebar.models.stepwise import (
    Advances,
    by_advancing,
    only_end_in_last_place,
)
from ebar.models.truncated import Truncatable
from ebar.types import Context, Space, State


class AutoregressiveState(NamedTuple):
    """The backbone's state, and how many tokens have been read."""

    backbone: State
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "AutoregressiveState":
        return AutoregressiveState(self.backbone.select(rows), self.place)


class Autoregressive(Truncatable):
    """q(x|C) = Πₜ softmax(head(backbone(C, x₍<t₎)))ₓₜ, the last place of the space being the end token's.

    `log_prob` and `sample` are without dropout, whatever the mode: a number about the model is one about the model in
    evaluation mode. `teacher_forced`, `start` and `advance` have dropout in training mode, as an objective wants it.
    """

    origin: dict[str, Any] | None = None  # backbone and head as a configuration has them, where it was made by name
    reading: Reading | None = None  # how its tokens spell text, where it was made for data

    def __init__(self, backbone: Backbone, head: Head, space: Space):
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.space: Space = replace(space, completes=True) if getattr(backbone, "completes", False) else space

    @property
    def free_logits(self) -> bool:
        return self.head.free_logits

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], AutoregressiveState]:
        hidden, state = self.backbone.start(rows, context)
        logits = only_end_in_last_place(self.head(hidden)[:, None], 0, self.space)[:, 0]
        return logits, AutoregressiveState(state, 0)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: AutoregressiveState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], AutoregressiveState]:
        hidden, after = self.backbone.advance(tokens, state.backbone)
        logits = only_end_in_last_place(self.head(hidden), state.place + 1, self.space)
        return logits, AutoregressiveState(after, state.place + tokens.shape[1])

    def teacher_forced(
        self, tokens: Int[Tensor, "rows length"], context: Context | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        """Logits of each of the tokens given those before it, in one pass."""
        if isinstance(self.backbone, Reads):
            return self.from_inputs(self.backbone.embed(tokens[:, :-1]), context)[:, : tokens.shape[1]]
        return by_advancing(self, tokens, context)

    def from_inputs(
        self, inputs: Float[Tensor, "rows length size"], context: Context | None = None
    ) -> Float[Tensor, "rows places vocabulary"]:
        """Logits before each input and after the last, where vectors stand in place of tokens."""
        if not isinstance(self.backbone, Reads):
            raise UserError(f"{type(self.backbone).__name__} reads tokens only, no vectors in their place.")
        return only_end_in_last_place(self.head(self.backbone.read(inputs, context)), 0, self.space)

    def stepper(self, state: AutoregressiveState) -> Stepper:
        """The quickest way to draw; without dropout only in evaluation mode where the backbone has no quicker one."""
        if isinstance(self.backbone, Quick):
            return _Steps(self, self.backbone.stepper(state.backbone), state.place)
        return Advances(self, state)


class _Steps:
    """The backbone's stepper, the head, and the place."""

    def __init__(self, model: Autoregressive, backbone: Stepper, place: int):
        self.model, self.backbone, self.place = model, backbone, place

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        self.place += 1
        logits = self.model.head(self.backbone.step(tokens))
        return only_end_in_last_place(logits[:, None], self.place, self.model.space)[:, 0]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.backbone.keep(rows)
