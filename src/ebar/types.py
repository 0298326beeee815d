"""The vocabulary of ebar, and its conventions.

    P(x|C) = q(x|C)·exp(−E(x, C)),     p = P / Z(C),     Z(C) = Σₓ P(x|C)

- Natural logarithms, nats. `log_prob` is normalised, `log_score` is not.
- Energy is a cost: lower is likelier. `log_score = q.log_prob − E`.
- Tokens are right-padded; `lengths` counts the end-of-sequence token; it is scored, padding never.
- Whatever has only a score has no `sample` and no `log_prob`: those need Z, and Z belongs to samplers and estimators.
- Draws for several contexts are context-major: the n draws of row r of the context are n consecutive rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F
from typing_extensions import TypeVar

from ebar.errors import UserError
from ebar.maths.rows import take


@dataclass(frozen=True, slots=True)
class Space:
    """The sequences a distribution lives on.

    With an `end` token: every sequence ends in it and has at most `length` tokens, the end included;
    in the last place nothing else can stand. Without one: every sequence has exactly `length` tokens.
    A context stands before the sequence, whose length it does not change, unless the space `completes` or the context
    has an `order`, which says for each row how many tokens are to come, at most `length`.
    """

    vocabulary: int  # number of tokens, the end token included
    length: int
    end: int | None = None
    completes: bool = field(default=False, compare=False)
    """A context is the beginning of the sequence itself, as the first pixels of an image are: it counts in `length`."""
    any_order: bool = field(default=False, compare=False, metadata={"follows": True})
    """A context may have an order. It follows from the model, so that no fingerprint tells of it."""

    def __post_init__(self) -> None:
        if self.completes and self.end is not None:
            raise ValueError("only sequences of fixed length are completed to it: leave `completes` or `end` out")

    def after(self, context: "Context | None") -> "Space":
        """The space of x in this context: this one or, where it `completes`, what the context leaves to come.

        In a context with an order, its length is the most that are to come; `room` says how many in each row.
        """
        if context is not None and context.order is not None:
            return self._in_order(context)
        if context is None or not self.completes or context.rows == 0:
            return self
        given, longest = int(context.given.lengths.min()), int(context.given.lengths.max())
        if given < longest:
            raise UserError("The given beginnings must all have as many tokens: cut them to one length.")
        if given >= self.length:
            raise UserError(
                f"A beginning of {given} tokens leaves nothing to come of a sequence of {self.length}: give fewer."
            )
        return replace(self, length=self.length - given, completes=False)

    def _in_order(self, context: "Context") -> "Space":
        if not self.any_order:
            raise UserError(
                "The context has an order and the model reads from left to right only: leave `Context.order` out, or "
                "take a model of any order, such as xlnet."
            )
        if self.end is not None:
            raise UserError(
                "An order says how many tokens are to come, so no token can end them: take a space without an end."
            )
        most = context.check_order()
        if most > self.length:
            raise UserError(f"The order has {most} tokens to come, and the model's sequences {self.length} at most.")
        return replace(self, length=most, completes=False)


@dataclass(frozen=True, slots=True)
class PointSpace:
    """Where x lives that is no sequence: float tensors of one shape, rows first.

    Points of a plane have the shape (2,), images (channels, height, width), with values in [0, 1].
    """

    shape: tuple[int, ...]

    def after(self, context: "Context | None") -> "PointSpace":
        """The space of x in this context, which a context never changes."""
        return self


class Sequences(NamedTuple):
    """A batch of sequences."""

    tokens: Int[Tensor, "batch length"]  # right-padded; what lies past `lengths` is ignored
    lengths: Int[Tensor, " batch"]  # end-of-sequence included, where the space has one

    def mask(self) -> Bool[Tensor, "batch length"]:
        """True where a token counts, False on padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    def select(self, rows: Int[Tensor, " selected"] | Bool[Tensor, " batch"] | slice) -> "Sequences":
        """Some rows, by index (repeats allowed), by mask or by slice."""
        return Sequences(self.tokens[rows], self.lengths[rows])

    def repeat(self, times: int) -> "Sequences":
        """Each row `times` times in a row: context-major."""
        return Sequences(self.tokens.repeat_interleave(times, 0), self.lengths.repeat_interleave(times, 0))

    def trimmed(self) -> "Sequences":
        """Without the padding that no row needs."""
        return Sequences(self.tokens[:, : int(self.lengths.max()) if len(self.lengths) else 0], self.lengths)

    def prefix(self, row: int) -> list[int]:
        """Row `row` as a list of tokens, padding left out."""
        return [int(token) for token in self.tokens[row, : int(self.lengths[row])]]

    def rows(self) -> list[list[int]]:
        """Every row as a list of tokens, padding left out."""
        return [row[:length] for row, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]

    @staticmethod
    def join(parts: "list[Sequences]") -> "Sequences":
        """The rows of all parts, one after another, padded to the longest."""
        width = max(part.tokens.shape[1] for part in parts)
        padded = [F.pad(part.tokens, (0, width - part.tokens.shape[1])) for part in parts]
        return Sequences(torch.cat(padded), torch.cat([part.lengths for part in parts]))


