"""Texts of a language model that go on from a prompt."""

from typing import Any

import torch

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.models.pretrained import Pretrained
from ebar.models.truncated import Prompted, Truncated
from ebar.types import Context, Sequences, Weighted


class Texts(list[str]):
    """Texts of a controlled model; `draws` are the weighted sequences that they spell."""

    def __init__(self, texts: list[str], draws: Weighted):
        super().__init__(texts)
        self.draws = draws

    def __str__(self) -> str:
        return "\n".join(self)


def continued_from(model: Any, prompt: str, reading: Reading, length: int | None = None) -> Any:
    """The model over texts of `length` tokens that go on from the prompt, where there is one."""
    model = model if length is None else of_length(model, length)
    if not prompt:
        return model
    if reading.encode is None:
        raise UserError("Nothing is known of how this model's tokens encode a prompt: give data=, its corpus.")
    tokens = torch.tensor([reading.encode(prompt)], device=device_of(model))
    return Prompted(model, Context(Sequences(tokens, torch.tensor([tokens.shape[1]], device=tokens.device))))


def of_length(model: Any, length: int) -> Any:
    """The model over texts of `length` tokens, an end included where it has one."""
    space = model.space
    if length == space.length:
        return model
    if isinstance(model, Pretrained):
        return model.with_network(model.network, length=length)
    if length > space.length:
        raise UserError(f"The model makes texts of {space.length} tokens at most, and {length} are asked for.")
    return Truncated(model, length=length)
