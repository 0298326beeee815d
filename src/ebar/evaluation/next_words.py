"""The likeliest next words after a prefix, under q and under the joint model. Deng et al. 2020, analyses."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators.per_step import BATCH, future_energies
from ebar.maths.importance import all_warnings, check_weights, diagnose
from ebar.maths.jackknife import half_width, log_fall
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.models.drawing import draw_tokens
from ebar.models.tilted import measured_energy
from ebar.modes import evaluation_mode
from ebar.types import Context, Energy, Estimate, Sequences, State, Stepwise, context_rows

TELLING = 0.05  # of a sum: what makes up less of it is not asked about its weights


class NextWord(NamedTuple):
    """One token as the next."""

    token: int
    base: float  # q(v|C)
    joint: Estimate  # p(v|C) = q(v|C)·E[e⁻ᴱ|C, v]/Z(C)


class Strata(NamedTuple):
    """Tokens with their futures; the last may be all that are no candidates, as token −1."""

    tokens: Int[Tensor, " strata"]
    log_chances: Float[Tensor, " strata"]  # log q
    log_weights: Float[Tensor, "strata draws"]  # −E of the futures
    level: float

    def share(self, group: Bool[Tensor, " strata"]) -> Estimate:
        """Σ₍group₎ qₛAₛ/Σ qₛAₛ, its interval made on the logit scale.

        There it is log Σ₍group₎ qₛAₛ − log Σ₍others₎ qₛAₛ: a stratum moves the sum it is in by its share of that sum
        times as much as log A moves.
        """
        group = group.to(self.log_chances.device)
        scores = self.log_chances + log_mean_exp(self.log_weights)
        inside, outside = (torch.where(part, scores, -math.inf) for part in (group, ~group))
        drawn = (self.log_chances[:, None] + self.log_weights)[group]
        size = float(effective_sample_size(drawn.flatten()))
        reason = self._reason(group, inside)
        if bool((outside == -math.inf).all()):
            return Estimate(1.0, 1.0, 1.0, size, reason, self.level)
        if size == 0:  # nothing drawn of it has any weight: that is not to know that it has none
            return Estimate(0.0, 0.0, 1.0, size, reason, self.level)
        falls = log_fall(self.log_weights)
        falls = falls - falls.mean(-1, keepdim=True)
        logit = torch.logsumexp(inside, 0) - torch.logsumexp(outside, 0)
        moves = torch.softmax(inside, 0) - torch.softmax(outside, 0)
        width = half_width((moves[:, None] * falls).flatten(), self.level)
        ends = torch.sigmoid(torch.stack([logit, logit - width, logit + width])).tolist()
        return Estimate(ends[0], ends[1], ends[2], size, reason, self.level)

    def _reason(self, group: Bool[Tensor, " strata"], inside: Float[Tensor, " strata"]) -> str | None:
        """What is wrong with the weights of those that make up the group's sum."""
        if bool((inside == -math.inf).all()):
            return all_warnings(*diagnose(self.log_weights[group]))
        telling = group & (torch.softmax(inside, 0) > TELLING)
        return all_warnings(*diagnose(self.log_weights[telling]))


class NextWords(NamedTuple):
    """The candidates, likeliest under the joint model first."""

    words: list[NextWord]
    rest: NextWord | None  # the tokens that are no candidates together, as token −1; None where there are none
    strata: Strata

    def under_base(self, most: int = 10) -> list[NextWord]:
        return sorted(self.words, key=lambda word: -word.base)[:most]

    def under_joint(self, most: int = 10) -> list[NextWord]:
        return self.words[:most]

    def others(self, shown: Sequence[NextWord]) -> NextWord | None:
        """All tokens but those shown together, as token −1: what is left of the whole; None where nothing is."""
        known = torch.tensor([word.token for word in shown])
        left = ~torch.isin(self.strata.tokens.cpu(), known)
        if not bool(left.any()):
            return None
        base = math.exp(float(torch.logsumexp(self.strata.log_chances.cpu()[left], 0)))
        return NextWord(-1, base, self.strata.share(left))


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
    if bool((energies == math.inf).all()):
        raise UserError(
            f"None of the {energies.numel():,} ways in which the base would go on has any weight under the energy, so "
            "that no next word can be told: ask for more futures or candidates."
        )
    tokens = torch.cat([chosen, chosen.new_full((len(chances) - len(chosen),), -1)])
    strata = Strata(tokens, chances, -energies, level)
    each = torch.eye(len(tokens), dtype=torch.bool, device=tokens.device)
    words = [
        NextWord(token, math.exp(float(chance)), strata.share(own))
        for token, chance, own in zip(tokens.tolist(), chances, each, strict=True)
    ]
    remainder = words.pop() if possible > len(chosen) else None
    return NextWords(sorted(words, key=lambda word: -word.joint.value), remainder, strata)


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
