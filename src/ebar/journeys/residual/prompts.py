"""What a user types, as a prefix that the base can continue."""

import torch

from ebar.build.residual import Base
from ebar.errors import UserError
from ebar.estimators.models import device_of
from ebar.types import Context, Sequences


def context_of(base: Base, prompt: str) -> Context | None:
    """None for an empty prompt: the base then begins by itself."""
    tokens = base.tokeniser.encode(prompt)
    base.check(len(tokens))
    _known(base, tokens)
    return Context(_row(base, tokens)) if tokens else None


def continuation_of(base: Base, prompt: str, text: str) -> Sequences:
    """A continuation as the base reads it: of just as many tokens as it makes; what is longer is cut off."""
    before, whole = base.tokeniser.encode(prompt), base.tokeniser.encode(prompt + text)
    # Where the two run together into other tokens, the text stands by itself.
    tokens = whole[len(before) :] if whole[: len(before)] == before else base.tokeniser.encode(text)
    _known(base, tokens)
    wanted = base.q.space.length
    if len(tokens) < wanted:
        raise UserError(
            f"The continuation has {len(tokens)} tokens, and this model's have {wanted}: give a longer one."
        )
    return _row(base, tokens[:wanted])


def _row(base: Base, tokens: list[int]) -> Sequences:
    device = device_of(base.q)
    return Sequences(torch.tensor([tokens], device=device), torch.tensor([len(tokens)], device=device))


def _known(base: Base, tokens: list[int]) -> None:
    if tokens and max(tokens) >= base.q.space.vocabulary:
        raise UserError(f"The base knows {base.q.space.vocabulary} tokens, and this text needs number {max(tokens)}.")
