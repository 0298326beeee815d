"""K(p_gen) of the calibrated energy GAN: what is added to the generator's cost so that the energy keeps the density.

With K = −α·H(p_gen) the optimal energy is −α·log p_data + constant (Proposition 2 of Dai et al. 2017a). Each entry
gives a surrogate: a number whose gradient in the samples stands for that of −H, whatever its value. α is `weight`, the
factor on the *mean* over samples. The public code sums over the batch instead, with a factor called knn_scale: α is
knn_scale × batch, 0.5, 0.15 and 0.25 on its three mixtures, 4 on digits.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ebar.bounds import Amount, Count, NonNegative
from ebar.errors import UserError
from ebar.objectives.adversarial_costs import Cost, Noise, Points
from ebar.tables import Table

Form = Literal["variance", "unit"]


FLOOR = 1e-6  # of a variance, in that of the point's most spread coordinate


@runtime_checkable
class EntropyTerm(Protocol):
    """α·K(p_gen), by way of samples."""

    infers: ClassVar[bool]  # whether it needs an inference network

    @property
    def weight(self) -> float:
        """α."""

    def surrogate(self, x: Points, noise: Noise, inference: Any) -> Cost:
        """Its gradient in x stands for that of −H(p_gen)."""


def density_gradients(
    x: Float[Tensor, "batch dimensions"], *, neighbours: int, form: Form = "variance"
) -> Float[Tensor, "batch dimensions"]:
    """∇ log p at each of a batch of draws from p, from the mean μ of its nearest neighbours, itself excluded.

        variance:  (μ − x) / v, coordinate by coordinate, v the variance of the neighbours and x itself
        unit:      (μ − x) / ‖μ − x‖

    In a ball of radius r around x in which p is about linear, the mean is r²/(d + 2)·∇log p away from x and the
    variance of each coordinate is r²/(d + 2), so that the first form estimates the gradient with its length. The second
    has its direction only: every sample is pushed as hard, and the energy at the optimum is not −α·log p, though it
    falls and rises with it. With few neighbours the direction is noise near a mode, where the gradient is short
    (`evaluation.entropy_gradient`).

    Trap: Euclidean neighbours mean little in many dimensions, and a coordinate that hardly varies (the margin of an
    image) has a variance near 0: take the second form for images. Variances are at least 1e-6 of the largest.
    Where neighbours and x coincide there is no direction: 0.

    Dai et al. 2017a, B.10 and B.11 (unit); their public code for points (variance), and for digits (unit).
    """
    others = len(x) - 1
    if neighbours > others:
        raise UserError(
            f"{neighbours} neighbours are wanted and a sample has {others} others in its batch: ask for fewer "
            "neighbours, or for larger batches."
        )
    x = x.detach()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = x[distances.fill_diagonal_(torch.inf).topk(neighbours, largest=False).indices]
    shift = nearest.mean(1) - x
    if form == "unit":
        return F.normalize(shift, dim=-1)
    variance = torch.cat([x[:, None], nearest], 1).var(1, correction=0)
    least = FLOOR * variance.amax(-1, keepdim=True)
    return shift / variance.maximum(least).clamp(min=torch.finfo(x.dtype).tiny)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourEntropy:
    """Entropy by nearest neighbours: each sample is pushed away from the mean of those near it (EGAN-Ent-NN).

    mean of sg(∇ log p(xᵢ))·xᵢ, since −∇_θ H = E[∂g_θ(z)/∂θ · ∇ log p(g_θ(z))] (B.9); sg stops gradients.
    """

    weight: Amount = 0.5
    """α: the energy becomes −α·log p. The public code's knn_scale × batch."""
    neighbours: Count = 20
    """Of each sample in its batch."""
    form: Form = "variance"
    """Divide by the neighbours' variance, as the public code does for points, or scale to length 1, as the paper has
    it and the code does for digits."""

    infers: ClassVar[bool] = False

    def surrogate(self, x: Points, noise: Noise, inference: Any) -> Cost:
        flat = x.flatten(1)
        return (density_gradients(flat, neighbours=self.neighbours, form=self.form) * flat).sum(1).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationalEntropy:
    """Entropy by a variational bound: an inference network guesses from which noise a sample came (EGAN-Ent-VI).

        H(x) = H(z) − H(z|x) + H(x|z) ≥ H(z) + E[log q(z|x)] + H(x|z),

    tight where q is the posterior. With x = g(z) the last term is taken for constant (a peaked Gaussian); −E[log q] is
    what is minimised, by the generator and by the network alike. Trap: for a deterministic g the dropped term is
    −∞, and what is left rewards any g whose noise can be read off x, however x is spread: the biased mixture of Dai et
    al. 2017a is the case where it fails. B.12 to B.16.
    """

    weight: Amount = 1.0
    """α."""
    bound: Amount | None = None
    """Largest |log σ| of the inference network; by default none."""

    infers: ClassVar[bool] = True

    def surrogate(self, x: Points, noise: Noise, inference: Any) -> Cost:
        if inference is None:
            raise UserError("The variational bound needs an inference network: give one.")
        loss: Tensor = -inference.log_prob(noise, x).mean()
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantTerm:
    """No entropy: K is constant, and the energy degenerates to a flat one on the data (EGAN-Const)."""

    weight: NonNegative = 0.0
    """Of no effect."""

    infers: ClassVar[bool] = False

    def surrogate(self, x: Points, noise: Noise, inference: Any) -> Cost:
        return x.new_zeros(())


# A line here puts an entropy in the configuration and on the command line.
ENTROPIES: Table[Any] = Table(
    "entropy", {"neighbours": NeighbourEntropy, "variational": VariationalEntropy, "constant": ConstantTerm}
)
