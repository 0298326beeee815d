"""What the two players of an adversarial game minimise, as functions of energies of data and of samples.

Energies are costs here as everywhere, lower where data are: where a paper has a score or a probability of being real,
it is −c or σ(−c).

K(p_gen) of the calibrated energy GAN: what is added to the generator's cost so that the energy keeps the density.

With K = −α·H(p_gen) the optimal energy is −α·log p_data + constant (Proposition 2 of Dai et al. 2017a). Each entry
gives a surrogate: a number whose gradient in the samples stands for that of −H, whatever its value. α is `weight`, the
factor on the *mean* over samples. The public code sums over the batch instead, with a factor called knn_scale: α is
knn_scale × batch, 0.5, 0.15 and 0.25 on its three mixtures, 4 on digits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ebar.bounds import Amount, Count, NonNegative
from ebar.errors import UserError
from ebar.tables import Table

Energies = Float[Tensor, " _"]
Cost = Float[Tensor, ""]
Points = Float[Tensor, "batch ..."]
Noise = Float[Tensor, "batch latent"]


@runtime_checkable
class Costs(Protocol):
    """The costs of a game."""

    def discriminator(self, data: Energies, samples: Energies) -> Cost: ...

    def generator(self, samples: Energies) -> Cost:
        """Without the entropy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyGap:
    """Energy gap: data cheap, samples dear (calibrated energy GAN, EGAN-Const).

        discriminator:  E_data[c] − E_gen[c], or with a margin m  E_gen[max(E_data[c] − c(x), −m)]
        generator:      E_gen[c]

    With K = −α·H(p_gen) added to the generator's cost, the optimum is p_gen = p_data and c = −α·log p_data + constant;
    with a constant K, c is flat on the data and free off them. Nothing else holds the energies: without a margin
    they run away as soon as samples and data are told apart. Dai et al. 2017a, B.1; the margin is their public code's.
    """

    margin: Amount | None = None
    """A sample that is dearer than the mean datum by more than this no longer counts; by default all do. The public
    code has 10 for the biased mixture and spirals, none for four Gaussians."""

    def discriminator(self, data: Energies, samples: Energies) -> Cost:
        if self.margin is None:
            return data.mean() - samples.mean()
        return (data.mean() - samples).clamp(min=-self.margin).mean()

    def generator(self, samples: Energies) -> Cost:
        return samples.mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalGan:
    """Original GAN: a classifier of data and samples, D(x) = σ(−c(x)).

        discriminator:  −E_data[log D] − E_gen[log(1 − D)]
        generator:      −E_gen[log D], or, saturating, E_gen[log(1 − D)]

    The best c is log p_gen − log p_data, at the optimum 0 everywhere: it tells nothing of the density. The saturating
    form is the minimax game itself, and has no gradient where samples are told from data with ease.
    Goodfellow et al. 2014.
    """

    saturating: bool = False
    """The generator of the minimax game itself."""

    def discriminator(self, data: Energies, samples: Energies) -> Cost:
        return F.softplus(data).mean() + F.softplus(-samples).mean()

    def generator(self, samples: Energies) -> Cost:
        return -F.softplus(-samples).mean() if self.saturating else F.softplus(samples).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ebgan:
    """EBGAN: energies of at least 0, samples held at a margin.

        discriminator:  E_data[c] + E_gen[max(0, m − c)]
        generator:      E_gen[c]

    The best c is 0 where p_gen < p_data and m where p_gen > p_data; where they are equal anything in [0, m] is as good,
    so that at the optimum c is undetermined (Proposition 3 of Dai et al. 2017a). Zhao et al. 2017.
    """

    margin: Amount = 10.0
    """m: samples of this energy or more cost the discriminator nothing."""

    def discriminator(self, data: Energies, samples: Energies) -> Cost:
        for energies in (data, samples):
            if bool((energies < 0).any()):
                raise UserError("EBGAN needs energies of at least 0: give a discriminator that is `positive`.")
        return data.mean() + F.relu(self.margin - samples).mean()

    def generator(self, samples: Energies) -> Cost:
        return samples.mean()


class Divergence(NamedTuple):
    """An f-divergence E_gen[f(p_data/p_gen)]: f* with its domain reached by an activation of any number."""

    activation: Callable[[Tensor], Tensor]  # any number → the domain of f*
    conjugate: Callable[[Tensor], Tensor]  # f*
    derivative: Callable[[Tensor], Tensor]  # f′ of the ratio p_data/p_gen: the optimal T


DIVERGENCES = {
    "kl": Divergence(lambda v: v, lambda t: (t - 1).exp(), lambda u: u.log() + 1),
    "reverse_kl": Divergence(lambda v: -(-v).exp(), lambda t: -1 - (-t).log(), lambda u: -1 / u),
    "pearson": Divergence(lambda v: v, lambda t: t.square() / 4 + t, lambda u: 2 * (u - 1)),
    "jensen_shannon": Divergence(lambda v: -F.softplus(-v), lambda t: -(-t.expm1()).log(), lambda u: -(1 / u).log1p()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FGan:
    """f-GAN, to which an entropy may be added: the attempt that fails (B.7.3 of Dai et al. 2017a).

        discriminator:  E_gen[f*(T)] − E_data[T],  T an activation of −c
        generator:      −E_gen[f*(T)]

    The best T is f′(p_data/p_gen) whatever is added to the generator's cost. So with an entropy there either p_gen is
    not p_data, or T is flat: the divergence leaves the discriminator no freedom to keep the density in. (B.24 has the
    signs of both players turned round: its c minimises what it is said to maximise.) Nowozin et al. 2016, equation 6.
    """

    divergence: Literal["kl", "reverse_kl", "pearson", "jensen_shannon"] = "kl"
    """Which f."""

    def discriminator(self, data: Energies, samples: Energies) -> Cost:
        chosen = DIVERGENCES[self.divergence]
        return chosen.conjugate(chosen.activation(-samples)).mean() - chosen.activation(-data).mean()

    def generator(self, samples: Energies) -> Cost:
        chosen = DIVERGENCES[self.divergence]
        return -chosen.conjugate(chosen.activation(-samples)).mean()


# A line here puts the costs of a game in the configuration and on the command line.
COSTS: Table[Any] = Table("costs", {"energy": EnergyGap, "gan": OriginalGan, "ebgan": Ebgan, "f_gan": FGan})


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
