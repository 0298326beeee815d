"""Sequences that a model makes up, as long as they are needed and no longer."""

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.models.stepwise import draw_tokens, stepper_of
from ebar.modes import evaluation_mode
from ebar.types import Context, Sequences, Stepwise


@torch.no_grad()
def draw_fakes(
    model: Stepwise,
    caps: Int[Tensor, " rows"],
    context: Context | None = None,
    *,
    prefix: Int[Tensor, "rows prefix"] | None = None,
    generator: Generator,
) -> Sequences:
    """One draw a row, without dropout: it goes on from its prefix, and is cut off where it has `caps` tokens.

    A row cut off has no end; up to there it is a draw like any other.
    """
    space, rows, device = model.space.after(context), len(caps), caps.device
    before = 0 if prefix is None else prefix.shape[1]
    lengths = caps.clamp(max=space.length - before)
    width = int(lengths.max()) if rows else 0
    tokens = torch.zeros(rows, width, dtype=torch.long, device=device)
    with evaluation_mode(model):
        logits, state = model.start(rows, context)
        if prefix is not None and before > 0:
            after, state = model.advance(prefix, state)
            logits = after[:, -1]
        stepper = stepper_of(model, state)
        alive = torch.arange(rows, device=device)
        for place in range(width):
            token = draw_tokens(torch.log_softmax(logits, 1), generator)
            tokens[alive, place] = token
            going_on = lengths[alive] > place + 1
            if space.end is not None:
                ended = token == space.end
                lengths[alive[ended]] = place + 1
                going_on &= ~ended
            if not bool(going_on.all()):
                kept = going_on.nonzero().squeeze(1)
                alive, token = alive[kept], token[kept]
                if len(alive) == 0:
                    break
                stepper.keep(kept)
            if place + 1 < width:
                logits = stepper.step(token)
    width = int(lengths.max()) if rows else 0
    return Sequences(tokens[:, :width], lengths)