# What x is: sequences where nothing is said; else a float tensor of points or images, rows first.
X = TypeVar("X", default=Sequences)
X_co = TypeVar("X_co", covariant=True, default=Sequences)
X_contra = TypeVar("X_contra", contravariant=True, default=Sequences)
Space_co = TypeVar("Space_co", covariant=True, default=Space)


class Context(NamedTuple):
    """What a distribution is conditional on, one row per condition C.

    With an order, which a model of any order has (XLNet), given tokens and those to come stand anywhere in one text:
    x holds the tokens to come in the order in which they come, and `ebar.arranged(x, context)` is the text.
    """

    given: Sequences  # a prefix, a source sentence …, rows of unequal length allowed
    # The place of each given token, then of each token to come, in the order in which they come; padded with −1.
    order: Int[Tensor, "rows length"] | None = None

    @property
    def rows(self) -> int:
        return int(self.given.lengths.shape[0])

    @property
    def coming(self) -> Int[Tensor, " rows"] | None:
        """How many tokens are to come in each row, where an order says so."""
        return None if self.order is None else (self.order >= 0).sum(1) - self.given.lengths

    def check_order(self) -> int:
        """The most tokens that are to come in a row; an order that cannot be is refused."""
        order, coming = self.order, self.coming
        if order is None or coming is None:
            raise ValueError("the context has no order")
        if len(order) != self.rows:
            raise UserError(f"The order has {len(order)} rows and the context {self.rows}: give one for each.")
        if self.rows == 0:
            return 0
        placed = order >= 0
        if bool((placed[:, 1:] & ~placed[:, :-1]).any()):
            raise UserError("An order holds places from 0 on, and then −1 for what a row has not.")
        for row in (coming < 1).nonzero()[:1, 0].tolist():
            tokens, places = int(self.given.lengths[row]), int(placed[row].sum())
            raise UserError(
                f"Row {row} of the order has {places} places for {tokens} given tokens: give each its place, and at "
                "least one place to a token to come."
            )
        ordered = order.sort(1).values
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        for row, at in twice.nonzero()[:1].tolist():
            raise UserError(f"Row {row} of the order has place {int(ordered[row, at])} twice: give each token its own.")
        return int(coming.max())

    def repeat(self, times: int) -> "Context":
        order = None if self.order is None else self.order.repeat_interleave(times, 0)
        return Context(self.given.repeat(times), order)

    def select(self, rows: Int[Tensor, " selected"]) -> "Context":
        return Context(self.given.select(rows), None if self.order is None else self.order[rows])


def context_rows(context: Context | None) -> int:
    """The number of conditions: one where there is no context."""
    return 1 if context is None else context.rows


def draws_per_context(batch: int, context: Context | None) -> int:
    """How many of `batch` context-major rows each condition has; an error where they cannot be shared evenly."""
    conditions = context_rows(context)
    if batch % max(conditions, 1):
        raise ValueError(f"{batch} sequences cannot be shared evenly among {conditions} contexts")
    return batch // max(conditions, 1)


def spread(context: Context | None, batch: int) -> Context | None:
    """The context with one row for each of `batch` context-major rows."""
    return None if context is None else context.repeat(draws_per_context(batch, context))


def room(space: Space, context: Context | None, batch: int, device: torch.device) -> Int[Tensor, " batch"]:
    """How many tokens each of `batch` context-major rows may have; `space` is that after the context."""
    coming = None if context is None else context.coming
    if context is None or coming is None:
        return torch.full((batch,), space.length, device=device)
    return coming.repeat_interleave(draws_per_context(batch, context)).to(device)


