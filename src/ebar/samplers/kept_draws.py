"""Draws of a proposal with what the base thought on the way, kept to learn from: in this round and in later ones."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.samplers.correction import Examples
from ebar.samplers.guided_states import JointStates
from ebar.types import Sequences

LARGEST = 2**28  # bytes of hidden vectors that one round keeps: beyond, places are left out at random


class Kept(NamedTuple):
    """Places of texts that one proposal drew. What depends on the energy is not among them: it may move."""

    x: Sequences
    text: Int[Tensor, " places"]  # the row of x
    place: Int[Tensor, " places"]
    hidden: Float[Tensor, "places width"]  # before the token was chosen
    joint: Int[Tensor, " places"]  # where the automata stood then
    token: Int[Tensor, " places"]
    log_rest: Float[Tensor, " places"]  # Σ log q − log g of the tokens after this one, g being what drew them

    def examples(
        self, states: JointStates, log_ahead: Float[Tensor, "places states"], open: Bool[Tensor, "places states"],
        log_weight: Float[Tensor, " texts"],
    ) -> Examples:  # fmt: skip
        """What became of each place where something was open, beside what h foresaw; `log_weight`: −E of the texts.

        r = e^−E(x)·Π q/g over the tokens to come, divided by h. Its mean, given all up to this token, is
        E_q[e^−E]/h, whichever proposal drew the rest.
        """
        after = states.successor[self.joint, states.class_of[self.token]]
        matters = open[self.place + 1, after]
        if states.space.end is not None:
            matters = matters & (self.token != states.space.end)
        chosen = matters.nonzero()[:, 0]
        log_h = log_ahead[self.place + 1, after][chosen]
        # Where h is 0 nothing that follows is allowed, and the weight is 0 too.
        log_ratio = torch.where(log_h.isneginf(), -torch.inf, (log_weight[self.text] + self.log_rest)[chosen] - log_h)
        return Examples(
            self.hidden[chosen],
            1 - self.place[chosen] / states.space.length,
            states.accepted.T[self.joint[chosen]],
            self.token[chosen],
            log_ratio,
            self.text[chosen],
        )


class Trace:
    """Records a walk, block by block."""

    def __init__(self, generator: Generator):
        self.generator = generator
        self.blocks: list[Kept] = []
        self._places: list[tuple[Tensor, ...]] = []

    def add(
        self, alive: Int[Tensor, " rows"], hidden: Float[Tensor, "rows width"] | None, joint: Int[Tensor, " rows"],
        token: Int[Tensor, " rows"], log_ratio: Float[Tensor, " rows"], place: int,
    ) -> None:  # fmt: skip
        """One place of the rows that have not ended; `log_ratio` is log q − log g of the token drawn."""
        assert hidden is not None
        self._places.append((alive, torch.full_like(alive, place), hidden, joint, token, log_ratio.double()))

    def finish(self, x: Sequences) -> None:
        """The block is drawn."""
        text, place, hidden, joint, token, log_ratio = (torch.cat(part) for part in zip(*self._places, strict=True))
        self._places = []
        grid = torch.zeros(x.tokens.shape, dtype=torch.float64, device=token.device)
        grid[text, place] = log_ratio
        rest = (grid.flip(1).cumsum(1).flip(1) - grid)[text, place]
        kept = Kept(x, text, place, hidden, joint, token, rest)
        most = max(1, LARGEST // (4 * hidden.shape[1]))
        if len(text) > most:
            order = torch.randperm(len(text), generator=self.generator, device=self.generator.device)
            some = order[:most].sort().values.to(text.device)
            kept = Kept(x, *(part[some] for part in kept[1:]))
        self.blocks.append(kept)
