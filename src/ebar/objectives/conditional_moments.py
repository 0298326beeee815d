"""Maximum likelihood for a tilted model in context: equations 1–3 of Parshakova et al. 2019, with the chain rule."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.energies.conditional import ConditionalLinear, distinct_contexts
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.maths.importance import SMALLEST_SAMPLE
from ebar.maths.log_space import effective_sample_size, log_mean_exp, normalised
from ebar.models.tilted import Tilted, checked_energy, propose
from ebar.modes import evaluation_mode
from ebar.types import Clock, Context, Distribution, Loss, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalMoments:
    """−mean over the batch of log P(xᵢ|Cᵢ)/r(xᵢ|Cᵢ) − log Ẑ(Cᵢ), log Ẑ(C) from `draws` draws for each context.

    Ẑ(C) = (1/n)·Σⱼ wⱼ·exp(−E(xⱼ, C)), xⱼ from r(·|C) with wⱼ = 1, or from a proposal g with wⱼ = r/g. Autograd then
    gives −(∂λ/∂η)ᵀ(φ(xᵢ) − Σⱼ w̄ⱼ φ(xⱼ)): equation 3 with its chain rule and the self-normalised estimate of E_p φ,
    biased O(1/n). Contexts that are the same share their draws. Metrics of moments are
    those of linear energies; any other energy can be used too.

    The base is fixed, and the loss is that of p less that of r. With `train_base` its log-probabilities are in both
    terms, which is equation 1 for η₁: the optimiser must hold the base's parameters too. The base is in evaluation
    mode throughout, since what was drawn has its probability without dropout.
    """

    model: Tilted
    draws: int = 256
    """For each different context of a batch."""
    proposal: Distribution | None = None
    """Where draws come from; None: the base."""
    train_base: bool = False
    """Whether the base learns too."""
    player: str = "model"

    def losses(
        self, batch: tuple[Sequences, Context | None] | Sequences, clock: Clock, *, generator: Generator
    ) -> Iterator[Loss]:
        x, context = (batch, None) if isinstance(batch, Sequences) else batch
        if context is not None and context.rows != len(x.lengths):
            raise ValueError(f"{len(x.lengths)} sequences need as many contexts, got {context.rows}")
        if self.draws < 1:
            raise UserError(f"At least one draw for each context is needed, not {self.draws}.")
        which = torch.zeros(len(x.lengths), dtype=torch.long, device=x.lengths.device)
        own = None
        if context is not None:
            own, which = distinct_contexts(context)
        drawn, log_ratio = self._draw(own, generator)
        rows = 1 if own is None else own.rows
        log_weights = (log_ratio - checked_energy(self.model.energy, drawn, own)).view(rows, self.draws)
        log_z = log_mean_exp(log_weights)
        self._check(log_z, own)
        gains = -checked_energy(self.model.energy, x, context) - log_z[which]
        if self.train_base:
            with evaluation_mode(self.model.base):
                gains = gains + self.model.base.log_prob(x, context)
        metrics = self._metrics(log_weights.detach(), drawn, own, x, context, which)
        yield Loss(-gains.mean(), self.player, metrics, weight=float(len(x.lengths)))

    def _draw(self, context: Context | None, generator: Generator) -> tuple[Sequences, Float[Tensor, " batch"]]:
        """Draws for each context, and log r/g: a gradient only where the base learns."""
        base = self.model.base
        source = base if self.proposal is None else self.proposal
        x, log_g = propose(source, self.draws, context, generator)
        if source is base and not self.train_base:
            return x, torch.zeros_like(log_g)
        with torch.set_grad_enabled(self.train_base and torch.is_grad_enabled()), evaluation_mode(base):
            return x, base.log_prob(x, context) - log_g

    def _check(self, log_z: Float[Tensor, " rows"], context: Context | None) -> None:
        if bool((log_z == -math.inf).any()):
            row = int((log_z == -math.inf).nonzero()[0])
            given = "" if context is None else f" for the context {context.given.prefix(row)}"
            raise UserError(
                f"None of {self.draws:,} draws{given} has a positive weight: take more draws, or a proposal that "
                "looks ahead."
            )

    @torch.no_grad()
    def _metrics(
        self, log_weights: Float[Tensor, "rows draws"], drawn: Sequences, own: Context | None, x: Sequences,
        context: Context | None, which: Tensor,
    ) -> dict[str, float]:  # fmt: skip
        sizes = effective_sample_size(log_weights.double())
        metrics = {"ess_mean": float(sizes.mean()), "ess_min": float(sizes.min())}
        if metrics["ess_min"] < SMALLEST_SAMPLE:
            # The same words every time, so that they are said once.
            few = f"{self.draws:,} draws of some context have an effective sample size below {SMALLEST_SAMPLE}"
            message = f"{few} (see ess_min): its moments are rough, take more draws."
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        energy = self.model.energy
        if isinstance(energy, ConditionalLinear | Linear):
            values = energy.features(drawn, own).view(*log_weights.shape, -1).double()
            model = torch.einsum("rd,rdf->rf", normalised(log_weights.double()), values)[which].mean(0)
            wanted = energy.features(x, context).double()
            metrics["moments_l1"] = float((wanted.mean(0) - model).abs().sum())
            # What was never drawn has no weight to warn of it: λ would grow without end, and Ẑ not notice.
            outside = (wanted > values.amax(1)[which]) | (wanted < values.amin(1)[which])
            metrics["unseen"] = float(outside.any(1).double().mean())
            if metrics["unseen"] > 0:
                message = "Some data have a feature that no draw of their context has (see unseen): log Z is too small "
                warnings.warn(message + "there, take more draws or a better base.", RuntimeWarning, stacklevel=3)
        return metrics
