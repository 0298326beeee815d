"""What estimators need to know about a model: its space, its device, whether it can be enumerated."""

import torch
from torch import nn

from ebar.errors import UserError
from ebar.maths.enumeration import has_at_most
from ebar.models.tilted import Tilted
from ebar.types import Distribution, Scored, Sequences, Space

Model = Distribution | Scored[Sequences]  # tabular, automaton and autoregressive are distributions; tilted is scored

ENUMERABLE = 100_000  # sequences: above, estimators sample


def common_space(*models: Model) -> Space:
    """The sequences of all these models: where they differ in length only, those of the longest."""
    spaces = []
    for model in models:
        if not isinstance(model, Distribution | Tilted):
            raise TypeError(f"{type(model).__name__} does not say what space it lives on")
        spaces.append(model.space)
    longest = max(spaces, key=lambda space: space.length)
    for space in spaces:
        comparable = space.end is not None or space.length == longest.length
        if (space.vocabulary, space.end) != (longest.vocabulary, longest.end) or not comparable:
            raise UserError(f"The models have no sequences in common: one lives on {space}, another on {longest}.")
    return longest


def is_enumerable(*models: Model) -> bool:
    """Whether every sequence of the models' common space can be visited."""
    return has_at_most(common_space(*models), ENUMERABLE)


def device_of(model: object) -> torch.device:
    """Where a model's parameters are; the CPU when it has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))
