"""Cheap stand-ins u for q, and what they foresee: the expected weight to come, by backward dynamic programming.

They are used only to look ahead, so their errors cost effective samples, never correctness.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.samplers.guided_states import JointStates

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
