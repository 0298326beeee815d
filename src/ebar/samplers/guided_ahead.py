"""Backward dynamic programming over the joint automaton: the expected weight to come, and a bound on its error."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.samplers.guided_states import JointStates
from ebar.samplers.surrogate import Law

LEAST = 1e-12  # a surrogate may think a token unlikely, never impossible: the proposal would lose support


def backward(states: JointStates, scores: Float[Tensor, " states"], law: Law) -> Float[Tensor, "places states"]:
    """log hₜ(s) = log E_u[exp score(final state) | s at t], for t = 0 … length.

    hₜ(s) = e(t, s)·exp score(s) + (1 − e(t, s))·Σ_c u(c|s)·hₜ₊₁(δ(s, c)), with e = 1 in the last place, and e = 0
    everywhere in a space without an end token.
    """
    length = states.space.length
    possible = states.class_sizes > 0
    if states.end_class is not None:
        possible[states.end_class] = False
    following = torch.where(possible, law.following.clamp(min=LEAST), 0.0)
    log_following = (following / following.sum(1, keepdim=True).clamp(min=LEAST)).log()
    end = law.end.clamp(LEAST, 1 - LEAST)
    rows = [scores]  # after the last token
    for place in reversed(range(length)):
        if states.end_class is None:
            rows.append(torch.logsumexp(log_following + rows[-1][states.successor], 1))
        elif place == length - 1:
            rows.append(scores)
        else:
            onward = torch.logsumexp(log_following + rows[-1][states.successor], 1)
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
