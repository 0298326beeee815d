"""The model to be controlled, and how its tokens are read as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ebar.automata.reading import Reading
from ebar.config.control import ControlConfig
from ebar.models.loading import Loaded, load_causal
from ebar.models.pretrained import Pretrained
from ebar.models.prompted import Prompted
from ebar.types import Context, Sequences, Space


@dataclass(frozen=True, kw_only=True)
class Subject:
    """q, bound to its prompt, and what its tokens spell."""

    model: Any  # Stepwise, and a module
    spellings: Sequence[bytes | None]
    before: str = ""  # what features read before a draw

    @property
    def space(self) -> Space:
        space: Space = self.model.space
        return space

    @property
    def device(self) -> torch.device:
        return next((weight.device for weight in self.model.parameters()), torch.device("cpu"))

    @cached_property
    def reading(self) -> Reading:
        """How features read its tokens."""
        space = self.space
        return Reading(end=space.end, longest=space.length, spellings=self.spellings, before=self.before)

    def text(self, x: Sequences) -> list[str]:
        """Each draw as text, spelt as features read it; tokens that spell nothing are left out."""
        return [self.spell(x.prefix(row)) for row in range(len(x.lengths))]

    def spell(self, tokens: list[int]) -> str:
        """What tokens spell together."""
        return self.reading.text(tokens)


def load(control: ControlConfig) -> Loaded:
    """The language model as it is, on its own."""
    return load_causal(
        control.model,
        length=control.length,
        end=control.ends,
        device=control.device,
        dtype=control.precision,
        trust_remote_code=control.trust_remote_code,
    )


def subject_of(control: ControlConfig, loaded: Loaded) -> Subject:
    """The language model behind its prompt, where there is one."""
    spellings = loaded.tokeniser.spellings()[: loaded.model.space.vocabulary]
    before = control.prompt if control.reads_prompt else ""
    return Subject(model=behind_prompt(control, loaded, loaded.model), spellings=spellings, before=before)


def behind_prompt(control: ControlConfig, loaded: Loaded, model: Pretrained) -> Pretrained | Prompted:
    """q, or π in its place, going on from the prompt."""
    if not control.prompt:
        return model
    tokens = loaded.tokeniser.encode(control.prompt)
    device = next(model.parameters()).device
    given = Sequences(torch.tensor([tokens], device=device), torch.tensor([len(tokens)], device=device))
    return Prompted(model, Context(given))
