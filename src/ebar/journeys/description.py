"""What a run is made from, in the form of its configuration, for a journey that was called with objects.

Where the objects say how they were made (`origin`: the options of a backbone, the kind of data), the description is a
complete configuration, from which the run can be loaded.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import nn

from ebar.store.differences import as_yaml, lasting
from ebar.store.fingerprint import fingerprint
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, OptimiserConfig, Schedule


def run_description(
    model: nn.Module, made_of: Mapping[str, Any], *, seed: int, training: Any, optimiser: OptimiserConfig,
    schedule: Schedule, **more: Any,
) -> str:  # fmt: skip
    """As YAML; `more` belongs to the training.

    First weights are no part of it: a model that was drawn anew continues with the weights of the run.
    """
    weight = next(model.parameters())
    return as_yaml(
        {
            "seed": seed,
            "device": weight.device.type,
            "precision": str(weight.dtype).removeprefix("torch."),
            **made_of,
            "optimiser": entry(OPTIMISERS, optimiser),
            "schedule": entry(SCHEDULES, schedule),
            "training": {**lasting(training, as_before=True), **more},
        }
    )


def entry(table: Mapping[str, Any], thing: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The name of an entry and its options; of what is in no table, the name of its class."""
    kind = next((name for name, entry in table.items() if entry is type(thing)), type(thing).__qualname__)
    options = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {"kind": kind, **{name: value for name, value in options.items() if name not in skip}}


def architecture(model: nn.Module) -> dict[str, str]:
    """Its layers and the shapes of its weights."""
    shapes = {name: str(tuple(value.shape)) for name, value in model.state_dict().items()}
    return {"kind": type(model).__qualname__, "digest": fingerprint(repr(model), shapes)}
