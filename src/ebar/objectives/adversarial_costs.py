"""What the two players of an adversarial game minimise, as functions of energies of data and of samples.

Energies are costs here as everywhere, lower where data are: where a paper has a score or a probability of being real,
it is −c or σ(−c).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ebar.bounds import Amount
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
