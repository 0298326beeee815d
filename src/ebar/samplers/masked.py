"""A proposal that a rule leaves only allowed tokens, and the weights that undo what this bends.

Masking alone draws from g(x) = Π q(xₜ|x₍<t₎)/Mₜ, Mₜ being the mass of q that the mask lets through; that is not q
given the rule, as it goes as readily where little of q can be finished as where much can. The weights w = Π Mₜ, 0 for a
text that is cut off, make it that: P(x) = q(x)·1[x obeys the rule] = w(x)·g(x), so E[w] is the probability that a text
of q obeys.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.features.rules import Rule
from ebar.models.drawing import BLOCK, draw_tokens, stepper_of
from ebar.modes import evaluation_mode
from ebar.samplers.guided_walk import Walking
from ebar.types import Context, Sequences, Space, Stepwise, context_rows

STEP = 2**23  # logits of one step at most


class MaskedState(NamedTuple):
    """Where the base and the rule stand in each row, and what the weight has come to, the next mask included."""

    base: Any
    rules: tuple[Any, ...]  # None where a token was read that is not allowed
    log_weight: Float[Tensor, " rows"]

    def select(self, rows: Int[Tensor, " selected"]) -> "MaskedState":
        kept = tuple(self.rules[row] for row in rows.tolist())
        return MaskedState(self.base.select(rows), kept, self.log_weight[rows])


class MaskedDraws(NamedTuple):
    """Draws with all that was computed on the way."""

    x: Sequences
    log_weights: Float[Tensor, " draws"]  # log P/g: −∞ for a text that is not whole
    log_q: Float[Tensor, " draws"]


class Masked(Walking):
    """g(v|x₍<t₎) = q(v|x₍<t₎)·1[v may follow]/Mₜ, Mₜ = Σ q over what may follow.

    Where q gives all of that probability 0 (in the last place, to the end of a text that is not whole) the text is
    cut off: P is 0 whatever follows, and g goes on as q would. Rows with equal beginnings share their masks.
    """

    def __init__(self, base: Stepwise, rule: Rule):
        self.base = base
        self.rule = rule

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], MaskedState]:
        logits, base = self.base.start(rows, context)
        rules = (self.rule.start(),) * len(logits)
        masked, _, log_mass = self._mask(logits, rules)
        return masked, MaskedState(base, rules, log_mass)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: MaskedState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], MaskedState]:
        logits, base = self.base.advance(tokens, state.base)
        rules, log_weight, found = state.rules, state.log_weight, []
        for place, column in enumerate(tokens.unbind(1)):
            rules = self._followed(rules, column)
            masked, _, log_mass = self._mask(logits[:, place], rules)
            found.append(masked)
            log_weight = log_weight + log_mass
        return torch.stack(found, 1) if found else logits, MaskedState(base, rules, log_weight)

    def expected_log_weight(self, state: MaskedState) -> Float[Tensor, " rows"]:
        """What sequential Monte Carlo weighs particles by: Π M over the steps so far, that of the token to come too."""
        return state.log_weight

    @torch.no_grad()
    def walk(self, n: int, context: Context | None = None, *, generator: Generator) -> MaskedDraws:
        """n draws for each row of the context, weighed, with one pass over the base."""
        with evaluation_mode(self.base):
            logits, state = self.base.start(context_rows(context), context)
            condition = torch.arange(len(logits), device=logits.device).repeat_interleave(n)
            size = max(1, min(BLOCK, STEP // self.space.vocabulary))
            space = self.space.after(context)
            parts = [
                self._walk(logits[some], state.select(some), space, generator) for some in torch.split(condition, size)
            ]
        x = Sequences.join([part.x for part in parts])
        return MaskedDraws(
            x, torch.cat([part.log_weights for part in parts]), torch.cat([part.log_q for part in parts])
        )

    def _walk(
        self, logits: Float[Tensor, "rows vocabulary"], state: Any, space: Space, generator: Generator
    ) -> MaskedDraws:
        stepper = stepper_of(self.base, state)
        rows, device = len(logits), logits.device
        tokens = torch.zeros(rows, space.length, dtype=torch.long, device=device)
        lengths = torch.full((rows,), space.length, device=device)
        log_weights, log_q = torch.zeros(2, rows, dtype=torch.float64, device=device)
        alive, rules = torch.arange(rows, device=device), (self.rule.start(),) * rows
        for place in range(space.length):
            masked, log_probs, log_mass = self._mask(logits, rules)
            token = draw_tokens(masked, generator)
            tokens[alive, place] = token
            log_weights[alive] += log_mass.double()
            log_q[alive] += log_probs.gather(1, token[:, None]).squeeze(1).double()
            if space.end is not None:
                lengths[alive[token == space.end]] = place + 1
            elif place == space.length - 1:
                whole = [one is not None and self.rule.complete(one) for one in self._followed(rules, token)]
                log_weights[alive[~torch.tensor(whole, device=device)]] = -math.inf
            onward = (lengths[alive] > place + 1).nonzero().squeeze(1)
            if len(onward) == 0:
                break
            if len(onward) < len(alive):
                alive, token = alive[onward], token[onward]
                rules = tuple(rules[row] for row in onward.tolist())
                stepper.keep(onward)
            rules = self._followed(rules, token)
            logits = stepper.step(token)
        width = int(lengths.max()) if rows else 0
        return MaskedDraws(Sequences(tokens[:, :width], lengths), log_weights, log_q)

    def _mask(
        self, logits: Float[Tensor, "rows vocabulary"], rules: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "rows vocabulary"], Float[Tensor, "rows vocabulary"], Float[Tensor, " rows"]]:
        """log g and log q of the next token, and log M."""
        log_probs = torch.log_softmax(logits, -1)
        number: dict[Any, int] = {}
        which = [number.setdefault(one, len(number)) for one in rules]
        whole = np.ones(log_probs.shape[1], dtype=bool)
        masks = np.stack([whole if one is None else self.rule.allowed(one) for one in number])
        allowed = torch.from_numpy(masks).to(log_probs.device)[torch.tensor(which, device=log_probs.device)]
        masked = torch.where(allowed, log_probs, -math.inf)
        log_mass = torch.logsumexp(masked, -1, keepdim=True)
        masked = torch.where(log_mass == -math.inf, log_probs, masked - log_mass)
        return masked, log_probs, log_mass.squeeze(-1).clamp(max=0)

    def _followed(self, rules: tuple[Any, ...], tokens: Int[Tensor, " rows"]) -> tuple[Any, ...]:
        known: dict[tuple[Any, int], Any] = {}
        followed = []
        for rule, token in zip(rules, tokens.tolist(), strict=True):
            key = rule, token
            if key not in known:
                known[key] = None if rule is None or token == self.space.end else self.rule.after(rule, token)
            followed.append(known[key])
        return tuple(followed)
