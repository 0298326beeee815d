"""A language model that goes on from one prompt, as a distribution without a context."""

from typing import Any

from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.backbones.backbone import Stepper
from ebar.errors import UserError
from ebar.maths.randomness import default_generator
from ebar.models.drawing import stepper_of
from ebar.types import Context, SamplesWithLogProb, Sequences, Space, State, Stepwise


class Prompted(nn.Module):
    """q(x) = model(x|C) for one C: what is made for models without a context, moment matching say, can then be used."""

    def __init__(self, model: Stepwise, prompt: Context):
        super().__init__()
        if prompt.rows != 1:
            raise ValueError(f"a prompt is one row, not {prompt.rows}")
        self.model = model
        self.prompt = prompt

    @property
    def space(self) -> Space:
        return self.model.space

    @property
    def free_logits(self) -> bool:
        return self.model.free_logits

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        return self.model.start(rows, self._only(context))

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Any
    ) -> tuple[Float[Tensor, "rows length vocabulary"], State]:
        return self.model.advance(tokens, state)

    def stepper(self, state: Any) -> Stepper:
        return stepper_of(self.model, state)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return self.model.log_prob(x, self._only(context))

    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        return self.model.sample(n, self._only(context), generator=generator or default_generator())

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        prompt = self._only(context)
        if isinstance(self.model, SamplesWithLogProb):
            return self.model.sample_with_log_prob(n, prompt, generator=generator)
        x = self.model.sample(n, prompt, generator=generator)
        return x, self.model.log_prob(x, prompt)

    def _only(self, context: Context | None) -> Context:
        if context is not None:
            raise UserError("The model already has its prompt: give no other context.")
        return self.prompt
