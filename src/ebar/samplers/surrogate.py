"""Cheap stand-ins u for q, and what they foresee: the expected weight to come, by backward dynamic programming.

They are used only to look ahead, so their errors cost effective samples, never correctness.

Gaps in a text that are filled from left to right, for proposals that look ahead.

The given tokens before the first gap, between gaps and after the last one move the automata as those to come do. Where
they stand is a row's layout; rows of the same layout have the same future, and share its tables.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.orders import arranged, left_to_right, places_to_come
from ebar.samplers.guided_states import JointStates
from ebar.types import Context, Sequences

LEAST = 1e-12  # a surrogate may think a token unlikely, never impossible: the proposal would lose support


class Tally(NamedTuple):
    """What q said at the prefixes of some draws: its next-token probabilities, summed over visits.

    Probabilities say more than the tokens drawn, and cost nothing: a rare token is tallied each time it might
    have come.
    """

    following: Float[Tensor, "states classes"]  # what comes next, the last place of a space with an end left out
    visits: Float[Tensor, "places states"]
    ends: Float[Tensor, "places states"]  # of these visits, how many would end here

    @classmethod
    def empty(cls, states: JointStates) -> "Tally":
        count, classes = states.successor.shape
        by_place = torch.zeros(2, states.space.length, count, dtype=torch.float64, device=states.recent.device)
        return cls(torch.zeros(count, classes, dtype=torch.float64, device=states.recent.device), *by_place)

    def add(
        self, states: JointStates, logits: Float[Tensor, "rows vocabulary"], joint: Int[Tensor, " rows"], place: int
    ) -> None:
        """Count, in place, what the base says of the next token in each row."""
        if states.end_class is not None and place == states.space.length - 1:
            return
        probs = torch.softmax(logits, -1)
        by_class = torch.zeros(len(joint), self.following.shape[1], dtype=probs.dtype, device=probs.device)
        by_class = by_class.index_add_(1, states.class_of, probs).double()
        self.following.index_add_(0, joint, by_class)
        self.visits[place].index_add_(0, joint, torch.ones_like(joint, dtype=torch.float64))
        if states.end_class is not None:
            self.ends[place].index_add_(0, joint, by_class[:, states.end_class])


class Law(NamedTuple):
    """u: whether a sequence ends here, which depends on the place, and if not what follows, which does not."""

    end: Float[Tensor, "places states"]  # probabilities in (0, 1); unread in spaces without an end token
    following: Float[Tensor, "states classes"]  # rows sum to one; 0 for the end class, positive elsewhere


@runtime_checkable
class Surrogate(Protocol):
    """A family of laws, and how one is fitted."""

    @property
    def order(self) -> int:
        """How many of the last tokens it looks at."""

    def fit(self, states: JointStates, tally: Tally) -> Law: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every token as likely as any other; sequences end, place by place, as often as q's do."""

    order: ClassVar[int] = 0

    def fit(self, states: JointStates, tally: Tally) -> Law:
        return Law(_endings(tally), _uniform(states))


@dataclass(frozen=True, slots=True, kw_only=True)
class NGram:
    """q's mean next-token probabilities, given the joint state: last `order` tokens and the automata's states.

    Smoothed from the bottom up, each context by the one a token shorter: u = (tally + smoothing·u_shorter) /
    (visits + smoothing), MacKay and Peto 1995. The states come last, so that a half-finished motif longer than
    `order` is still recognised. u is positive wherever the space allows, which is what keeps the proposal's
    support whole.
    """

    order: int = 8
    """Less where the table would be too large: see `joint_states`."""
    smoothing: float = 1.0

    def fit(self, states: JointStates, tally: Tally) -> Law:
        following = _uniform(states)
        seen = tally.following.clone()
        if states.end_class is not None:
            seen[:, states.end_class] = 0
        base = states.successor.shape[1] + 1
        everything = torch.arange(len(states.recent), device=seen.device)
        contexts = [states.recent % base**length for length in range(states.order + 1)]
        for context in [*contexts, everything]:
            _, group = torch.unique(context, return_inverse=True)
            pooled = torch.zeros_like(seen).index_add_(0, group, seen)[group]
            following = (pooled + self.smoothing * following) / (pooled.sum(1, keepdim=True) + self.smoothing)
        end = (tally.ends + self.smoothing * _endings(tally)) / (tally.visits + self.smoothing)
        return Law(end, following)


def _uniform(states: JointStates) -> Float[Tensor, "states classes"]:
    sizes = states.class_sizes.double()
    if states.end_class is not None:
        sizes[states.end_class] = 0
    return (sizes / sizes.sum().clamp(min=1)).expand(len(states.recent), -1)


