"""Texts longer than the sequences a model was trained on, in bounded memory.

A recurrent network or one with a memory of fixed size reads on for ever. One that sees a window only moves it on.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.backbones.backbone import Stepper
from ebar.errors import UserError
from ebar.models.continued import Continued, begin, carrying, kept_of_a_text
from ebar.models.drawing import drawn_at_once, stepper_of
from ebar.models.stepwise import ByChainRule
from ebar.types import Context, Sequences, Space, State, Stepwise


def lengthened(model: Stepwise, length: int, *, marked: bool = True) -> Stepwise:
    """The model over sequences of so many tokens, where its own are as long or shorter and have no end.

    `marked`: whether a window begins with the mark of a text's beginning, as in training on windows; otherwise with the
    token before it, as in training on a stream.
    """
    if length <= model.space.length:
        return model
    if model.space.end is not None or model.space.completes:
        raise ValueError(f"length must lie between 1 and the model's {model.space.length}, got {length}")
    if remembers(model):
        return Unending(model, length)
    return Rolling(model, length, marked=marked)


def remembers(model: object) -> bool:
    """Whether what a model keeps of a text is of a fixed size, however long the text is."""
    return any(tensor.numel() for tensor in kept_of_a_text(model))


class Longer(ByChainRule):
    """A model over longer sequences than it was trained on."""

    model: Stepwise

    @property
    def free_logits(self) -> bool:
        return self.model.free_logits

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn together: as many as of the model itself."""
        return drawn_at_once(self.model)


class Unending(Longer):
    """A model whose state is of a fixed size, over longer sequences than it was trained on, read piece by piece."""

    def __init__(self, model: Stepwise, length: int):
        super().__init__()
        self.model, self.piece = model, model.space.length
        self.space: Space = replace(model.space, length=length)

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        return self.model.start(rows, context)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Any
    ) -> tuple[Float[Tensor, "rows length vocabulary"], State]:
        parts = []
        for part in torch.split(tokens, self.piece, 1):
            logits, state = self.model.advance(part, state)
            parts.append(logits)
        return torch.cat(parts, 1), state

    def stepper(self, state: Any) -> Stepper:
        return stepper_of(self.model, state)


class Window(NamedTuple):
    """Where a rolling model stands: the state of the model in its window, and what a next window begins with."""

    inner: Any
    recent: Int[Tensor, "rows recent"]  # the last tokens, as many as are read again (one more without a mark)
    inside: int  # tokens read in this window, those that were read again included

    def select(self, rows: Int[Tensor, " selected"]) -> "Window":
        return Window(self.inner.select(rows), self.recent[rows], self.inside)


class Rolling(Longer):
    """A model that sees a window of W tokens, over longer sequences: p(xₜ | as much of x₍<t₎ as its window holds).

    A window is what the model's sequences are: the mark of a beginning, or without a mark the token before the window,
    and W − 1 tokens. Where it is full, a new one begins with the last W − `stride` tokens, which are read again. After
    the first window a token so sees between W − stride and W − 1 tokens; how many depends on its place alone, so that
    `sample` and `log_prob` are of one distribution. A small stride sees more and costs more: W/stride passes.
    """

    def __init__(self, model: Stepwise, length: int, *, stride: int | None = None, marked: bool = True):
        super().__init__()
        window = model.space.length
        stride = max(1, window // 2) if stride is None else stride
        if not 1 <= stride <= window:
            raise ValueError(f"a window of {window} tokens moves on by 1 to {window} of them, not by {stride}")
        self.window, self.stride, self.marked = window, stride, marked
        # Within a window without a mark, the model is one that goes on from the middle of a text.
        self.model: Stepwise = model if marked else Continued(carrying(model)[0], begin(model, 1))
        self.space: Space = replace(model.space, length=length)

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], Window]:
        if context is None:
            logits, inner = self.model.start(rows)
            return logits, Window(inner, torch.empty(rows, 0, dtype=torch.long, device=logits.device), 0)
        given = context.given
        if bool((given.lengths != given.tokens.shape[1]).any()):
            raise UserError("A text that rolls on begins with prefixes of one length: cut them to the shortest.")
        tokens = given.tokens.repeat_interleave(rows // context.rows, 0)
        logits, state = self.start(rows)
        if tokens.shape[1] == 0:
            return logits, state
        after, state = self.advance(tokens, state)
        return after[:, -1], state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Window
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Window]:
        parts = []
        while tokens.shape[1]:
            now = max(1, min(tokens.shape[1], self.window - 1 - state.inside))
            logits, state = self._advanced(tokens[:, :now], state)
            parts.append(logits)
            tokens = tokens[:, now:]
        return torch.cat(parts, 1), state

    def stepper(self, state: Window) -> Stepper:
        """The model's own way to draw within each window."""
        return RollingSteps(self, state)

    def _advanced(
        self, tokens: Int[Tensor, "rows length"], state: Window
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Window]:
        """Tokens that fit in the window, or one that does not."""
        recent = self.latest(state.recent, tokens)
        if state.inside + tokens.shape[1] < self.window:
            logits, inner = self.model.advance(tokens, state.inner)
            return logits, Window(inner, recent, state.inside + tokens.shape[1])
        following, inner = self.moved_on(recent)
        return following[:, None], Window(inner, recent, self.window - self.stride)

    def latest(
        self, recent: Int[Tensor, "rows recent"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows latest"]:  # fmt: skip
        """What a window that began now would begin with."""
        kept = self.window - self.stride + (0 if self.marked else 1)
        return torch.cat([recent, tokens], 1)[:, -kept:] if kept else tokens[:, :0]

    def moved_on(self, recent: Int[Tensor, "rows recent"]) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """A new window, of which these tokens are read."""
        model, tokens = self.model, recent
        if isinstance(model, Continued):
            carried = begin(model.model, len(recent))._replace(last=recent[:, 0])
            model, tokens = Continued(model.model, carried), recent[:, 1:]
        if tokens.shape[1] == 0:
            return model.start(len(recent))
        return model.start(len(recent), Context(Sequences(tokens, torch.full_like(tokens[:, 0], tokens.shape[1]))))


class RollingSteps:
    """The stepper of the model within a window, made anew for each window."""

    def __init__(self, rolling: Rolling, state: Window):
        self.rolling, self.recent, self.inside = rolling, state.recent, state.inside
        self.inner = stepper_of(rolling.model, state.inner)

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocabulary"]:
        self.recent = self.rolling.latest(self.recent, tokens[:, None])
        self.inside += 1
        if self.inside < self.rolling.window:
            return self.inner.step(tokens)
        logits, inner = self.rolling.moved_on(self.recent)
        self.inner, self.inside = stepper_of(self.rolling.model, inner), self.rolling.window - self.rolling.stride
        return logits

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.inner.keep(rows)
        self.recent = self.recent[rows]
