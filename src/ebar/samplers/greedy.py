"""Greedy search: the likeliest token at every step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.models.drawing import stepper_of
from ebar.modes import in_evaluation_mode
from ebar.types import Context, Sequences, Space, Stepwise, context_rows

Limit = int | Int[Tensor, " rows"] | None


def limits(maximal_length: Limit, space: Space, rows: int, device: torch.device) -> Int[Tensor, " rows"]:
    """How long each row may become, the end included: no longer than the space."""
    if isinstance(maximal_length, Tensor):
        if maximal_length.shape != (rows,):
            raise UserError(f"maximal_length needs one number for each of {rows} contexts.")
        wanted = maximal_length.to(device, torch.long)
    else:
        wanted = torch.full((rows,), space.length if maximal_length is None else maximal_length, device=device)
    if rows and int(wanted.min()) < 1:
        raise UserError(f"maximal_length must be at least 1, not {int(wanted.min())}.")
    return wanted.clamp(max=space.length)


@torch.no_grad()
@in_evaluation_mode
def greedy(
    model: Stepwise, context: Context | None = None, *, maximal_length: Limit = None
) -> tuple[Sequences, Float[Tensor, " rows"]]:
    """The sequence of locally likeliest tokens for each row of the context, and its log-probability under the model.

    What is still open in the last place allowed is ended there, at the model's own price; without an end token it
    is cut off there.
    """
    space, rows = model.space.after(context), context_rows(context)
    logits, state = model.start(rows, context)
    device = logits.device
    last = limits(maximal_length, space, rows, device) - 1
    tokens = torch.zeros(rows, int(last.max()) + 1 if rows else 0, dtype=torch.long, device=device)
    lengths = last + 1
    total = torch.zeros(rows, dtype=torch.float64, device=device)
    alive = torch.arange(rows, device=device)
    stepper = stepper_of(model, state)
    for place in range(tokens.shape[1]):
        token = logits.argmax(1)
        closing = last[alive] == place
        if space.end is not None:
            token = torch.where(closing, space.end, token)
        tokens[alive, place] = token
        total[alive] += (logits.gather(1, token[:, None]).squeeze(1) - logits.logsumexp(1)).double()
        over = closing if space.end is None else token == space.end
        if bool(over.any()):
            lengths[alive[over]] = place + 1
            going_on = (~over).nonzero().squeeze(1)
            alive, token = alive[going_on], token[going_on]
            if len(alive) == 0:
                break
            stepper.keep(going_on)
        if place + 1 < tokens.shape[1]:
            logits = stepper.step(token)
    return Sequences(tokens[:, : int(lengths.max()) if rows else 0], lengths), total
