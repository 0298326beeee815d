"""Drawing some places of a sequence anew, and following it in the others."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.models.stepwise import draw_tokens, stepper_of
from ebar.modes import in_evaluation_mode
from ebar.types import Context, Sequences, Stepwise, context_rows


class Redrawn(NamedTuple):
    """Where x went."""

    x: Sequences  # as wide as the space is long
    log_q: Float[Tensor, " walkers"]  # of the whole
    log_gain: Float[Tensor, " walkers"]  # Σ over the free places of x: log q(new|·) − log q(old|·)


@torch.no_grad()
@in_evaluation_mode
def redraw(
    model: Stepwise,
    x: Sequences,
    free: Bool[Tensor, "walkers length"],
    context: Context | None,
    *,
    keep_length: bool,
    generator: Generator,
) -> Redrawn:
    """Token by token, from q(·|what stands before) where a place is free, else as in x.

    With `keep_length` a free place draws anything but the end. x is as wide as the space is long; what is free past
    its length has no old token, and no gain.
    """
    space, rows = model.space.after(context), len(x.lengths)
    conditions = context_rows(context)
    logits, state = model.start(conditions, context)
    condition = torch.arange(conditions, device=logits.device).repeat_interleave(rows // conditions)
    logits, state = logits[condition], state.select(condition)
    stepper = stepper_of(model, state)
    tokens, lengths = torch.zeros_like(x.tokens), torch.full_like(x.lengths, space.length)
    log_q, log_gain = torch.zeros_like(logits[:, 0]), torch.zeros_like(logits[:, 0])
    going = torch.arange(rows, device=logits.device)
    for place in range(space.length):
        log_probs = torch.log_softmax(logits, -1)
        new = _chosen(
            log_probs, x.tokens[going, place], free[going, place], space.end if keep_length else None, generator
        )
        tokens[going, place] = new
        step = log_probs.gather(1, new[:, None]).squeeze(1)
        log_q[going] += step
        was = log_probs.gather(1, x.tokens[going, place, None]).squeeze(1)
        log_gain[going] += torch.where(free[going, place] & (place < x.lengths[going]), step - was, 0.0)
        if space.end is not None and bool((new == space.end).any()):
            lengths[going[new == space.end]] = place + 1
            goes_on = (new != space.end).nonzero().squeeze(1)
            going, new = going[goes_on], new[goes_on]
            if len(going) == 0:
                break
            stepper.keep(goes_on)
        if place + 1 < space.length:
            logits = stepper.step(new)
    return Redrawn(Sequences(tokens, lengths), log_q, log_gain)


def _chosen(
    log_probs: Float[Tensor, "rows vocabulary"],
    old: Int[Tensor, " rows"],
    free: Bool[Tensor, " rows"],
    barred: int | None,
    generator: Generator,
) -> Int[Tensor, " rows"]:
    """The old token, or a draw from all but the barred one."""
    if not bool(free.any()):
        return old
    options = log_probs[free]
    if barred is not None:
        options[:, barred] = -math.inf
    return old.index_put((free.nonzero().squeeze(1),), draw_tokens(options, generator))
