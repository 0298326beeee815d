"""Where the walkers of Markov chains stand, and what a move of theirs is."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ebar.maths.rows import take
from ebar.samplers.draw import Setting
from ebar.types import Sequences, X


class Walkers(NamedTuple, Generic[X]):
    """Where each walker stands, context-major."""

    x: X  # sequences as wide as the space is long
    log_q: Float[Tensor, " walkers"]
    log_weight: Float[Tensor, " walkers"]  # log P − log q

    def select(self, rows: Int[Tensor, " selected"]) -> "Walkers[X]":
        found: Walkers[X] = take(self, rows)
        return found


# A move returns where it would go, x′, and log [q(x)·K(x→x′)]⁻¹·[q(x′)·K(x′→x)]: the part of the Hastings ratio
# that does not depend on w.
Move = Callable[[Walkers[Any], Setting[Any]], tuple[Walkers[Any], Float[Tensor, " walkers"]]]


def walkers_at(setting: Setting[X], x: X, log_q: Float[Tensor, " walkers"]) -> Walkers[X]:
    """Walkers that stand at x, with their weights."""
    wide: Any = x
    if isinstance(x, Sequences):
        inside = torch.where(x.mask(), x.tokens, 0)  # padding may hold anything
        length = setting.proposal.space.after(setting.context).length
        wide = Sequences(F.pad(inside, (0, length - x.tokens.shape[1])), x.lengths)
    return Walkers(wide, log_q, setting.log_weights(wide, log_q))


def begin(setting: Setting[X], walkers: int) -> Walkers[X]:
    """`walkers` for each row of the context, each at a draw from the proposal."""
    return walkers_at(setting, *setting.propose(walkers))
