"""Asking an energy or a model for numbers, as samplers and estimators do: without dropout, shapes checked."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Distribution, Energy, SamplesWithLogProb, Scored, Sequences, context_rows


def measured_energy(
    energy: Energy[Sequences], x: Sequences, context: Context | None = None
) -> Float[Tensor, " batch"]:  # fmt: skip
    """E(x, C) in evaluation mode, whatever mode the energy is in."""
    with evaluation_mode(energy):
        return checked_energy(energy, x, context)


@torch.no_grad()
def propose(
    source: Distribution, n: int, context: Context | None, generator: Generator
) -> tuple[Sequences, Float[Tensor, " batch"]]:
    """n draws for each row of the context and their log-probability, in evaluation mode.

    Where the source knows the log-probability from drawing (`SamplesWithLogProb`), the draws are not scored again.
    """
    with evaluation_mode(source):
        if isinstance(source, SamplesWithLogProb):
            x, log_prob = source.sample_with_log_prob(n, context, generator=generator)
        else:
            x = source.sample(n, context, generator=generator)
            log_prob = score(source, x, context)
    drawn = (context_rows(context) * n,)
    of_shape(x.lengths, drawn, f"The lengths of {n} draws for each context")
    return x, of_shape(log_prob, drawn, f"The log-probabilities of {n} draws for each context")


def checked_energy(energy: Energy[Sequences], x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
    """E(x, C) in the energy's own mode, as an objective wants it that trains the energy."""
    return of_shape(energy(x, context), (len(x.lengths),), f"The energy of {len(x.lengths)} sequences")


def score(
    model: Distribution | Scored[Sequences], x: Sequences, context: Context | None = None
) -> Float[Tensor, " batch"]:
    """log_prob where there is one, log_score otherwise, in evaluation mode."""
    with evaluation_mode(model):
        if isinstance(model, Distribution):
            return of_shape(model.log_prob(x, context), (len(x.lengths),), f"log_prob of {len(x.lengths)} sequences")
        return of_shape(model.log_score(x, context), (len(x.lengths),), f"log_score of {len(x.lengths)} sequences")
