"""Learning rates that fall from layer to layer, the highest at the top of a network.

What is near the input is general and was learnt before; what is near the output must change for the task (Howard &
Ruder 2018, "discriminative fine-tuning"; Yang et al. 2019 fine-tune XLNet so).
"""

import re
from collections.abc import Iterable
from typing import Any

from torch import nn

from ebar.bounds import Amount
from ebar.errors import UserError

FACTOR = "factor"  # in a group of an optimiser: on the learning rate of its parameters, beside the schedule's
Parameters = Iterable[nn.Parameter] | Iterable[dict[str, Any]]
"""What an optimiser moves: parameters, or groups of them as torch has them (`{"params": …, "factor": …}`)."""

NUMBERED = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
BELOW = ("embed", "inputs", "position", "segment", "mask")  # in the names of what stands below the first layer


def layers_of(network: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters that learn, by layer: what stands below the first layer, each layer, from the input up.

    A layer is known by its number in the name of a parameter (`layers.3.…`). What has no number is with the embeddings
    if its name says so, and otherwise (a last normalisation) with the top layer. Layers are counted whether or not they
    learn.
    """
    numbers = {name: _number(name) for name, _ in network.named_parameters()}
    count = 1 + max((number for number in numbers.values() if number is not None), default=-1)
    groups: list[list[nn.Parameter]] = [[] for _ in range(count + 1)]
    for name, parameter in network.named_parameters():
        number = numbers[name]
        if number is None:
            number = -1 if any(word in name.lower() for word in BELOW) else count - 1
        if parameter.requires_grad:
            groups[number + 1].append(parameter)
    return groups


def layerwise(layers: list[list[nn.Parameter]], decay: Amount) -> list[dict[str, Any]]:
    """Groups for an optimiser: the learning rate of a layer is decayᵏ times that of the top, with k layers above it.

    `layers` is from the input up. The last of them has the factor 1; groups without parameters are left out.
    """
    if not 0 < decay <= 1:
        raise UserError(f"The decay of learning rates from layer to layer must be above 0 and at most 1, not {decay}.")
    top = len(layers) - 1
    return [{"params": own, FACTOR: decay ** (top - depth)} for depth, own in enumerate(layers) if own]


def _number(name: str) -> int | None:
    found = NUMBERED.search(name)
    return None if found is None else int(found[1])
