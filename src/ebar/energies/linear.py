"""The log-linear energy of a GAM: E(x) = −λ·φ(x). Parshakova et al. 2019.

The energy a model carries in its own logits. Wang et al. 2022 (E-ARM).

Energies that know how large they can be: |E(x, C)| ≤ b for every x and C, so every weight e⁻ᴱ is in [e⁻ᵇ, eᵇ].

What is estimated from such weights can have an interval with a finite-sample guarantee (`maths.certified`), and
rejection from the base needs no other bound.
"""

import math
from typing import Generic, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, State, Stepwise, X, context_rows, draws_per_context


class Linear(nn.Module, Generic[X]):
    """E(x, C) = −Σᵢ λᵢ·φᵢ(x, C), equation 4 with our sign: a positive λ makes its feature likelier.

    λᵢ = −∞ forbids what φᵢ > 0 marks (A.2's P_filtered); +∞ would make Z infinite and is refused.
    """

    any_order = True  # features are about the arranged text

    def __init__(self, features: Features[X], coefficients: Float[Tensor, " features"]):
        super().__init__()
        if len(features) != len(coefficients):
            raise ValueError(f"{len(features)} features need as many coefficients, got {len(coefficients)}")
        of_shape(coefficients, (len(features),), "The coefficients of a linear energy")
        if bool((coefficients.isnan() | (coefficients == math.inf)).any()):
            raise ValueError("a coefficient must be a number or −inf")
        if any(f.low < 0 for f, c in zip(features.features, coefficients.tolist(), strict=True) if c == -math.inf):
            raise ValueError("a feature forbidden by −inf must not be negative anywhere")
        self.features = features
        self.coefficients = nn.Parameter(coefficients)

    def forward(self, x: X, context: Context | None = None) -> Float[Tensor, " batch"]:
        values = self.features(x, context).to(self.coefficients.dtype)
        # 0·(−∞) is 0 here: a feature that is absent costs nothing, whatever its coefficient.
        return -torch.where(values == 0, 0.0, values * self.coefficients).sum(1)

    def log_bound(self) -> float:
        """The least upper bound of −E that the features' ranges allow: Σᵢ max(λᵢ·lowᵢ, λᵢ·highᵢ)."""
        total = 0.0
        for feature, coefficient in zip(self.features.features, self.coefficients.tolist(), strict=True):
            total += 0.0 if coefficient == -math.inf else max(coefficient * feature.low, coefficient * feature.high)
        return total


Reading = Literal["lse", "last_logit"]
ELEMENTS = 2**24  # logits computed at a time where there is no gradient


class OwnLogits(nn.Module):
    """E(x, C) of a sequence of length k, read off the logits that predict its last token (the end, where there is one).

    - `lse`: −LSE(x₍<k₎). Since q(x₍<k₎)·exp(logit of xₖ) = q(x)·exp(LSE(x₍<k₎)), the model tilted by it is p_θ of
      equation 5 at that length. Over sequences of several lengths it is q·exp(LSE)/Z with one Z for all of them, where
      Wang et al. have a Z for each length: given the length, both are the same.
    - `last_logit`: −logit of xₖ, the wording of the paper (§4.3); the tilted model is q·exp(logit), which counts the
      last step twice.

    Needs logits whose shift is free: of log-probabilities LSE is 0, and so would be the energy.
    """

    any_order = True  # the model reads the order

    def __init__(self, model: Stepwise, reading: Reading = "lse"):
        super().__init__()
        if not model.free_logits:
            raise UserError(
                "This model's head gives log-probabilities, whose log-sum-exp is 0 whatever the sequence: "
                "an energy in its own logits needs a plain softmax head, neither a mixture nor a truncation."
            )
        if reading not in ("lse", "last_logit"):
            raise ValueError(f"the energy is read off as lse or last_logit, not {reading}")
        self.model, self.reading = model, reading

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        batch, width = x.tokens.shape
        draws = draws_per_context(batch, context)
        first, state = self.model.start(context_rows(context), context)  # each context is read once
        if batch == 0:
            return first.new_zeros(0)
        every = torch.arange(batch, device=first.device)
        size = max(1, batch if torch.is_grad_enabled() else ELEMENTS // (max(width, 1) * self.model.space.vocabulary))
        parts = []
        for rows in torch.split(every, size):
            condition = rows // draws
            parts.append(self._last(x.select(rows), first[condition], state.select(condition)))
        return -torch.cat(parts)

    def _last(self, x: Sequences, first: Float[Tensor, "rows vocabulary"], state: State) -> Float[Tensor, " rows"]:
        last: Int[Tensor, " rows"] = (x.lengths - 1).clamp(min=0)
        width = int(x.lengths.max())
        tokens = torch.where(x.mask(), x.tokens, 0)[:, :width]
        logits = first[:, None]
        if width > 1:
            logits = torch.cat([logits, self.model.advance(tokens[:, :-1], state)[0]], 1)
        logits = logits[torch.arange(len(last), device=last.device), last]
        if self.reading == "lse":
            return logits.logsumexp(1)
        return logits.gather(1, tokens.gather(1, last[:, None])).squeeze(1)


@runtime_checkable
class BoundedEnergy(Protocol):
    """An energy with a known bound of its absolute value."""

    def energy_bound(self) -> float | None:
        """b with |E(x, C)| ≤ b for every x and C; None where there is none."""


def bound_of(energy: object) -> float | None:
    """The bound of an energy, where it knows one."""
    return energy.energy_bound() if isinstance(energy, BoundedEnergy) else None


def check_bound(bound: float | None) -> None:
    """A bound is a positive number, or none is wanted."""
    if bound is not None and not 0 < bound < math.inf:
        raise ValueError(f"the bound of an energy must be a number above 0, not {bound}")


def squashed(raw: Float[Tensor, "*shape"], bound: float | None) -> Float[Tensor, "*shape"]:
    """b·tanh(raw/b): raw near 0, never beyond ±b. Without a bound, raw itself."""
    return raw if bound is None else bound * torch.tanh(raw / bound)


@runtime_checkable
class Normed(Protocol):
    """An encoder that may know which layer's output its hidden vectors are."""

    def last_norm(self) -> nn.LayerNorm | None:
        """None where they are no layer norm's."""


def norm_bound(norm: nn.LayerNorm, weight: Float[Tensor, "1 width"], bias: Float[Tensor, "1"]) -> float:
    """The largest |w·h̄ + b₀| for a mean h̄ of vectors that a layer norm has made, or for none of them.

    Each is γ⊙ĥ + β with Σĥ = 0 and ‖ĥ‖ ≤ √d, and so is their mean: |w·h̄ + b₀ − (w·β + b₀)| ≤ √d·‖u − mean u‖, u = w⊙γ.
    BiT* comes within a hundredth of it: such energies are bounded by construction, without a tanh. A thousandth is
    added for rounding.
    """
    with torch.no_grad():
        w, constant = weight[0].double(), float(bias.double())
        scale = w if norm.weight is None else w * norm.weight.double()
        centre = constant + (0.0 if norm.bias is None else float(w @ norm.bias.double()))
        reach = float((scale - scale.mean()).norm()) * math.sqrt(len(w))
    return 1.001 * max(abs(centre) + reach, abs(constant))


def rounded(bound: float, dtype: torch.dtype) -> float:
    """The largest number that `squashed` can give in this precision: rounding may put it a little above the bound."""
    return max(bound, float(torch.tensor(bound, dtype=dtype)))
