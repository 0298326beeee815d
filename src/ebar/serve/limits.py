"""What one request may ask for and spend; models and energies that keep to it.

Constraints neither run code nor open files; tables and draws fit into memory.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.automata.lift import Reading
from ebar.backbones.backbone import Stepper
from ebar.bounds import Amount, Count, check
from ebar.errors import UserError
from ebar.features.regular import Regular
from ebar.models.drawing import drawn_at_once, stepper_of
from ebar.models.pretrained import MEMORY
from ebar.models.stepwise import ByChainRule
from ebar.serve.allowance import Allowance
from ebar.types import Context, Sequences, Space, State, Stepwise


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one request, and of all that is kept between requests."""

    draws: Count = 2000
    """Asked for at most; a request makes some five times as many in all, λ and what looks ahead included."""
    length: Count = 100
    """Tokens of a draw."""
    seconds: Amount = 60.0
    """A request is ended then; opening its model is counted, waiting for its turn is not."""
    memory: Amount = 512.0
    """Megabytes of a request's tables, and of its draws; one is ended when memory grows by twice that meanwhile."""
    characters: Count = 2000
    """Of a prompt, a text or all constraints together."""
    terms: Count = 6
    """Constraints."""
    users: Count = 16
    """Whose last result is kept."""
    models: Count = 2
    """Kept open."""
    at_once: Count = 2
    """Requests that are computed at a time."""
    waiting: Count = 8
    """Requests that wait for their turn; more are refused."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def growth(self) -> float:
        """Megabytes that the process may grow by while a request is computed."""
        return 2 * self.memory

    @property
    def numbers(self) -> int:
        """Of eight bytes, in that memory."""
        return int(self.memory * 2**20) // 8

    def check_text(self, text: str, what: str) -> str:
        """A text that is not too long."""
        if len(text) > self.characters:
            raise UserError(
                f"{what} has {len(text):,} characters, and at most {self.characters:,} are read here: shorten it."
            )
        return text

    def check_number(self, number: float | int | None, most: int, what: str, least: int = 1) -> int:
        """A whole number within its bounds."""
        if number is None or number != number or not least <= number <= most:
            shown = "nothing" if number is None else f"{number:g}"
            raise UserError(f"{what}: a number from {least:,} to {most:,} is needed here, not {shown}.")
        return int(number)


class Watched(ByChainRule):
    """A model that asks before each of its steps whether its request may go on; else it is the model itself.

    Whatever is computed with it, a journey say, can so be stopped within one step of the network.
    """

    def __init__(self, model: Stepwise, allowance: Allowance, rows: int, reading: Reading | None = None):
        super().__init__()
        self.model, self.allowance, self.rows = model, allowance, rows
        self.reading = reading  # what its tokens spell

    @property
    def space(self) -> Space:
        return self.model.space

    @property
    def free_logits(self) -> bool:
        return self.model.free_logits

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn together."""
        return min(self.rows, drawn_at_once(self.model))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        self.allowance.check()
        return self.model.start(rows, context)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Any
    ) -> tuple[Float[Tensor, "rows length vocabulary"], State]:
        self.allowance.check()
        return self.model.advance(tokens, state)

    def stepper(self, state: Any) -> Stepper:
        return _WatchedSteps(stepper_of(self.model, state), self.allowance)


class _WatchedSteps:
    def __init__(self, inner: Stepper, allowance: Allowance):
        self.inner, self.allowance = inner, allowance

    def step(self, tokens: Int[Tensor, " rows"]) -> Any:
        self.allowance.check()
        return self.inner.step(tokens)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.inner.keep(rows)


class WatchedEnergy(nn.Module):
    """An energy that asks first; it is given as many texts at a time as its caller has."""

    def __init__(self, energy: Any, allowance: Allowance):
        super().__init__()
        self.energy, self.allowance = energy, allowance
        self.any_order = bool(getattr(energy, "any_order", False))

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        self.allowance.check()
        found: Tensor = self.energy(x, context)
        return found


KINDS = ("word", "expression", "whole", "motif", "starts_with")
BATCH = 128  # draws between two looks at the clock, at most


def check_terms(terms: list[str], limits: Limits) -> None:
    """A file of Python is never run for a page, and no folder opened."""
    if len(terms) > limits.terms:
        raise UserError(
            f"There are {len(terms)} constraints, and at most {limits.terms} are read here: leave some out."
        )
    for term in terms:
        kind = term.removeprefix("!").partition(":")[0]
        if kind not in KINDS:
            raise UserError(
                f"The constraint {term[:60]!r} is none of {', '.join(KINDS)}: write one such as word:rabbit|bunny=1; "
                "others are for `ebar control fit`."
            )


def check_automata(features: list[Any], reading: Reading, vocabulary: int, length: int, limits: Limits) -> None:
    """Refuses constraints whose automata would take too much memory, before they are made over the vocabulary."""
    together = length + 1
    for feature in features:
        assert isinstance(feature, Regular)
        states = feature.language(None if feature.over_bytes else reading.characters).states
        together *= states
        if max(states * vocabulary, together) > limits.numbers // 4:
            raise UserError(
                f"The constraint {feature.name!r} needs tables of {max(states * vocabulary, together):,} numbers, more "
                "than a request may have: simplify the constraints, or leave some out."
            )


def rows_at_once(model: Any, length: int, limits: Limits) -> int:
    """Draws that fit in the memory of a request; a pretrained model knows what each takes."""
    known = getattr(model, "rows_at_once", None)
    each = 32 * model.space.vocabulary + 4096 * length if known is None else MEMORY / known
    fit = int(limits.memory * 2**20 / each)
    if fit < 2:
        raise UserError(f"A text of {length} tokens of this model takes too much memory here: ask for shorter ones.")
    return min(BATCH, fit)
