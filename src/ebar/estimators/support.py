"""The support check: a feature the target cares about, one side of which was never drawn.

No weight can tell what was not drawn. A binary feature whose rare side never came up makes every weight equal, the
effective sample size perfect and the interval a point, all three of them wrong.
"""

import math

import torch
from torch import Tensor

from ebar.energies.linear import Linear
from ebar.features.feature import Feature
from ebar.maths.importance import all_warnings, unseen_side
from ebar.models.tilted import Tilted
from ebar.types import Context, Sequences


class Support:
    """Follows the range of a linear energy's features along a stream of draws; silent about other targets."""

    def __init__(self, target: object):
        self.energy = _linear(target)
        self.smallest: Tensor | None = None
        self.largest: Tensor | None = None

    def see(self, x: Sequences, rows: int, context: Context | None = None) -> None:
        """Take note of more draws, context-major."""
        if self.energy is None or len(self.energy.features) == 0:
            return
        values = self.energy.features(x, context).detach().reshape(rows, -1, len(self.energy.features))
        low, high = values.amin(1), values.amax(1)
        self.smallest = low if self.smallest is None else torch.minimum(self.smallest, low)
        self.largest = high if self.largest is None else torch.maximum(self.largest, high)

    def warnings(self, rows: int) -> list[str | None]:
        """For each row of the context, which sides were not seen though the target may have mass there."""
        if self.energy is None or self.smallest is None or self.largest is None:
            return [None] * rows
        coefficients = self.energy.coefficients.tolist()
        return [
            all_warnings(
                *(
                    _unseen(feature, coefficient, float(low), float(high))
                    for feature, coefficient, low, high in zip(
                        self.energy.features.features, coefficients, self.smallest[row], self.largest[row], strict=True
                    )
                )
            )
            for row in range(rows)
        ]


def _linear(target: object) -> Linear | None:
    return target.energy if isinstance(target, Tilted) and isinstance(target.energy, Linear) else None


def _unseen(feature: Feature, coefficient: float, smallest: float, largest: float) -> str | None:
    forbidden = coefficient == -math.inf and largest == feature.low  # what was not drawn has no mass to miss
    return None if forbidden else unseen_side(feature.name, smallest, largest, float(feature.low), float(feature.high))
