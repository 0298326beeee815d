"""A language of known entropy: its automaton and its exact distribution. Nothing is drawn."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from ebar.automata.construction import follow
from ebar.automata.deterministic import Dfa
from ebar.automata.probabilistic import ProbabilisticAutomaton
from ebar.data.languages import Language
from ebar.errors import UserError
from ebar.serve.limits import Limits

SYMBOLS = 12  # of an alphabet, at most
DRAWN = 20  # states of an automaton that can still be read


class Next(NamedTuple):
    """A symbol as the next one."""

    symbol: str
    noise: float
    language: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """All of it exact."""

    language: Language
    figures: dict[str, float | int | None]
    automaton: Dfa  # of the property alone, the smallest there is
    prefix: str
    state: int  # where the prefix leads
    following: list[Next]
    reached: Float[np.ndarray, "places states"]  # how likely each state is after so many symbols


def describe(
    *, motif: str, expression: str, length: float | int | None, alphabet: str, presence: float | int | None,
    prefix: str, limits: Limits,
) -> Described:  # fmt: skip
    """Of noise that holds a motif, or is matched by an expression as a whole; and what follows a prefix."""
    if bool(motif) == bool(expression):
        raise UserError("Give a motif or an expression, one of the two.")
    for text, what in ((motif, "The motif"), (expression, "The expression"), (prefix, "The prefix")):
        limits.check_text(text, what)
    if not 1 <= len(alphabet) <= SYMBOLS:
        raise UserError(f"An alphabet has 1 to {SYMBOLS} symbols here, not {len(alphabet)}.")
    if presence is None or not 0 <= presence <= 1:
        raise UserError("The presence is a share from 0 to 1.")
    language = Language(
        motif=motif or None, expression=expression or None, presence=float(presence), alphabet=alphabet,
        length=limits.check_number(length, limits.length, "Symbols of a string"),
    )  # fmt: skip
    distribution, noise = language.distribution(), language.noise()
    automaton = language.condition().minimised()
    tokens = _tokens(prefix, language)
    ours, theirs = _next(distribution, tokens), _next(noise, tokens)
    if ours is None or theirs is None:
        raise UserError(f"No string of this language begins with {prefix!r}: shorten the prefix.")
    names = [*alphabet, "(end)"]
    return Described(
        language=language, figures=language.describe(), automaton=automaton, prefix=prefix,
        state=int(automaton.follow(torch.tensor([tokens]))[0, -1]) if tokens else automaton.start,
        following=[
            Next(name, there, here)
            for name, there, here in zip(names, theirs.tolist(), ours.tolist(), strict=True)
            if there > 0 or here > 0
        ],
        reached=state_probabilities(distribution, automaton),
    )  # fmt: skip


def state_probabilities(distribution: ProbabilisticAutomaton, automaton: Dfa) -> Float[np.ndarray, "places states"]:
    """P(the automaton is in state s after t symbols), for t = 0 … the longest string; an ended string stays put."""
    arcs, pairs, after = follow(distribution, automaton)
    length = distribution.space.length - (distribution.space.end is not None)
    weights = np.exp(arcs.log_weights)
    state_of = np.full(pairs, automaton.start)
    state_of[arcs.targets] = after  # of the last pair, the end, it is not asked
    mass = np.zeros(pairs)
    mass[0] = 1.0
    ended = np.zeros(automaton.states)
    found = np.zeros((length + 1, automaton.states))
    for place in range(length + 1):
        found[place] = ended
        np.add.at(found[place], state_of[:-1], mass[:-1])
        flow = mass[arcs.sources] * weights
        last = arcs.targets == pairs - 1
        np.add.at(ended, after[last], flow[last])
        mass = np.zeros(pairs)
        np.add.at(mass, arcs.targets[~last], flow[~last])
    return found


def _tokens(prefix: str, language: Language) -> list[int]:
    wrong = [symbol for symbol in prefix if symbol not in language.alphabet]
    if wrong:
        raise UserError(f"The prefix has {wrong[0]!r}, which is no symbol of the alphabet {language.alphabet!r}.")
    return [language.alphabet.index(symbol) for symbol in prefix]


def _next(automaton: ProbabilisticAutomaton, tokens: list[int]) -> torch.Tensor | None:
    """Next-token probabilities after a prefix; None where there is no such prefix."""
    logits, state = automaton.start(1)
    for token in tokens:
        if logits[0, token] == -torch.inf:
            return None
        following, state = automaton.advance(torch.tensor([[token]]), state)
        logits = following[:, 0]
    return logits[0].exp()
