"""One block of draws from a proposal that looks ahead, token by token, the rows that have ended left out.

How a proposal that looks ahead chooses the next token: q times what is ahead, and what learning has added.
"""

import math
from dataclasses import dataclass
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
from ebar.samplers.correction import Correction, Trace
from ebar.samplers.gaps import Outlook
from ebar.samplers.guided_states import JointStates
from ebar.samplers.surrogate import Tally
from ebar.types import Context, Sequences, Space, Stepwise


@dataclass(frozen=True, slots=True, eq=False)
class Steering:
    """g(v) ∝ q(v)·h(v)·exp c(v): h from an outlook, c from hidden states, where something is open."""

    states: JointStates
    correction: Correction | None = None
    open: Bool[Tensor, "places states"] | None = None  # where c counts

    def found(
        self, hidden: Float[Tensor, "rows length width"] | None, joint: Int[Tensor, "rows length"], place: int
    ) -> Float[Tensor, "rows length size_and_one"] | None:
        """What the correction makes of hidden vectors, the first of which stand before `place`; None without one."""
        if self.correction is None or hidden is None:
            return None
        places = torch.arange(place, place + joint.shape[1], device=joint.device)
        left = (1 - places / self.states.space.length).clamp(min=0).expand(joint.shape)
        found: Tensor = self.correction(hidden, left, self.states.accepted.T[joint])
        return found

    def correct(
        self, found: Float[Tensor, "rows length size_and_one"], tokens: Int[Tensor, "rows length"],
        joint: Int[Tensor, "rows length"], place: int,
    ) -> Float[Tensor, "rows length"]:  # fmt: skip
        """c of given tokens, the first of which stands in `place`; `joint`: the states that they lead to."""
        assert self.correction is not None
        assert self.open is not None
        read = torch.arange(place + 1, place + 1 + tokens.shape[1], device=tokens.device)
        matters = self.open[read.clamp(max=len(self.open) - 1), joint] & (tokens != self.states.space.end)
        return torch.where(matters, self.correction.of(found, tokens), 0.0)

    def guide(
        self, logits: Float[Tensor, "rows length vocabulary"], joint: Int[Tensor, "rows length"], place: int,
        outlook: Outlook, layout: Int[Tensor, " rows"], found: Float[Tensor, "rows length size_and_one"] | None = None,
    ) -> tuple[
        Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length"]
    ]:  # fmt: skip
        """log g and log q of the next token, and log N/h; `place` is the one that logits[:, 0] fills."""
        steered, log_probs = self.steer(logits, joint, place, outlook, layout)
        guided, log_step = normalised(self.corrected(steered, joint, place, found), log_probs)
        return guided, log_probs, log_step

    def steer(
        self, logits: Float[Tensor, "rows length vocabulary"], joint: Int[Tensor, "rows length"], place: int,
        outlook: Outlook, layout: Int[Tensor, " rows"],
    ) -> tuple[Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length vocabulary"]]:  # fmt: skip
        """log q·h relative to h here, so that a tiny h costs no digits in the model's own precision; and log q."""
        log_probs = torch.log_softmax(logits, -1)
        # A parallel pass over padding may look past the end of the space; nobody reads what it says there.
        last = outlook.here.shape[1] - 1
        places = torch.arange(place, place + joint.shape[1], device=joint.device).clamp(max=last)
        ahead = outlook.after[layout[:, None, None], places[:, None], self.states.successor[joint]]
        if self.states.end_class is not None:
            ahead[..., self.states.end_class] = outlook.final[joint]
        here = outlook.here[layout[:, None], places, joint]
        shift = torch.where(here == -math.inf, 0.0, here)[..., None]
        return log_probs + (ahead - shift).to(log_probs.dtype)[..., self.states.class_of], log_probs

    def corrected(
        self, steered: Float[Tensor, "rows length vocabulary"], joint: Int[Tensor, "rows length"], place: int,
        found: Float[Tensor, "rows length size_and_one"] | None,
    ) -> Float[Tensor, "rows length vocabulary"]:  # fmt: skip
        """log q·h·e^c, where something is open."""
        if found is None or self.correction is None or self.open is None:
            return steered
        read = torch.arange(place + 1, place + 1 + joint.shape[1], device=joint.device).clamp(max=len(self.open) - 1)
        matters = self.open[read[:, None], self.states.successor[joint]]
        if self.states.end_class is not None:
            matters[..., self.states.end_class] = False
        c = self.correction.all(found).to(steered.dtype)
        return steered + torch.where(matters[..., self.states.class_of], c, 0.0)


def normalised(
    steered: Float[Tensor, "rows length vocabulary"], log_probs: Float[Tensor, "rows length vocabulary"]
) -> tuple[Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length"]]:  # fmt: skip
    """A law of the next token and the log of what it summed to; q where nothing is left."""
    log_step = torch.logsumexp(steered, -1, keepdim=True)
    return torch.where(log_step == -math.inf, log_probs, steered - log_step), log_step.squeeze(-1)


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
    begun: Bool[Tensor, " rows"] | None,
    tally: Tally | None,
    trace: Trace | None,
    generator: Generator,
) -> tuple[Sequences, Float[Tensor, "laws rows"]]:
    """Draws, those marked plain from d, those marked begun from b and the others from g, with log g, q, d and b.

    `allowed` is what is ahead with every finite h replaced by 1, which is what d looks at; None where nothing is
    forbidden. b is g without its correction. Without a mark log d and log b are 0. Rows that have ended are no longer
    computed.
    """
    states = steering.states
    logits, hidden = split(given)
    length, end, rows, device = int(lengths.max()), states.space.end, len(logits), logits.device
    tokens = torch.zeros(rows, length, dtype=torch.long, device=device)
    found_laws = torch.zeros(4, rows, dtype=logits.dtype, device=device)
    alive = torch.arange(rows, device=device)
    for place in range(length):
        if tally is not None:
            tally.add(states, logits, joint, place)
        found = steering.found(None if hidden is None else hidden[:, None], joint[:, None], place)
        steered, log_probs = steering.steer(logits[:, None], joint[:, None], place, outlook, layout)
        guided, log_step = normalised(steering.corrected(steered, joint[:, None], place, found), log_probs)
        laws = [guided, log_probs, None, None]
        law = guided
        if plain is not None:
            free = log_probs
            if allowed is not None:
                free = steering.guide(logits[:, None], joint[:, None], place, allowed, layout)[0]
            law, laws[2] = torch.where(plain[alive][:, None, None], free, law), free
        if begun is not None:
            first = normalised(steered, log_probs)[0]
            law, laws[3] = torch.where(begun[alive][:, None, None], first, law), first
        token = draw_tokens(law[:, 0], generator)
        tokens[alive, place] = token
        for number, one in enumerate(laws):
            if one is not None:
                found_laws[number, alive] += one[:, 0].gather(1, token[:, None]).squeeze(1)
        if trace is not None:
            drawn = [one[:, 0].gather(1, token[:, None]).squeeze(1) for one in (log_probs, law)]
            log_n = log_step[:, 0] + outlook.here[layout, place, joint]
            trace.add(alive, hidden, joint, token, drawn[0] - drawn[1], log_n, place)
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
    return Sequences(tokens[:, :width], lengths), found_laws
