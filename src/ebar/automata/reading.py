"""How the tokens of a model are read as text: what features are bound to."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ebar.automata.deterministic import Dfa
from ebar.automata.lift import lift
from ebar.errors import UserError


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The text that tokens spell, the end token and the longest sequence.

    Where token i is the i-th character of an alphabet, features use automata over that alphabet. Elsewhere (bytes,
    byte-pair encoding, pretrained vocabularies) automata over the bytes of UTF-8 are lifted to the vocabulary.
    """

    end: int | None = None
    longest: int | None = None
    """Tokens of the longest sequence, the end included."""
    alphabet: str | None = None
    """One character for each token but the end."""
    spellings: Sequence[bytes | None] | None = None
    """Of each token; None for one that spells nothing, such as the end. Without spellings, text has no automaton."""
    decode: Callable[[list[int]], str] | None = None
    """Tokens → text; by default what the tokens spell, one after the other."""
    encode: Callable[[str], list[int]] | None = None
    """Text → tokens; None where prompts cannot be read."""
    before: str = ""
    """Text that each sequence continues, and which features read together with it: a prompt."""
    _lifted: dict[Hashable, Dfa] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def bytes_of(self) -> Sequence[bytes | None]:
        """The spellings, made from the alphabet where there is one."""
        if self.spellings is not None:
            return self.spellings
        if self.alphabet is None:
            raise UserError(
                "The tokens of this model have no exact spelling, so no regular expression can follow them: "
                "use characters, bytes or byte-pair encoding, or a predicate or score of the text."
            )
        return [*(symbol.encode() for symbol in self.alphabet), *([] if self.end is None else [None])]

    @property
    def characters(self) -> str | None:
        """The alphabet, where automata over it can be used: a text before the sequence may have other characters."""
        return None if self.before else self.alphabet

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens spell together; an end token in the last place is left out."""
        inside = without_end(list(tokens), self.end)
        if self.decode is not None:
            return self.decode(inside)
        return b"".join(self.bytes_of[token] or b"" for token in inside).decode(errors="replace")

    def lifted(self, key: Hashable, over_bytes: Callable[[], Dfa]) -> Dfa:
        """An automaton over bytes, lifted to the tokens and started after the text before them; made once per key."""
        if key not in self._lifted:
            dfa = over_bytes()
            start = dfa.start
            for byte in self.before.encode():
                start = int(dfa.table[start, byte])
            self._lifted[key] = lift(Dfa(dfa.table, dfa.accepting, start=start), self.bytes_of)
        return self._lifted[key]


def without_end(tokens: list[int], end: int | None) -> list[int]:
    """A sequence without the end token in its last place, where it has one."""
    return tokens[:-1] if end is not None and tokens and tokens[-1] == end else tokens
