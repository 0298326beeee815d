"""Features and energies from the terms of a command line: KIND:ARGUMENT=COEFFICIENT."""

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ebar.data.tokenisers import Alphabet
from ebar.energies.linear import Linear
from ebar.errors import UserError, choose
from ebar.features import FEATURES
from ebar.features.expression import Expression
from ebar.features.feature import Feature, Features
from ebar.features.predicate import Predicate
from ebar.types import Sequences, Space


def build_energy(terms: Sequence[str], alphabet: Alphabet, space: Space) -> Linear:
    """A linear energy from terms KIND:ARGUMENT=COEFFICIENT; ! in front of KIND makes the feature's absence count."""
    features, coefficients = [], []
    for term in terms:
        words, equals, number = term.rpartition("=")
        try:
            if not equals:
                raise ValueError
            coefficients.append(float(number))
        except ValueError:
            raise UserError(f"The term {term!r} must end in =COEFFICIENT, as in motif:101=2.5.") from None
        features.append(build_feature(words, alphabet, space))
    try:
        return Linear(Features(features), torch.tensor(coefficients, dtype=torch.float64))
    except ValueError as error:
        raise UserError(f"The energy cannot be made: {error}.") from None


# What a term's KIND may be, and what its ARGUMENT then is. All but the last two are entries of FEATURES.
KINDS = {
    "motif": "a string that occurs",
    "expression": "a regular expression that matches somewhere",
    "starts_with": "a string it begins with",
    "ngram_count": "a string, counted",
    "length": "nothing: the number of tokens, the end included",
    "whole": "a regular expression that matches the whole",
    "predicate": "FILE.py:FUNCTION, a function of the text, true or false",
}


def build_feature(words: str, alphabet: Alphabet, space: Space) -> Feature:
    """A feature from KIND:ARGUMENT, or !KIND:ARGUMENT for its absence.

    An entry of FEATURES says by the names of its fields what it needs: the alphabet, the end, the longest length,
    whether absence counts. The one field with no such name is what the argument is for.
    """
    absent = words.startswith("!")
    kind, _, argument = words.removeprefix("!").partition(":")
    choose(KINDS, kind, "kind of feature")
    entry = Predicate if kind == "predicate" else Expression if kind == "whole" else FEATURES[kind]
    names = {field.name for field in dataclasses.fields(entry)}
    if absent and "absent" not in names:
        raise UserError(f"Only a feature that is there or not can be absent, so ! cannot stand before {kind}.")
    if not argument and kind != "length":
        raise UserError(f"The feature {words!r} needs an argument: {KINDS[kind]}.")
    if kind == "predicate":
        return _predicate(argument, alphabet, space.end)
    known = {"alphabet": alphabet.symbols, "end": space.end, "longest": space.length, "absent": absent}
    known |= {"whole": kind == "whole"}
    given = {name: known.get(name, argument) for name in names}
    feature: Feature = entry(**given)
    # Automata and spellings are made when first asked for: ask now, so that a mistake is told before any work.
    feature(Sequences(torch.zeros(0, 1, dtype=torch.long), torch.zeros(0, dtype=torch.long)))
    return feature


def load_function(argument: str) -> tuple[str, Callable[..., Any]]:
    """A function of the user's, given as FILE.py:FUNCTION, and its name."""
    path, _, name = argument.rpartition(":")
    if not path:
        raise UserError(f"A predicate is given as FILE.py:FUNCTION, not {argument!r}.")
    specification = importlib.util.spec_from_file_location("ebar_user_predicate", path)
    if specification is None or specification.loader is None or not Path(path).is_file():
        raise UserError(f"There is no Python file {path}.")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{path} has no function {name!r}.")
    return name, function


def _predicate(argument: str, alphabet: Alphabet, end: int | None) -> Predicate:
    name, function = load_function(argument)
    return Predicate(name=name, function=function, end=end, decode=alphabet.decode)
