"""Guesses, from a prefix, at the importance weight its finished sequence will have."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.models.tilted import Tilted, measured_energy
from ebar.samplers.protocols import Foresighted
from ebar.types import Context, Sequences, State, Stepwise, Target


class Prefixes(NamedTuple):
    """What a guess can be made from."""

    target: Target
    proposal: Stepwise
    x: Sequences  # without an end
    context: Context | None  # one row for each prefix
    log_ratio: Float[Tensor, " prefixes"]  # log base(x≤t) − log proposal(x≤t)
    state: State  # of the proposal


def none(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The energy is looked at only when all have ended: importance sampling, but for the base/proposal ratio."""
    return prefixes.log_ratio


def energy(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The energy of the prefix, as though it were the whole: good when E builds up along the sequence.

    A prefix of infinite energy can still become a good sequence (a motif that has yet to come), so there this
    guess abstains.
    """
    if not isinstance(prefixes.target, Tilted):
        raise UserError('The twist "energy" needs a tilted target: use the twist "none".')
    value = -measured_energy(prefixes.target.energy, prefixes.x, prefixes.context)
    return prefixes.log_ratio + torch.where(value.isinf(), 0.0, value)


def potential(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The proposal's own foresight."""
    if not isinstance(prefixes.proposal, Foresighted):
        raise UserError('The twist "potential" needs a proposal that looks ahead: use "energy" or "none".')
    return prefixes.proposal.expected_log_weight(prefixes.state)


Twist = Callable[[Prefixes], Float[Tensor, " prefixes"]]

TWISTS: dict[str, Twist] = {"none": none, "energy": energy, "potential": potential}


def twist_for(name: str | None, target: Target, proposal: Stepwise) -> str:
    """The twist asked for, or else the best there is: the proposal's foresight, the energy of the prefix, none."""
    if name is not None:
        return name
    if isinstance(proposal, Foresighted):
        return "potential"
    return "energy" if isinstance(target, Tilted) else "none"


def base_to_follow(name: str, target: Target, proposal: Stepwise) -> Stepwise | None:
    """The base, where it must be advanced beside the proposal to know log base − log proposal of a prefix.

    A base that cannot be advanced is not followed: the ratio then enters at the end, which is as exact.
    """
    base = target.base if isinstance(target, Tilted) else target
    followed = base is not proposal and name != "potential" and isinstance(base, Stepwise)
    return base if followed else None  # type: ignore[return-value]
