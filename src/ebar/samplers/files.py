"""Weighted draws on disk, with all that an estimator has to know of them."""

import json
from pathlib import Path
from typing import Any

import torch

from ebar.errors import UserError
from ebar.types import Context, Sequences, Weighted

FORMAT = "ebar draws 1"


def save_draws(drawn: Weighted[Any], path: Path | str) -> None:
    """x, weights, groups, strata and context, as safetensors; the target, which is a model, is not kept."""
    from safetensors.torch import save_file

    tensors = drawn.x._asdict() if isinstance(drawn.x, Sequences) else {"points": drawn.x}
    tensors |= {"log_weights": drawn.log_weights}
    tensors |= {name: one for name in ("groups", "strata") if (one := getattr(drawn, name)) is not None}
    if drawn.context is not None:
        tensors |= {"given_tokens": drawn.context.given.tokens, "given_lengths": drawn.context.given.lengths}
        tensors |= {} if drawn.context.order is None else {"order": drawn.context.order}
    about = {"format": FORMAT, "estimates_z": json.dumps(drawn.estimates_z), "doubt": json.dumps(drawn.doubt)}
    save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, str(path), about)


def load_draws(path: Path | str) -> Weighted[Any]:
    """What `save_draws` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as opened:
            about = opened.metadata() or {}
            tensors: dict[str, torch.Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        raise UserError(f"{path} cannot be read as a file of draws: give one that save_draws wrote.") from None
    if about.get("format") != FORMAT:
        raise UserError(f"{path} holds no draws in this version's format: draw them again and save them.")
    context = None
    if "given_tokens" in tensors:
        given = Sequences(tensors["given_tokens"], tensors["given_lengths"])
        context = Context(given, tensors.get("order"))
    return Weighted(
        tensors["points"] if "points" in tensors else Sequences(tensors["tokens"], tensors["lengths"]),
        tensors["log_weights"],
        tensors.get("groups"),
        tensors.get("strata"),
        estimates_z=bool(json.loads(about["estimates_z"])),
        context=context,
        doubt=json.loads(about.get("doubt", "null")),
    )
