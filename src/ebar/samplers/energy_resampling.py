"""Top-K energy resampling: some candidates, one of them chosen by its energy. Wang et al. 2022, §4.3 and D.4."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.energies.linear import OwnLogits, Reading
from ebar.errors import UserError
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size
from ebar.models.tilted import measured_energy, propose
from ebar.modes import in_evaluation_mode
from ebar.progress import bar
from ebar.samplers.beam import alike, beam_search, restored
from ebar.samplers.importance import flat_indices, multinomial
from ebar.types import Context, Distribution, Sequences, Stepwise, Weighted, context_rows

COLLAPSED = 1.5  # effective candidates of a context, below which one of them decides


class Resampled(NamedTuple):
    """Draws, and the candidates they were chosen from."""

    x: Sequences  # rows × n, context-major
    candidates: Weighted  # rows × K with their log-weights, which say nothing of Z where candidates are distinct
    effective_sample_size: Float[Tensor, " rows"]  # of K

    @property
    def warning(self) -> str | None:
        """What is wrong with the weights, if anything is."""
        candidates, size = self.candidates.log_weights.shape[1], self.effective_sample_size
        collapsed = float((size < COLLAPSED).double().mean())
        if candidates == 1 or collapsed < 0.5:
            return None
        return (
            f"of {candidates} candidates one alone decides in {collapsed:.0%} of the contexts "
            f"(mean effective sample size {float(size.mean()):.1f}): the draws follow the energy's largest values"
        )


@torch.no_grad()
@in_evaluation_mode
def energy_resampling(
    model: Stepwise, context: Context | None = None, *, n: int = 1, candidates: int = 10, weights: Reading = "lse",
    proposal: Distribution | None = None, distinct: bool = False, batch: int = 128, generator: Generator,
) -> Resampled:  # fmt: skip
    """n of `candidates` sequences for each row of the context, chosen with replacement by the model's own energy E.

    The candidates are draws of `proposal` (unless given, the model itself) and chosen in proportion to e⁻ᴱ: as their
    number grows the draws tend to proposal·e⁻ᴱ, normalised. With the model itself and `lse` that is p_θ at each
    length, with `last_logit` q·exp(last logit); see `OwnLogits`. A truncated proposal keeps its own smaller support.
    With `distinct`, the candidates are those of a beam that wide, all different, chosen in proportion to q·e⁻ᴱ: exact
    where the beam holds every sequence.
    """
    if candidates < 1 or n < 1:
        raise UserError(f"At least one draw from at least one candidate, not {n} from {candidates}.")
    if distinct and proposal is not None:
        raise UserError("Distinct candidates come from a beam of the model itself: leave the proposal out.")
    energy = OwnLogits(model, weights)
    parts, order = [], []
    with bar("decoding", context_rows(context), "contexts") as progress:
        for rows, own in alike(context, batch):
            if distinct:
                beams = beam_search(model, own, width=candidates, length_penalty=0.0, best=candidates)
                pool = _filled(beams.x, candidates)
                log_weights = beams.log_probs - measured_energy(energy, pool, own).double().view_as(beams.log_probs)
            else:
                pool, _ = propose(model if proposal is None else proposal, candidates, own, generator)
                log_weights = -measured_energy(energy, pool, own).double().view(len(rows), candidates)
            check_weights(log_weights)
            chosen = multinomial(log_weights, n, generator)
            parts.append((pool.select(flat_indices(chosen, candidates)), pool, log_weights))
            order.append(rows)
            progress.advance(len(rows))
    back = torch.cat(order).argsort()
    log_weights = torch.cat([part[2] for part in parts])[back]
    pool = restored(Sequences.join([part[1] for part in parts]), back, candidates)
    return Resampled(
        restored(Sequences.join([part[0] for part in parts]), back, n),
        Weighted(pool, log_weights, estimates_z=not distinct),
        effective_sample_size(log_weights),
    )


def _filled(x: Sequences, each: int) -> Sequences:
    """Where the space holds fewer sequences than the beam is wide, the best stands in, with no weight."""
    best = torch.arange(len(x.lengths), device=x.lengths.device) // each * each
    absent = x.lengths == 0
    return Sequences(
        torch.where(absent[:, None], x.tokens[best], x.tokens), torch.where(absent, x.lengths[best], x.lengths)
    )
