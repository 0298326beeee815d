"""Laws of features."""

from collections.abc import Iterator

import torch
from torch import Generator
from torch.nn import functional as F

from ebar.features.feature import Feature, Followed
from ebar.maths.enumeration import all_sequences, has_at_most
from ebar.testing.laws import require, require_close
from ebar.types import Context, Sequences, Space

ENUMERABLE = 20_000
DRAWN = 2000


@torch.no_grad()
def check_feature(feature: Feature, space: Space, context: Context | None = None) -> None:
    """Finite, within its bounds, the same whatever the padding, each row by itself; and its automaton agrees with it.

    On every sequence of a small space, on 2,000 random ones of a large one.
    """
    x = all_sequences(space) if has_at_most(space, ENUMERABLE) else random_sequences(space, DRAWN)
    if context is not None:
        x = x.select(slice(len(x.lengths) - len(x.lengths) % context.rows))
    values = feature(x, context)
    require(values.shape == x.lengths.shape, "a feature gives one number for each sequence")
    require(values.isfinite().all(), "a feature is finite")
    require((values >= feature.low - 1e-6).all(), f"no value is below `low` = {feature.low}")
    require((values <= feature.high + 1e-6).all(), f"no value is above `high` = {feature.high}")
    for other in repadded(x, space):
        require_close(feature(other, context), values, "padding changes nothing")
    if context is None:
        order = torch.randperm(len(values), generator=Generator().manual_seed(1))
        require_close(feature(x.select(order)), values[order], "a row's value depends on no other row")
    if isinstance(feature, Followed):
        _check_automaton(feature, x, values.double(), space)


def _check_automaton(feature: Followed, x: Sequences, values: torch.Tensor, space: Space) -> None:
    """The automaton accepts, the end left out, where the feature is 1."""
    automaton = feature.automaton
    state = torch.full_like(x.lengths, automaton.start)
    read = x.lengths - int(space.end is not None)
    for place in range(x.tokens.shape[1]):
        inside = place < read
        following = automaton.step(state, torch.where(inside, x.tokens[:, place], 0))
        state = torch.where(inside, following, state)
    require_close(automaton.accepting[state].double(), values, "the automaton accepts exactly where the feature is 1")


def repadded(x: Sequences, space: Space) -> Iterator[Sequences]:
    """The same sequences with other tokens past their lengths, and more of them."""
    for token in sorted({0, 1 % space.vocabulary, space.vocabulary - 1}):
        filled = torch.where(x.mask(), x.tokens, token)
        yield Sequences(F.pad(filled, (0, 2), value=token), x.lengths)


def random_sequences(space: Space, n: int) -> Sequences:
    """Sequences of a space, all tokens equally likely, lengths as well where there is an end."""
    generator = Generator().manual_seed(2)
    if space.end is None:
        tokens = torch.randint(space.vocabulary, (n, space.length), generator=generator)
        return Sequences(tokens, torch.full((n,), space.length))
    tokens = torch.randint(space.vocabulary - 1, (n, space.length), generator=generator)
    tokens = tokens + (tokens >= space.end).long()
    lengths = torch.randint(1, space.length + 1, (n,), generator=generator)
    tokens[torch.arange(n), lengths - 1] = space.end
    return Sequences(tokens, lengths)
