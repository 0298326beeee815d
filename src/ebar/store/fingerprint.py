"""Short digests of what something was made from: weights, data, options, files, source code.

An object is described by its class and by the arguments it was constructed with, read from the attributes of the same
names (frozen dataclasses and our modules keep them so); a module also by its weights; a function by its code. Caches,
counters and whatever else an object gathers while it is used do not count.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ebar.errors import no_file
from ebar.types import Sequences

PLAIN = (bool, int, float, str)
SOURCES = (".py", ".yaml", ".json", ".toml", ".css", ".html", ".js")


def fingerprint(*things: object) -> str:
    """16 hexadecimal digits that change with anything that `describe` tells of."""
    return _digest(json.dumps([describe(thing) for thing in things], sort_keys=True).encode())


def describe(thing: object) -> Any:
    """Plain data, as JSON has it: options by their values, weights, data and files by what identifies them."""
    return _describe(thing, ())


@cache
def source_fingerprint(folder: Path = Path(__file__).parents[1]) -> str:
    """Of the source files of a package, ebar's own unless another folder is given."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)
    return _digest(
        *(part for path in files for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()))
    )


def _describe(thing: object, inside: tuple[int, ...]) -> Any:
    if thing is None:
        return None
    if isinstance(thing, PLAIN):  # restricted numbers are subclasses
        value = next(kind(thing) for kind in PLAIN if isinstance(thing, kind))
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(thing, Path):
        return _file(thing)
    if isinstance(thing, Tensor):
        return {"tensor": _tensor(thing)}
    if isinstance(thing, Sequences):
        return {"sequences": _digest(repr(thing.lengths.tolist()).encode(), _bytes(thing.tokens[thing.mask()].long()))}
    if isinstance(thing, FunctionType | MethodType):
        return {"function": thing.__qualname__, "code": _digest(*_code(thing.__code__))}
    if isinstance(thing, type):
        return thing.__qualname__
    if id(thing) in inside:
        return "itself"
    inside = (*inside, id(thing))
    if isinstance(thing, Mapping):
        return {str(name): _describe(value, inside) for name, value in thing.items()}
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        return [_describe(value, inside) for value in thing]
    if isinstance(thing, set | frozenset):
        return sorted((_describe(value, inside) for value in thing), key=repr)
    if isinstance(thing, torch.device | torch.dtype):
        return str(thing)
    arguments = _arguments(thing)
    described = {name: _describe(value, inside) for name, value in arguments.items()}
    weights = _weights(thing, arguments) if isinstance(thing, nn.Module) else {}
    return {"kind": type(thing).__qualname__, **described, **weights}


def _arguments(thing: object) -> dict[str, object]:
    """Those of its constructor that it keeps under their names; and its space, which may follow from them.

    A field of a dataclass whose metadata say that it `follows` from something else is left out.
    """
    if fields := getattr(thing, "_fields", None):
        return {name: getattr(thing, name) for name in fields}
    try:
        names = [name for name in inspect.signature(type(thing)).parameters if not name.startswith("_")]
    except (TypeError, ValueError):
        names = []
    told = getattr(thing, "__dataclass_fields__", {})
    names = [name for name in names if name not in told or not told[name].metadata.get("follows")]
    found = {}
    for name in (*names, "space"):
        try:
            value = inspect.getattr_static(thing, name)
        except AttributeError:
            value = None
        if name in getattr(thing, "__dict__", {}) or name in getattr(thing, "_modules", {}) or _slot(value):
            found[name] = getattr(thing, name)
    return found


def _slot(value: object) -> bool:
    return inspect.ismemberdescriptor(value)


def _weights(module: nn.Module, described: Mapping[str, object]) -> dict[str, str]:
    """Parameters, buffers and kinds of all modules inside but those that are described by themselves."""
    others = tuple(f"{name}." for name, value in described.items() if isinstance(value, nn.Module | Tensor))
    parts = [f"{name}.:{type(part).__qualname__}" for name, part in module.named_modules() if name]
    parts += [f"{name}.:{_tensor(value)}" for name, value in module.state_dict().items() if isinstance(value, Tensor)]
    own = [part for part in parts if not part.startswith(others)]
    return {"weights": _digest(*(part.encode() for part in own))} if own else {}


def _tensor(value: Tensor) -> str:
    return _digest(f"{value.dtype}{tuple(value.shape)};".encode(), _bytes(value))


def _bytes(value: Tensor) -> bytes:
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _file(path: Path) -> Any:
    """A file by its name, size and time; a folder by its name."""
    if path.is_dir():
        return str(path.resolve())
    try:
        status = path.stat()
    except OSError:
        raise no_file(path) from None
    return {"file": str(path.resolve()), "size": status.st_size, "modified": status.st_mtime_ns}


def _code(code: CodeType) -> list[bytes]:
    """Instructions, names and constants, those of functions inside it included."""
    found = [code.co_code, repr(code.co_names).encode()]
    for constant in code.co_consts:
        found += _code(constant) if isinstance(constant, CodeType) else [_constant(constant).encode()]
    return found


def _constant(value: object) -> str:
    """The same in every process: sets of strings are in another order in each."""
    if isinstance(value, frozenset):
        return repr(sorted(map(_constant, value)))
    return repr(list(map(_constant, value))) if isinstance(value, tuple) else repr(value)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:16]
