"""Look-ahead that learns: rounds of draws, a correction fitted to all of them, and the round that draws best.

A proposal is fixed before the draws that an estimate uses are made, so its weights are exact, whatever was learnt.
Rounds are compared on draws that no estimate uses.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Generator, Tensor

from ebar.bounds import Count, Share, check
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.maths.log_space import effective_sample_size
from ebar.models.hidden import shows_hidden
from ebar.models.tilted import Tilted, measured_energy
from ebar.samplers.correction import Correction, Examples, Regression, Trace
from ebar.samplers.guided import Guided
from ebar.types import Context, context_rows


class Round(NamedTuple):
    """What one round has shown of the proposal that it drew from."""

    effective: float  # samples per draw, on this round's draws
    seconds: float  # of drawing, and of learning from the draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How a look-ahead learns from its own draws."""

    rounds: Count = 4
    """Of drawing and fitting."""
    draws: Count = 1000
    """In each round; and half as many to compare the last fit with the rounds before."""
    defence: float = 0.1
    """The share of them that comes from the base."""
    foresight: Share = 0.3
    """How much of each next step is taken from what the proposal foresaw there, in what c is fitted to; the rest is
    what became of the text. 0: c is fitted without bias, and with far more variance."""
    regression: Regression = field(default_factory=Regression)

    def __post_init__(self) -> None:
        check(self)

    def learn(
        self, target: Tilted, proposal: Guided, context: Context | None = None, *, generator: Generator
    ) -> tuple[Guided, list[Round]]:  # fmt: skip
        """The best proposal of all rounds, the first of which is the given one, and what each round has shown."""
        if context is not None and context.order is not None:
            raise UserError("Learning to look ahead is for texts that go on from their beginning: learn in 0 rounds.")
        states, open = proposal.states, open_places(proposal, target)
        # Where automata follow only a part of the energy, what the first proposal foresees leaves out the rest.
        whole = isinstance(target.energy, Linear) and set(target.energy.features.features) <= set(states.features)
        per_row = max(2, -(-self.draws // context_rows(context)))
        pool: list[Examples] = []
        shown: list[Round] = []
        candidates = [proposal]
        for number in range(self.rounds + 1):
            began, trace = time.perf_counter(), None
            if number < self.rounds:
                trace = Trace(generator, foresight=self.foresight if number or whole else 0.0)
            size = per_row if number < self.rounds else max(2, per_row // 2)
            walk = candidates[-1].walk(
                size, context, defensive=round(self.defence * size), trace=trace, generator=generator
            )
            with torch.no_grad():
                log_tilt = -measured_energy(target.energy, walk.x, context).double()
            log_weights = walk.base_log_prob + log_tilt - walk.log_prob
            sizes = effective_sample_size(log_weights.double().view(context_rows(context), size))
            effective = float(sizes.mean()) / size
            if trace is not None:
                tilts = torch.split(log_tilt, [len(kept.x.lengths) for kept in trace.blocks])
                pool += [
                    kept.examples(states, proposal.log_ahead, open, tilt)
                    for kept, tilt in zip(trace.blocks, tilts, strict=True)
                ]
                correction = self._correction(proposal, trace.blocks[0].hidden.shape[1], generator)
                self.regression.fit(correction, Examples.join(pool), generator=generator)
                candidates.append(proposal.corrected(correction.requires_grad_(False), open))
            shown.append(Round(effective, time.perf_counter() - began))
        best = max(range(len(shown)), key=lambda number: shown[number].effective)
        return candidates[best], shown

    def restore(self, target: Tilted, proposal: Guided, weights: dict[str, Tensor]) -> Guided:
        """What was learnt from the same beginning, from its weights."""
        correction = self._correction(proposal, len(weights["mean"]), Generator(device=weights["mean"].device))
        correction.load_state_dict(weights)
        return proposal.corrected(correction.requires_grad_(False), open_places(proposal, target))

    def _correction(self, proposal: Guided, width: int, generator: Generator) -> Correction:
        return Correction(
            shows_hidden(proposal.base).output_vectors, width, len(proposal.states.features),
            units=self.regression.units, bound=self.regression.bound, generator=generator,
        ).eval()  # fmt: skip


def open_places(proposal: Guided, target: Tilted) -> Bool[Tensor, "places states"]:
    """Where what follows still matters: of an energy that is not linear, everywhere but after the last token."""
    if isinstance(target.energy, Linear):
        return proposal.states.open(target.energy)
    found = torch.ones_like(proposal.log_ahead, dtype=torch.bool)
    found[-1] = False
    return found
