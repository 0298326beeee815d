"""Reading a stream of weighted draws once, keeping only what estimates are made of."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.support import Support
from ebar.features.feature import Features
from ebar.maths.importance import check_weights
from ebar.types import Context, Weighted


class Units(NamedTuple):
    """Independent, properly weighted units: single draws, or whole batches where draws depend on each other."""

    log_weights: Float[Tensor, "rows units"]
    values: Float[Tensor, "rows units features"]
    unseen: list[str | None]  # per row, what the support check says of the target
    sizes: Float[Tensor, " units"] | None  # of batches, where a unit is a batch: its weight is then their total


@torch.no_grad()
def read(
    draws: Weighted | Iterable[Weighted],
    *,
    features: Features | None = None,
    target: object = None,
    context: Context | None = None,
    independent: bool = True,
) -> Units:
    """Weights and feature values of every unit, in float64; the sequences themselves are let go.

    The draws of one batch are independent for importance sampling, and are not once anything was resampled or shares
    an estimate of Z (rejection, SIR, SMC, annealing): `independent=False` then makes each batch one unit, which
    stands for its Σw and its weighted mean. A million draws take 8 MB, and 8 more for each feature.
    """
    support = Support(target)
    log_weights: list[Tensor] = []
    values: list[Tensor] = []
    sizes: list[int] = []
    for batch in _batches(draws):
        rows, size = check_draws(batch)
        weights = batch.log_weights.double()
        check_weights(weights)
        support.see(batch.x, rows, context)
        seen = weights.new_zeros(rows, size, 0)
        if features is not None:
            seen = features(batch.x, context).to(weights).reshape(rows, size, len(features))
        if not independent:
            seen = _mean(weights, seen)
            weights = torch.logsumexp(weights, 1, keepdim=True)
        log_weights.append(weights)
        values.append(seen)
        sizes.append(size)
    if not sizes:
        raise ValueError("there are no draws to estimate from")
    together = torch.cat(log_weights, 1)
    known_sizes = None if independent else torch.tensor(sizes, dtype=torch.float64, device=together.device)
    return Units(together, torch.cat(values, 1), support.warnings(together.shape[0]), known_sizes)


def check_draws(draws: Weighted) -> tuple[int, int]:
    """How many rows and draws there are, where every draw has its weight."""
    found, count = tuple(draws.log_weights.shape), len(draws.x.lengths)
    if len(found) != 2 or found[0] * found[1] != count:
        raise UserError(
            f"{count} sequences need log-weights of shape [rows of the context, draws], such as [1, {count}], and "
            f"have {list(found)}."
        )
    return found[0], found[1]


def _batches(draws: Weighted | Iterable[Weighted]) -> Iterator[Weighted]:
    if isinstance(draws, Weighted):
        yield draws
    else:
        yield from draws


def _mean(
    log_weights: Float[Tensor, "rows draws"], values: Float[Tensor, "rows draws features"]
) -> Float[Tensor, "rows 1 features"]:
    silent = torch.isneginf(log_weights).all(1, keepdim=True)  # a batch of no weight has no mean, and no say
    shares = torch.where(silent, 1 / log_weights.shape[1], torch.softmax(log_weights, 1))
    return torch.einsum("rd,rdf->rf", shares, values)[:, None]
