"""Rules of whole texts that say which tokens may come next: regular expressions, context-free grammars, JSON schemas.

A rule is a hard constraint: what it does not allow has no probability. `ebar.samplers.masked` draws by it.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.automata.lift import OnDemand, Reading, started, without_end
from ebar.errors import UserError
from ebar.features.regular import Regular, UnboundError
from ebar.types import Context, Sequences

NO_FORCING = '\n%llguidance {"no_forcing": true}\n'
"""Forced tokens would leave one way to spell a text of many, and masks that do not say what may be read."""


NOTHING_FOLLOWS = ("NoExtension", "NoExtensionBias")  # the first line of llguidance's error: no token fits


@runtime_checkable
class Rule(Protocol):
    """Which tokens may follow what has been read. States are values: to go on from one leaves it as it was."""

    def start(self) -> Any:
        """Where nothing has been read."""

    def allowed(self, state: Any) -> Bool[np.ndarray, " vocabulary"]:
        """The tokens after which a whole text can still come; the end token where one has come."""

    def after(self, state: Any, token: int) -> Any | None:
        """The state after one more token; None after one that is not allowed."""

    def complete(self, state: Any) -> bool:
        """Whether what has been read is a whole text."""


class RegularRule:
    """A regular language over text, its states made when they are reached."""

    def __init__(self, feature: Regular, reading: Reading):
        present = started(feature.language(None), reading.before)
        self.automaton = OnDemand(~present if feature.absent else present, reading.trie)
        self.end = reading.end

    def start(self) -> int:
        return self.automaton.start

    def allowed(self, state: int) -> Bool[np.ndarray, " vocabulary"]:
        found = self.automaton.allowed(state)
        if self.end is not None:
            found[self.end] = self.complete(state)
        return found

    def after(self, state: int, token: int) -> int | None:
        return int(self.automaton.row(state)[token]) if self.automaton.allowed(state)[token] else None

    def complete(self, state: int) -> bool:
        return bool(self.automaton.accepting[state])


class GrammarRule:
    """A grammar as llguidance reads it, any tokens that spell a text being allowed.

    States are llguidance's matchers, copied before they go on.
    """

    def __init__(self, lark: str, reading: Reading):
        spellings = reading.bytes_of
        self.end, self.vocabulary = reading.end, len(spellings)
        llguidance = _llguidance()
        tokeniser = llguidance_tokeniser(spellings, reading.end)
        self.first = llguidance.LLMatcher(
            tokeniser, llguidance.LLMatcher.grammar_from_lark(lark + NO_FORCING), log_level=0
        )
        if self.first.is_error():
            raise UserError(f"This is no grammar that llguidance reads: {_sentence(self.first.get_error())}")
        if reading.before:
            raise UserError("A grammar is of what follows a prompt, not of the prompt: leave out reads_prompt.")
        if not bool(self.allowed(self.first).any()):
            raise UserError("No text of this model's tokens satisfies the grammar: nothing may stand at its beginning.")

    def start(self) -> Any:
        return self.first

    def allowed(self, state: Any) -> Bool[np.ndarray, " vocabulary"]:
        found = np.zeros(self.vocabulary, dtype=bool)
        if not state.is_stopped():
            bits = np.frombuffer(state.compute_bitmask(), dtype=np.uint8)
            found[:] = np.unpackbits(bits, bitorder="little")[: self.vocabulary]
        if self.end is not None:
            found[self.end] = self.complete(state)
        if state.is_error() and state.get_error().partition("\n")[0] not in NOTHING_FOLLOWS:
            raise UserError(f"llguidance cannot go on with this grammar: {_sentence(state.get_error())}")
        return found

    def after(self, state: Any, token: int) -> Any | None:
        if state.is_stopped():
            return None
        following = state.deep_copy()
        return following if following.consume_token(token) else None

    def complete(self, state: Any) -> bool:
        return bool(state.is_accepting())


@dataclass(frozen=True, slots=True)
class Grammar:
    """A context-free grammar, in llguidance's dialect of Lark: 1 where the whole text is in it, 0 elsewhere.

    `absent` exchanges them. A text that is cut off is not in the grammar. Any tokens that spell a text count, not only
    those that a tokeniser would choose.
    """

    text: str
    _: KW_ONLY
    kind: Literal["lark", "json_schema"] = "lark"
    """Whether the text is a grammar, or a JSON schema as llguidance reads it: keys in the order of the schema, white
    space where llguidance allows it."""
    absent: bool = False
    end: int | None = None
    reading: Reading | None = None

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}{'JSON schema' if self.kind == 'json_schema' else 'grammar'}"

    @property
    def rule(self) -> Rule:
        """Bound to tokens; the same object for equal grammars."""
        if self.reading is None:
            raise UnboundError(self.name)
        return _rule(self.text, self.kind, self.reading)

    def bind(self, reading: Reading) -> "Grammar":
        if self.reading is not None:
            return self
        made = replace(self, end=reading.end, reading=reading)
        _ = made.rule  # so that a mistake in the grammar is an error now, before any work
        return made

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return obeys(self.rule, x, self.end, absent=self.absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """1 where the tokens are those that the tokeniser makes of the text they spell, 0 elsewhere; `absent` reverses it.

    A model gives a text's other spellings some probability, too. To leave them out costs log Z what they have of it.
    """

    absent: bool = False
    end: int | None = None
    reading: Reading | None = None

    name: ClassVar[str] = "canonical tokens"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    def bind(self, reading: Reading) -> "Canonical":
        if reading.encode is None:
            raise UserError("Nothing is known of how this model's tokens encode a text, so none are canonical.")
        return self if self.reading is not None else replace(self, end=reading.end, reading=reading)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.reading is None or self.reading.encode is None:
            raise UnboundError(self.name)
        rows = [without_end(row, self.end) for row in x.rows()]
        same = [list(self.reading.encode(self.reading.text(row))) == row for row in rows]
        return torch.tensor(same, device=x.tokens.device).ne(self.absent).double()


def json_schema(schema: str | Mapping[str, Any] | bool, *, absent: bool = False) -> Grammar:
    """Texts that are JSON of a schema, as llguidance reads it: 1 where the whole text is, 0 elsewhere."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        json.loads(text)
    except ValueError as error:
        raise UserError(f"A JSON schema must be JSON itself, and this is not: {error}.") from None
    return Grammar(text, kind="json_schema", absent=absent)


