"""The token that decides the sequence: there the joint model's next-token distribution is no estimate.

    p(v|x₍<T₎, C) = q(v|x₍<T₎, C)·e^{−E(x₍<T₎v, C)} / Σᵥ q(v|x₍<T₎, C)·e^{−E(x₍<T₎v, C)}

What q and the joint model say of the same token is then compared without the error of any Z. Deng et al. 2020.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators.per_step import BATCH, Closing, check_own, check_rows, mean_between, one_row
from ebar.maths.importance import check_weights
from ebar.maths.jackknife import log_mean_bounds
from ebar.models.drawing import draw_tokens
from ebar.models.stepwise import LOGITS
from ebar.models.tilted import measured_energy
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Energy, Estimate, Sequences, Stepwise


class LastStep(NamedTuple):
    """Costs of the deciding token, in nats: means over rows, with intervals for other prefixes too."""

    base: Estimate  # −log q
    joint: Estimate  # −log p
    difference: Estimate  # joint − base, paired
    log_q: Float[Tensor, " rows"]
    log_joint: Float[Tensor, " rows"]
    rows: Int[Tensor, " rows"]  # of the continuations given, those that have a deciding place
    rest: float  # the largest probability, of any row, of the tokens that were not all scored; 0: exact


def last_step(
    q: Stepwise,
    energy: Energy[Sequences],
    x: Sequences,
    context: Context | None = None,
    *,
    candidates: int | None = None,
    rest_draws: int = 64,
    batch_size: int = BATCH,
    level: float = 0.95,
    generator: Generator | None = None,
) -> LastStep:
    """Both costs of the deciding token of one continuation per row of the context.

    Without `candidates` every token of the vocabulary is scored. With them, the so many likeliest are, and the others'
    share of the sum is the mean over `rest_draws` of them, drawn from q: then intervals reach from the jackknife's
    lower estimate of log Σ to its upper. Where an end token may come earlier, rows that it ends before the deciding
    place have none, and are left out.
    """
    check_rows(q, x, context)
    space, vocabulary = q.space.after(context), q.space.vocabulary
    if candidates is not None and candidates < 1:
        raise UserError(f"At least one candidate is scored, not {candidates}.")
    if candidates is not None and candidates < vocabulary and (generator is None or rest_draws < 2):
        raise UserError("Scoring some of the tokens only needs a generator and two draws of the others, or more.")
    closing = Closing(energy, space, batch_size)
    there = (x.lengths > closing.place).nonzero().squeeze(1)
    if len(there) == 0:
        raise UserError("Every continuation ends before the place that decides it: there is no last step to compare.")
    found, rest = [], 0.0
    with torch.no_grad(), evaluation_mode(q, energy), bar("scoring", len(there), "continuations") as progress:
        for rows in torch.split(there, max(1, LOGITS // (vocabulary * (closing.place + 1)))):
            own = None if context is None else context.select(rows)
            some = x.select(rows)
            energies = measured_energy(energy, some, own).double()
            check_own(energies)
            log_probs = _log_probs(q, some, own, closing.place)
            for row in range(len(rows)):
                stem, token = some.tokens[row, : closing.place], int(some.tokens[row, closing.place])
                one, chances = one_row(own, row), log_probs[row]
                if candidates is None or candidates >= vocabulary:
                    total = closing.log_mean(stem, chances, one)
                    low, high = total, total
                else:
                    assert generator is not None
                    low, high, outside = _with_rest(closing, stem, chances, one, candidates, rest_draws, generator)
                    rest = max(rest, outside)
                found.append(torch.stack([chances[token], -energies[row] - low, -energies[row] - high]))
                progress.advance(1)
    log_q, gain, smallest = torch.stack(found).unbind(1)
    return LastStep(
        mean_between(-log_q, -log_q, -log_q, level=level),
        mean_between(-log_q - gain, -log_q - gain, -log_q - smallest, level=level),
        mean_between(-gain, -gain, -smallest, level=level),
        log_q,
        log_q + gain,
        there,
        rest,
    )


def _log_probs(q: Stepwise, x: Sequences, context: Context | None, place: int) -> Float[Tensor, "rows vocabulary"]:
    logits, state = q.start(len(x.lengths), context)
    if place > 0:
        logits = q.advance(x.tokens[:, :place], state)[0][:, -1]
    return torch.log_softmax(logits.double(), -1)


def _with_rest(
    closing: Closing, stem: Tensor, log_probs: Tensor, context: Context | None, candidates: int, rest_draws: int,
    generator: Generator,
) -> tuple[Tensor, Tensor, float]:  # fmt: skip
    """T and 2J − T of log Σ, and q's probability of the tokens that were not all scored.

    Σ is the mean of s + r·w over draws of the rest, s being the candidates' sum and r the rest's probability.
    """
    likeliest = log_probs.topk(candidates).indices
    others = log_probs.index_fill(0, likeliest, -math.inf)
    log_rest = torch.logsumexp(others, 0)
    asked = likeliest = likeliest[log_probs[likeliest] > -math.inf]
    drawn = None
    if bool(log_rest > -math.inf):
        drawn = draw_tokens(torch.log_softmax(others, -1).expand(rest_draws, -1), generator)
        asked = torch.cat([likeliest, torch.unique(drawn)])
    log_weights = -closing.energies(stem, asked, context)
    check_weights(log_weights[None])
    total = torch.logsumexp(log_probs[likeliest] + log_weights[: len(likeliest)], 0)
    if drawn is None:
        return total, total, 0.0
    of_token = torch.full_like(log_probs, -math.inf).index_copy(0, asked, log_weights)
    bounds = log_mean_bounds(torch.logaddexp(total, log_rest + of_token[drawn]))
    return bounds.lower, bounds.upper, float(log_rest.exp())
