"""Features in words, [!]KIND:ARGUMENT[=NUMBER], for tilts, for GAM and for control. The kinds are those of FEATURES."""

import importlib.util
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch

from ebar.automata.lift import Reading
from ebar.energies.linear import Linear
from ebar.errors import UserError, choose
from ebar.features import FEATURES
from ebar.features.feature import Feature, Features, bind


def read_feature(words: str) -> Feature:
    """A feature from KIND:ARGUMENT, or !KIND:ARGUMENT for its absence, not yet bound to a model's tokens.

    ARGUMENT is the first parameter of the entry's signature. Where that is a function, it is FILE.py:FUNCTION.
    """
    kind, argument = _parts(words)
    parameter = choose(_arguments(), kind, "kind of feature")
    options: dict[str, Any] = {}
    if words.startswith("!"):
        if "absent" not in inspect.signature(FEATURES[kind]).parameters:
            raise UserError(f"Only a feature that is there or not can be absent, so ! cannot stand before {kind}.")
        options["absent"] = True
    if parameter is not None:
        if not argument:
            about = FEATURES.help(kind).rstrip(".")
            raise UserError(f"The feature {words!r} needs an argument: write {kind}:ARGUMENT ({about}).")
        options[parameter.name] = load_function(argument) if _is_function(parameter) else argument
    made: Feature = FEATURES.make(kind, options)
    return made


def split_term(term: str, number: str, example: str) -> tuple[str, float]:
    """The words of a term and its number."""
    words, equals, value = term.rpartition("=")
    try:
        if equals:
            return words, float(value)
    except ValueError:
        pass
    raise UserError(f"The term {term!r} must end in ={number}, as in {example}.")


def read_energy(terms: Sequence[str], reading: Reading) -> Linear:
    """A linear energy from terms KIND:ARGUMENT=COEFFICIENT; ! in front of KIND makes the feature's absence count."""
    pairs = [split_term(term, "COEFFICIENT", "motif:101=2.5") for term in terms]
    made = [read_feature(words) for words, _ in pairs]
    for term, (words, coefficient) in zip(terms, pairs, strict=True):
        if coefficient == math.inf:
            hard = f"{words.removeprefix('!')}=-inf" if words.startswith("!") else f"!{words}=-inf"
            raise UserError(f"A hard constraint forbids the opposite: write '{hard}' in place of {term!r}.")
    features = Features([bind(feature, reading) for feature in made])
    try:
        return Linear(features, torch.tensor([coefficient for _, coefficient in pairs], dtype=torch.float64))
    except ValueError as error:
        raise UserError(f"The energy cannot be made: {error}.") from None


def kinds_help() -> str:
    """What KIND may be and what its ARGUMENT then is, for --help."""
    return " ".join(f"{kind}: {FEATURES.help(kind)}" for kind in _arguments())


def absolute(term: str) -> str:
    """The term with a file by its whole path, so that a run can be continued from any folder."""
    kind, place = _parts(term)
    parameter = _arguments().get(kind)
    path, _, rest = place.rpartition(":")
    is_file = parameter is not None and (_is_function(parameter) or "Path" in str(parameter.annotation))
    if not is_file or not path or "\0" in path or not Path(path).exists():
        return term
    return f"{'!' if term.startswith('!') else ''}{kind}:{Path(path).resolve()}:{rest}"


# A term as options have it: files by their whole path, so that a run can be continued from any folder.
Term = Annotated[str, lambda _, term: absolute(term)]


def _parts(words: str) -> tuple[str, str]:
    kind, _, argument = words.removeprefix("!").partition(":")
    return kind, argument


def _arguments() -> dict[str, inspect.Parameter | None]:
    """The features that words can make, and the parameter that takes the argument, if any does."""
    found: dict[str, inspect.Parameter | None] = {}
    for kind, entry in FEATURES.items():
        parameters = [
            parameter
            for parameter in inspect.signature(entry).parameters.values()
            if parameter.name not in (*FEATURES.given, "absent") and parameter.kind is not parameter.KEYWORD_ONLY
        ]
        first = parameters[0] if parameters else None
        if first is None or _is_function(first) or any(name in str(first.annotation) for name in ("str", "_empty")):
            found[kind] = first
    return found


def _is_function(parameter: inspect.Parameter) -> bool:
    return "Callable" in str(parameter.annotation)


def load_function(argument: str) -> Callable[..., Any]:
    """A function of the user's, given as FILE.py:FUNCTION."""
    path, _, name = argument.rpartition(":")
    if not path:
        raise UserError(f"A predicate is given as FILE.py:FUNCTION, not {argument!r}.")
    specification = importlib.util.spec_from_file_location("ebar_user_predicate", path)
    if specification is None or specification.loader is None or not Path(path).is_file():
        raise UserError(f"There is no Python file {path}: give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    function = getattr(module, name, None)
    if not callable(function):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UserError(f"{path} has no function {name!r}: give one of {', '.join(own) or 'none that it has'}.")
    found: Callable[..., Any] = function
    return found


SEVEN = ("m", "m+0", "m/2", "d0", "d1", "d2", "d3")


def terms_of(motif: str, bits: str) -> list[str]:
    """The features F = {m, m₊₀, m_/2, d₀ … d₃} of Parshakova et al. 2019 whose bit is 1, as terms.

    Each is 0 where it is present, as there. The "random" strings d₁ … d₃ are fixed and periodic, and d₀ is 0 where the
    string starts with 1 (the paper's text says 0), both as in the authors' code.
    """
    if len(bits) != len(SEVEN) or set(bits) - {"0", "1"} or "1" not in bits:
        raise UserError(
            f"ft is {len(SEVEN)} bits, one for each of {', '.join(SEVEN)}, at least one of them 1, so give these, "
            f"not {bits!r}."
        )
    if set(motif) - {"0", "1"}:
        raise UserError(f"ft names features of a motif over 0 and 1, which {motif!r} is not: give features instead.")
    size = len(motif)
    features = [
        f"!motif:{motif}",
        f"!motif:{motif}0",
        f"!motif:{motif[: size // 2]}",
        "!starts_with:1",
        f"!motif:{_periodic('10101', size)}",
        f"!motif:{_periodic('1001001', size + 2)}",
        f"!motif:{_periodic('00110011', size // 2)}",
    ]
    return [feature for feature, bit in zip(features, bits, strict=True) if bit == "1"]


def _periodic(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]
