"""A backbone and a head: a distribution read token by token."""

from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from ebar.automata.reading import Reading
from ebar.backbones.backbone import Backbone, Quick, Reads, Stepper
from ebar.errors import UserError
from ebar.heads.head import Head
from ebar.models.drawing import Advances, Placed, PlacedSteps
from ebar.models.stepwise import by_advancing, only_end_in_last_place
from ebar.models.truncated import Truncatable
from ebar.types import Context, Space


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

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:
        hidden, state = self.backbone.start(rows, context)
        return self._after_step(hidden, 0), Placed(state, 0)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        hidden, after = self.backbone.advance(tokens, state.inner)
        logits = only_end_in_last_place(self.head(hidden), state.place + 1, self.space)
        return logits, Placed(after, state.place + tokens.shape[1])

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

    def stepper(self, state: Placed) -> Stepper:
        """The quickest way to draw; without dropout only in evaluation mode where the backbone has no quicker one."""
        if isinstance(self.backbone, Quick):
            return PlacedSteps(self.backbone.stepper(state.inner), state.place, self._after_step)
        return Advances(self, state)

    def _after_step(self, hidden: Float[Tensor, "rows width"], place: int) -> Float[Tensor, "rows vocabulary"]:
        return only_end_in_last_place(self.head(hidden)[:, None], place, self.space)[:, 0]
