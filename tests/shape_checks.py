"""`jaxtyping.jaxtyped` for the tests: the same checks of arguments and results, at less than half the cost.

jaxtyping's own binds every call to a signature and checks arguments twice, before the call and again with the result,
to say in its message which one was wrong. Here beartype checks each once, around the function itself.
A function without shapes in its signature needs no record of the sizes of axes. Whether one tensor has one shape is
asked millions of times: what jaxtyping works out anew at each, `tests/quick_shapes.py` works out once.
"""

import dataclasses
import functools
import inspect
import operator
import sys
import typing
from collections.abc import Callable
from types import CodeType, FunctionType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.vale import IsInstance
from jaxtyping import AbstractArray, TypeCheckError, config
from jaxtyping._decorator import _destring_annotation

from tests.quick_shapes import calls_under_way, quick_instance_checks

original = jaxtyping.jaxtyped
configured = beartype(conf=BeartypeConf(violation_type=TypeCheckError))  # a TypeError, as jaxtyping's own is
CALLED = "__beartype_func"  # under which beartype's code keeps the function that it calls
_known: dict[CodeType, tuple[dict[str, Any], Any, bool]] = {}


def checker(thing: Any) -> Any:
    """beartype, which refuses generic NamedTuples: of these it checks the class alone."""
    hints = getattr(thing, "__annotations__", {})
    known = {name: _by_class(hint) for name, hint in hints.items()}
    if any(known[name] is not hint for name, hint in hints.items()):
        thing.__annotations__ = known
    return configured(thing)


def _by_class(hint: Any) -> Any:
    """An annotation with every generic NamedTuple in it replaced by its class."""
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if isinstance(origin, type) and issubclass(origin, tuple) and Generic in origin.__bases__:
        return Annotated[object, IsInstance[origin]]
    if isinstance(hint, list):  # the arguments of a Callable
        return [_by_class(part) for part in hint]
    simple = tuple(_by_class(part) for part in parts)
    if not simple or all(new is old for new, old in zip(simple, parts, strict=True)):
        return hint
    return functools.reduce(operator.or_, simple) if origin in (Union, UnionType) else origin[simple]


def install(package: str) -> None:
    """Every function and dataclass of a package is checked from now on; nothing of it may have been imported."""
    jaxtyping.install_import_hook(package, f"{__name__}.checker")
    if sys.version_info < (3, 12):  # later ones keep what a protocol asks for, this one gathers it at every check
        found: Any = typing
        found._get_protocol_attrs = functools.cache(found._get_protocol_attrs)
    jaxtyping.jaxtyped = checked  # type: ignore[assignment]  # which the hook calls
    quick_instance_checks()


def checked(thing: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """A function or class as the import hook hands it on."""
    if thing is None:
        return functools.partial(checked, typechecker=typechecker)
    if dataclasses.is_dataclass(thing) and isinstance(thing, type):
        if not hasattr(thing.__init__, "__wrapped__"):  # else inherited: already checked
            thing.__init__ = _checked(thing.__init__, typechecker)  # type: ignore[method-assign]
        return thing
    special = not isinstance(thing, FunctionType) or hasattr(thing, "__wrapped__")
    if special or inspect.isgeneratorfunction(thing) or inspect.iscoroutinefunction(thing):
        return original(thing, typechecker=typechecker)
    return _again(thing) or _checked(thing, typechecker)


def _checked(function: Any, typechecker: Callable[[Any], Any]) -> Any:
    # As jaxtyping has it: what cannot be resolved at run time, such as a name imported for types alone, is anything.
    hints = {name: _destring_annotation(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    if any("{" in shape for hint in hints.values() for shape in _shapes(hint)):  # sizes that are read off arguments
        return original(function, typechecker=typechecker)
    code = _copied(function)
    code.__annotations__ = hints
    inner = typechecker(code)
    if inner is code:  # there is nothing to check
        return function
    has_shapes = any(_shapes(hint) for hint in hints.values())
    if "<locals>" in function.__qualname__ and CALLED in (inner.__kwdefaults__ or {}):
        _known[function.__code__] = (function.__annotations__, inner, has_shapes)
    return _around(function, inner, has_shapes)


def _again(function: Any) -> Any:
    """A function inside another is made anew at every call of that one: what beartype wrote for the first will do."""
    annotations, inner, has_shapes = _known.get(function.__code__, (None, None, False))
    if inner is None or annotations != function.__annotations__:
        return None
    inner = _copied(inner)
    inner.__kwdefaults__[CALLED] = function
    return _around(function, inner, has_shapes)


def _around(function: Any, inner: Any, has_shapes: bool) -> Any:
    if not has_shapes:
        return functools.wraps(function)(inner)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*arguments, **options)
        calls = calls_under_way()
        calls.append(({}, {}, {}, {}))  # as jaxtyping keeps sizes: of axes, of stars, of trees; and arguments
        try:
            return inner(*arguments, **options)
        finally:
            calls.pop()

    return call


def _copied(function: Any) -> Any:
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__ and dict(function.__kwdefaults__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _shapes(hint: Any) -> list[str]:
    """Every shape that stands in an annotation, however deep."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return [hint.dim_str]
    if isinstance(hint, TypeVar):
        return _shapes(hint.__bound__) + [shape for one in hint.__constraints__ for shape in _shapes(one)]
    parts = hint if isinstance(hint, list) else get_args(hint)  # of Callable[[…], …]: a list
    return [shape for part in parts for shape in _shapes(part)]
