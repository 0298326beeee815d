"""From an automaton over characters or bytes to one over the tokens of a vocabulary.

How the tokens of a model are read as text: what features are bound to.

Lifted automata that are kept on disk, by expression and vocabulary, where EBAR_CACHE names a folder.
"""

import hashlib
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from safetensors.torch import save

from ebar.automata.deterministic import Dfa, hopeless_state
from ebar.automata.trie import Trie
from ebar.errors import UserError
from ebar.store.fingerprint import describe, fingerprint, source_fingerprint
from ebar.store.stages import open_stage

VARIABLE = "EBAR_CACHE"
FILE = "automaton.safetensors"


def kept(what: Any, spellings: Sequence[bytes | None], make: Callable[[], Dfa]) -> Dfa:
    """An automaton over tokens, read where an earlier process has made it.

    `what` is what it is made from besides the vocabulary: whatever `describe` knows. One made by other source code is
    made anew. Two processes that want the same one wait for one another; without the environment variable
    nothing is read or written.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return make()
    description = {"made from": describe(what), "vocabulary": _digest(spellings), "source": source_fingerprint()}
    place = Path(folder) / "automata" / fingerprint(description)
    with open_stage(place, description) as stage:
        if not stage.done:
            made = make()
            assert made.letter is not None
            tensors = {"moves": made.moves, "accepting": made.accepting, "letter": made.letter}
            stage.write(FILE, save({name: tensor.contiguous() for name, tensor in tensors.items()}))
            stage.save({"start": made.start})
            return made
        found = stage.tensors(FILE, "moves", "accepting", "letter")
        return Dfa(found["moves"], found["accepting"], start=int(stage.state["start"]), letter=found["letter"])


def _digest(spellings: Sequence[bytes | None]) -> str:
    digest = hashlib.sha256()
    for spelling in spellings:
        digest.update(b"-" if spelling is None else b"%d:%s" % (len(spelling), spelling))
    return digest.hexdigest()


ROWS = 1024  # made on demand that are kept: 200 megabytes for a vocabulary of 50,000


def lift(dfa: Dfa, spellings: Trie | Sequence[Sequence[int] | None]) -> Dfa:
    """Accepts a token string exactly when `dfa` accepts what the tokens spell, one after the other.

    A spelling is a sequence of the symbols of `dfa`: bytes for an automaton over bytes, `spell(text, alphabet)`
    for one over an alphabet; a trie of them serves many automata. A special token spells nothing (None) and leaves
    the state where it is: lifting is then the inverse of a homomorphism, and commutes with complement, union and
    intersection.

    What a spelling does is a function from states to states. The trie is walked a level at a time and every
    function is made once, whichever spellings have it: they are the letters of the result, and few. Where a spelling
    leads from every state to where nothing can be accepted, what begins with it need not be read.
    """
    trie = spellings if isinstance(spellings, Trie) else Trie.of(spellings)
    functions = _Functions(dfa)
    at = np.full(trie.nodes, functions.hopeless, dtype=np.int32)
    nodes, found = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    at[0] = 0
    while nodes.size:
        nodes, parent = trie.children(nodes)
        found = functions.after(found[parent], trie.symbol[nodes])
        at[nodes] = found
        if functions.hopeless:
            hopeful = found != functions.hopeless
            nodes, found = nodes[hopeful], found[hopeful]
    letter, used = _by_first(at[trie.node], functions.count)
    moves = np.ascontiguousarray(functions.made[used].T)
    return Dfa(torch.from_numpy(moves), dfa.accepting, start=dfa.start, letter=torch.from_numpy(letter))


class _Functions:
    """Functions from states to states, numbered: what reading a spelling does. Number 0 is the identity."""

    def __init__(self, dfa: Dfa):
        letter, moves = dfa.compressed()
        self.letter = letter.astype(np.int64)
        self.moves = np.ascontiguousarray(moves.T, dtype=np.int32)  # by letter, then state
        self.made = np.arange(dfa.states, dtype=np.int32)[None]
        self.number = {self.made[0].tobytes(): 0}
        self.count = 1
        self.known = np.full(len(self.moves), -1, dtype=np.int64)  # by function, then letter
        self.hopeless = 0  # the function that leads every state to the one of no hope; 0 where there is none
        sink = hopeless_state(dfa)
        if sink is not None and dfa.states > 1:
            self.hopeless = int(self._numbered(np.full((1, dfa.states), sink, dtype=np.int32))[0])

    def after(self, function: Int[np.ndarray, " n"], symbol: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The numbers of these functions followed by a symbol each."""
        code = function * len(self.moves) + self.letter[symbol]
        missing = np.unique(code[self.known[code] < 0])
        if missing.size:
            before, letter = np.divmod(missing, len(self.moves))
            self.known[missing] = self._numbered(self.moves[letter[:, None], self.made[before]])
        return np.asarray(self.known[code])

    def _numbered(self, functions: Int[np.ndarray, "n states"]) -> Int[np.ndarray, " n"]:
        numbers = [self.number.setdefault(one.tobytes(), len(self.number)) for one in functions]
        found = np.array(numbers)
        fresh, first = np.unique(found, return_index=True)
        first = first[fresh >= self.count]
        if first.size:
            while self.count + len(first) > len(self.made):  # room that doubles
                self.made = np.concatenate([self.made, np.empty_like(self.made)])
                self.known = np.concatenate([self.known, np.full_like(self.known, -1)])
            self.made[self.count : self.count + len(first)] = functions[first]
            self.count += len(first)
        return found


