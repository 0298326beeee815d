"""The joint model's next token, by enumeration: what `per_step` estimates."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.per_step import check_rows, one_row
from ebar.maths.enumeration import all_sequences
from ebar.models.stepwise import token_log_probs
from ebar.models.tilted import measured_energy
from ebar.modes import evaluation_mode
from ebar.types import Context, Energy, Sequences, Stepwise


class ExactSteps(NamedTuple):
    """Along some sequences; 0 past their ends."""

    log_means: Float[Tensor, "rows places"]  # log A before each token and after the last; −E from there on
    next_log_probs: Float[Tensor, "rows length vocabulary"]  # log p(v|x₍<t₎, C) of every token v


def exact_per_step(q: Stepwise, energy: Energy[Sequences], x: Sequences, context: Context | None = None) -> ExactSteps:
    """q(v|x₍<t₎)·A(x₍<t₎v)/A(x₍<t₎), each A being its own sum over all futures: that it sums to 1 is a check."""
    check_rows(q, x, context)
    space, length = q.space.after(context), int(x.lengths.max())
    everything = all_sequences(space)
    sequences = Sequences(everything.tokens.to(x.tokens.device), everything.lengths.to(x.tokens.device))
    marked = torch.where(sequences.mask(), sequences.tokens, -1)  # padding is like no token
    with torch.no_grad(), evaluation_mode(q, energy):
        own = measured_energy(energy, x, context).double()
        log_means = -own[:, None].repeat(1, length + 1)
        next_log_probs = torch.zeros(len(own), length, space.vocabulary, dtype=torch.float64, device=own.device)
        for row in range(len(own)):
            one = one_row(context, row)
            chances = token_log_probs(q, sequences, one).double()
            log_weights = -measured_energy(energy, sequences, one).double()
            like = torch.ones(len(log_weights), dtype=torch.bool, device=own.device)
            for place in range(int(x.lengths[row])):
                log_means[row, place] = torch.logsumexp((chances[:, place:].sum(1) + log_weights)[like], 0)
                onward = chances[:, place + 1 :].sum(1) + log_weights
                for token in range(space.vocabulary):
                    chosen = like & (marked[:, place] == token)
                    # The token's own probability is the same in all of these; where there is none, the token cannot be.
                    here = chances[chosen, place][0] if bool(chosen.any()) else -math.inf
                    total = torch.logsumexp(onward[chosen], 0) if bool(chosen.any()) else 0.0
                    next_log_probs[row, place, token] = here + total - log_means[row, place]
                like = like & (marked[:, place] == x.tokens[row, place])
    return ExactSteps(log_means, next_log_probs)