def obeys(rule: Rule, x: Sequences, end: int | None, *, absent: bool = False) -> Float[Tensor, " batch"]:
    """1 where the rule allows each token and the text is whole, 0 elsewhere; `absent` exchanges them.

    Equal beginnings are read once.
    """
    rows = [tuple(without_end(x.prefix(row), end)) for row in range(len(x.lengths))]
    known: dict[tuple[int, ...], bool] = {}
    path: list[Any] = [rule.start()]  # states along the last row
    before: tuple[int, ...] = ()
    for row in sorted(set(rows)):
        shared = next((place for place, (one, two) in enumerate(zip(row, before, strict=False)) if one != two), None)
        shared = min(len(row), len(before)) if shared is None else shared
        del path[shared + 1 :]
        for token in row[len(path) - 1 :]:
            path.append(None if path[-1] is None else rule.after(path[-1], token))
        known[row] = path[-1] is not None and rule.complete(path[-1])
        before = row
    values = [known[row] is not absent for row in rows]
    return torch.tensor(values, dtype=torch.float64, device=x.tokens.device)


def llguidance_tokeniser(spellings: Any, end: int | None) -> Any:
    """The vocabulary as llguidance has it; where texts have no end token, with one more, which is it."""
    llguidance = _llguidance()
    last = len(spellings) if end is None else end
    tokens = [*spellings, *([None] if end is None else [])]

    class Tokeniser:
        eos_token_id = last
        bos_token_id = None

        def __init__(self) -> None:
            self.tokens = [b"\xff<%d>" % token if one is None else bytes(one) for token, one in enumerate(tokens)]
            self.special_token_ids = [token for token, one in enumerate(tokens) if one is None]

        def __call__(self, text: bytes | str) -> list[int]:
            return []  # asked for only where tokens are forced

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokeniser()), eos_token=last)


@lru_cache(maxsize=16)
def _rule(text: str, kind: str, reading: Reading) -> Rule:
    return GrammarRule(f"start: %json {text}" if kind == "json_schema" else text, reading)


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise UserError("Grammars need llguidance: install it with pip install 'ebar[grammar]'.") from None
    return llguidance


def _sentence(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[0].rstrip(".") + "." if lines else "it gives no reason."
