"""The algebra itself: a base distribution tilted by an energy."""

from jaxtyping import Float
from torch import Tensor, nn

from ebar.models.scoring import measured_energy, score
from ebar.types import Context, Distribution, Energy, Sequences, Space


class Tilted(nn.Module):
    """P(x|C) = base(x|C)·exp(−energy(x, C)).

    A GAM when the energy is linear in features, a Residual EBM when it is a network.
    It has no `sample` and no `log_prob`: those need Z, and Z belongs to `samplers` and `estimators`.
    `log_score` is without dropout, whatever the mode, like `log_prob`; an objective that trains the energy asks the
    energy itself.
    """

    def __init__(self, base: Distribution, energy: Energy[Sequences]):
        super().__init__()
        self.base = base
        self.energy = energy

    @property
    def space(self) -> Space:
        return self.base.space

    def log_score(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return score(self.base, x, context) - measured_energy(self.energy, x, context)
