"""The effective number of independent draws in the draws of Markov chains."""

import torch
from jaxtyping import Float
from torch import Tensor


def integrated_autocorrelation_time(values: Float[Tensor, "chains steps"], window: float = 5.0) -> float:
    """τ = 1 + 2·Σₜ ρₜ, the sum cut at the first t ≥ window·τ(t), where noise outweighs what is left. Sokal 1997.

    ρ is pooled over the chains around their common mean, so chains stuck in different places count as correlated.
    Trap: a chain shorter than some 50 τ gives too small a τ.
    """
    steps = values.shape[1]
    centred = values - values.mean()
    size = 2 ** (2 * steps - 1).bit_length()  # zero-padded: the circular correlation is then the plain one
    spectrum = torch.fft.rfft(centred, n=size)
    covariance = torch.fft.irfft(spectrum * spectrum.conj(), n=size)[:, :steps].mean(0)
    if not float(covariance[0]) > 0:
        return 1.0  # a constant: every draw tells all there is
    time = 2 * torch.cumsum(covariance / covariance[0], 0) - 1
    enough = (torch.arange(steps, device=time.device) >= window * time).nonzero()
    return max(1.0, float(time[int(enough[0]) if len(enough) else -1]))


def effective_draws(values: Float[Tensor, "chains steps"]) -> float:
    """Draws divided by the integrated autocorrelation time of the quantity they are to estimate."""
    return values.numel() / integrated_autocorrelation_time(values)
