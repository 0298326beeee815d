"""What a fine-tuned run is made from, in the form of its configuration, where it was made in Python."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ebar.data.labelled import LabelledCorpus
from ebar.journeys.description import architecture, entry
from ebar.store.differences import as_yaml, lasting
from ebar.store.fingerprint import fingerprint
from ebar.training.course import Training
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, OptimiserConfig, Schedule

ENCODER = "encoder.json"  # in a run folder: the options of the network, so that it opens without the pretrained run


def encoder_origin(model: Any) -> dict[str, Any] | None:
    """The kind of a model's network and its options, where it was made by name."""
    origin = getattr(getattr(model, "model", model), "origin", None)
    return None if origin is None else dict(origin["backbone"])


def description_of(
    given: Any,
    model: nn.Module,
    tasks: Mapping[str, LabelledCorpus],
    *,
    seed: int,
    training: Training,
    optimiser: OptimiserConfig,
    schedule: Schedule,
    **options: Any,
) -> str:
    """As YAML; a complete configuration where the model and the data say how they were made.

    Of a pretrained run in memory the weights are part of it. Of a network that was given by itself they are not: one
    that is drawn anew continues with the weights of the run.
    """
    weight = next(model.parameters())
    folder = getattr(given, "folder", None)
    origin = encoder_origin(given)
    if folder is not None:
        start: dict[str, Any] = {"pretrained": str(folder)}
    elif getattr(given, "history", None) is not None:  # a run that was trained in memory
        start = {"network": fingerprint(given.model)}
    elif origin is not None:
        start = {"pretrained": None, "backbone": origin}
    else:
        start = {"network": architecture(given)}
    data = {name: _data(corpus) for name, corpus in tasks.items()}
    return as_yaml(
        {
            "seed": seed,
            "device": weight.device.type,
            "precision": str(weight.dtype).removeprefix("torch."),
            **start,
            **({"data": next(iter(data.values()))} if len(data) == 1 else {"tasks": data}),
            **options,
            "optimiser": entry(OPTIMISERS, optimiser),
            "schedule": entry(SCHEDULES, schedule),
            "training": lasting(training, as_before=True),
        }
    )


def _data(corpus: LabelledCorpus) -> dict[str, Any]:
    origin = corpus.origin
    if origin is None:
        return {"digest": fingerprint(dict(corpus.parts))}
    return {name: value for name, value in origin.items() if name != "kind"}
