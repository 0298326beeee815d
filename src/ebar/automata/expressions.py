"""Regular expressions as automata: over an alphabet of one-character tokens, or over text as UTF-8 bytes."""

from collections.abc import Sequence

import torch

from ebar.automata.charsets import UNICODE, charset
from ebar.automata.derivatives import automaton
from ebar.automata.deterministic import Dfa
from ebar.automata.syntax import parse
from ebar.automata.utf8 import to_bytes
from ebar.errors import UserError


def compile_expression(expression: str, alphabet: Sequence[str], *, anywhere: bool = False) -> Dfa:
    """The minimal automaton of the strings that match as a whole, or `anywhere`: that have a part which matches.

    Token i is the i-th character of the alphabet: over "01" the tokens are 0 and 1. The syntax is that of
    `ebar.automata.syntax`.
    """
    if len(set(alphabet)) != len(alphabet) or any(len(symbol) != 1 for symbol in alphabet) or not alphabet:
        raise UserError(f"An alphabet is one or more different characters, which {''.join(alphabet)!r} is not.")
    universe = charset((ord(symbol), ord(symbol)) for symbol in alphabet)
    dfa, classes = automaton(parse(expression, universe), universe, anywhere=anywhere)
    letter = {
        code: index for index, chars in enumerate(classes) for low, high in chars for code in range(low, high + 1)
    }
    columns = torch.tensor([letter[ord(symbol)] for symbol in alphabet])
    return Dfa(dfa.table[:, columns].contiguous(), dfa.accepting)


def compile_text(expression: str, *, anywhere: bool = False) -> Dfa:
    """The same over all of Unicode, as an automaton over the 256 bytes of UTF-8.

    It accepts valid UTF-8 only. `lift` turns it into one over the tokens of any vocabulary, also of one whose
    tokens hold parts of a character.
    """
    dfa, classes = automaton(parse(expression, UNICODE), UNICODE, anywhere=anywhere)
    return to_bytes(dfa, classes)
