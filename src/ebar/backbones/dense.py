"""Fully connected layers, for networks that read or make points and small images."""

from torch import nn


def dense_layers(
    width: int, hidden: int, layers: int, *, deviation: float, normalised: bool = False
) -> list[nn.Module]:
    """FC-ReLU `layers` times, from `width` numbers on, with batch normalisation before the ReLU where it is wanted."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        # ε as Dai et al. 2017a have it: torch's 1e-5 is more than the variance of what their first weights give.
        norm = [nn.BatchNorm1d(hidden, eps=1e-6)] if normalised else []
        parts += [normal_layer(nn.Linear(width, hidden), deviation), *norm, nn.ReLU()]
        width = hidden
    return parts


def normal_layer(layer: nn.Linear, deviation: float) -> nn.Linear:
    """With weights from a normal law of mean 0, and biases 0."""
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer
