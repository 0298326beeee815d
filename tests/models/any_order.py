"""A small model of any order whose conditionals are arbitrary: enough to test all that goes by `Context.order`."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ebar.models.truncated import Truncatable
from ebar.types import Context, Sequences, Space, spread


class Seen(NamedTuple):
    sums: Tensor  # rows × places × vocabulary: what the tokens seen say of each place
    order: Tensor | None  # places of the tokens to come, from the next on
    place: Tensor

    def select(self, rows: Tensor) -> "Seen":
        return Seen(self.sums[rows], None if self.order is None else self.order[rows], self.place[rows])


class AnyOrderTable(Truncatable):
    """q(token at place | tokens seen) = softmax of tanh of a sum of random numbers, one for each token seen."""

    free_logits = True

    def __init__(self, vocabulary: int, length: int, places: int = 12, seed: int = 0):
        super().__init__()
        self.space = Space(vocabulary, length, any_order=True)
        generator = Generator().manual_seed(seed)
        shape = (places, vocabulary, places, vocabulary)
        self.influence = nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=generator))
        self.alone = nn.Parameter(torch.randn(places, vocabulary, dtype=torch.float64, generator=generator))

    def start(self, rows: int, context: Context | None = None) -> tuple[Tensor, Seen]:
        if context is None:
            empty = Sequences(torch.zeros(rows, 0, dtype=torch.long), torch.zeros(rows, dtype=torch.long))
            context = Context(empty)
        each = spread(context, rows)
        assert each is not None
        given, order = each.given, each.order
        inside = given.mask()
        places = torch.arange(given.tokens.shape[1]).expand_as(given.tokens)
        coming, place = None, given.lengths
        if order is not None:
            self.space.after(each)
            places = order[:, : given.tokens.shape[1]]
            wide = F.pad(order, (0, order.shape[1] + 1), value=-1)
            coming = wide.gather(1, given.lengths[:, None] + torch.arange(order.shape[1] + 1))
            place = coming[:, 0]
        told = self.influence[places.clamp(min=0), torch.where(inside, given.tokens, 0)]
        sums = self.alone + (told * inside[:, :, None, None]).sum(1)
        state = Seen(sums, coming, place)
        return self._at(state), state

    def advance(self, tokens: Tensor, state: Seen) -> tuple[Tensor, Seen]:
        found = []
        for token in tokens.unbind(1):
            sums = state.sums + self.influence[state.place.clamp(min=0), token]
            order = None if state.order is None else F.pad(state.order[:, 1:], (0, 1), value=-1)
            state = Seen(sums, order, state.place + 1 if order is None else order[:, 0])
            found.append(self._at(state))
        return torch.stack(found, 1), state

    def _at(self, state: Seen) -> Tensor:
        last = self.alone.shape[0] - 1
        return torch.tanh(state.sums[torch.arange(len(state.place)), state.place.clamp(0, last)])


def gaps(text: list[int | None], order: list[int] | None = None) -> Context:
    """One text in which None is to come: in the order of `order`, numbers of the gaps, or from left to right."""
    return rows_of_gaps([(text, order)])


def rows_of_gaps(rows: "list[tuple[list[int | None], list[int] | None]]") -> Context:
    """Several texts, each with its order."""
    given, orders = [], []
    for text, order in rows:
        free = [place for place, token in enumerate(text) if token is None]
        known = [place for place, token in enumerate(text) if token is not None]
        given.append([text[place] for place in known])
        orders.append(known + [free[number] for number in (range(len(free)) if order is None else order)])
    widest, longest = max(map(len, given)), max(map(len, orders))
    tokens = torch.tensor([row + [0] * (widest - len(row)) for row in given], dtype=torch.long).view(len(rows), widest)
    lengths = torch.tensor([len(row) for row in given])
    return Context(Sequences(tokens, lengths), torch.tensor([row + [-1] * (longest - len(row)) for row in orders]))
