"""The likeliest next words after a prefix, under q and under the joint model. Document 002, analyses."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators.futures import BATCH, future_energies
from ebar.maths.importance import check_weights, diagnose
from ebar.maths.jackknife import half_width, log_fall
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.models.scoring import measured_energy
from ebar.models.stepwise import draw_tokens
from ebar.modes import evaluation_mode
from ebar.types import Context, Energy, Estimate, Sequences, State, Stepwise, context_rows


class NextWord(NamedTuple):
    """One token as the next."""

    token: int
    base: float  # q(v|C)
    joint: Estimate  # p(v|C) = q(v|C)·E[e⁻ᴱ|C, v]/Z(C)


class NextWords(NamedTuple):
    """The candidates, likeliest under the joint model first."""

    words: list[NextWord]
    rest: NextWord | None  # all other tokens together, as token −1; None where there are none

    def under_base(self, most: int = 10) -> list[NextWord]:
        return sorted(self.words, key=lambda word: -word.base)[:most]

    def under_joint(self, most: int = 10) -> list[NextWord]:
        return self.words[:most]


def next_words(
    q: Stepwise,
    energy: Energy[Sequences],
    context: Context | None = None,
    *,
    candidates: int = 50,
    n: int = 64,
    batch_size: int = BATCH,
    level: float = 0.95,
    generator: Generator,
) -> NextWords:
    """Joint probabilities of the `candidates` tokens that q finds likeliest after one prefix.

    Every candidate has n futures of its own, and so have all other tokens together, drawn from q: the strata's sum is
    Z. A token that q finds unlikely and the joint model likely shows as a large `rest`: ask for more candidates.
    """
    if context_rows(context) != 1:
        raise UserError(f"The next words are those of one prefix: give one, not {context_rows(context)}.")
    if n < 2 or candidates < 1:
        raise UserError(f"At least one candidate with two futures is needed, not {candidates} with {n}.")
    with torch.no_grad(), evaluation_mode(q, energy):
        first, state = q.start(1, context)
        log_probs = torch.log_softmax(first[0].double(), -1)
        possible = int((log_probs > -math.inf).sum())
        chosen = log_probs.topk(min(candidates, possible)).indices
        others = log_probs.index_fill(0, chosen, -math.inf)
        chances = log_probs[chosen]
        energies = _energies(q, energy, chosen, state, context, n, batch_size, generator)
        if possible > len(chosen):
            chances = torch.cat([chances, torch.logsumexp(others, 0)[None]])
            drawn = draw_tokens(torch.log_softmax(others, -1).expand(n, -1), generator)
            rest = _energies(q, energy, drawn, state, context, 1, batch_size, generator)
            energies = torch.cat([energies, rest.T])
    check_weights(-energies)
    joint = _shares(chances, -energies, level)
    words = [
        NextWord(token, math.exp(float(chance)), share)
        for token, chance, share in zip([*chosen.tolist(), -1], chances, joint, strict=False)
    ]
    remainder = words.pop() if possible > len(chosen) else None
    return NextWords(sorted(words, key=lambda word: -word.joint.value), remainder)


def _energies(
    q: Stepwise, energy: Energy[Sequences], tokens: Int[Tensor, " first"], state: State, context: Context | None,
    n: int, batch_size: int, generator: Generator,
) -> Float[Tensor, "first draws"]:  # fmt: skip
    """Energies of n continuations that begin with each of the tokens; where a token is the whole of it, n times its."""
    whole = torch.full_like(tokens, q.space.after(context).length == 1, dtype=torch.bool)
    if q.space.end is not None:
        whole = whole | (tokens == q.space.end)
    found = torch.empty(len(tokens), n, dtype=torch.float64, device=tokens.device)
    if bool(whole.any()):
        alone = Sequences(tokens[whole][:, None], torch.ones_like(tokens[whole]))
        found[whole] = measured_energy(energy, alone, context).double()[:, None].expand(-1, n)
    going_on = (~whole).nonzero().squeeze(1)
    for rows in torch.split(going_on, batch_size) if len(going_on) else ():
        stems, same = tokens[rows][:, None], torch.zeros_like(rows)
        logits, after = q.advance(stems, state.select(same))
        own = None if context is None else context.select(same)
        found[rows] = future_energies(
            q, energy, stems, logits[:, 0], after, own, n, batch_size=batch_size, generator=generator
        )
    return found


def _shares(
    log_chances: Float[Tensor, " strata"], log_weights: Float[Tensor, "strata draws"], level: float
) -> list[Estimate]:
    """qₛAₛ/Σ qₛAₛ, its interval made on the logit scale.

    There it is log qᵥAᵥ − log Σ₍ₛ≠ᵥ₎ qₛAₛ: a stratum moves its own by as much as log A moves, another's by its share of
    the others.
    """
    scores = log_chances + log_mean_exp(log_weights)
    falls = log_fall(log_weights)
    falls = falls - falls.mean(-1, keepdim=True)
    sizes, reasons = effective_sample_size(log_weights), diagnose(log_weights)
    found = []
    for own, reason in enumerate(reasons):
        others = scores.index_fill(0, torch.tensor([own], device=scores.device), -math.inf)
        if bool((others == -math.inf).all()):
            found.append(Estimate(1.0, 1.0, 1.0, float(sizes[own]), reason, level))
            continue
        logit = scores[own] - torch.logsumexp(others, 0)
        moves = -torch.softmax(others, 0)
        moves[own] = 1.0
        width = half_width((moves[:, None] * falls).flatten(), level)
        ends = torch.sigmoid(torch.stack([logit, logit - width, logit + width])).tolist()
        if float(sizes[own]) == 0:  # nothing drawn of it has any weight: that is not to know that it has none
            ends = [0.0, 0.0, 1.0]
        found.append(Estimate(ends[0], ends[1], ends[2], float(sizes[own]), reason, level))
    return found