class Weighted(NamedTuple, Generic[X]):
    """Properly weighted draws: E[w·f(x)] = Σₓ P(x)·f(x) for every f, so E[w] = Z, per row of the context.

    They carry what an estimator needs to know about how they were drawn, so that no caller has to pass it on.
    """

    x: X  # rows × draws of them, context-major
    log_weights: Float[Tensor, "rows draws"]
    # Draws of the same number may depend on one another, those of different numbers do not. None: all are independent.
    groups: Int[Tensor, " draws"] | None = None
    # Draws of the same number come from one law, and how many come from each was settled in advance; only the mean over
    # all of them is unbiased. None: all come from one law.
    strata: Int[Tensor, " draws"] | None = None
    estimates_z: bool = True  # False: weights are relative (those of a Markov chain), and say nothing of Z
    target: Any = None  # what was drawn from, and in which context, where that is known
    context: Context | None = None
    doubt: str | None = None  # why the draws are p's only nearly, in words that each estimate repeats as a warning

    def select(self, draws: Int[Tensor, " selected"] | slice) -> "Weighted[X]":
        """Some of the draws, the same in every row: properly weighted if the choice does not depend on weights."""
        rows, n = self.log_weights.shape
        index = torch.arange(n, device=self.log_weights.device)[draws]
        everywhere = (torch.arange(rows, device=index.device)[:, None] * n + index).flatten()
        return self._replace(
            x=take(self.x, everywhere),
            log_weights=self.log_weights[:, index],
            groups=None if self.groups is None else self.groups[index],
            strata=None if self.strata is None else self.strata[index],
        )

    @staticmethod
    def join(parts: "Sequence[Weighted[X]]", *, one_stream: bool = False) -> "Weighted[X]":
        """The draws of all parts, of the same rows of context. Parts are independent of one another, unless they come
        from one stream, whose groups have their numbers in common."""
        rows = parts[0].log_weights.shape[0]
        return parts[0]._replace(
            x=_side_by_side([part.x for part in parts], rows),
            log_weights=torch.cat([part.log_weights for part in parts], 1),
            groups=_joined_groups(parts, one_stream),
            strata=_joined_strata(parts),
            estimates_z=all(part.estimates_z for part in parts),
            doubt=next((part.doubt for part in parts if part.doubt is not None), None),
        )


