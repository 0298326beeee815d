"""An n-gram model with back-off: next-token probabilities from counts, of any rank.

Interpolated Kneser–Ney (Kneser & Ney 1995) with the three discounts of Chen & Goodman 1999. With h the last k − 1
tokens and h′ the last k − 2,

    P_k(w|h) = (c_k(hw) − D)⁺ / c_k(h•) + γ_k(h)·P_{k−1}(w|h′),     γ_k(h) = Σ D·[c_k(hw) > 0] / c_k(h•),

D being the discount of the count it is taken from, and P₀ uniform. c_k counts occurrences for the longest n-grams, and
for shorter ones the different tokens that stand before them. After a context never seen, P_k is P_{k−1}.

A model with a parameter for every prefix: every quantity about it is known by enumeration.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.models.stepwise import belongs, check_order, only_end_in_last_place
from ebar.models.truncated import Truncatable
from ebar.types import Context, Sequences, Space, draws_per_context

ABSENT = -1  # in place of a token before the beginning, or of the number of an n-gram never seen


class _Level(NamedTuple):
    """The n-grams of one order, sorted by context and last token."""

    keys: Int[Tensor, " grams"]  # number of the context among the n-grams one shorter, times the vocabulary, plus token
    shares: Float[Tensor, " grams"]  # (c − D)⁺ / c(h•)
    offsets: Int[Tensor, " contexts_and_one"]  # where the n-grams of each context begin
    rest: Float[Tensor, " contexts"]  # γ(h)


class NGramState(NamedTuple):
    """The last tokens of each row, ABSENT before its beginning."""

    last: Int[Tensor, "rows reach"]

    def select(self, rows: Int[Tensor, " selected"]) -> "NGramState":
        return NGramState(self.last[rows])


class NGram(Truncatable):
    """Windows of text, each token by the `order` − 1 tokens before it in its window. Made by `NGram.fit`.

    Probabilities sum to 1 and are never 0. Nearer to the beginning of a window than its reach, a token is told by
    the shorter n-grams alone. It has no parameter that takes a gradient.
    """

    free_logits = False

    def __init__(self, space: Space, levels: list[_Level]):
        super().__init__()
        if space.end is not None:
            raise ValueError("an n-gram model is one of windows of text, whose sequences have no end")
        self.space, self.order = space, len(levels)
        for order, level in enumerate(levels, 1):
            for name, tensor in level._asdict().items():
                self.register_buffer(f"{name}_{order}", tensor)

    @classmethod
    def fit(
        cls, stream: Int[Tensor, " tokens"], space: Space, *, order: int = 5, discount: float | None = None
    ) -> "NGram":
        """From the counts in one long text. Without a `discount` between 0 and 1, each order's counts tell its own."""
        if not 1 <= order <= len(stream):
            raise UserError(
                f"A text of {len(stream):,} tokens has no {order}-grams: give a longer one, or ask for less."
            )
        if discount is not None and not 0 < discount < 1:
            raise UserError(f"The discount must lie between 0 and 1, not be {discount}.")
        if int(stream.min()) < 0 or int(stream.max()) >= space.vocabulary:
            raise UserError(f"The text has tokens outside the vocabulary of {space.vocabulary:,}.")
        return cls(space, _levels(stream.long(), space.vocabulary, order, discount))

    @property
    def entries(self) -> int:
        """How many n-grams of all orders it keeps: its size, as that of a network is its weights."""
        return sum(len(self._level(order).keys) for order in range(1, self.order + 1))

    def start(
        self, rows: int, context: Context | None = None
    ) -> tuple[Float[Tensor, "rows vocabulary"], NGramState]:  # fmt: skip
        reach, device = self.order - 1, self._level(1).keys.device
        last = torch.full((rows, reach), ABSENT, device=device)
        if context is not None:
            given = context.given.repeat(draws_per_context(rows, context))
            places = given.lengths[:, None] - reach + torch.arange(reach, device=device)
            inside = given.tokens.gather(1, places.clamp(min=0)) if given.tokens.shape[1] else last
            last = torch.where(places >= 0, inside, ABSENT)
        return self._dense(last), NGramState(last)

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: NGramState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], NGramState]:
        after = self._histories(tokens, state)[:, 1:]
        logs = self._dense(after.flatten(0, 1)).view(*tokens.shape, self.space.vocabulary)
        return logs, NGramState(after[:, -1] if tokens.shape[1] else state.last)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        check_order(self.space, context)
        total = self.token_log_probs(x, context).sum(1)
        return torch.where(belongs(x, self.space), total, -torch.inf)

    def token_log_probs(self, x: Sequences, context: Context | None = None) -> Float[Tensor, "batch length"]:
        """log p of each token given those before it, 0 on padding; the rest of the vocabulary is never looked at."""
        state = self.start(len(x.lengths), context)[1]
        # Padding may hold anything, a token outside the vocabulary included.
        safe = torch.where(x.mask(), x.tokens, 0)
        before = self._histories(safe, state)[:, :-1]
        found = torch.full(safe.shape, 1 / self.space.vocabulary, dtype=torch.float64, device=safe.device)
        for order in range(1, self.order + 1):
            level, context_number = self._level(order), self._number(before, order - 1)
            gram = _find(level.keys, context_number, safe, self.space.vocabulary)
            found = self._rest(level, context_number) * found + torch.where(gram >= 0, level.shares[gram], 0.0)
        return torch.where(x.mask(), found.log(), 0.0)

    def _dense(self, before: Int[Tensor, "rows reach"]) -> Float[Tensor, "rows vocabulary"]:
        """log P of the whole vocabulary after each history."""
        rows, vocabulary = len(before), self.space.vocabulary
        unigrams = self._level(1)
        start = torch.full((vocabulary,), float(unigrams.rest) / vocabulary, dtype=torch.float64, device=before.device)
        found = start.index_add_(0, unigrams.keys, unigrams.shares).repeat(rows, 1)
        for order in range(2, self.order + 1):
            level, context_number = self._level(order), self._number(before, order - 1)
            found *= self._rest(level, context_number)[:, None]
            begin, end = (level.offsets[context_number.clamp(min=0) + past] for past in (0, 1))
            sizes = torch.where(context_number >= 0, end - begin, 0)
            # The n-grams of all rows, one after another: row r's are sizes[r] of them from begin[r] on.
            row = torch.arange(rows, device=before.device).repeat_interleave(sizes)
            within = torch.arange(len(row), device=before.device) - (sizes.cumsum(0) - sizes)[row]
            grams = begin[row] + within
            found.view(-1).scatter_add_(0, row * vocabulary + level.keys[grams] % vocabulary, level.shares[grams])
        return found.log()

    def _level(self, order: int) -> _Level:
        return _Level(*(getattr(self, f"{name}_{order}") for name in _Level._fields))

    def _histories(
        self, tokens: Int[Tensor, "rows length"], state: NGramState
    ) -> Int[Tensor, "rows places reach"]:  # fmt: skip
        """The last tokens before each token, and after the last."""
        reach = self.order - 1
        places = torch.arange(tokens.shape[1] + 1, device=tokens.device)[:, None] + torch.arange(
            reach, device=tokens.device
        )
        return torch.cat([state.last, tokens], 1)[:, places]

    def _number(self, before: Int[Tensor, "*batch reach"], length: int) -> Int[Tensor, "*batch"]:
        """The number of the n-gram that the last `length` tokens are."""
        found = torch.zeros(before.shape[:-1], dtype=torch.long, device=before.device)
        for order in range(1, length + 1):
            token = before[..., before.shape[-1] - length + order - 1]
            found = _find(self._level(order).keys, found, token, self.space.vocabulary)
        return found

    def _rest(self, level: _Level, number: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return torch.where(number >= 0, level.rest[number], 1.0)


def _find(
    keys: Int[Tensor, " grams"], context: Int[Tensor, "*batch"], token: Int[Tensor, "*batch"], vocabulary: int
) -> Int[Tensor, "*batch"]:
    """The number of context and token together, ABSENT where they were never seen together."""
    wanted = torch.where((context >= 0) & (token >= 0), context * vocabulary + token, ABSENT)
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[place] == wanted, place, ABSENT)


