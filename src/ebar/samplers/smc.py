"""Sequential Monte Carlo along the sequence, and its twists.

A twist guesses, from a prefix, the importance weight its finished sequence will have.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.bounds import Count
from ebar.errors import UserError, choose
from ebar.maths.orders import left_to_right
from ebar.models.drawing import draw_tokens
from ebar.models.tilted import Tilted, measured_energy
from ebar.modes import in_evaluation_mode
from ebar.samplers.draw import BatchSampler, Foresighted, Setting, group_size, log_weights, numbered
from ebar.samplers.importance import RESAMPLERS, flat_indices, in_groups, particle_systems, repeated, resampled
from ebar.types import Context, Sequences, State, Stepwise, Target, Weighted, context_rows, room


class Prefixes(NamedTuple):
    """What a guess can be made from."""

    target: Target
    proposal: Stepwise
    x: Sequences  # without an end
    context: Context | None  # one row for each prefix
    log_ratio: Float[Tensor, " prefixes"]  # log base(x≤t) − log proposal(x≤t)
    state: State  # of the proposal


def none(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The energy is looked at only when all have ended: importance sampling, but for the base/proposal ratio."""
    return prefixes.log_ratio


def energy(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The energy of the prefix, as though it were the whole: good when E builds up along the sequence.

    In a context with an order, of the text up to the first place that is still open.

    A prefix of infinite energy can still become a good sequence (a motif that has yet to come), so there this
    guess abstains.
    """
    if not isinstance(prefixes.target, Tilted):
        raise UserError('The twist "energy" needs a tilted target: use the twist "none".')
    try:
        value = -measured_energy(prefixes.target.energy, prefixes.x, prefixes.context)
    except UserError as error:
        raise UserError(
            "Sequential Monte Carlo asks for the energy of a prefix too, and there it fails: let your function "
            f'take any prefix, or give the twist "none" ({str(error).rstrip(".")}).'
        ) from error
    return prefixes.log_ratio + torch.where(value.isinf(), 0.0, value)


def potential(prefixes: Prefixes) -> Float[Tensor, " prefixes"]:
    """The proposal's own foresight."""
    if not isinstance(prefixes.proposal, Foresighted):
        raise UserError('The twist "potential" needs a proposal that looks ahead: use "energy" or "none".')
    return prefixes.proposal.expected_log_weight(prefixes.state)


Twist = Callable[[Prefixes], Float[Tensor, " prefixes"]]

TWISTS: dict[str, Twist] = {"none": none, "energy": energy, "potential": potential}


def twist_for(name: str | None, target: Target, proposal: Stepwise, context: Context | None = None) -> str:
    """The twist asked for, or else the best there is: the proposal's foresight, the energy of the prefix, none.

    Tokens that come in an order other than from left to right make no prefix of a text until they are all there.
    """
    if name is not None:
        return name
    if context is not None and not bool(left_to_right(context).all()):
        return "none"
    if isinstance(proposal, Foresighted):
        return "potential"
    return "energy" if isinstance(target, Tilted) else "none"


def base_to_follow(name: str, target: Target, proposal: Stepwise) -> Stepwise | None:
    """The base, where it must be advanced beside the proposal to know log base − log proposal of a prefix.

    A base that cannot be advanced is not followed: the ratio then enters at the end, which is as exact.
    """
    base = target.base if isinstance(target, Tilted) else target
    followed = base is not proposal and name != "potential" and isinstance(base, Stepwise)
    return base if followed else None  # type: ignore[return-value]


class Cloud(NamedTuple):
    """Particles, all systems laid end to end."""

    tokens: Int[Tensor, "particles length"]
    lengths: Int[Tensor, " particles"]
    log_q: Float[Tensor, " particles"]  # of the prefix, under the proposal
    log_base: Float[Tensor, " particles"]  # of the prefix, under the base; only where it is followed
    guess: Float[Tensor, " particles"]  # at the final log-weight, already counted in the particle's weight
    final: Float[Tensor, " particles"]  # log P − log q, for those that have ended

    def select(self, rows: Int[Tensor, " selected"]) -> "Cloud":
        return Cloud(*(part[rows] for part in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Smc(BatchSampler):
    """Particles grow token by token from q; those whose prefix promises little make way for those that promise much.

    At each step a guess G(x≤t) at the final log-weight is made (see `twists`) and a particle's weight takes on
    exp(G(x≤t) − G(x<t)); at its end G is log P(x) − log q(x) itself, so whatever the guesses were, the product is
    right. Systems resample when their effective sample size falls below `threshold` of their particles.
    The mean weight of a system is unbiased for Z (Del Moral 2004, 7.4.2), and w·f for Σ P·f; systems are
    independent groups. A guess of −inf must mean that P = 0 on every continuation.
    """

    particles: Count = 256
    """In each system; fewer where n draws would make fewer than 20 systems, which an interval needs."""
    threshold: float = 0.5
    twist: str | None = None
    """None, energy or potential; None: the best the proposal and target allow."""
    resampling: str = "systematic"
    batch_size: Count = 4096
    """Particles at a time, over all systems and rows of the context."""

    def batches(self, setting: Setting, n: int) -> Iterator[Weighted]:
        if not isinstance(setting.proposal, Stepwise):
            raise UserError("Sequential Monte Carlo needs a proposal that goes token by token: use importance.")
        return numbered(self._systems(setting, setting.proposal, n))

    def _systems(self, setting: Setting, proposal: Stepwise, n: int) -> Iterator[Weighted]:
        context, rows = setting.context, setting.rows
        for size, count in particle_systems(n, min(self.particles, group_size(n)), context, self.batch_size):
            many = setting._replace(context=repeated(context, count))
            x, log_w = self._run(many, proposal, size, rows * count)
            yield Weighted(x, log_w.view(rows, count * size), in_groups(count, size, log_w.device))

    @torch.no_grad()
    @in_evaluation_mode
    def _run(
        self, setting: Setting, proposal: Stepwise, size: int, count: int
    ) -> tuple[Sequences, Float[Tensor, "systems particles"]]:
        """`count` systems of `size` particles, one for each row of the context where there is one."""
        target, _, context, generator = setting
        name = twist_for(self.twist, target, proposal, context)
        twist = choose(TWISTS, name, "twist")
        resample = choose(RESAMPLERS, self.resampling, "resampling scheme")
        base = base_to_follow(name, target, proposal)
        space, total = proposal.space.after(context), count * size
        logits, state = _started(proposal, size, count, context)
        base_logits, base_state = _started(base or proposal, size, count, context)
        nought = torch.zeros(total, dtype=torch.float64, device=logits.device)  # as fine as the energy, or finer
        tokens = torch.zeros(total, space.length, dtype=torch.long, device=logits.device)
        cloud = Cloud(tokens, torch.zeros_like(tokens[:, 0]), *(nought.clone() for _ in range(4)))
        log_w = nought.view(count, size)  # never written to in place
        most = room(space, context, total, logits.device)
        going = torch.arange(total, device=logits.device)  # particles that have not ended: what `state` has rows for
        for place in range(space.length):
            log_probs = torch.log_softmax(logits, -1)
            token = draw_tokens(log_probs, generator)
            cloud.tokens[going, place] = token
            cloud.log_q[going] += log_probs.gather(1, token[:, None]).squeeze(1)
            if base is not None:
                cloud.log_base[going] += torch.log_softmax(base_logits, -1).gather(1, token[:, None]).squeeze(1)
            ended = most[going] <= place + 1
            if space.end is not None:
                ended = ended | (token == space.end)
            done, going, token = going[ended], going[~ended], token[~ended]
            cloud.lengths[done] = place + 1
            x = Sequences(cloud.tokens[done, : place + 1], cloud.lengths[done])
            if len(done):
                where = None if context is None else context.select(done // size)
                cloud.final[done] = log_weights(target, proposal, x, cloud.log_q[done], where).double()
            if len(going) == 0:
                break
            logits, state = _advanced(proposal, token, state, ended)
            if base is not None:
                base_logits, base_state = _advanced(base, token, base_state, ended)
            guess = cloud.guess.clone()
            guess[done] = cloud.final[done] if name != "none" else guess[done]
            prefix = Sequences(cloud.tokens[going, : place + 1], torch.full_like(going, place + 1))
            where = None if context is None else context.select(going // size)
            log_ratio = (cloud.log_base - cloud.log_q)[going] if base is not None else nought[going]
            guess[going] = twist(Prefixes(target, proposal, prefix, where, log_ratio, state)).double()
            log_w = log_w + _difference(guess, cloud.guess).view(count, size)
            cloud = cloud._replace(guess=guess)
            outcome = resampled(log_w, self.threshold, resample, generator)
            if outcome is not None:
                ancestors, log_w = outcome
                chosen = flat_indices(ancestors, size)
                cloud = cloud.select(chosen)
                row_of = torch.full_like(chosen, -1).index_copy(0, going, torch.arange(len(going), device=going.device))
                came_from = row_of[chosen]
                going = (came_from >= 0).nonzero().squeeze(1)
                if len(going) == 0:
                    break
                came_from = came_from[going]
                logits, state = logits[came_from], state.select(came_from)
                base_logits, base_state = base_logits[came_from], base_state.select(came_from)
        log_w = log_w + _difference(cloud.final, cloud.guess).view(count, size)
        return Sequences(cloud.tokens, cloud.lengths).trimmed(), log_w


def _started(
    model: Stepwise, size: int, count: int, context: Context | None
) -> tuple[Float[Tensor, "particles vocabulary"], State]:
    """Every particle at the beginning; each context is read once."""
    rows = context_rows(context)
    logits, state = model.start(rows, context)
    condition = torch.arange(rows, device=logits.device).repeat_interleave(size * count // rows)
    return logits[condition], state.select(condition)


def _advanced(
    model: Stepwise, token: Int[Tensor, " going"], state: Any, ended: Bool[Tensor, " before"]
) -> tuple[Float[Tensor, "going vocabulary"], State]:
    """One step of those that have not ended."""
    if bool(ended.any()):
        state = state.select((~ended).nonzero().squeeze(1))
    logits, state = model.advance(token[:, None], state)
    return logits[:, 0], state


def _difference(new: Float[Tensor, " particles"], old: Float[Tensor, " particles"]) -> Float[Tensor, " particles"]:
    """new − old; where old is −inf the particle has weight 0 already, and keeps it."""
    return torch.where(old == -math.inf, 0.0, new - old)
