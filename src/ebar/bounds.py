"""Bounds on options, written as types: `epochs: Count` is an int, and a value below 1 is refused in one sentence.

The types serve Python and the command line alike. A dataclass that checks itself calls `check(self)` in
`__post_init__`; the reader of configurations checks the options of whatever it reads, by their names there.
"""

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ebar.errors import UserError


@dataclass(frozen=True)
class Bound:
    """What a number must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def __call__(self, name: str, value: Any) -> Any:
        if not self.holds(value):
            raise UserError(f"{name} must be {self.words}, not {value}.")
        return value

    def __repr__(self) -> str:
        return self.words


def at_least(least: int) -> Bound:
    """A number from `least` up."""
    return Bound(f"{least} or more", lambda value: least <= value < math.inf)


Count = Annotated[int, at_least(1)]
Natural = Annotated[int, at_least(0)]
Seed = Annotated[int, Bound(f"from 0 to {2**63 - 1}", lambda value: 0 <= value < 2**63)]
NonNegative = Annotated[float, at_least(0)]
Amount = Annotated[float, Bound("above 0", lambda value: 0 < value < math.inf)]
Share = Annotated[float, Bound("between 0 and 1", lambda value: 0 <= value <= 1)]


def _located(_: str, value: str) -> str:
    try:
        return str(Path(value).resolve()) if Path(value).exists() else value
    except (OSError, ValueError):
        return value


# A file or folder by its whole path, so that a run can be continued from any folder; a name on the hub as it is.
Location = Annotated[str, _located]


def check(instance: Any, prefix: str = "") -> None:
    """The fields of a dataclass, each against the bounds in its type."""
    for name, hint in get_type_hints(type(instance), include_extras=True).items():
        checked(getattr(instance, name), hint, prefix + name)


def checked(value: Any, hint: Any, name: str) -> Any:
    """A value as its type wants it: within bounds, lists as tuples, groups of options as dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if hint is Path and isinstance(value, str):
        return Path(value)
    if origin is Annotated:
        value = checked(value, arguments[0], name)
        for rule in hint.__metadata__:
            value = rule(name, value) if callable(rule) else value
        return value
    if origin in (Union, types.UnionType):
        some = [one for one in arguments if one is not types.NoneType]
        return checked(value, some[0], name) if len(some) == 1 else value
    if origin is tuple and isinstance(value, list | tuple):
        each = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        return tuple(checked(one, own, name) for one, own in zip(value, each, strict=False))
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return hint(**checked_options(hint, value, name))
    return value


def checked_options(entry: Callable[..., Any], options: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The options of a class or function, each against the type in its signature."""
    hints = get_type_hints(entry.__init__ if inspect.isclass(entry) else entry, include_extras=True)
    return {name: checked(value, hints.get(name, Any), f"{key}.{name}") for name, value in options.items()}
