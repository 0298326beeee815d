"""Gaps in a text that are filled from left to right, for proposals that look ahead.

The given tokens before the first gap, between gaps and after the last one move the automata as those to come do. Where
they stand is a row's layout; rows of the same layout have the same future, and share its tables.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.orders import arranged, left_to_right, places_to_come
from ebar.samplers.guided_states import JointStates
from ebar.samplers.surrogate import Law, log_following
from ebar.types import Context, Sequences

Layout = tuple[tuple[int, ...], ...]  # the classes of the given tokens after each token to come


class Outlook(NamedTuple):
    """log h in every layout of some rows. Without gaps there is one layout, and nothing is given on the way."""

    here: Float[Tensor, "layouts places states"]  # before the token of a place is drawn
    after: Float[Tensor, "layouts places states"]  # once it is, before the given tokens that follow it are read
    final: Float[Tensor, " states"]  # of a sequence that its end token has ended
    between: Int[Tensor, "layouts places given"] | None = None  # classes of these given tokens; −1 for none

    def followed(
        self, states: JointStates, joint: Int[Tensor, " rows"], layout: Int[Tensor, " rows"],
        classes: Int[Tensor, " rows"], place: int,
    ) -> Int[Tensor, " rows"]:  # fmt: skip
        """The joint state after a token of these classes in a place, and after the given tokens that follow it."""
        joint = states.successor[joint, classes]
        if self.between is not None and place < self.between.shape[1]:
            joint = _read(states, joint, self.between[layout, place])
        return joint

    def allowed(self) -> "Outlook | None":
        """h with every finite value replaced by 1; None where nothing is forbidden, so that all of it would be 1."""
        flat = without_forbidden(self.here, self.after, self.final)
        return None if flat is None else Outlook(flat[0], flat[1], flat[2], self.between)


def without_forbidden(*tables: Tensor) -> list[Tensor] | None:
    """0 in place of all numbers but −∞, which says what is forbidden; None where nothing is."""
    forbidden = [table == -math.inf for table in tables]
    if not any(bool(where.any()) for where in forbidden):
        return None
    return [torch.zeros_like(where, dtype=torch.float64).masked_fill(where, -math.inf) for where in forbidden]


class Gaps(NamedTuple):
    """The rows of a context: where the automata stand before the first token to come, and what comes after it."""

    start: Int[Tensor, " rows"]
    layout: Int[Tensor, " rows"]  # which of the layouts
    layouts: list[Layout]


def gaps_of(states: JointStates, context: Context) -> Gaps:
    """The gaps of a context with an order; one that does not fill them from left to right is refused."""
    assert context.order is not None
    ordered = left_to_right(context)
    if not bool(ordered.all()):
        row = int((~ordered).nonzero()[0])
        raise UserError(
            f"Looking ahead follows the text from left to right, and row {row} of the order fills its gaps otherwise: "
            "fill them from left to right, or use importance, smc or metropolis."
        )
    device, coming = context.order.device, context.coming
    assert coming is not None
    blank = Sequences(torch.zeros(context.rows, int(coming.max()), dtype=torch.long, device=device), coming)
    text = arranged(blank, context)
    comes = places_to_come(context, text.tokens.shape[1]).tolist()
    known: dict[Layout, int] = {}
    layout: list[int] = []
    before: list[list[int]] = []
    for tokens, new in zip(text.rows(), comes, strict=True):
        classes = states.class_of[torch.tensor(tokens, device=states.class_of.device)].tolist()
        runs: list[list[int]] = [[]]
        for kind, is_new in zip(classes, new, strict=False):
            runs.append([]) if is_new else runs[-1].append(kind)
        before.append(runs[0])
        layout.append(known.setdefault(tuple(map(tuple, runs[1:])), len(known)))
    start = torch.zeros(context.rows, dtype=torch.long, device=states.recent.device)
    start = _read(states, start, _padded(before).to(start.device))
    return Gaps(start, torch.tensor(layout, device=start.device), list(known))


def foreseen(states: JointStates, scores: Float[Tensor, " states"], law: Law | None, layouts: list[Layout]) -> Outlook:
    """What a surrogate's law foresees in each layout; without a law nothing is preferred, h = 1 everywhere.

    hₜ(s) = Σ_c u(c|s)·kₜ(δ(s, c)) before the token of a place is drawn, and kₜ(s) = hₜ₊₁(δ(s, given)) after it: the
    given tokens that follow it are read first. After the last of them k is exp score.
    """
    places = max(len(layout) for layout in layouts)
    here = torch.zeros(len(layouts), places, len(states.recent), dtype=torch.float64, device=states.recent.device)
    after = here.clone()
    if law is not None:
        log_next = log_following(states, law)
        for number, layout in enumerate(layouts):
            value = scores
            for place in reversed(range(len(layout))):
                for kind in reversed(layout[place]):
                    value = value[states.successor[:, kind]]
                after[number, place] = value
                value = torch.logsumexp(log_next + value[states.successor], 1)
                here[number, place] = value
    # Where the automata stand after the last token to come is never asked: what is given there is in the tables.
    inner = [[[*run] for run in layout[:-1]] + [[]] * (places - len(layout) + 1) for layout in layouts]
    widest = max((len(run) for layout in inner for run in layout), default=0)
    between = torch.stack([_padded(layout, widest) for layout in inner]).to(here.device)
    return Outlook(here, after, torch.zeros_like(scores) if law is None else scores, between)


def _read(
    states: JointStates, joint: Int[Tensor, " rows"], classes: Int[Tensor, "rows given"]
) -> Int[Tensor, " rows"]:  # fmt: skip
    for column in classes.unbind(1):
        joint = torch.where(column >= 0, states.successor[joint, column.clamp(min=0)], joint)
    return joint


def _padded(runs: list[list[int]], width: int | None = None) -> Int[Tensor, "rows given"]:
    widest = max((len(run) for run in runs), default=0) if width is None else width
    return torch.tensor([run + [-1] * (widest - len(run)) for run in runs], dtype=torch.long).view(len(runs), widest)
