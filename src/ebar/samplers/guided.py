"""A proposal that looks ahead to what the energy favours, with exact log-probabilities."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.models.drawing import BLOCK, stepper_of
from ebar.models.hidden import shows_hidden, split
from ebar.models.tilted import Tilted
from ebar.modes import evaluation_mode
from ebar.samplers.correction import Correction, Trace
from ebar.samplers.gaps import Gaps, Layout, Outlook, foreseen, gaps_of, without_forbidden
from ebar.samplers.guided_states import JointStates
from ebar.samplers.guided_walk import Steering, Walk, Walking, walk_block
from ebar.samplers.surrogate import Law, Tally, log_expected_weights, log_largest_ratio
from ebar.types import Context, Sequences, Stepwise, context_rows, room

BEGUN = 0.2  # of a defended proposal that has a correction: the share that goes without it
STEP = 2**23  # logits of one step at most: a large vocabulary comes with a large cache for each row


class GuidedState(NamedTuple):
    """Where the base and the joint automaton stand, and what the weight of the prefix has come to."""

    base: Any
    joint: Int[Tensor, " rows"]
    place: int
    log_weight: Float[Tensor, " rows"]  # log h₀·Π N/h over the steps so far, that of the token to come included
    layout: Int[Tensor, " rows"]
    outlook: Outlook  # of all layouts
    found: Float[Tensor, "rows size_and_one"] | None = None  # what the correction of the token to come is made from

    def select(self, rows: Int[Tensor, " selected"]) -> "GuidedState":
        found = None if self.found is None else self.found[rows]
        return GuidedState(
            self.base.select(rows), self.joint[rows], self.place, self.log_weight[rows], self.layout[rows],
            self.outlook, found,
        )  # fmt: skip


class Guided(Walking):
    """g(xₜ|x₍<t₎) ∝ q(xₜ|x₍<t₎)·hₜ₊₁(sₜ₊₁), with hₜ(s) = E_u[exp Σλφ | s at t] and s the joint automaton's state.

    With Nₜ = Σᵥ q(v|x₍<t₎)·hₜ₊₁(δ(sₜ, v)), and with every feature followed,

        P(x)/g(x) = h₀ · Πₜ Nₜ / hₜ(sₜ)

    so the weights are constant, and equal to Z, where the surrogate u is q; features not followed multiply them
    by exp Σλφ. As u is positive, h = 0 only where no sequence of the space escapes a coefficient of −∞, so g > 0
    wherever P > 0. Where q gives every escape probability 0, P does too, and g goes on as q would.

    In a context with an order, whose gaps must be filled from left to right, the given tokens move s too (`gaps`).

    h is a snapshot of the coefficients. When they move, weights stay exact (unless one was −∞ and is no more: g has
    not the support), but h no longer heads where it should.

    With a correction c, learnt from the base's hidden state, h·exp c stands in the place of h wherever what follows
    still matters (`JointStates.open`).
    """

    def __init__(
        self,
        base: Stepwise,
        states: JointStates,
        log_ahead: Float[Tensor, "places states"],
        log_final: Float[Tensor, " states"],
        law: Law | None = None,
        correction: Correction | None = None,
        open: Bool[Tensor, "places states"] | None = None,
    ):
        self.base = base
        self.states = states
        self.log_ahead = log_ahead  # log hₜ(s), t = 0 … length
        self.log_final = log_final  # log h of a sequence that has ended
        self.law = law  # from which h is made anew for the gaps of a context; None: h = 1
        self.correction = correction
        self.steering = Steering(states, correction, open)
        self._showing = None if correction is None else shows_hidden(base).showing()
        flat = without_forbidden(log_ahead, log_final)
        self.allowed = None if flat is None else (flat[0], flat[1])
        self._kept: tuple[list[Layout], Outlook] | None = None  # of the gaps met last

    @classmethod
    def tilted(cls, base: Stepwise, states: JointStates, energy: Linear, law: Law) -> "Guided":
        """Looking ahead under a surrogate's law."""
        scores = states.scores(energy)
        log_ahead = log_expected_weights(states, scores, law)
        if log_ahead[0, 0] == -math.inf and states.reach is None:
            raise UserError("No sequence of the model's space satisfies the energy's hard constraints: relax them.")
        return cls(base, states, log_ahead, scores, law)

    @classmethod
    def plain(cls, base: Stepwise, states: JointStates) -> "Guided":
        """q itself: nothing ahead is preferred."""
        flat = torch.zeros(len(states.recent), dtype=torch.float64, device=states.recent.device)
        return cls(base, states, flat.expand(states.space.length + 1, -1), flat)

    def corrected(self, correction: Correction, open: Bool[Tensor, "places states"]) -> "Guided":
        """The same, with h·exp c in the place of h where something is open."""
        return Guided(self.base, self.states, self.log_ahead, self.log_final, self.law, correction, open)

    def masking(self) -> "Guided | None":
        """The base with all that would break a coefficient of −∞ masked out, token by token; None: nothing would.

        m(x) = q(x)/Π (mass of q that the mask lets through), which is not p: a token is allowed where something can
        still follow, however unlikely.
        """
        return None if self.allowed is None else Guided(self.base, self.states, *self.allowed)

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], GuidedState]:
        gaps, outlook = self._ahead(context)
        given, base = (self._showing or self.base).start(rows, context)
        logits, hidden = split(given)
        each = torch.arange(len(gaps.start), device=logits.device).repeat_interleave(rows // len(gaps.start))
        joint, layout = gaps.start[each], gaps.layout[each]
        found = self.steering.found(None if hidden is None else hidden[:, None], joint[:, None], 0)
        guided, _, log_step = self.steering.guide(logits[:, None], joint[:, None], 0, outlook, layout, found)
        log_weight = log_step[:, 0] + outlook.here[layout, 0, joint].to(log_step.dtype)
        last = None if found is None else found[:, 0]
        return guided[:, 0], GuidedState(base, joint, 0, log_weight, layout, outlook, last)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: GuidedState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], GuidedState]:
        guided, log_weights, after = self._advance(tokens, state)
        return guided, after if tokens.shape[1] == 0 else after._replace(log_weight=log_weights[:, -1])

    def laws(
        self, x: Sequences
    ) -> tuple[Float[Tensor, "batch length vocabulary"], Float[Tensor, "batch length"]]:  # fmt: skip
        """log g of every token in every place, and what the weight of the prefix has come to; padding means nothing.

        That weight, q(x₍<t₎)·Nₜ/g(x₍<t₎), is E[P/g | x₍<t₎] where the surrogate and the correction are right.
        """
        tokens = torch.where(x.mask(), x.tokens, 0)
        with evaluation_mode(self.base):
            first, state = self.start(len(tokens))
            rest, log_weights, _ = self._advance(tokens[:, :-1], state)
        return torch.cat([first[:, None], rest], 1), torch.cat([state.log_weight[:, None], log_weights], 1)

    def _advance(
        self, tokens: Int[Tensor, "rows length"], state: GuidedState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length"], GuidedState]:
        """As `advance`, and the weight of the prefix after each token."""
        given, base = (self._showing or self.base).advance(tokens, state.base)
        logits, hidden = split(given)
        visited, joint = [], state.joint
        for step, column in enumerate(self.states.class_of[tokens].unbind(1)):
            joint = state.outlook.followed(self.states, joint, state.layout, column, state.place + step)
            visited.append(joint)
        states = torch.stack(visited, 1) if visited else tokens
        found = self.steering.found(hidden, states, state.place + 1)
        guided, _, log_step = self.steering.guide(logits, states, state.place + 1, state.outlook, state.layout, found)
        log_weights = state.log_weight[:, None] + log_step.cumsum(1)
        last = state.found
        if found is not None and last is not None and visited:
            # What g has taken of these tokens beyond h.
            c = self.steering.correct(torch.cat([last[:, None], found[:, :-1]], 1), tokens, states, state.place)
            log_weights, last = log_weights - c.to(log_weights.dtype).cumsum(1), found[:, -1]
        place = state.place + tokens.shape[1]
        after = GuidedState(base, joint, place, state.log_weight, state.layout, state.outlook, last)
        return guided, log_weights, after

    def _ahead(self, context: Context | None) -> tuple[Gaps, Outlook]:
        """Where each row of the context begins, and what is ahead of it.

        h is for a number of tokens to come; in a context with an order, for those of each row.
        """
        found, made = self.space.after(context).length, self.states.space.length
        if context is None or context.order is None:
            if found != made:
                raise UserError(
                    f"This proposal looks ahead over {made} tokens, and after this context {found} are to come: make "
                    "one with `guided(target, context=…)`."
                )
            start = torch.zeros(context_rows(context), dtype=torch.long, device=self.states.recent.device)
            whole = Outlook(self.log_ahead[None, :-1], self.log_ahead[None, 1:], self.log_final)
            return Gaps(start, torch.zeros_like(start), []), whole
        reach = made if self.states.reach is None else self.states.reach
        if found > made or int(context.order.max()) >= reach:
            raise UserError(
                f"This proposal looks ahead in texts of up to {reach} tokens with {made} to come: make one "
                "for longer ones with `guided(target, context=…)`."
            )
        gaps = gaps_of(self.states, context)
        if self._kept is None or self._kept[0] != gaps.layouts:
            self._kept = gaps.layouts, foreseen(self.states, self.log_final, self.law, gaps.layouts)
        ahead = self._kept[1]
        hopeless = ahead.here[gaps.layout, 0, gaps.start] == -math.inf
        if bool(hopeless.any()):
            row = int(hopeless.nonzero()[0])
            raise UserError(f"No way to fill the gaps of row {row} satisfies the hard constraints: relax them.")
        return gaps, ahead

    def expected_log_weight(self, state: GuidedState) -> Float[Tensor, " rows"]:
        """Particles that target q(x₍≤t₎)·Nₜ have this weight: the next step's Nₜ/hₜ, which no choice changes, is in."""
        return state.log_weight

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Float[Tensor, " batch"]]:
        walk = self.walk(n, context, generator=generator)
        return walk.x, walk.log_prob

    @torch.no_grad()
    def walk(
        self,
        n: int,
        context: Context | None = None,
        *,
        defensive: int = 0,
        tally: Tally | None = None,
        trace: Trace | None = None,
        generator: Generator,
    ) -> Walk:
        """n draws for each row of the context, which is read once; what the base says on the way goes to the tally.

        What it thinks on the way, its hidden states, goes to the trace.

        The first `defensive` of them come from d: the base, less what would break a coefficient of −∞. Then `log_prob`
        is that of the mixture α·d + (1 − α)·g, α = defensive/n. As d ≥ q wherever P > 0, no weight P/(α·d + (1 − α)·g)
        exceeds e^(max −E)/α, whatever the surrogate has missed. Hesterberg 1995; Owen and Zhou 2000.

        Of those that then come from g, where it corrects something foreseen, a share β comes from b, which is g without
        its correction, and g in the mixture becomes β·b + (1 − β)·g. A correction errs rarely but far, and there b is
        mostly nearer.
        """
        gaps, outlook = self._ahead(context)
        allowed = self._allowed_in(outlook)
        with evaluation_mode(self.base):
            rows = context_rows(context)
            showing = self._showing if trace is None else shows_hidden(self.base).showing()
            first, state = (showing or self.base).start(rows, context)
            device = split(first)[0].device
            most = room(self.space.after(context), context, rows, device)
            condition = torch.arange(rows, device=device).repeat_interleave(n)
            foresaw = self.correction is not None and self.law is not None
            begun = round(BEGUN * (n - defensive)) if defensive and foresaw else 0
            number = torch.arange(n, device=device)
            plain, as_begun = (number < defensive).repeat(rows), (number >= n - begun).repeat(rows)
            size = max(1, min(BLOCK, STEP // self.space.vocabulary))
            parts = []
            for some in torch.split(torch.arange(rows * n, device=device), size):
                read = condition[some]
                own = state.select(read)
                stepper = stepper_of(self.base, own) if showing is None else showing.stepper(own)
                parts.append(
                    walk_block(
                        self.steering, first[read], stepper, gaps.start[read], gaps.layout[read], most[read], outlook,
                        allowed, plain[some] if defensive else None, as_begun[some] if begun else None, tally, trace,
                        generator,
                    )
                )  # fmt: skip
        x = Sequences.join([part[0] for part in parts])
        log_prob, base_log_prob, log_defence, log_begun = torch.cat([part[1] for part in parts], 1)
        if begun:
            log_prob = _mixed(log_begun, log_prob, begun / (n - defensive))
        if defensive:
            log_prob = _mixed(log_defence, log_prob, defensive / n)
        return Walk(x, log_prob, base_log_prob)

    def _allowed_in(self, outlook: Outlook) -> Outlook | None:
        """What is ahead with every finite h replaced by 1; None where nothing is forbidden."""
        if outlook.between is not None:
            return outlook.allowed()
        if self.allowed is None:
            return None
        ahead, final = self.allowed
        return Outlook(ahead[None, :-1], ahead[None, 1:], final)

    def log_ratio_bound(self, target: object) -> float | None:
        """log P(x|C) − log g(x|C) is never above this; None where no such number is known.

        It holds for the worst of all bases, so it is never below that of drawing from the base itself: rejection
        gains nothing by looking ahead. Quasi-rejection does, and so does all that weighs instead of refusing.
        """
        if not isinstance(target, Tilted) or target.base is not self.base or not isinstance(target.energy, Linear):
            return None
        if self.states.reach is not None or self.correction is not None:
            return None  # made for gaps, and it is not said for which; or no bound is known
        followed = log_largest_ratio(self.states, self.log_ahead, self.log_final, self.states.scores(target.energy))
        return None if followed == math.inf else followed + self.states.others_bound(target.energy)


def _mixed(
    log_first: Float[Tensor, " batch"], log_second: Float[Tensor, " batch"], share: float
) -> Float[Tensor, " batch"]:  # fmt: skip
    """log of share·first + (1 − share)·second."""
    log_rest = math.log1p(-share) if share < 1 else -math.inf
    return torch.logaddexp(log_first + math.log(share), log_second + log_rest)
