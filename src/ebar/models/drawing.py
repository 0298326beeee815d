"""Drawing from a model token by token, from its beginning or from the middle of a sequence."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar import together
from ebar.backbones.backbone import Quick, Stepper
from ebar.modes import evaluation_mode
from ebar.types import Context, Sequences, Space, State, Stepwise

BLOCK = 2048  # rows computed at a time where there is no gradient: they fit in the cache
SMALL = 512  # a vocabulary drawn from in one piece
GROUP = 64  # tokens drawn from together in a larger one

Chooser = Callable[[Float[Tensor, "rows vocabulary"], Generator], Int[Tensor, " rows"]]


def draw_tokens(log_probs: Float[Tensor, "rows vocabulary"], generator: Generator) -> Int[Tensor, " rows"]:
    """One token per row."""
    u = torch.rand(len(log_probs), dtype=torch.float64, device=generator.device, generator=generator)
    return inverted(log_probs, u)


def inverted(log_probs: Float[Tensor, "rows vocabulary"], numbers: Float[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """The token of each row by inversion: the first whose cumulative probability exceeds u times the whole.

    In float64 a uniform u < 1 times the whole rounds to less than the whole, so there always is one,
    and it is never one of probability 0.
    """
    u = numbers[:, None].to(log_probs.device)
    if log_probs.shape[1] > SMALL:
        return _inverted_in_two(log_probs.detach(), u)
    cumulative = log_probs.to(torch.float64).exp().cumsum(1)
    return torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True).squeeze(1)


def _inverted_in_two(log_probs: Float[Tensor, "rows vocabulary"], u: Float[Tensor, "rows 1"]) -> Int[Tensor, " rows"]:
    """A group of tokens by inversion, then a token of the group by what is left of u.

    Only the groups are summed in float64: over a large vocabulary that costs more than the exponentials.
    """
    rows, vocabulary = log_probs.shape
    groups = -(-vocabulary // GROUP)
    probabilities = torch.empty(rows, groups * GROUP, dtype=log_probs.dtype, device=log_probs.device)
    torch.exp(log_probs, out=probabilities[:, :vocabulary])
    probabilities[:, vocabulary:] = 0
    grouped = probabilities.view(rows, groups, GROUP)
    weights = grouped.sum(2).to(torch.float64)
    cumulative = weights.cumsum(1)
    wanted = u * cumulative[:, -1:]
    group = torch.searchsorted(cumulative, wanted, right=True)
    weight = weights.gather(1, group)
    left = (wanted - (cumulative.gather(1, group) - weight)) / weight
    within = grouped[torch.arange(rows, device=group.device), group.squeeze(1)].to(torch.float64).cumsum(1)
    # Rounding may leave a hair more than the group or less than nothing; below 1 − 2⁻⁵³ there always is a token.
    place = torch.searchsorted(within, left.clamp(0, 1 - 2**-53) * within[:, -1:], right=True)
    return (group * GROUP + place).squeeze(1)


def drawn_at_once(model: Stepwise) -> int:
    """Rows that are drawn together: a block, or what fits in memory where the model says so."""
    return min(BLOCK, int(getattr(model, "rows_at_once", BLOCK)))


def draw_block(
    model: Stepwise,
    logits: Float[Tensor, "rows vocabulary"],
    state: State,
    *,
    stems: Int[Tensor, "rows read"] | None = None,
    space: Space | None = None,
    caps: Int[Tensor, " rows"] | None = None,
    generator: Generator,
    choose: Chooser = draw_tokens,
    numbers: Iterator[Float[Tensor, " rows"]] | None = None,
) -> tuple[Sequences, Float[Tensor, "rows length"]]:
    """Whole sequences from where the model stands, and the log-probabilities of what was drawn; 0 before that.

    `stems` are the tokens read so far, none by default; `space` is the model's after the context, the model's own by
    default. A row is cut off, without an end, where it has `caps` tokens. Rows that have ended are no longer computed.
    `numbers`, of all rows for each step, take the place of what is drawn by the generator.
    """
    stepper = stepper_of(model, state)
    space = model.space if space is None else space
    rows, device = len(logits), logits.device
    first = 0 if stems is None else stems.shape[1]
    lengths = torch.full((rows,), space.length, device=device)
    lengths = lengths if caps is None else torch.minimum(lengths, caps)
    width = int(lengths.max()) if rows else 0
    tokens = torch.zeros(rows, width, dtype=torch.long, device=device)
    if stems is not None:
        tokens[:, :first] = stems
    picked = torch.zeros(rows, width, dtype=logits.dtype, device=device)
    alive = torch.arange(rows if first < width else 0, device=device)
    logits, place = logits[: len(alive)], first
    while len(alive):
        log_probs = torch.log_softmax(logits, -1)
        if numbers is None:
            token = choose(log_probs, generator)
        else:
            token = inverted(log_probs, next(numbers)[alive.to(generator.device)])
        tokens[alive, place] = token
        picked[alive, place] = log_probs.gather(1, token[:, None]).squeeze(1)
        if space.end is not None:
            lengths[alive[token == space.end]] = place + 1
        going_on = lengths[alive] > place + 1
        if not bool(going_on.all()):
            kept = going_on.nonzero().squeeze(1)
            alive, token = alive[kept], token[kept]
            if len(alive) == 0:
                break
            stepper.keep(kept)
        logits = stepper.step(token)
        place += 1
    width = int(lengths.max()) if rows else 0
    return Sequences(tokens[:, :width], lengths), picked[:, :width]


def stepper_of(model: Any, state: State) -> Stepper:
    """The model's own stepper, or a backbone's, where it has one, else one that repeats `advance`."""
    return model.stepper(state) if isinstance(model, Quick) else Advances(model, state)


class Advances:
    """The stepper of a model that has no quicker one; of one that shows its hidden vectors too."""

    def __init__(self, model: Any, state: State):
        self.model, self.state = model, state

    def step(self, tokens: Int[Tensor, " rows"]) -> Any:
        logits, self.state = self.model.advance(tokens[:, None], self.state)
        return logits[:, 0]

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.state = self.state.select(rows)


class Placed(NamedTuple):
    """The state of what a model is made of, and how many tokens of the space have been read."""

    inner: Any
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "Placed":
        return Placed(self.inner.select(rows), self.place)


class PlacedSteps:
    """The stepper of what a model is made of, and what makes logits in a place of its output."""

    def __init__(self, inner: Stepper, place: int, logits: Callable[[Any, int], Any]):
        self.inner, self.place, self.logits = inner, place, logits

    @torch.no_grad()
    def step(self, tokens: Int[Tensor, " rows"]) -> Any:
        self.place += 1
        return self.logits(self.inner.step(tokens), self.place)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        self.inner.keep(rows)


@torch.no_grad()
def futures(
    model: Stepwise,
    stems: Int[Tensor, "stems place"],
    logits: Float[Tensor, "stems vocabulary"],
    state: State,
    n: int,
    *,
    space: Space | None = None,
    generator: Generator,
) -> Sequences:
    """n whole sequences for each stem, stem-major: the tokens read so far, then the model's own.

    `logits` and `state` are the model's after these tokens, so that neither they nor the context are read again. No
    stem may have ended. `space` is the model's after the context, by default the model's own. The model draws in its
    own mode: see `ebar.modes`.
    """
    rows = torch.arange(len(stems), device=logits.device).repeat_interleave(n)
    return Sequences.join(
        [
            draw_block(model, logits[some], state.select(some), stems=stems[some], space=space, generator=generator)[0]
            for some in torch.split(rows, drawn_at_once(model))
        ]
    )


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

    A row cut off has no end; up to there it is a draw like any other. Each row has random numbers of its own, so that
    other rows, of this part of a batch or of another, make no difference to it.
    """
    space, rows = model.space.after(context), len(caps)
    numbers = together.Uniform(rows, generator).of(slice(None))
    with evaluation_mode(model), together.whole_weights(model):
        logits, state = model.start(rows, context)
        if prefix is not None and prefix.shape[1] > 0:
            after, state = model.advance(prefix, state)
            logits, space = after[:, -1], replace(space, length=space.length - prefix.shape[1])
        return draw_block(model, logits, state, space=space, caps=caps, generator=generator, numbers=numbers)[0]
