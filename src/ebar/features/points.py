"""Features of points: any function of a tensor, with a name and a range."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from ebar.types import Context


@dataclass(frozen=True, slots=True)
class PointFeature:
    """φ(x) of points or images: `PointFeature("radius", lambda x: x.norm(dim=1), low=0)`; a predicate gives 0 and 1.

    Give low and high where they are known: the interval of a mean stays inside, and a side never drawn is reported.
    """

    name: str
    function: Callable[[Float[Tensor, "batch ..."]], Float[Tensor, " batch"] | Bool[Tensor, " batch"]]
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        found = self.function(x)
        return found.to(x.dtype) if isinstance(found, Tensor) else found
