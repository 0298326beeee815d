"""What a truncated sampler draws from, as a distribution that knows its own log-probabilities.

A language model that goes on from one prompt, as a distribution without a context.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.backbones.backbone import Stepper
from ebar.bounds import Amount, Count
from ebar.errors import UserError
from ebar.maths.randomness import default_generator
from ebar.models.drawing import BLOCK, Placed, PlacedSteps, drawn_at_once, stepper_of
from ebar.models.hidden import Showing, Shown, ShownThrough, shows_hidden
from ebar.models.stepwise import ByChainRule, only_end_in_last_place
from ebar.types import Context, SamplesWithLogProb, Sequences, Space, State, Stepwise


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """How the next-token distribution of a model is cut before it is drawn from; the result is a distribution too."""

    temperature: Amount = 1.0
    """Divides the logits."""
    top_k: Count | None = None
    """Keep the k likeliest tokens."""
    top_p: float | None = None
    """Keep the likeliest tokens of this mass."""

    @property
    def truncates(self) -> bool:
        """Whether it changes anything."""
        return (self.temperature, self.top_k, self.top_p) != (1.0, None, None)

    def of(self, model: Stepwise, *, length: int | None = None) -> Stepwise:
        """The model, or its truncation."""
        if not self.truncates and length is None:
            return model
        try:
            return Truncated(model, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, length=length)
        except ValueError as error:
            raise UserError(f"The model cannot be truncated so: {error}.") from None


class Truncated(ByChainRule):
    """The model with its next-token distribution reshaped at every step, in this order:

    - `length`: a smaller cap; in its last place only the end token stands (without an end: the first tokens only,
      those of the context included where the space completes);
    - `temperature`: p^(1/T), renormalised;
    - `top_k`: the k likeliest tokens (Fan et al. 2018);
    - `top_p`: of what is left, the smallest set of likeliest tokens whose probability reaches p (Holtzman et al. 2020).

    Tokens as likely as the last one kept, to rounding, are kept too: the set must not hang on whether logits come
    from one parallel pass or step by step. Top-k and top-p have smaller support than the model: as a proposal
    for a target with the model's support they leave part of it undrawn.
    """

    def __init__(
        self, model: Stepwise, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
        length: int | None = None,
    ):  # fmt: skip
        super().__init__()
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature must be a positive number, got {temperature}")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must lie above 0 and not above 1, got {top_p}")
        if length is not None and not 1 <= length <= model.space.length:
            raise ValueError(f"length must lie between 1 and the model's {model.space.length}, got {length}")
        self.model = model
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.space: Space = replace(model.space, length=length or model.space.length)

    @property
    def free_logits(self) -> bool:
        return self.model.free_logits and self.top_k is None and self.top_p is None

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn together: as many as of the model itself."""
        return drawn_at_once(self.model)

    def prefixes_at_once(self, prefix: int) -> int:
        """How many prefixes of so many tokens are read together: as many as by the model itself."""
        fitting = getattr(self.model, "prefixes_at_once", None)
        return BLOCK if fitting is None else int(fitting(prefix))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], Placed]:
        logits, state = self.model.start(rows, context)
        return self.reshaped(logits[:, None], 0)[:, 0], Placed(state, 0)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Placed
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Placed]:
        logits, after = self.model.advance(tokens, state.inner)
        return self.reshaped(logits, state.place + 1), Placed(after, state.place + tokens.shape[1])

    def reshaped(
        self, logits: Float[Tensor, "rows length vocabulary"], first_place: int
    ) -> Float[Tensor, "rows length vocabulary"]:
        """What the truncation makes of the model's logits; `first_place` is that of logits[:, 0]."""
        logits = only_end_in_last_place(logits, first_place, self.space) / self.temperature
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return logits if self.free_logits else torch.log_softmax(logits, -1)

    @property
    def output_vectors(self) -> Float[Tensor, "vocabulary size"]:
        """The model's own."""
        return shows_hidden(self.model).output_vectors

    def showing(self) -> Showing:
        """The same, with the model's hidden vectors beside the reshaped logits."""
        return ShownThrough(shows_hidden(self.model).showing(), self.model.space, self._shown)

    def _shown(self, given: Shown, place: int) -> Shown:
        return Shown(self.reshaped(given.logits, place), given.hidden)

    def stepper(self, state: Placed) -> Stepper:
        """The model's own way to draw, reshaped."""
        inner = stepper_of(self.model, state.inner)
        return PlacedSteps(inner, state.place, lambda logits, place: self.reshaped(logits[:, None], place)[:, 0])


class Truncatable(ByChainRule):
    """A model whose tail can be cut off."""

    def truncated(
        self, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
        length: int | None = None,
    ) -> Truncated:  # fmt: skip
        """A distribution of its own, that draws from this one with its tail cut off."""
        return Truncated(self, temperature=temperature, top_k=top_k, top_p=top_p, length=length)  # type: ignore[arg-type]


def keep_top_k(logits: Float[Tensor, "*batch vocabulary"], k: int) -> Float[Tensor, "*batch vocabulary"]:
    """−inf for all but the k largest, and those that tie with the k-th."""
    smallest = logits.detach().topk(min(k, logits.shape[-1]), -1).values[..., -1:]
    return logits.masked_fill(logits < smallest - _rounding(logits), -math.inf)


def keep_top_p(logits: Float[Tensor, "*batch vocabulary"], p: float) -> Float[Tensor, "*batch vocabulary"]:
    """−inf for all but the fewest largest whose probability reaches p, and those that tie with the last; at least one.

    A token stays if all the likelier ones together are short of p.
    """
    if p == 1:
        return logits  # all of them, however far the sum's rounding is from 1
    largest_first = logits.detach().sort(-1, descending=True).values
    likelier = torch.softmax(largest_first, -1).cumsum(-1)[..., :-1]
    stays = F.pad(likelier < p - _rounding(logits), (1, 0), value=True)
    smallest = largest_first.masked_fill(~stays, math.inf).amin(-1, keepdim=True)
    return logits.masked_fill(logits < smallest - _rounding(logits), -math.inf)


def _rounding(logits: Tensor) -> float:
    """A difference that two ways of computing the same logits may show."""
    return 100 * torch.finfo(logits.dtype).eps


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
        return self.model.space.after(self.prompt)

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

    @property
    def output_vectors(self) -> Float[Tensor, "vocabulary size"]:
        """The model's own."""
        return shows_hidden(self.model).output_vectors

    def showing(self) -> "ShownPrompted":
        """The same, with the model's hidden vectors."""
        return ShownPrompted(self)

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


class ShownPrompted:
    """A prompted model with the hidden vectors of the model itself."""

    def __init__(self, prompted: Prompted):
        self.inner, self.prompt = shows_hidden(prompted.model).showing(), prompted.prompt

    def start(self, rows: int, context: Context | None = None) -> tuple[Shown, State]:
        return self.inner.start(rows, self.prompt)

    def advance(self, tokens: Int[Tensor, "rows length"], state: Any) -> tuple[Shown, State]:
        return self.inner.advance(tokens, state)

    def stepper(self, state: Any) -> Stepper:
        return self.inner.stepper(state)
