"""Where to compute and in what precision: devices by their names, bfloat16 where the machine has it."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ebar.errors import UserError

NAMES = "auto, cpu, cuda, mps"
HALVES = (torch.bfloat16, torch.float16)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def device_named(name: str) -> str:
    """A device by its name, refused in a sentence where this machine has none; `auto` is CUDA if there is any.

    `auto` never takes Apple's mps, which has no double precision: figures could not be computed there.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"There is no device called {name!r}: choose one of {NAMES}.") from None
    if not _is_there(device):
        raise UserError(f"This machine has no device {name}: give --device cpu, or auto for whatever there is.")
    return name


def device_at_hand(name: str) -> str:
    """The same to open what was made there: where this machine has no such device, the CPU."""
    try:
        return device_named(name)
    except UserError:
        return "cpu"


def _is_there(device: torch.device) -> bool:
    if device.type == "cpu":
        return True
    own = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return own is not None and own.type == device.type and (device.index or 0) < torch.accelerator.device_count()


def check_bfloat16(device: str) -> None:
    """Refuses autocast where the machine would only emulate it, many times slower."""
    kind = torch.device(device).type
    if kind == "cuda":
        has = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        known = torch.cpu.get_capabilities() if kind == "cpu" else {}
        has = bool(known.get("avx512_bf16") or known.get("amx_bf16") or known.get("bf16"))
    if not has:
        raise UserError(f"The {kind} of this machine computes no bfloat16: leave out training.autocast.")


def autocast(device: str | None) -> AbstractContextManager[object]:
    """Matrix products in bfloat16 on a device; nothing where none is named."""
    return nullcontext() if device is None else torch.autocast(torch.device(device).type, torch.bfloat16)


def in_single(values: Tensor) -> Tensor:
    """What autocast left in half precision, in single precision; anything else as it is."""
    return values.float() if values.dtype in HALVES else values


def in_full_precision(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A method that computes in the precision of its weights, autocast or not: a softmax over a vocabulary needs it."""

    @functools.wraps(method)
    def wrapped(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        if not tensors or not torch.is_autocast_enabled(tensors[0].device.type):
            return method(*arguments, **named)
        whole = [in_single(one) if isinstance(one, Tensor) else one for one in arguments]
        with torch.autocast(tensors[0].device.type, enabled=False):
            return method(*whole, **named)  # type: ignore[arg-type]

    return wrapped
