"""The base of a residual model: a language model q, and the text that its tokens spell."""

from dataclasses import dataclass

import torch

from ebar.data.tokenisers import Tokeniser, decode_after
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.models.construction import Autoregressive
from ebar.models.pretrained import Pretrained
from ebar.types import Context, Sequences, Space, Stepwise


@dataclass(frozen=True, kw_only=True)
class Base:
    """q over continuations, with its tokeniser."""

    q: Stepwise
    tokeniser: Tokeniser | None = None  # None: prompts and texts cannot be used
    longest: int | None = None  # tokens of prefix and continuation together; None where the model itself knows

    @staticmethod
    def of(model: Stepwise, tokeniser: Tokeniser | None, length: int) -> "Base":
        """A model of longer sequences becomes one of continuations of `length` tokens, with the same weights."""
        space = model.space
        if isinstance(model, Autoregressive) and space.end is None and length < space.length:
            continuing = Autoregressive(model.backbone, model.head, Space(space.vocabulary, length))
            return Base(q=continuing.train(model.training), tokeniser=tokeniser, longest=space.length)
        return Base(q=model, tokeniser=tokeniser)

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(device_of(self.q))

    def check(self, prefix: int) -> None:
        """Refuses a prefix that the model cannot read and continue."""
        length = self.q.space.length
        if self.longest is not None and prefix + length > self.longest:
            raise UserError(
                f"A prefix of {prefix} tokens and a continuation of {length} are {prefix + length} in all, and the "
                f"base was trained on windows of {self.longest}: make the prefix or the continuation shorter."
            )
        if isinstance(self.q, Pretrained) and self.q.positions is not None:
            begun = self.q.read_before(prefix)
            if begun + length - 1 > self.q.positions:
                raise UserError(
                    f"A prefix of {begun} tokens and a continuation of {length} are {begun + length} in all, and the "
                    f"base reads at most {self.q.positions}: make the prefix or the continuation shorter."
                )

    def encode(self, text: str) -> list[int]:
        """Text as tokens of the base."""
        if self.tokeniser is None:
            raise UserError("Text cannot be read without a tokeniser: this base has none.")
        tokens = self.tokeniser.encode(text)
        if tokens and max(tokens) >= self.q.space.vocabulary:
            raise UserError(
                f"The base knows {self.q.space.vocabulary} tokens, and this text needs number {max(tokens)}."
            )
        return tokens

    def spell(self, before: list[int], tokens: list[int]) -> str:
        """What tokens add to the text of those before them, the end left out."""
        if self.tokeniser is None:
            raise UserError("Tokens cannot be written as text without a tokeniser: this base has none.")
        return decode_after(self.tokeniser, before, [token for token in tokens if token != self.q.space.end])

    def context_of(self, prompt: str) -> Context | None:
        """A prompt as the base reads it; None for an empty one, which leaves the beginning to the base."""
        tokens = self.encode(prompt) if prompt else []
        self.check(len(tokens))
        return Context(self._row(tokens)) if tokens else None

    def continuation_of(self, prompt: str, text: str) -> Sequences:
        """A continuation of as many tokens as the base makes; what is longer is cut off."""
        before, whole = self.encode(prompt), self.encode(prompt + text)
        # Where the end of the prompt and the beginning of the text would share a token, they are encoded apart.
        tokens = whole[len(before) :] if whole[: len(before)] == before else self.encode(text)
        wanted = self.q.space.length
        if len(tokens) < wanted:
            raise UserError(
                f"The continuation has {len(tokens)} tokens, and this model's have {wanted}: give a longer one."
            )
        return self._row(tokens[:wanted])

    def _row(self, tokens: list[int]) -> Sequences:
        return Sequences(torch.tensor([tokens], device=self.device), torch.tensor([len(tokens)], device=self.device))
