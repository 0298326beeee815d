"""A reward of texts as an energy: p ∝ q·e^(r/β) is the π that maximises E_π[r] − β·KL(π‖q).

The most there is to be had is β·log Z, and KL(p‖q) = E_p[r]/β − log Z.
"""

import math
from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.features.functions import TextScore
from ebar.types import Context, Sequences


class Reward:
    """E(x) = −r(x)/β, for a function of a list of texts that gives a number for each.

    A reward of −∞ forbids a text; NaN and +∞ are refused, as there is no p then. The function is given the text that
    the model's tokens spell, after what the reading has `before`.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[float]], beta: float, reading: Reading):
        if not (beta > 0 and math.isfinite(beta)):
            raise UserError(f"beta is what a nat of KL costs in reward, a number above 0, not {beta:g}.")
        self.beta = beta
        self.score = TextScore(function, low=-math.inf, high=math.inf).bind(reading)

    def rewards(self, x: Sequences) -> Float[Tensor, " batch"]:
        """r of each text, in float64."""
        values = self.score(x)
        wrong = (values.isnan() | values.isposinf()).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise UserError(
                f"The reward of {self.score.decode(x.prefix(row)) if self.score.decode else row!r} is "
                f"{float(values[row])}: let the function give a number, or −inf for what must not be."
            )
        return values

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return -self.rewards(x) / self.beta
