"""One block of draws from a proposal that looks ahead, token by token, the rows that have ended left out."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.backbones.backbone import Stepper
from ebar.maths.randomness import default_generator
from ebar.models.drawing import draw_tokens
from ebar.models.hidden import split
from ebar.models.stepwise import sequence_log_prob
from ebar.modes import evaluation_mode
from ebar.samplers.gaps import Outlook
from ebar.samplers.kept_draws import Trace
from ebar.samplers.steering import Steering
from ebar.samplers.surrogate import Tally
from ebar.types import Context, Sequences, Space, Stepwise


class Walking:
    """A proposal that steers its base token by token: what follows from `start`, `advance` and `walk`."""

    free_logits = False
    base: Stepwise
    start: Any
    advance: Any
    walk: Any

    @property
    def space(self) -> Space:
        return self.base.space

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        with evaluation_mode(self.base):
            return sequence_log_prob(self, x, context)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        x: Sequences = self.walk(n, context, generator=generator or default_generator()).x
        return x


class Walk(NamedTuple):
    """Draws from a guided proposal, with all that a weight needs but the energy."""

    x: Sequences
    log_prob: Float[Tensor, " batch"]  # under the proposal, or its mixture with the defence
    base_log_prob: Float[Tensor, " batch"]


def walk_block(
    steering: Steering,
    given: Any,
    stepper: Stepper,
    joint: Int[Tensor, " rows"],
    layout: Int[Tensor, " rows"],
    lengths: Int[Tensor, " rows"],
    outlook: Outlook,
    allowed: Outlook | None,
    plain: Bool[Tensor, " rows"] | None,
    tally: Tally | None,
    trace: Trace | None,
    generator: Generator,
) -> tuple[Sequences, Float[Tensor, " rows"], Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """Draws, those marked plain from d and the others from g, with log g, log q and log d.

    `allowed` is what is ahead with every finite h replaced by 1, which is what d looks at; None where nothing is
    forbidden. Rows that have ended are no longer computed.
    """
    states = steering.states
    logits, hidden = split(given)
    length, end, rows, device = int(lengths.max()), states.space.end, len(logits), logits.device
    tokens = torch.zeros(rows, length, dtype=torch.long, device=device)
    log_prob, base_log_prob, log_defence = torch.zeros(3, rows, dtype=logits.dtype, device=device)
    alive = torch.arange(rows, device=device)
    for place in range(length):
        if tally is not None:
            tally.add(states, logits, joint, place)
        found = steering.found(None if hidden is None else hidden[:, None], joint[:, None], place)
        guided, log_probs, _ = steering.guide(logits[:, None], joint[:, None], place, outlook, layout, found)
        law = guided
        if plain is not None:
            free = log_probs
            if allowed is not None:
                free = steering.guide(logits[:, None], joint[:, None], place, allowed, layout)[0]
            law = torch.where(plain[alive][:, None, None], free, guided)
        token = draw_tokens(law[:, 0], generator)
        tokens[alive, place] = token
        log_prob[alive] += guided[:, 0].gather(1, token[:, None]).squeeze(1)
        base_log_prob[alive] += log_probs[:, 0].gather(1, token[:, None]).squeeze(1)
        if plain is not None:
            log_defence[alive] += free[:, 0].gather(1, token[:, None]).squeeze(1)
        if trace is not None:
            drawn = [one[:, 0].gather(1, token[:, None]).squeeze(1) for one in (log_probs, law)]
            trace.add(alive, hidden, joint, token, drawn[0] - drawn[1], place)
        if end is not None:
            lengths[alive[token == end]] = place + 1
        over = lengths[alive] == place + 1
        if bool(over.any()):
            onward = (~over).nonzero().squeeze(1)
            alive, token, joint, layout = alive[onward], token[onward], joint[onward], layout[onward]
            if len(alive) == 0:
                break
            stepper.keep(onward)
        joint = outlook.followed(states, joint, layout, states.class_of[token], place)
        logits, hidden = split(stepper.step(token))
    width = int(lengths.max()) if rows else 0
    if trace is not None:
        trace.finish(Sequences(tokens[:, :width], lengths))
    return Sequences(tokens[:, :width], lengths), log_prob, base_log_prob, log_defence
