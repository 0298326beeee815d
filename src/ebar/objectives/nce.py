"""Noise-contrastive estimation of a residual energy, the noise being q itself. Deng et al. 2020, Theorem 1."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import choose
from ebar.models.scoring import checked_energy
from ebar.modes import in_evaluation_mode
from ebar.objectives.contrast_figures import contrast_figures
from ebar.types import Clock, Context, Energy, Loss, Sequences

Form = Literal["binary", "ranking"]


class Contrasted(NamedTuple):
    """Data, and ν draws from q for each of its rows."""

    x: Sequences
    context: Context | None
    negatives: tuple[Sequences, ...]
    """ν of them; row i of each was drawn from q's full softmax for the context of row i of x."""


def binary_nce(data: Float[Tensor, " rows"], noise: Float[Tensor, "rows negatives"]) -> Float[Tensor, ""]:
    """Mean over the data of −log σ(−E(x⁺) − log ν) − Σⱼ log σ(E(x⁻ⱼ) + log ν), ν negatives each.

    Of 1 datum and ν draws from q, P(data | x) = q·e^{−E} / (q·e^{−E} + ν·q) = σ(−E − log ν): q itself cancels. The
    sum is over the negatives, so this is E_data[…] + ν·E_q[…], and with E = 0 and ν = 1 it is 2·log 2. Its minimum
    over all E is at q·e^{−E} = data, normaliser included: log Z(C) = 0 for every context. Left out, log ν would be
    absorbed by E. Gutmann & Hyvärinen 2012, equation 8.
    """
    shift = math.log(noise.shape[1])
    return F.softplus(data + shift).mean() + F.softplus(-noise - shift).sum(1).mean()


def ranking_nce(data: Float[Tensor, " rows"], noise: Float[Tensor, "rows negatives"]) -> Float[Tensor, ""]:
    """Mean over the data of −log of its share of the softmax of −E over it and its ν negatives, of the same context.

    A constant of the context cancels, so the minimum is at q·e^{−E} = c(C)·data: Z is left free, one for each
    context, and has to be estimated. Ma & Collins 2018 (arXiv:1809.01812).
    """
    return (data + torch.logsumexp(-torch.cat([data[:, None], noise], 1), 1)).mean()


LOSSES = {"binary": binary_nce, "ranking": ranking_nce}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nce:
    """Learns E by telling data from draws of q. A term of the mean is a row of the data with its negatives."""

    energy: Energy[Sequences]
    form: Form = "binary"
    player: str = "energy"

    def __post_init__(self) -> None:
        if self.form not in LOSSES:
            raise ValueError(f"the form is one of {', '.join(LOSSES)}, not {self.form}")

    @property
    def validation(self) -> "Nce":
        """What held-out data is measured by; `figures` gives the same numbers over all of it at once."""
        return self

    def losses(self, batch: Contrasted, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        data, noise = contrasted_energies(self.energy, batch)
        value = choose(LOSSES, self.form, "form of the loss")(data, noise)
        figures = contrast_figures(data.detach(), noise.detach(), normalised=self.form == "binary")
        yield Loss(value, self.player, figures, weight=float(len(data)))

    @torch.no_grad()
    @in_evaluation_mode
    def figures(self, batches: Iterable[Contrasted]) -> dict[str, float]:
        """Loss and figures of all batches together.

        Means of batches are the same but for log Z and the calibration error, which are no means: over few rows
        both are biased.
        """
        parts = [contrasted_energies(self.energy, batch) for batch in batches]
        data, noise = torch.cat([data for data, _ in parts]), torch.cat([noise for _, noise in parts])
        value = choose(LOSSES, self.form, "form of the loss")(data, noise)
        return {"loss": float(value), **contrast_figures(data, noise, normalised=self.form == "binary")}


def contrasted_energies(
    energy: Energy[Sequences], batch: Contrasted
) -> tuple[Float[Tensor, " rows"], Float[Tensor, "rows negatives"]]:
    """E of the data and of their negatives, in one call: each context is read once, if the energy knows how."""
    if not batch.negatives:
        raise ValueError("each datum needs at least one negative")
    rows, kinds = len(batch.x.lengths), 1 + len(batch.negatives)
    if any(len(noise.lengths) != rows for noise in batch.negatives):
        raise ValueError(f"{rows} rows of data need as many rows of each negative")
    everything = Sequences.join([batch.x, *batch.negatives])
    # Row by row the datum and its negatives: context-major.
    order = torch.arange(rows * kinds, device=everything.lengths.device).view(kinds, rows).T.flatten()
    energies = checked_energy(energy, everything.select(order), batch.context).view(rows, kinds)
    return energies[:, 0], energies[:, 1:]