def _endings(tally: Tally) -> Float[Tensor, "places states"]:
    """How likely the end is in each place, shrunk by one visit's worth to its mean over places; never 0 or 1."""
    ends, visits = tally.ends.sum(1, keepdim=True), tally.visits.sum(1, keepdim=True)
    overall = (ends.sum() + 1) / (visits.sum() + len(visits) + 1)
    return ((ends + overall) / (visits + 1)).expand_as(tally.ends)


def log_following(states: JointStates, law: Law) -> Float[Tensor, "states classes"]:
    """log u(c|s) of what follows where the sequence does not end: positive for every class that has a token."""
    possible = states.class_sizes > 0
    if states.end_class is not None:
        possible[states.end_class] = False
    following = torch.where(possible, law.following.clamp(min=LEAST), 0.0)
    return (following / following.sum(1, keepdim=True).clamp(min=LEAST)).log()


def log_expected_weights(
    states: JointStates, scores: Float[Tensor, " states"], law: Law
) -> Float[Tensor, "places states"]:
    """log hₜ(s) = log E_u[exp score(final state) | s at t], for t = 0 … length.

    hₜ(s) = e(t, s)·exp score(s) + (1 − e(t, s))·Σ_c u(c|s)·hₜ₊₁(δ(s, c)), with e = 1 in the last place, and e = 0
    everywhere in a space without an end token.
    """
    length, log_next = states.space.length, log_following(states, law)
    end = law.end.clamp(LEAST, 1 - LEAST)
    rows = [scores]  # after the last token
    for place in reversed(range(length)):
        if states.end_class is None:
            rows.append(torch.logsumexp(log_next + rows[-1][states.successor], 1))
        elif place == length - 1:
            rows.append(scores)
        else:
            onward = torch.logsumexp(log_next + rows[-1][states.successor], 1)
            rows.append(torch.logaddexp(end[place].log() + scores, torch.log1p(-end[place]) + onward))
    return torch.stack(rows[::-1])


def log_largest_ratio(
    states: JointStates,
    log_ahead: Float[Tensor, "places states"],
    log_final: Float[Tensor, " states"],
    scores: Float[Tensor, " states"],
) -> float:
    """The supremum of log q(x)·exp score(x) − log g(x) over all sequences and all q that could be the base.

    Where the base is not known Nₜ can be as large as hₜ₊₁ of the best next class, while a token of any other class
    is drawn; so Bₜ(s) = max_c hₜ₊₁(δ(s, c)) / hₜ(s) · max_c Bₜ₊₁(δ(s, c)), from B = exp(score − log_final).
    Infinite where a score is allowed that h holds to be impossible: g has not the support.
    """
    if bool(((log_final == -math.inf) & (scores > -math.inf)).any()):
        return math.inf
    excess = torch.where(scores == -math.inf, -math.inf, scores - log_final)
    bound = excess
    end = states.end_class
    for place in reversed(range(states.space.length)):
        ahead, onward = log_ahead[place + 1][states.successor], bound[states.successor]
        if end is not None:
            ahead[:, end], onward[:, end] = log_final, excess
            if place == states.space.length - 1:
                ahead, onward = ahead[:, end : end + 1], onward[:, end : end + 1]
        here = log_ahead[place]
        bound = torch.where(here == -math.inf, -math.inf, ahead.amax(1) - here + onward.amax(1))
    return float(log_ahead[0, 0] + bound[0])


Layout = tuple[tuple[int, ...], ...]  # the classes of the given tokens after each token to come


class Outlook(NamedTuple):
    """log h in every layout of some rows. Without gaps there is one layout, and nothing is given on the way."""

    here: Float[Tensor, "layouts places states"]  # before the token of a place is drawn
    after: Float[Tensor, "layouts places states"]  # once it is, before the given tokens that follow it are read
    final: Float[Tensor, " states"]  # of a sequence that its end token has ended
    between: Int[Tensor, "layouts places given"] | None = None  # classes of these given tokens; −1 for none

    def followed(
        self, states: JointStates, joint: Int[Tensor, " rows"], layout: Int[Tensor, " rows"],
        classes: Int[Tensor, " rows"], place: int,
    ) -> Int[Tensor, " rows"]:  # fmt: skip
        """The joint state after a token of these classes in a place, and after the given tokens that follow it."""
        joint = states.successor[joint, classes]
        if self.between is not None and place < self.between.shape[1]:
            joint = _read(states, joint, self.between[layout, place])
        return joint

    def allowed(self) -> "Outlook | None":
        """h with every finite value replaced by 1; None where nothing is forbidden, so that all of it would be 1."""
        flat = without_forbidden(self.here, self.after, self.final)
        return None if flat is None else Outlook(flat[0], flat[1], flat[2], self.between)


