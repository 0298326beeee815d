"""Features of a text that are common enough for a name: keyphrases in order, numbers of words, templates, a suffix.

Each is a regular language, so an automaton follows it and look-ahead heads for it.
"""

import re
from dataclasses import dataclass

from ebar.automata import motif as motifs
from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_text
from ebar.errors import UserError
from ebar.features.regular import Regular, over_text, symbols_of

BETWEEN = "..."  # stands between keyphrases


@dataclass(frozen=True, slots=True)
class EndsWith(Regular):
    """A string that the sequence ends with: 1 where it does, 0 elsewhere; `absent` exchanges them."""

    suffix: str

    names = ("ends with {0.suffix}", "does not end with {0.suffix}")

    def language(self, alphabet: str | None) -> Dfa:
        return motifs.ends_with(*symbols_of(self.suffix, alphabet))


@dataclass(frozen=True, slots=True)
class Ordered(Regular):
    """Keyphrases that come one after the other, as in 'castle...dragons?...the end': 1 where they do, 0 elsewhere.

    Each is a regular expression and matches whole words (see `Word`); anything may stand before, between and after, if
    only what separates two words. Bytes that are not UTF-8 interrupt: after them all must come anew.
    """

    keyphrases: str

    over_bytes = True

    names = ("ordered {0.keyphrases}", "no ordered {0.keyphrases}")

    def language(self, alphabet: str | None) -> Dfa:
        phrases = [phrase.strip() for phrase in self.keyphrases.split(BETWEEN)]
        if not all(phrases):
            raise UserError(f"Keyphrases are separated by {BETWEEN}, as in castle{BETWEEN}dragon: one here is empty.")
        for phrase in phrases:
            compile_text(phrase)  # so that an error quotes what the user wrote
        between = r")\W(.*\W)?("
        return over_text(f"({between.join(phrases)})", "word")


@dataclass(frozen=True, slots=True)
class WordCount(Regular):
    """How many words the text has, as in '20-30', '20', '20-' or '-30': 1 where it is as many, 0 elsewhere.

    Words are what white space separates, as `wc -w` counts them.
    """

    words: str

    over_bytes = True

    names = ("{0.words} words", "not {0.words} words")

    def language(self, alphabet: str | None) -> Dfa:
        found = re.fullmatch(r"(\d{0,5})(-?)(\d{0,5})", self.words.replace(" ", ""), re.ASCII)
        low, dash, high = found.groups() if found else ("", "", "")
        if not (low or high) or (not dash and high) or (low and high and int(high) < int(low)):
            raise UserError(f"A number of words is as in 20, 20-30, 20- or -30, and {self.words!r} is not.")
        least, most = int(low or 0), (int(high) if high else None if dash else int(low))
        more = f"{{{max(least - 1, 0)},{'' if most is None else max(most - 1, 0)}}}"
        some = rf"\S+(\s+\S+){more}"
        if most == 0:
            return over_text(r"\s*", "whole")
        return over_text(rf"\s*({some}){'?' if least == 0 else ''}\s*", "whole")


@dataclass(frozen=True, slots=True)
class Template(Regular):
    r"""A text with gaps, as in 'Dear {}, you are {\d+}.': 1 where the whole text is of that form, 0 elsewhere.

    {} is any text, none included; {expression} what the expression matches, whose own braces may stand in it, as in
    {\d{4}}. Everything else is meant literally; {{ and }} are braces.
    """

    template: str

    over_bytes = True

    names = ("of the form {0.template}", "not of the form {0.template}")

    def language(self, alphabet: str | None) -> Dfa:
        return over_text("".join(_parts(self.template)), "whole")


def _parts(template: str) -> list[str]:
    """The template as expressions, one after the other."""
    parts, at = [], 0
    while at < len(template):
        pair, character = template[at : at + 2], template[at]
        if pair in ("{{", "}}"):
            parts.append("\\" + character)
            at += 2
        elif character == "{":
            closed = _closing(template, at)
            inside = template[at + 1 : closed]
            compile_text(inside or ".*")  # so that an error quotes what the user wrote, and brackets are balanced
            parts.append(f"({inside})" if inside else "(.*)")
            at = closed + 1
        elif character == "}":
            raise UserError(f"The template {template!r} closes a gap that was never opened: write }}}} for a brace.")
        else:
            parts.append("\\" + character if character.isascii() and not character.isalnum() else character)
            at += 1
    return parts


def _closing(template: str, opened: int) -> int:
    """Where the gap that opens here is closed; a backslash takes the next character's meaning away."""
    depth, at = 0, opened
    while at < len(template):
        if template[at] == "\\":
            at += 1
        depth += {"{": 1, "}": -1}.get(template[at : at + 1], 0)
        if depth == 0:
            return at
        at += 1
    raise UserError(f"The template {template!r} has a gap that is never closed: write {{{{ for a brace.")
