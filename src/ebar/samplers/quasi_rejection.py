"""Quasi-rejection sampling: rejection without a bound, at a price that can be measured."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from ebar.samplers.accept import Attempts, accept
from ebar.samplers.draw import proposal_for, shares
from ebar.types import Context, Distribution, Sequences, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class QuasiRejection:
    """x ~ q, kept with probability min(1, P(x) / (β·q(x))): draws are i.i.d. from p_β ∝ min(P, β·q).

    As β grows the draws tend to p and the acceptance rate Z_β/β, with Z_β = E_q[min(P/q, β)], to 0; with β ≥ max P/q
    this is rejection sampling. `trade_off` draws the curve, `log_beta_for` picks a point of it. Eikema et al. 2022.
    """

    weighted: ClassVar[bool] = False

    log_beta: float = 0.0
    """In the units of P/q: not of p/q."""
    max_proposals: int = 1_000_000
    """Refused in a row before giving up."""
    batch_size: int = 4096
    """Sequences at a time, over all rows of the context."""

    def stream(
        self,
        target: Target,
        n: int,
        *,
        proposal: Distribution | None = None,
        context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Sequences]:
        for part in self.attempts(target, n, proposal=proposal, context=context, generator=generator):
            yield part.x

    def attempts(
        self,
        target: Target,
        n: int,
        *,
        proposal: Distribution | None = None,
        context: Context | None = None,
        generator: Generator,
    ) -> Iterator[Attempts]:
        """The draws of `stream`, with the numbers of proposals they took."""
        proposal = proposal_for(target, proposal)
        for size in shares(n, context, self.batch_size):
            yield accept(
                target,
                proposal,
                size,
                self.log_beta,
                context,
                ceiling_is_bound=False,
                batch_size=self.batch_size,
                max_proposals=self.max_proposals,
                generator=generator,
            )
