"""Texts of a language model that go on from a prompt; π, a copy of it that learns, and how that is saved."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ebar.automata.lift import Reading
from ebar.backbones.pretrained.reading import with_lora
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.export import WEIGHTS, packed, saved_folder, written_folder
from ebar.maths.randomness import folded
from ebar.models.construction import save_pretrained
from ebar.models.pretrained import Pretrained
from ebar.models.tilted import reading_of_model
from ebar.models.truncated import Prompted, Truncated
from ebar.types import Context, Sequences, Weighted


class Texts(list[str]):
    """Texts of a controlled model; `draws` are the weighted sequences that they spell."""

    def __init__(self, texts: list[str], draws: Weighted):
        super().__init__(texts)
        self.draws = draws

    def __str__(self) -> str:
        return "\n".join(self)


def reading_for(model: Any, data: Corpus | None, remedy: str = "give data=, its corpus") -> Reading:
    """What the tokens of a model spell."""
    reading = reading_of_model(model) if data is None else data.reading
    if reading is None:
        raise UserError(f"This model does not say what its tokens spell: {remedy}.")
    return reading


def encoded(reading: Reading, text: str, what: str = "a prompt") -> list[int]:
    """A text in the tokens of a model."""
    if reading.encode is None:
        raise UserError(f"Nothing is known of how this model's tokens encode {what}: give data=, its corpus.")
    return reading.encode(text)


def continued_from(model: Any, prompt: str, reading: Reading, length: int | None = None) -> Any:
    """The model over texts of `length` tokens that go on from the prompt, where there is one."""
    model = model if length is None else of_length(model, length)
    if not prompt:
        return model
    tokens = torch.tensor([encoded(reading, prompt)], device=device_of(model))
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


def policy_of(q: Any, *, lora_rank: int | None, seed: int) -> Any:
    """A copy of q in which adapters or all weights learn; adapters are drawn from the seed."""
    if not isinstance(q, Pretrained):
        return copy.deepcopy(q).requires_grad_(True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(folded(seed, "adapters"))
        network = copy.deepcopy(q.network)
        if lora_rank is None:
            return q.with_network(network.requires_grad_(True))
        return q.with_network(with_lora(network.requires_grad_(False), rank=lora_rank))


def save_policy(policy: nn.Module, folder: Path) -> None:
    """π, complete or not at all: a pretrained one as transformers saves models, of another its weights."""
    if isinstance(policy, Pretrained):
        saved_folder(folder, lambda place: save_pretrained(policy, place))
    else:
        written_folder(folder, {WEIGHTS: packed(policy.state_dict())})