def _by_first(
    number: Int[np.ndarray, " tokens"], count: int
) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " n"]]:
    """Numbers anew, in the order of the first tokens that have them; and what was the number of each."""
    first = np.full(count, len(number))
    first[number[::-1]] = np.arange(len(number))[::-1]  # of those alike the last one is assigned
    used = np.argsort(first, kind="stable")[: int((first < len(number)).sum())]
    anew = np.empty(count, dtype=np.int32)
    anew[used] = np.arange(len(used))
    return anew[number], used


class OnDemand:
    """The same automaton, of which the row of a state is made when it is first asked for.

    For following one text at a time, where few states are ever reached: a row is one walk of the trie, along those
    spellings only that leave something to hope for.
    """

    def __init__(self, dfa: Dfa, trie: Trie):
        letter, moves = dfa.compressed()
        self.trie = trie
        self.start = dfa.start
        self.accepting = dfa.accepting.cpu().numpy()
        self.hopeless = hopeless_state(dfa)
        self._moves, self._letter = np.ascontiguousarray(moves, dtype=np.int32), letter.astype(np.int64)[trie.symbol]
        self._rows: dict[int, Int[np.ndarray, " tokens"]] = {}

    def row(self, state: int) -> Int[np.ndarray, " tokens"]:
        """The state after each token."""
        if state not in self._rows:
            if len(self._rows) == ROWS:
                self._rows.pop(next(iter(self._rows)))
            self._rows[state] = self._row(state)
        return self._rows[state]

    def allowed(self, state: int) -> Bool[np.ndarray, " tokens"]:
        """The tokens that spell something and leave something to hope for."""
        return np.asarray(self.trie.spelt & (self.row(state) != (-1 if self.hopeless is None else self.hopeless)))

    def _row(self, state: int) -> Int[np.ndarray, " tokens"]:
        at = np.full(self.trie.nodes, 0 if self.hopeless is None else self.hopeless, dtype=np.int32)
        nodes, states = np.zeros(1, dtype=np.int64), np.array([state], dtype=np.int32)
        at[0] = state
        while nodes.size:
            nodes, parent = self.trie.children(nodes)
            states = self._moves[states[parent], self._letter[nodes]]
            if self.hopeless is not None:
                hopeful = states != self.hopeless
                nodes, states = nodes[hopeful], states[hopeful]
            at[nodes] = states
        return np.asarray(at[self.trie.node])


def after_a_blank(dfa: Dfa) -> Dfa:
    """Over bytes: accepts a string exactly when `dfa` accepts it without its first byte, where that is a blank.

    A new start reads the first byte: at a blank it goes where `dfa` starts, elsewhere on as `dfa` does.
    """
    first = dfa.table[dfa.start].clone()
    first[ord(" ")] = dfa.start
    accepting = torch.cat([dfa.accepting, dfa.accepting[dfa.start : dfa.start + 1]])
    return Dfa(torch.cat([dfa.table, first[None]]), accepting, start=dfa.states)


def byte_characters() -> list[str]:
    """The character that each byte is written as in the byte-level alphabet of GPT-2 and its kin."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def byte_level(tokens: Sequence[str]) -> list[bytes]:
    """The bytes of tokens written in the byte-level alphabet of GPT-2 and its kin, one printable character a byte.

    Printable Latin-1 bytes stand for themselves, the others for the characters from 256 on, in order (" " is "Ġ").
    """
    value = {character: byte for byte, character in enumerate(byte_characters())}
    return [bytes(value[character] for character in token) for token in tokens]


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
    drops_blank: bool = False
    """Whether a blank that a text begins with is no part of it, as for tokenizers that put one before every text."""
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
        text = b"".join(self.bytes_of[token] or b"" for token in inside).decode(errors="replace")
        return text.removeprefix(" ") if self._begins_bare else text

    def going_on_from(self, prompt: str, longest: int, *, reads_prompt: bool) -> "Reading":
        """Of sequences that continue a prompt, read together with it or by themselves: a blank after it counts."""
        drops = self.drops_blank and not prompt
        return replace(self, longest=longest, before=prompt if reads_prompt else "", drops_blank=drops)

    @property
    def _begins_bare(self) -> bool:
        """In the middle of a text, after what is `before`, a blank counts."""
        return self.drops_blank and not self.before

    @cached_property
    def trie(self) -> Trie:
        """Of the spellings."""
        return Trie.of(self.bytes_of)

    def lifted(self, key: Hashable, over_bytes: Callable[[], Dfa]) -> Dfa:
        """An automaton over bytes, lifted to the tokens and started after the text before them; made once per key.

        The key says all that the automaton is made from, code and fields: where the environment variable EBAR_CACHE
        names a folder, it is kept there too, and found again by another process.
        """
        if key not in self._lifted:
            made_from = {"key": key, "before": self.before, "bare": self._begins_bare}
            self._lifted[key] = kept(made_from, self.bytes_of, lambda: self._lift(over_bytes()))
        return self._lifted[key]

    def _lift(self, over_bytes: Dfa) -> Dfa:
        return lift(started(after_a_blank(over_bytes) if self._begins_bare else over_bytes, self.before), self.trie)


def started(dfa: Dfa, before: str) -> Dfa:
    """An automaton over bytes that stands where a text leads it."""
    (follows,) = dfa.follow(torch.tensor([list(before.encode())], dtype=torch.long))
    start = int(follows[-1]) if len(follows) else dfa.start
    return Dfa(dfa.moves, dfa.accepting, start=start, letter=dfa.letter)


def without_end(tokens: list[int], end: int | None) -> list[int]:
    """A sequence without the end token in its last place, where it has one."""
    return tokens[:-1] if end is not None and tokens and tokens[-1] == end else tokens