def _levels(
    stream: Int[Tensor, " tokens"], vocabulary: int, order: int, discount: float | None
) -> list[_Level]:  # fmt: skip
    """Each n-gram's number is its place among the sorted ones, so that longer keys never outgrow 64 bits."""
    numbers = [torch.zeros_like(stream)]  # of the n-gram that begins in each place, for n = 0, 1, …
    keys, occurrences, first = [], [], []
    for length in range(1, order + 1):
        own = numbers[-1][: len(stream) - length + 1] * vocabulary + stream[length - 1 :]
        different, number, count = torch.unique(own, return_inverse=True, return_counts=True)
        place = torch.empty_like(different).scatter_(0, number, torch.arange(len(own), device=own.device))
        numbers.append(number)
        keys.append(different)
        occurrences.append(count)
        first.append(place)  # one place where each of them is
    found = []
    for length in range(1, order + 1):
        counts = occurrences[length - 1]
        if length < order:
            # What follows the first token of each longer n-gram: how many different tokens stand before.
            counts = torch.bincount(numbers[length][first[length] + 1], minlength=len(counts))
        contexts = 1 if length == 1 else len(keys[length - 2])
        found.append(_level(keys[length - 1], counts, contexts, vocabulary, discount))
    return found


def _level(
    keys: Int[Tensor, " grams"], counts: Int[Tensor, " grams"], contexts: int, vocabulary: int, discount: float | None
) -> _Level:  # fmt: skip
    context = keys // vocabulary
    taken = _discounts(counts, discount)[counts.clamp(max=3)]
    totals, removed = (
        torch.zeros(contexts, dtype=torch.float64, device=keys.device).scatter_add_(0, context, own.double())
        for own in (counts, taken)
    )
    shares = (counts - taken) / totals[context].clamp(min=1)
    rest = torch.where(totals > 0, removed / totals.clamp(min=1), 1.0)
    edges = torch.arange(contexts + 1, device=keys.device) * vocabulary
    return _Level(keys, shares, torch.searchsorted(keys, edges), rest)


