"""How a proposal that looks ahead chooses the next token: q times what is ahead, and what learning has added."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.samplers.correction import Correction
from ebar.samplers.gaps import Outlook
from ebar.samplers.guided_states import JointStates


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
        self,
        logits: Float[Tensor, "rows length vocabulary"],
        joint: Int[Tensor, "rows length"],
        place: int,
        outlook: Outlook,
        layout: Int[Tensor, " rows"],
        found: Float[Tensor, "rows length size_and_one"] | None = None,
    ) -> tuple[
        Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length vocabulary"], Float[Tensor, "rows length"]
    ]:
        """log g and log q of the next token, and log N/h; `place` is the one that logits[:, 0] fills."""
        log_probs = torch.log_softmax(logits, -1)
        # A parallel pass over padding may look past the end of the space; nobody reads what it says there.
        last = outlook.here.shape[1] - 1
        places = torch.arange(place, place + joint.shape[1], device=joint.device).clamp(max=last)
        ahead = outlook.after[layout[:, None, None], places[:, None], self.states.successor[joint]]
        if self.states.end_class is not None:
            ahead[..., self.states.end_class] = outlook.final[joint]
        here = outlook.here[layout[:, None], places, joint]
        # Relative to h here, so that a tiny h costs no digits in the model's own precision.
        shift = torch.where(here == -math.inf, 0.0, here)[..., None]
        guided = log_probs + (ahead - shift).to(log_probs.dtype)[..., self.states.class_of]
        if found is not None and self.correction is not None and self.open is not None:
            matters = self.open[(places + 1)[:, None], self.states.successor[joint]]
            if self.states.end_class is not None:
                matters[..., self.states.end_class] = False
            c = self.correction.all(found).to(log_probs.dtype)
            guided = guided + torch.where(matters[..., self.states.class_of], c, 0.0)
        log_step = torch.logsumexp(guided, -1, keepdim=True)
        guided = torch.where(log_step == -math.inf, log_probs, guided - log_step)
        return guided, log_probs, log_step.squeeze(-1)
