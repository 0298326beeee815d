"""Complete deterministic automata over a token vocabulary, followed along whole batches.

Walking integer-coded graphs a whole frontier at a time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ebar.types import Sequences


def ranges(first: Int[np.ndarray, " n"], count: Int[np.ndarray, " n"]) -> Int[np.ndarray, " total"]:
    """first[0], first[0]+1, … count[0] of them, then the same for the next: the arcs of several states at once."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(first - (ends - count), count))


def explore(
    start: int, successors: Callable[[Int[np.ndarray, " n"]], Int[np.ndarray, " m"]]
) -> Int[np.ndarray, " reached"]:
    """Every key reachable from `start`, breadth first, in order of discovery.

    The order depends on the graph alone and not on the numbering of its keys, so it is a canonical numbering.
    """
    seen = {start}
    frontier = np.array([start], dtype=np.int64)
    found = [frontier]
    while frontier.size:
        keys, first = np.unique(successors(frontier), return_index=True)
        fresh = [key for key in keys[np.argsort(first)].tolist() if key not in seen]
        seen.update(fresh)
        frontier = np.array(fresh, dtype=np.int64)
        found.append(frontier)
    return np.concatenate(found)


def position_in(keys: Int[np.ndarray, " keys"], wanted: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """Where each wanted key, known to be there, stands in `keys`."""
    order = np.argsort(keys)
    return order[np.searchsorted(keys, wanted, sorter=order)]


def letters(
    table: Int[np.ndarray, "states vocabulary"],
) -> tuple[Int[np.ndarray, " vocabulary"], Int[np.ndarray, " n"]]:
    """Tokens that act alike on every state are one letter: the letter of each token, one token of each letter.

    A vocabulary of 50,000 often has a few dozen letters, and products and minimisation then cost that much less.
    """
    seen: dict[bytes, int] = {}
    letter = np.array([seen.setdefault(column.tobytes(), len(seen)) for column in np.ascontiguousarray(table.T)])
    _, token = np.unique(letter, return_index=True)
    return letter.astype(np.int64), token


CHUNK = 16_384  # rows followed together: the working set stays in cache


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """A regular language: the strings that lead from `start` to an accepting state.

    Complete: every state has a transition for every token, so that complement is a flip of `accepting` and a
    batch never falls off the table. The end-of-sequence token is no part of a string.

    Tokens that act alike may share a letter: a vocabulary of 50,000 then takes a table of a few hundred columns.
    """

    moves: Int[Tensor, "states letters"]  # the state after each letter; contiguous, or steps copy it
    accepting: Bool[Tensor, " states"]
    start: int = field(default=0, kw_only=True)
    letter: Int[Tensor, " vocabulary"] | None = field(default=None, kw_only=True)
    """Of each token, in the order in which tokens first have them; None where every token is a letter of its own."""

    @property
    def states(self) -> int:
        return self.moves.shape[0]

    @property
    def vocabulary(self) -> int:
        return self.moves.shape[1] if self.letter is None else len(self.letter)

    @property
    def table(self) -> Int[Tensor, "states vocabulary"]:
        """The state after each token. Where tokens share letters it is made when asked for, and may be large."""
        return self.moves if self.letter is None else self.moves[:, self.letter]

    def to(self, device: torch.device | str) -> "Dfa":
        """The same automaton on another device."""
        letter = None if self.letter is None else self.letter.to(device)
        return Dfa(self.moves.to(device), self.accepting.to(device), start=self.start, letter=letter)

    def compressed(self) -> tuple[Int[np.ndarray, " vocabulary"], Int[np.ndarray, "states letters"]]:
        """The letter of each token, and the state after each letter."""
        moves = self.moves.cpu().numpy()
        if self.letter is not None:
            return self.letter.cpu().numpy(), moves
        letter, token = letters(moves)
        return letter, moves[:, token]

    def step(self, state: Int[Tensor, " batch"], token: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """The state after one more token."""
        return self._step(state, token if self.letter is None else self.letter[token])

    def _step(self, state: Int[Tensor, " batch"], letter: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        # Tables are of 32 bits where they can be large; an index into one needs 64.
        return self.moves.reshape(-1).index_select(0, state.long() * self.moves.shape[1] + letter).long()

    def follow(
        self, tokens: Int[Tensor, "batch length"], state: Int[Tensor, " batch"] | None = None
    ) -> Int[Tensor, "batch length"]:
        """The state after each token, from `state` (the start where it is not given)."""
        if state is None:
            state = torch.full((len(tokens),), self.start, device=tokens.device)
        after = torch.empty_like(tokens)
        for place in range(tokens.shape[1]):
            state = self.step(state, tokens[:, place])
            after[:, place] = state
        return after

    def final_state(self, x: Sequences, end: int | None = None) -> Int[Tensor, " batch"]:
        """The state after each whole string; an `end` token in a string's last place is left out."""
        parts = [
            self._final_state(x.tokens[begin : begin + CHUNK], x.lengths[begin : begin + CHUNK], end)
            for begin in range(0, len(x.lengths), CHUNK)
        ]
        return torch.cat(parts) if parts else torch.zeros_like(x.lengths)

    def _final_state(
        self, tokens: Int[Tensor, "batch length"], lengths: Int[Tensor, " batch"], end: int | None
    ) -> Int[Tensor, " batch"]:
        if end is not None and tokens.shape[1]:
            last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
            lengths = lengths - ((lengths > 0) & (last == end)).long()
        width = int(lengths.max())
        counts = torch.arange(width, device=tokens.device)[:, None] < lengths
        columns = torch.where(counts, tokens[:, :width].T, 0)
        if columns.numel() and not (int(columns.min()) >= 0 and int(columns.max()) < self.vocabulary):
            raise ValueError(f"a token lies outside the automaton's vocabulary of {self.vocabulary}")
        columns = columns if self.letter is None else self.letter[columns]
        state = torch.full_like(lengths, self.start)
        for column, counted in zip(columns, counts, strict=True):
            state = torch.where(counted, self._step(state, column), state)
        return state

    def accepts(self, x: Sequences, end: int | None = None) -> Bool[Tensor, " batch"]:
        """Whether each string, its end token left out, is in the language."""
        return self.accepting[self.final_state(x, end)]

    def count(self, length: int) -> int:
        """How many strings of `length` tokens are in the language, exactly: a Python integer never overflows."""
        letter, table = self.compressed()
        times = [int(number) for number in np.bincount(letter)]
        ways = self.accepting.cpu().numpy().astype(np.int64).astype(object)
        for _ in range(length):
            ways = sum(number * ways[column] for number, column in zip(times, table.T, strict=True))
        return int(ways[self.start])

    def minimised(self) -> "Dfa":
        """The smallest automaton of this language, its states in breadth-first order.

        Two automata have the same language exactly when their minimised tables and flags are equal.
        """
        letter, table = self.compressed()
        accepting = self.accepting.cpu().numpy()
        reached = explore(self.start, lambda states: table[states].ravel())
        table, accepting = position_in(reached, table[reached]), accepting[reached]
        block = _coarsest(table, accepting)
        representative = np.unique(block, return_index=True)[1]
        table, accepting = block[table[representative]], accepting[representative]
        order = explore(int(block[0]), lambda states: table[states].ravel())
        table = position_in(order, table[order])
        return automaton_of(table, accepting[order], letter, whole=self.letter is None)

    def __invert__(self) -> "Dfa":
        """The strings that are not in the language."""
        return Dfa(self.moves, ~self.accepting, start=self.start, letter=self.letter)

    def __and__(self, other: "Dfa") -> "Dfa":
        """The strings in both languages."""
        return product([self, other])[0].minimised()

    def __or__(self, other: "Dfa") -> "Dfa":
        """The strings in either language."""
        both, flags = product([self, other])
        return Dfa(both.moves, flags.any(1), letter=both.letter).minimised()


def hopeless_state(dfa: Dfa) -> int | None:
    """A state that is not accepting and that nothing leaves; None where there is none. A minimal automaton has one."""
    moves, accepting = dfa.moves.cpu().numpy(), dfa.accepting.cpu().numpy()
    stuck = np.flatnonzero(~accepting & (moves == np.arange(len(moves))[:, None]).all(1))
    return int(stuck[0]) if stuck.size else None


def product(automata: Sequence[Dfa]) -> tuple[Dfa, Bool[Tensor, "states automata"]]:
    """One automaton that follows several at once, and for each of its states which of them accept there.

    As a language it is their intersection. Only states reachable from the start exist.
    """
    if len({dfa.vocabulary for dfa in automata}) != 1:
        raise ValueError("a product needs automata over one vocabulary")
    letter, table = automata[0].compressed()
    keys = explore(automata[0].start, lambda states: table[states].ravel())
    table, flags = position_in(keys, table[keys]), automata[0].accepting.cpu().numpy()[keys, None]
    for dfa in automata[1:]:
        letter, table, flags = _pairs(letter, table, flags, dfa)
    whole = all(dfa.letter is None for dfa in automata)
    return automaton_of(table, np.asarray(flags.all(1)), letter, whole=whole), torch.from_numpy(flags)


def _pairs(
    letter: Int[np.ndarray, " vocabulary"],
    left: Int[np.ndarray, "left letters"],
    flags: Bool[np.ndarray, "left automata"],
    dfa: Dfa,
) -> tuple[Int[np.ndarray, " vocabulary"], Int[np.ndarray, "states more"], Bool[np.ndarray, "states more_automata"]]:
    """One more automaton beside those joined so far, which start in 0."""
    other, right = dfa.compressed()
    states = dfa.states
    pairs, token, among = np.unique(
        letter.astype(np.int64) * right.shape[1] + other, return_index=True, return_inverse=True
    )
    order = np.argsort(token)  # by the first token that has them
    rank = np.empty_like(order)
    rank[order] = np.arange(len(pairs))
    left = left[:, letter[token[order]]].astype(np.int64)
    right = right[:, other[token[order]]]

    def after(keys: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n letters"]:
        return np.asarray(left[keys // states] * states + right[keys % states])

    keys = explore(dfa.start, lambda frontier: after(frontier).ravel())
    table = position_in(keys, after(keys))
    accepting = dfa.accepting.cpu().numpy()[keys % states, None]
    return rank[among.ravel()], table, np.concatenate([flags[keys // states], accepting], 1)


def automaton_of(
    table: Int[np.ndarray, "states letters"],
    accepting: Bool[np.ndarray, " states"],
    letter: Int[np.ndarray, " vocabulary"],
    *,
    whole: bool,
) -> Dfa:
    """An automaton that starts in 0; `whole`: with a column for every token."""
    flags = torch.from_numpy(accepting)
    if whole:
        return Dfa(torch.from_numpy(np.ascontiguousarray(table[:, letter])), flags)
    return Dfa(torch.from_numpy(np.ascontiguousarray(table)), flags, letter=torch.from_numpy(letter))


def _coarsest(
    table: Int[np.ndarray, "states letters"], accepting: Bool[np.ndarray, " states"]
) -> Int[np.ndarray, " states"]:
    """The block of each state, such that states share a block exactly when no string tells them apart.

    Hopcroft's rule, a round at a time: when a block splits, its largest part keeps the name, and only
    predecessors of renamed states are looked at again. A state is renamed at most log₂(states) times, so the
    work is O(letters · states · log states) however many rounds there are. Plain Python on purpose: a chain of
    10,000 states has 10,000 rounds of a state or two each, where calls into numpy would cost far more.
    """
    rows = table.tolist()
    before: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            before[target].append(state)
    block = accepting.astype(int).tolist()
    members: list[set[int]] = [set(np.flatnonzero(~accepting).tolist()), set(np.flatnonzero(accepting).tolist())]
    touched: Iterable[int] = range(len(rows))
    while touched:
        # Untouched states of a block agree with each other and with no touched one, which sees a fresh name.
        parts: dict[tuple[int, ...], list[int]] = {}
        for state in touched:
            parts.setdefault((block[state], *[block[target] for target in rows[state]]), []).append(state)
        by_block: dict[int, list[list[int]]] = {}
        for signature, part in parts.items():
            by_block.setdefault(signature[0], []).append(part)
        renamed: list[int] = []
        for name, split in by_block.items():
            split.sort(key=len)
            if 2 * len(split[-1]) > len(members[name]) or sum(map(len, split)) == len(members[name]):
                kept = split.pop()
                rest = members[name].difference(kept, *split)
                members[name] = set(kept)
                split.append(list(rest))
            else:
                members[name].difference_update(*split)
            for part in split:
                if part:
                    for state in part:
                        block[state] = len(members)
                    members.append(set(part))
                    renamed += part
        touched = {source for state in renamed for source in before[state]}
    return np.unique(np.array(block), return_inverse=True)[1].ravel()
