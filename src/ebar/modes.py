"""Evaluation mode: whatever measures, weighs or draws does so without dropout, and leaves every mode as it was."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

DEEPEST = 2  # how far modules are looked for inside what is no module
LONGEST = 64  # containers longer than this hold data, not modules


@contextmanager
def evaluation_mode(*parts: object) -> Iterator[None]:
    """Puts all modules among the parts, and inside them, in evaluation mode; afterwards each has its own mode back.

    A part may be a module, a plain object that holds some (`Guided`, an energy that is no module), or a function that
    uses some: any callable is an energy. Where nothing is in training mode nothing is done. Gradients still flow: on a
    GPU torch refuses them for a recurrent layer in evaluation mode, so where gradients are wanted its dropout is set
    to 0 instead, which is the same function.
    """
    training = [module for module in modules_in(*parts) if module.training]
    recurrent = [module for module in training if isinstance(module, nn.RNNBase)] if torch.is_grad_enabled() else []
    dropouts = [module.dropout for module in recurrent]
    try:
        _set_modes(training, False)
        _set_modes(recurrent, True)
        for module in recurrent:
            module.dropout = 0.0
        yield
    finally:
        _set_modes(training, True)
        for module, dropout in zip(recurrent, dropouts, strict=True):
            module.dropout = dropout


def _set_modes(modules: Sequence[nn.Module], training: bool) -> None:
    """Set the mode of each module alone, bypassing torch's `__setattr__`, which would take most of the time."""
    for module in modules:
        object.__setattr__(module, "training", training)


def in_evaluation_mode(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function during which whatever it is given is in evaluation mode.

    Not for generators: between two batches the caller's own mode is in force.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        with evaluation_mode(*arguments, *named.values()):
            return function(*arguments, **named)

    return wrapped


def modules_in(*parts: object) -> list[nn.Module]:
    """Each module among the parts and inside them, once."""
    found: dict[int, nn.Module] = {}
    seen: set[int] = set()
    waiting = [(part, DEEPEST) for part in parts]
    while waiting:
        part, deep = waiting.pop()
        if isinstance(part, nn.Module):
            _add(part, found)
        elif deep > 0 and id(part) not in seen:
            seen.add(id(part))
            waiting += [(held, deep - 1) for held in _held(part)]
    return list(found.values())


def _add(module: nn.Module, found: dict[int, nn.Module]) -> None:
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in found:
            found[id(part)] = part
            waiting.extend(part._modules.values())


def _held(part: object) -> list[object]:
    """What a function refers to, what a short container holds, or the attributes of an object."""
    if part is None or isinstance(part, Tensor | ModuleType | type | str | bytes | int | float):
        return []
    if isinstance(part, MethodType):
        return [part.__self__, part.__func__]
    if isinstance(part, functools.partial):
        return [part.func, *part.args, *part.keywords.values()]
    if isinstance(part, FunctionType):
        known = part.__globals__
        named = [known[name] for name in part.__code__.co_names if name in known]
        cells = [cell.cell_contents for cell in part.__closure__ or () if _filled(cell)]
        return [*named, *cells, *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
    if isinstance(part, tuple | list | dict):
        return [] if len(part) > LONGEST else list(part.values() if isinstance(part, dict) else part)
    slots = [getattr(part, name, None) for name in getattr(type(part), "__slots__", ()) if name != "__weakref__"]
    return [*getattr(part, "__dict__", {}).values(), *slots]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 — asking is the test
    except ValueError:
        return False
    return True