def _discounts(counts: Int[Tensor, " grams"], discount: float | None) -> Float[Tensor, " 4"]:
    """What is taken from counts of 0, 1, 2, and 3 or more; one discount for all where the text is too small for three.

    With n_i the number of n-grams of count i, Y = n₁/(n₁ + 2n₂) and D_i = i − (i + 1)·Y·n_{i+1}/n_i.
    """
    device = counts.device
    if discount is None:
        n = [int((counts == count).sum()) for count in range(5)]
        one = n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5
        if all(n[1:]):
            several = [count - (count + 1) * one * n[count + 1] / n[count] for count in (1, 2, 3)]
            if all(0 < own < count for count, own in enumerate(several, 1)):
                return torch.tensor([0.0, *several], dtype=torch.float64, device=device)
        discount = one
    return torch.tensor([0.0, *[discount] * 3], dtype=torch.float64, device=device)


class TabularState(NamedTuple):
    """The prefix of each row, read as a number in base |vocabulary|."""

    condition: Int[Tensor, " rows"]
    prefix: Int[Tensor, " rows"]
    place: int

    def select(self, rows: Int[Tensor, " selected"]) -> "TabularState":
        return TabularState(self.condition[rows], self.prefix[rows], self.place)


class Tabular(Truncatable):
    """Any distribution on a small space: next-token logits for every prefix, in every one of a few conditions.

    The condition is the first token of the context; without a context it is condition 0.
    """

    free_logits = True

    def __init__(self, space: Space, logits: Float[Tensor, "conditions prefixes vocabulary"]):
        super().__init__()
        if space.completes:
            raise ValueError("the context of a tabular model is a condition, not the beginning of what it completes")
        expected = (number_of_prefixes(space), space.vocabulary)
        if tuple(logits.shape[1:]) != expected:
            raise ValueError(f"a table of {expected} logits per condition is needed, got {tuple(logits.shape[1:])}")
        self.space = space
        self.logits = nn.Parameter(logits)

    @classmethod
    def random(
        cls, space: Space, *, conditions: int = 1, scale: float = 1.0, dtype: torch.dtype = torch.float64,
        generator: Generator,
    ) -> "Tabular":  # fmt: skip
        """Independent normal logits."""
        shape = (conditions, number_of_prefixes(space), space.vocabulary)
        return cls(space, scale * torch.randn(shape, dtype=dtype, generator=generator))

    def start(self, rows: int, context: Context | None = None) -> tuple[Float[Tensor, "rows vocabulary"], TabularState]:
        if context is None:
            condition = torch.zeros(rows, dtype=torch.long, device=self.logits.device)
        else:
            condition = context.given.tokens[:, 0].repeat_interleave(rows // context.rows)
        state = TabularState(condition, torch.zeros_like(condition), 0)
        return self._at(state), state

    def advance(
        self, tokens: Int[Tensor, "rows length"], state: TabularState
    ) -> tuple[Float[Tensor, "rows length vocabulary"], TabularState]:
        seen = []
        for column in tokens.unbind(1):
            state = TabularState(state.condition, state.prefix * self.space.vocabulary + column, state.place + 1)
            seen.append(self._at(state))
        return torch.stack(seen, 1), state

    def _at(self, state: TabularState) -> Float[Tensor, "rows vocabulary"]:
        shorter = sum(self.space.vocabulary**place for place in range(state.place))
        logits = self.logits[state.condition, shorter + state.prefix]
        return only_end_in_last_place(logits[:, None], state.place, self.space)[:, 0]


def number_of_prefixes(space: Space) -> int:
    """Prefixes a next token can follow, the empty one included (those past an end token are never visited)."""
    return sum(space.vocabulary**place for place in range(space.length))
