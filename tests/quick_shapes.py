"""`isinstance(x, Float[Tensor, "batch length"])` for the tests: jaxtyping's answer, at a third of its cost.

jaxtyping writes out the name of the dtype, compares it with every name that is allowed and copies all it remembers of
sizes, at every question. Here the dtypes and axes of an annotation are looked at once. What is rare is left to
jaxtyping: arrays of others, and axes that are computed or may be broadcast.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import AbstractArray
from jaxtyping._array_types import (
    _anonymous_dim,
    _anonymous_variadic_dim,
    _any_dtype,
    _FixedDim,
    _NamedDim,
    _NamedVariadicDim,
)
from jaxtyping._storage import _shape_storage
from torch import Tensor

Axis = str | int | None  # a name, a size, or any size at all
meta: Any = type(AbstractArray)
original = meta.__instancecheck__
_plans: dict[Any, "Plan | None"] = {}


class Plan(NamedTuple):
    """What an annotation asks for."""

    kind: Any  # of array
    names: frozenset[str] | None  # of dtypes; None: any
    dtypes: dict[Any, bool]  # for each that was seen, whether it is one of them
    first: tuple[Axis, ...]  # axes before a star, or all
    star: str | None  # its name; empty for any axes at all, None where there is no star
    last: tuple[Axis, ...]  # axes after it


def quick_instance_checks() -> None:
    """From now on, in this process."""
    meta.__instancecheck__ = is_instance


def calls_under_way() -> list[tuple[dict[str, Any], ...]]:
    """For each call that is checked, the innermost last: what is known of the sizes of its axes."""
    try:
        return _shape_storage.memo_stack  # type: ignore[no-any-return]
    except AttributeError:
        found = _shape_storage.memo_stack = []
        return found


def is_instance(cls: Any, thing: Any) -> bool:
    """Whether a tensor has these dtypes and axes, whose sizes are remembered if it has."""
    try:
        plan = _plans[cls]
    except KeyError:
        plan = _plans[cls] = plan_of(cls)
    if plan is None:
        return bool(original(cls, thing))
    kind, names, dtypes, first, star, last = plan
    if not isinstance(thing, kind):
        return False
    shape, dtype = thing.shape, thing.dtype
    if dtype not in dtypes:
        dtypes[dtype] = names is None or _name(dtype) in names
    if not dtypes[dtype]:
        return False
    calls = calls_under_way()
    sizes, stars, _, _ = calls[-1] if calls else ({}, {}, {}, {})
    before = len(sizes)
    if star is None:
        fits = len(shape) == len(first) and _fit(first, shape, sizes)
    else:
        end = len(shape) - len(last)
        fits = len(first) <= end and _fit(first, shape[: len(first)], sizes) and _fit(last, shape[end:], sizes)
        if fits and star:
            middle = shape[len(first) : end]
            could_be_broadcast, known = stars.setdefault(star, (False, middle))
            if could_be_broadcast:
                _forget(sizes, before)
                return bool(original(cls, thing))
            fits = known == middle
    if not fits:
        _forget(sizes, before)
    return fits


def _forget(sizes: dict[str, int], before: int) -> None:
    """The newest, until there are as many as before."""
    while len(sizes) > before:
        sizes.popitem()


def _fit(axes: tuple[Axis, ...], shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    for axis, size in zip(axes, shape, strict=True):
        if isinstance(axis, str):
            if sizes.setdefault(axis, size) != size:
                return False
        elif axis is not None and axis != size:
            return False
    return True


def plan_of(cls: Any) -> Plan | None:
    """None for what only jaxtyping can decide."""
    if cls.array_type not in (Tensor, np.ndarray) or cls._skip_instancecheck or not all(map(_is_plain, cls.dims)):
        return None
    if cls.dtypes is _any_dtype:
        names = None
    elif all(isinstance(name, str) for name in cls.dtypes):
        names = frozenset(cls.dtypes)
    else:
        return None
    at = len(cls.dims) if cls.index_variadic is None else cls.index_variadic
    star = None if cls.index_variadic is None else "" if cls.dims[at] is _anonymous_variadic_dim else cls.dims[at].name
    first, last = (tuple(map(_axis, axes)) for axes in (cls.dims[:at], cls.dims[at + 1 :]))
    return Plan(cls.array_type, names, {}, first, star, last)


def _name(dtype: Any) -> str:
    """As jaxtyping has it. A structured one of NumPy has names of its own, and is in no annotation of ours."""
    return dtype.type.__name__ if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]


def _is_plain(axis: Any) -> bool:
    if axis is _anonymous_dim or axis is _anonymous_variadic_dim:
        return True
    if not isinstance(axis, _NamedDim | _FixedDim | _NamedVariadicDim) or axis.broadcastable:
        return False
    return isinstance(axis, _FixedDim) or not axis.treepath


def _axis(axis: Any) -> Axis:
    if axis is _anonymous_dim:
        return None
    return axis.size if isinstance(axis, _FixedDim) else str(axis.name)