def _side_by_side(parts: list[Any], rows: int) -> Any:
    """Of batches of context-major rows, the draws of each row of the context one after another."""
    if isinstance(parts[0], Tensor):
        return torch.cat([part.reshape(rows, len(part) // rows, *part.shape[1:]) for part in parts], 1).flatten(0, 1)
    width = max(part.tokens.shape[1] for part in parts)
    padded = [F.pad(part.tokens, (0, width - part.tokens.shape[1])) for part in parts]
    return Sequences(_side_by_side(padded, rows), _side_by_side([part.lengths for part in parts], rows))


def _joined_groups(parts: Sequence[Weighted[Any]], one_stream: bool) -> Int[Tensor, " draws"] | None:
    if all(part.groups is None for part in parts):
        return None
    found, first = [], 0
    for part in parts:
        own = torch.arange(part.log_weights.shape[1]) if part.groups is None else part.groups
        found.append(own if one_stream and part.groups is not None else own + first)
        first = max(first, int(found[-1].max()) + 1)
    return torch.cat([own.to(found[0].device) for own in found])


def _joined_strata(parts: Sequence[Weighted[Any]]) -> Int[Tensor, " draws"] | None:
    """Laws of the same number in different parts are taken for one: that can only widen an interval."""
    if all(part.strata is None for part in parts):
        return None
    own = [torch.zeros(part.log_weights.shape[1]).long() if part.strata is None else part.strata for part in parts]
    return torch.cat([one.to(own[0].device) for one in own])


class Estimate(NamedTuple):
    """A Monte-Carlo number: never shown without its interval."""

    value: float
    low: float
    high: float
    effective_sample_size: float
    warning: str | None = None
    level: float = 0.95  # of the interval

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        """A number known without error."""
        return cls(value, value, value, float("inf"))

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> "Estimate":
        """What JSON made of an estimate, where infinities are strings; other entries are left out."""
        numbers: dict[str, Any] = {
            name: float(tree[name]) for name in cls._fields if name in tree and name != "warning"
        }
        return cls(**numbers, warning=tree.get("warning"))

    def mapped(self, function: Callable[[float], float]) -> "Estimate":
        """Of a rising function of the number: the function of its value and of its ends."""
        return self._replace(value=function(self.value), low=function(self.low), high=function(self.high))

    @property
    def is_exact(self) -> bool:
        """Known without error, not merely measured without spread."""
        return self.effective_sample_size == float("inf")

    def __repr__(self) -> str:
        flag = "" if self.warning is None else f"  ⚠ {self.warning}"
        if self.is_exact:
            return f"{self.value:.6g} (exact){flag}"
        size = f"{self.effective_sample_size:.0f}"
        return f"{self.value:.6g} [{self.low:.6g}, {self.high:.6g}] ({self.level:.0%}, ESS {size}){flag}"


@runtime_checkable
class Scored(Protocol[X_contra]):
    """An unnormalised density: it can be asked for a score, not for a sample."""

    def log_score(self, x: X_contra, context: Context | None = None) -> Float[Tensor, " batch"]: ...


@runtime_checkable
class Energy(Protocol[X_contra]):
    """A cost of the whole x: lower is likelier."""

    def __call__(self, x: X_contra, context: Context | None = None) -> Float[Tensor, " batch"]: ...


@runtime_checkable
class Distribution(Protocol[X, Space_co]):
    """A normalised distribution, which can sample and be evaluated; of points, `Distribution[Tensor, PointSpace]`."""

    @property
    def space(self) -> Space_co: ...

    def log_prob(self, x: X, context: Context | None = None) -> Float[Tensor, " batch"]: ...

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> X:
        """n draws for each row of the context, context-major."""


@runtime_checkable
class SamplesWithLogProb(Protocol[X_co]):
    """A distribution that knows the log-probability of its draws from having drawn them."""

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[X_co, Float[Tensor, " batch"]]: ...


@runtime_checkable
class State(Protocol):
    """Where a model stands along its prefixes: a value, never changed in place."""

    def select(self, rows: Int[Tensor, " selected"]) -> "State":
        """Reorder, drop or duplicate rows: beams, particles, a prefix shared by its continuations."""


@runtime_checkable
class Stepwise(Distribution[Sequences, Space], Protocol):
    """A distribution that can be advanced along a prefix.

    log_softmax of what `start` and `advance` return is the distribution of the next token, whatever the
    space forbids (anything but the end in the last place) being −inf. Length 1 is one step, a whole
    sequence is the parallel pass, a segment is a recurrent memory's unit.
    """

    @property
    def free_logits(self) -> bool:
        """True: logits before the softmax, whose shift is free. False: already log-probabilities."""

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """`rows` is a multiple of the context's rows, context-major."""

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: Any
    ) -> tuple[Float[Tensor, "rows length vocabulary"], State]:
        """Logits after each of the tokens."""


@runtime_checkable
class Sampler(Protocol):
    """A way of drawing from a target."""

    weighted: ClassVar[bool]  # True: its draws are properly weighted. False: they tend to p, and say nothing of Z

    def stream(
        self, target: "Target[Any]", n: int, *, proposal: Distribution[Any, Any] | None = None,
        context: Context | None = None, generator: Generator,
    ) -> Iterator[Weighted[Any]]:  # fmt: skip
        """At least n draws for each row of the context, in batches of bounded size.

        Over the batches of one stream, draws of the same group number depend on one another.
        """


Target = Scored[X] | Distribution[X, Any]  # a tilted model, or a distribution, whose log Z is 0


class Clock(NamedTuple):
    """How far training has come."""

    step: int  # optimiser steps taken so far
    epoch: int  # passes over the data completed so far


class Loss(NamedTuple):
    """What one player minimises now."""

    value: Float[Tensor, ""]
    player: str = "model"  # whose parameters this loss moves
    metrics: dict[str, float] = {}  # noqa: RUF012 — read, never written
    # Over how many terms (tokens, rows …) it is a mean. Over pieces k of a batch (accumulation, several processes)
    # the mean is Σ w·L / Σ w: the plain mean of the pieces is another number where they hold unequal numbers of terms.
    weight: float = 1.0
    rate: float = 1.0  # factor on the learning rate of this step, beside the schedule's; the same in all pieces


@runtime_checkable
class Objective(Protocol):
    """Turns a batch into losses, each for one player; the loop takes one optimiser step per loss, in order."""

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]: ...


@runtime_checkable
class Game(Objective, Protocol):
    """An objective whose next losses depend on what the last step did, and each of them on the whole batch.

    It moves the players it wants to: a loss that it does not yield moves nobody. The loop neither cuts its batches nor
    shares them out, so that it computes, and decides, the same in one process and in several.
    """

    def after_step(self, metrics: Mapping[str, float]) -> str | None:
        """Told what a step did; the reason why training should stop, or None. What it remembers must be in a player."""
