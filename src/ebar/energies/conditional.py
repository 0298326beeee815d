"""The energy of a conditional GAM, E(x, C) = −λ(C)·φ(x, C), and networks that make λ of the context."""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Features
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences, draws_per_context


@runtime_checkable
class Network(Protocol):
    """η₂ of equation 2: a row of λ for each row of the context."""

    def __call__(self, context: Context) -> Float[Tensor, "rows features"]: ...


class ConditionalLinear(nn.Module):
    """E(x, C) = −Σᵢ λᵢ(C)·φᵢ(x, C), with a positive λ making its feature likelier.

    It is equation 2 of Parshakova et al. 2019 with our sign. Equation 3 as printed is the gradient in λ; in the
    network's parameters it is (∂λ/∂η)ᵀ(φ − E_p φ), which is what autograd makes of this energy.
    λᵢ(C) = −∞ forbids, as in `Linear`, but only `TabularCoefficients` can contain it.
    """

    any_order = True  # features are about the arranged text

    def __init__(self, features: Features, network: Network):
        super().__init__()
        self.features = features
        self.network = network

    def coefficients(self, context: Context | None) -> Float[Tensor, "rows features"]:
        """λ(C) for each row of the context."""
        if context is None:
            raise UserError("This energy is conditional and there is no context: give one.")
        different, which = distinct_contexts(context)  # a batch repeats its contexts, and the network need not
        wanted = (different.rows, len(self.features))
        values = of_shape(self.network(different), wanted, "The coefficients, a row for each context,")
        if bool((values.isnan() | (values == math.inf)).any()):
            row = int((values.isnan() | (values == math.inf)).any(1).nonzero()[0])
            raise UserError(f"A coefficient for the context {different.given.prefix(row)} is not a number or −inf.")
        return values[which]

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        coefficients = self.coefficients(context)
        values = self.features(x, context).to(coefficients.dtype)
        each = coefficients.repeat_interleave(draws_per_context(len(x.lengths), context), 0)
        # 0·(−∞) is 0 here: a feature that is absent costs nothing, whatever its coefficient.
        return -torch.where(values == 0, 0.0, values * each).sum(1)

    def at(self, context: Context) -> Linear:
        """The plain linear energy of one context: what look-ahead, rejection and Newton's method work with.

        Draw with `Tilted(base, energy.at(C))` and `context=C`: base and features still see the context.
        """
        if context.rows != 1:
            raise ValueError(f"one context is asked for at a time, not {context.rows}: select a row")
        with torch.no_grad(), evaluation_mode(self.network):
            return Linear(self.features, self.coefficients(context)[0].clone())

    def log_bound(self, context: Context | None = None) -> float:
        """The largest over the rows of the context of the bound of −E that the features' ranges allow.

        Over all contexts there is none for a network: `Rejection(log_bound=energy.log_bound(context))`.
        """
        if context is None:
            raise UserError(
                "The bound of a conditional energy depends on the context: give rejection "
                "log_bound=energy.log_bound(context), or draw for one context from energy.at(context)."
            )
        rows = (torch.tensor([row]) for row in range(context.rows))
        return max(self.at(context.select(row)).log_bound() for row in rows)


class Distinct(NamedTuple):
    """The different rows of a context, and which of them each row was."""

    context: Context
    which: Int[Tensor, " rows"]


def distinct_contexts(context: Context) -> Distinct:
    """Equal rows of a context, once: what depends on the context alone is computed once for each."""
    first: dict[object, int] = {}
    rows: list[int] = []
    which = []
    orders = [None] * context.rows if context.order is None else [tuple(order) for order in context.order.tolist()]
    for row, key in enumerate(zip(map(tuple, context.given.rows()), orders, strict=True)):
        if key not in first:
            first[key] = len(rows)
            rows.append(row)
        which.append(first[key])
    device = context.given.lengths.device
    return Distinct(context.select(torch.tensor(rows, device=device)), torch.tensor(which, device=device))


class ConstantCoefficients(nn.Module):
    """The same λ whatever the context, 0 at first: an unconditional tilt of a conditional base, to compare with."""

    def __init__(self, features: int):
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(features))

    def forward(self, context: Context) -> Float[Tensor, "rows features"]:
        return self.coefficients.expand(context.rows, -1)


class TabularCoefficients(nn.Module):
    """One λ for each of a few contexts, known by their tokens; another context is an error."""

    def __init__(self, context: Context, coefficients: Float[Tensor, "rows features"]):
        super().__init__()
        if context.rows != len(coefficients):
            raise ValueError(f"{context.rows} contexts need as many rows of coefficients, got {len(coefficients)}")
        self.places = {word: row for row, word in enumerate(map(tuple, context.given.rows()))}
        if len(self.places) != context.rows:
            raise ValueError("two rows of the context are the same: each context has one row of coefficients")
        self.coefficients = nn.Parameter(coefficients)

    def forward(self, context: Context) -> Float[Tensor, "rows features"]:
        words = [tuple(row) for row in context.given.rows()]
        for word in words:
            if word not in self.places:
                raise UserError(f"The table of coefficients has no row for the context {list(word)}: add one.")
        return self.coefficients[torch.tensor([self.places[word] for word in words], device=self.coefficients.device)]


class MeanPool(nn.Module):
    """λ from the mean of the context's token embeddings: which tokens there are, not in what order.

    A beginning mark is counted in, so that an empty context has a mean. λ = 0 at first, so that training sets out
    from the base.
    """

    def __init__(self, vocabulary: int, features: int, *, embedding: int = 16, hidden: int = 32):
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary + 1, embedding)  # the last is the beginning
        self.out = _head(embedding, hidden, features)

    def forward(self, context: Context) -> Float[Tensor, "rows features"]:
        given = _begun(context.given, self.vocabulary)
        embedded = self.embedding(given.tokens) * given.mask()[:, :, None]
        return self.out(embedded.sum(1) / given.lengths[:, None])  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """λ from the last state of an LSTM that reads the context; 0 at first."""

    def __init__(self, vocabulary: int, features: int, *, embedding: int = 16, hidden: int = 32):
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary + 1, embedding)  # the last is the beginning
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.out = _head(hidden, hidden, features)

    def forward(self, context: Context) -> Float[Tensor, "rows features"]:
        given = _begun(context.given, self.vocabulary)
        embedded = self.embedding(given.tokens)
        # Packed, each row stops where its own context does.
        packed = pack_padded_sequence(embedded, given.lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (state, _) = self.lstm(packed)
        return self.out(state[-1])  # type: ignore[no-any-return]


NETWORKS = {
    "constant": ConstantCoefficients,
    "table": TabularCoefficients,
    "mean_pool": MeanPool,
    "recurrent": Recurrent,
}


def _head(width: int, hidden: int, features: int) -> nn.Sequential:
    last = nn.Linear(hidden, features)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), last)


def _begun(given: Sequences, beginning: int) -> Sequences:
    """With a beginning mark before the first token; padding, which may hold anything, is that mark too."""
    tokens = torch.where(given.mask(), given.tokens, beginning)
    return Sequences(nn.functional.pad(tokens, (1, 0), value=beginning), given.lengths + 1)
