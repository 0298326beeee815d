"""Synthetic languages whose entropy is known exactly: noise that holds a motif, or matches an expression."""

import math
from dataclasses import dataclass

import torch

from ebar.automata.construction import EmptyLanguageError, capped, intersection, mixture, stopping_noise, white_noise
from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression
from ebar.automata.measures import count_strings, entropy, mean_length, probability
from ebar.automata.motif import contains, spell
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.errors import UserError
from ebar.types import Space

LARGEST = 2_000_000  # arcs of the automaton: half a minute or so
DIGITS = 4_000  # of the number of strings: Python itself prints no integer beyond 4,300 unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Noise over `alphabet` with the motif in it, or matched as a whole by the expression; noise alone with neither.

    With a `presence` p below 1 it is the mixture of Parshakova et al. 2019: with probability p a string that has the
    property, with 1 − p one that has not. Tokens are places in the alphabet, the end-of-sequence token comes
    after them ("01" makes it 2), and lengths of tokens count it.
    """

    motif: str | None = None
    expression: str | None = None
    length: int = 30
    """Symbols, the end not counted; with `stop`, the most there can be."""
    presence: float = 1.0
    alphabet: str = "01"
    stop: float | None = None
    """None: all strings have `length` symbols; else the chance to end before each symbol."""
    end: bool = True
    """Whether strings carry an end-of-sequence token."""

    @property
    def space(self) -> Space:
        symbols = len(self.alphabet)
        return Space(symbols + 1, self.length + 1, symbols) if self.end else Space(symbols, self.length)

    def condition(self) -> Dfa:
        """The property: the motif is there, or the expression matches."""
        if self.motif is not None and self.expression is not None:
            raise UserError("A language has a motif or an expression, not both.")
        if self.expression is not None:
            return compile_expression(self.expression, self.alphabet)
        if self.motif is None:
            everything = torch.zeros(1, len(self.alphabet), dtype=torch.int64)
            return Dfa(everything, torch.ones(1, dtype=torch.bool))
        motif = spell(self.motif, self.alphabet)
        if len(motif) > self.length and self.presence > 0:
            raise UserError(
                f"The motif {self.motif} has {len(motif)} symbols and does not fit in sequences of {self.length}: "
                "shorten it or give a larger length."
            )
        return contains(motif, len(self.alphabet))

    def noise(self) -> ProbabilisticAutomaton:
        """The language without its property."""
        if self.stop is None:
            return white_noise(self.space)
        symbols = len(self.alphabet)
        return capped(stopping_noise(symbols + 1, symbols, stop=self.stop), self.length + 1)

    def distribution(self) -> ProbabilisticAutomaton:
        """The language itself; `log_partition` is that of its property under the noise, when present for sure."""
        condition = self._checked()
        try:
            if self.presence == 1:
                return intersection(self.noise(), condition)
            return mixture(self.noise(), [condition, ~condition], [self.presence, 1 - self.presence])
        except EmptyLanguageError as empty:
            raise UserError(self._empty(condition)) from empty

    def describe(self) -> dict[str, float | int | None]:
        """Its exact figures: in nats, per token with the end counted.

        Numbers of strings are exact integers, None where they would have thousands of digits.
        """
        language, condition = self.distribution(), self.condition()
        nats, tokens = entropy(language), mean_length(language)
        noise = self.noise()
        fraction = probability(noise, condition)
        countable = self.length * math.log10(len(self.alphabet) + (self.stop is not None)) < DIGITS
        return {
            "entropy": nats,
            "entropy_per_token": nats / tokens,
            "noise_entropy_per_token": entropy(noise) / mean_length(noise),
            "mean_length": tokens,
            "presence": probability(language, condition),
            "noise_presence": fraction,
            "strings": int(count_strings(language)) if countable else None,
            "strings_present": _count(noise, condition) if countable else None,
            "states": language.graph.states,
        }

    def _checked(self) -> Dfa:
        if not 0 <= self.presence <= 1:
            raise UserError(f"The presence is a probability: it must be between 0 and 1, not {self.presence}.")
        if self.length < 1:
            raise UserError(f"Sequences need at least one symbol, so a length of {self.length} is too small.")
        if self.stop is not None and not self.end:
            raise UserError("Sequences of variable length need an end token: leave out stop, or keep the end.")
        if len(self.alphabet) < 1 or len(set(self.alphabet)) != len(self.alphabet):
            raise UserError(f"An alphabet is one or more different characters, which {self.alphabet!r} is not.")
        if self.motif is None and self.expression is None and self.presence < 1:
            raise UserError("A presence below 1 needs a motif or an expression.")
        condition = self.condition()
        if condition.table.numel() * self.length > LARGEST:
            raise UserError(
                f"A length of {self.length} with {condition.states} states and {len(self.alphabet)} symbols "
                "is too large a language: shorten one of them."
            )
        return condition

    def _empty(self, condition: Dfa) -> str:
        what = f"the motif {self.motif}" if self.expression is None else f"the expression {self.expression}"
        bound = "" if self.stop is None else "up to "
        if self.presence > 0 and not probability(self.noise(), condition) > 0:
            whole = (
                "" if self.expression is None else " (the whole sequence is matched: write .* where anything may stand)"
            )
            return f"No sequence of {bound}{self.length} symbols satisfies {what}{whole}."
        return f"Every sequence of {bound}{self.length} symbols satisfies {what}: the presence can only be 1."


def _count(noise: ProbabilisticAutomaton, condition: Dfa) -> int:
    try:
        return int(count_strings(intersection(noise, condition)))
    except EmptyLanguageError:
        return 0