def without_forbidden(*tables: Tensor) -> list[Tensor] | None:
    """0 in place of all numbers but −∞, which says what is forbidden; None where nothing is."""
    forbidden = [table == -math.inf for table in tables]
    if not any(bool(where.any()) for where in forbidden):
        return None
    return [torch.zeros_like(where, dtype=torch.float64).masked_fill(where, -math.inf) for where in forbidden]


class Gaps(NamedTuple):
    """The rows of a context: where the automata stand before the first token to come, and what comes after it."""

    start: Int[Tensor, " rows"]
    layout: Int[Tensor, " rows"]  # which of the layouts
    layouts: list[Layout]


def gaps_of(states: JointStates, context: Context) -> Gaps:
    """The gaps of a context with an order; one that does not fill them from left to right is refused."""
    assert context.order is not None
    ordered = left_to_right(context)
    if not bool(ordered.all()):
        row = int((~ordered).nonzero()[0])
        raise UserError(
            f"Looking ahead follows the text from left to right, and row {row} of the order fills its gaps otherwise: "
            "fill them from left to right, or use importance, smc or metropolis."
        )
    device, coming = context.order.device, context.coming
    assert coming is not None
    blank = Sequences(torch.zeros(context.rows, int(coming.max()), dtype=torch.long, device=device), coming)
    text = arranged(blank, context)
    comes = places_to_come(context, text.tokens.shape[1]).tolist()
    known: dict[Layout, int] = {}
    layout: list[int] = []
    before: list[list[int]] = []
    for tokens, new in zip(text.rows(), comes, strict=True):
        classes = states.class_of[torch.tensor(tokens, device=states.class_of.device)].tolist()
        runs: list[list[int]] = [[]]
        for kind, is_new in zip(classes, new, strict=False):
            runs.append([]) if is_new else runs[-1].append(kind)
        before.append(runs[0])
        layout.append(known.setdefault(tuple(map(tuple, runs[1:])), len(known)))
    start = torch.zeros(context.rows, dtype=torch.long, device=states.recent.device)
    start = _read(states, start, _padded(before).to(start.device))
    return Gaps(start, torch.tensor(layout, device=start.device), list(known))


def foreseen(states: JointStates, scores: Float[Tensor, " states"], law: Law | None, layouts: list[Layout]) -> Outlook:
    """What a surrogate's law foresees in each layout; without a law nothing is preferred, h = 1 everywhere.

    hₜ(s) = Σ_c u(c|s)·kₜ(δ(s, c)) before the token of a place is drawn, and kₜ(s) = hₜ₊₁(δ(s, given)) after it: the
    given tokens that follow it are read first. After the last of them k is exp score.
    """
    places = max(len(layout) for layout in layouts)
    here = torch.zeros(len(layouts), places, len(states.recent), dtype=torch.float64, device=states.recent.device)
    after = here.clone()
    if law is not None:
        log_next = log_following(states, law)
        for number, layout in enumerate(layouts):
            value = scores
            for place in reversed(range(len(layout))):
                for kind in reversed(layout[place]):
                    value = value[states.successor[:, kind]]
                after[number, place] = value
                value = torch.logsumexp(log_next + value[states.successor], 1)
                here[number, place] = value
    # Where the automata stand after the last token to come is never asked: what is given there is in the tables.
    inner = [[[*run] for run in layout[:-1]] + [[]] * (places - len(layout) + 1) for layout in layouts]
    widest = max((len(run) for layout in inner for run in layout), default=0)
    between = torch.stack([_padded(layout, widest) for layout in inner]).to(here.device)
    return Outlook(here, after, torch.zeros_like(scores) if law is None else scores, between)


def _read(
    states: JointStates, joint: Int[Tensor, " rows"], classes: Int[Tensor, "rows given"]
) -> Int[Tensor, " rows"]:  # fmt: skip
    for column in classes.unbind(1):
        joint = torch.where(column >= 0, states.successor[joint, column.clamp(min=0)], joint)
    return joint


def _padded(runs: list[list[int]], width: int | None = None) -> Int[Tensor, "rows given"]:
    widest = max((len(run) for run in runs), default=0) if width is None else width
    return torch.tensor([run + [-1] * (widest - len(run)) for run in runs], dtype=torch.long).view(len(runs), widest)
