"""q(z|x): from which noise a sample came, as a diagonal Gaussian whose mean and deviation a network reads off x."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.backbones.dcgan import normal_layer
from ebar.bounds import Amount


def diagonal_log_prob(
    z: Float[Tensor, "rows latent"], mean: Float[Tensor, "rows latent"], log_deviation: Float[Tensor, "rows latent"]
) -> Float[Tensor, " rows"]:
    """log N(z; μ, diag σ²) = −Σ [log σ + ½·((z − μ)/σ)² + ½·log 2π].

    The public code of Dai et al. 2017a has ½·log σ in place of log σ: its optimum is σ² = 2·E(z − μ)² rather than
    E(z − μ)², and its bound on the entropy is of another density than the one it names.
    """
    scaled = (z - mean) * (-log_deviation).exp()
    return -(log_deviation + scaled.square() / 2 + math.log(2 * math.pi) / 2).sum(-1)


class GaussianInference(nn.Module):
    """q(z|x) = N(μ(x), diag σ(x)²), with μ and log σ linear in the features of a network. Dai et al. 2017a, B.26.

    With `bound` b, log σ = b·tanh(·/b): within [−b, b]. Without one, a generator that is nearly invertible drives σ to
    0, and the variational bound and its gradient without limit (Dai et al. 2017b bound σ for that reason).
    """

    def __init__(self, network: Any, latent: int, *, bound: Amount | None = None, deviation: Amount = 0.01):
        super().__init__()
        self.network, self.latent, self.bound = network, latent, bound
        self.head = normal_layer(nn.Linear(network.width, 2 * latent), deviation)

    def forward(
        self, x: Float[Tensor, "rows ..."]
    ) -> tuple[Float[Tensor, "rows latent"], Float[Tensor, "rows latent"]]:
        """μ and log σ."""
        mean, log_deviation = self.head(self.network.features(x)).chunk(2, -1)
        if self.bound is not None:
            log_deviation = self.bound * torch.tanh(log_deviation / self.bound)
        return mean, log_deviation

    def log_prob(self, z: Float[Tensor, "rows latent"], x: Float[Tensor, "rows ..."]) -> Float[Tensor, " rows"]:
        """log q(z|x)."""
        return diagonal_log_prob(z, *self(x))
