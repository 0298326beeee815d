"""Noise-contrastive estimation of a residual energy, the noise being q itself. Deng et al. 2020, Theorem 1.

Masked language modelling: what warms a bidirectional energy up. Devlin et al. 2019 (arXiv:1810.04805), §3.1.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar import together
from ebar.energies.neural import MaskedModel, joined
from ebar.errors import choose
from ebar.maths.log_space import log_mean_exp
from ebar.models.tilted import checked_energy
from ebar.modes import in_evaluation_mode
from ebar.objectives.scheduled_sampling import Batch, parted
from ebar.types import Clock, Context, Energy, Loss, Sequences

Form = Literal["binary", "ranking"]
BINS = 10  # of the calibration error


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


def contrast_figures(
    data: Float[Tensor, " rows"], noise: Float[Tensor, "rows negatives"], *, normalised: bool = True
) -> dict[str, float]:
    """Energies of data and of ν negatives each. What needs E's own constant is left out unless E is `normalised`.

    - `energy_data`, `energy_noise`: means.
    - `log_z`: log of the mean of e^{−E} over all the draws; no more than a sign of how far the mean over contexts of
      Z has drifted from 1, and below it on average. Per context, `estimators` measure it.
    - `ranked_first`: how often a datum has the least energy of its group; ties share.
    - `accuracy`: of the sign of E, data and noise counted alike whatever ν; ties are half right.
    - `brier`: mean square of σ(−E) − [it is data], counted alike.
    - `calibration_error`: see `calibration_error`.
    """
    data, noise = data.double(), noise.double()
    least = noise.amin(1)
    ties = (noise == data[:, None]).sum(1)
    first = torch.where(data <= least, 1 / (1.0 + ties.double()), 0.0)
    figures = {
        "energy_data": float(data.mean()),
        "energy_noise": float(noise.mean()),
        "log_z": float(log_mean_exp(-noise.flatten())),
        "ranked_first": float(first.mean()),
    }
    if normalised:
        right = (_below_zero(data).mean() + _below_zero(-noise).mean()) / 2
        brier = (torch.sigmoid(data).square().mean() + torch.sigmoid(-noise).square().mean()) / 2
        figures |= {
            "accuracy": float(right),
            "brier": float(brier),
            "calibration_error": calibration_error(data, noise.flatten()),
        }
    return figures


def calibration_error(data: Float[Tensor, " data"], noise: Float[Tensor, " noise"], bins: int = BINS) -> float:
    """Σ over bins of σ(−E) of |mean of σ(−E) − share of data| times the bin's share, data and noise counted alike.

    With equal counts σ(−E) is the chance that x is data. Over few rows chance alone makes it large: about
    √(bins / rows) of it is no fault of the energy's. Guo et al. 2017 (arXiv:1706.04599), equation 3.
    """
    chance = torch.sigmoid(-torch.cat([data, noise]).double())
    weight = torch.cat([torch.full_like(data, 0.5 / len(data)), torch.full_like(noise, 0.5 / len(noise))]).double()
    truth = torch.cat([torch.ones_like(data), torch.zeros_like(noise)]).double()
    which = (chance * bins).long().clamp(max=bins - 1)
    member = which == torch.arange(bins, device=which.device)[:, None]
    return float((member.double() @ (weight * (chance - truth))).abs().sum())


def _below_zero(energies: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """1 where it is, ½ at 0."""
    return (1 - energies.sign()) / 2


class Hidden(NamedTuple):
    """A batch with some tokens hidden."""

    x: Sequences
    chosen: Bool[Tensor, "batch length"]


def hide(x: Sequences, *, share: float, vocabulary: int, mask_token: int, generator: Generator) -> Hidden:
    """In each row `share` of the tokens, at least one, are chosen; 80 % of those become the mask, 10 % any token.

    The rest stay as they are, so that the encoder cannot trust what it sees there either.
    """
    inside, device = x.mask(), x.tokens.device
    rows, length = x.tokens.shape
    given: dict[str, Any] = {"generator": generator, "device": generator.device}
    keys = together.drawn(rows, lambda n: torch.rand((n, length), **given), generator).to(device)
    fates = together.drawn(rows, lambda n: torch.rand((n, length), **given), generator).to(device)
    others = together.drawn(rows, lambda n: torch.randint(0, vocabulary, (n, length), **given), generator).to(device)
    wanted = (share * x.lengths).round().clamp(min=1)
    rank = keys.masked_fill(~inside, 2.0).argsort(1).argsort(1)
    chosen = (rank < wanted[:, None]) & inside
    tokens = torch.where(chosen & (fates < 0.8), mask_token, x.tokens)
    tokens = torch.where(chosen & (fates >= 0.9), others, tokens)
    return Hidden(Sequences(tokens, x.lengths), chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """Mean over the chosen tokens of −log p(token | everything else) of prefix and continuation together."""

    model: MaskedModel
    share: float = 0.15
    """Share of the tokens that is to be guessed."""
    player: str = "model"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must lie above 0 and not above 1, not {self.share}")

    @property
    def validation(self) -> "Masked":
        """What held-out data is measured by."""
        return self

    def losses(self, batch: Batch, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        whole, encoder = joined(*parted(batch)).whole, self.model.encoder
        x, chosen = hide(
            whole, share=self.share, vocabulary=encoder.vocabulary, mask_token=encoder.mask_token, generator=generator
        )
        places = chosen.flatten().nonzero().squeeze(1)
        truth = whole.tokens.flatten()[places]
        logits = self.model(x, places)
        right = float((logits.detach().argmax(1) == truth).double().mean())
        yield Loss(F.cross_entropy(logits, truth), self.player, {"masked_accuracy": right}, weight=float(len(places)))
