"""How many directions next-token distributions vary in: the rank of the matrix log P(word | context).

A softmax of width d can reach rank d + 1 at most, and d + 2 with a bias, whatever the network before it (Yang et al.
2018, arXiv:1711.03953: the softmax bottleneck). Rounding makes any matrix of numbers full: singular values count only
above the error that is to be expected, and all is computed in float64, a float32 model in a copy.
"""

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.means import few
from ebar.maths.jackknife import half_width
from ebar.models.construction import Autoregressive
from ebar.models.pretrained import Pretrained
from ebar.modes import evaluation_mode
from ebar.progress import bar
from ebar.types import Context, Estimate, Sequences, Stepwise

ELEMENTS = 2**24  # numbers computed at a time: an eighth of a gigabyte
ROWS = 1024  # contexts read at a time
THRESHOLD = 1e-3  # of the largest singular value


def spaced_contexts(stream: Int[Tensor, " tokens"], number: int, length: int) -> Sequences:
    """So many windows of a text, at equal distances: contexts that all models of a comparison can share."""
    if number < 1 or length < 1 or len(stream) < number + length - 1:
        raise UserError(f"A text of {len(stream):,} tokens has no {number:,} contexts of {length}: ask for fewer.")
    begins = torch.linspace(0, len(stream) - length, number, dtype=torch.float64).round().long()
    places = begins[:, None] + torch.arange(length)
    return Sequences(stream[places.to(stream.device)], torch.full((number,), length, device=stream.device))


@torch.no_grad()
def log_probability_matrix(
    model: Stepwise, contexts: Sequences, words: Int[Tensor, " words"] | None = None
) -> Float[Tensor, "contexts words"]:
    """log P(word | context) in float64, for some words or for the whole vocabulary; normalised over all of it.

    Contexts are the beginnings of sequences of the model, of one token or more. Logits are computed for a few contexts
    at a time, and only after the last token where the model is a backbone and a head.
    """
    columns = slice(None) if words is None else words.to(device_of(model))
    return torch.cat([rows[:, columns].cpu() for rows in _rows(model, contexts)])


def _rows(model: Stepwise, contexts: Sequences) -> Iterator[Float[Tensor, "some vocabulary"]]:
    """log P of the whole vocabulary, a few contexts at a time."""
    total = len(contexts.lengths)
    if total == 0 or int(contexts.lengths.min()) < 1:
        raise UserError("There must be one context or more, and in each one token or more.")
    longest, length = int(contexts.lengths.max()), model.space.length
    if longest >= length and not isinstance(model, Pretrained):
        raise UserError(
            f"Contexts of {longest} tokens leave none to come of a sequence of {length}: give shorter ones."
        )
    exact, device = _in_double(model), device_of(model)
    # All places have logits where only the model itself can be asked.
    places = 1 if isinstance(model, Autoregressive | Pretrained) else longest
    size = max(1, min(ROWS, ELEMENTS // (places * model.space.vocabulary)))
    with evaluation_mode(exact), bar("log-probabilities", total, "contexts") as progress:
        for start in range(0, total, size):
            some = contexts.select(slice(start, start + size))
            some = Sequences(some.tokens[:, :longest].to(device), some.lengths.to(device))
            yield torch.log_softmax(_next_logits(exact, some).double(), -1)
            progress.advance(len(some.lengths))


def _in_double(model: Stepwise) -> Stepwise:
    """The model, or a copy of it, in float64: rounding of float32 logits alone would give a matrix full rank."""
    weights = [] if not isinstance(model, nn.Module) else [*model.parameters(), *model.buffers()]
    if all(weight.dtype == torch.float64 or not weight.is_floating_point() for weight in weights):
        return model
    twin: Stepwise = copy.deepcopy(model).double()  # type: ignore[attr-defined]
    return twin


def _next_logits(model: Stepwise, contexts: Sequences) -> Float[Tensor, "rows vocabulary"]:
    """Logits of what follows each context."""
    rows = len(contexts.lengths)
    if isinstance(model, Pretrained):
        return model.start(rows, Context(contexts))[0]
    # Padding may hold anything, a token outside the vocabulary included.
    tokens = torch.where(contexts.mask(), contexts.tokens, 0)
    reads = model.backbone if isinstance(model, Autoregressive) else model
    outputs = reads.advance(tokens, reads.start(rows)[1])[0]
    last = outputs[torch.arange(rows, device=outputs.device), contexts.lengths - 1]
    return model.head(last) if isinstance(model, Autoregressive) else last


class Spectrum(NamedTuple):
    """The singular values of a matrix, the largest first, and what follows from them."""

    values: Float[Tensor, " smaller"]
    rows: int
    columns: int

    @property
    def tolerance(self) -> float:
        """½·√(m + n + 1)·σ₁·ε, the rounding error to be expected of a singular value (Press et al. 2007, §2.6)."""
        epsilon = torch.finfo(self.values.dtype).eps
        return 0.5 * math.sqrt(self.rows + self.columns + 1) * float(self.values[0]) * epsilon

    @property
    def rank(self) -> int:
        """How many are above the tolerance."""
        return int((self.values > self.tolerance).sum())

    def above(self, threshold: float = THRESHOLD) -> int:
        """How many are above this share of the largest: unlike the rank, nothing that rounding could change."""
        return int((self.values > threshold * self.values[0]).sum())

    def share_below(self, thresholds: Float[Tensor, " thresholds"]) -> Float[Tensor, " thresholds"]:
        """The share of singular values, in units of the largest, at or below each threshold: Figure A.1 of Dai 2019."""
        rising = (self.values / self.values[0]).flip(0).contiguous()
        return torch.searchsorted(rising, thresholds.to(rising), right=True) / len(rising)


def singular_values(matrix: Float[Tensor, "rows columns"]) -> Spectrum:
    """In float64. Exact for this matrix: another choice of contexts and words has another."""
    if not bool(matrix.isfinite().all()):
        raise UserError("The matrix has entries that are not finite: leave out words that the model gives no chance.")
    return Spectrum(torch.linalg.svdvals(matrix.double()), *matrix.shape)


class NumericalRank(NamedTuple):
    """How many singular values are above the tolerance."""

    rank: int
    tolerance: float


def numerical_rank(matrix: Float[Tensor, "rows columns"]) -> NumericalRank:
    """The rank, as far as float64 can tell."""
    found = singular_values(matrix)
    return NumericalRank(found.rank, found.tolerance)


@torch.no_grad()
def pairwise_divergence(model: Stepwise, contexts: Sequences, *, level: float = 0.95) -> Estimate:
    """E KL(P(·|c) ‖ P(·|c′)) over pairs of different contexts, in nats: how unlike a model's predictions are.

    All n(n − 1) pairs count, which takes no more than two passes over n contexts: Σⱼ KL(i‖j) needs only Σⱼ log Pⱼ, and
    Σᵢ KL(i‖j) only Σᵢ Pᵢ. It is a U-statistic: pairs share contexts, so the interval leaves out one context at a time,
    with all its pairs. Table A.11 of Dai 2019.
    """
    n = len(contexts.lengths)
    if n < 3:
        raise UserError(f"{n} contexts are too few for pairs with an interval: give three or more.")
    mass = torch.zeros(model.space.vocabulary, dtype=torch.float64, device=device_of(model))
    logs, entropies = torch.zeros_like(mass), []
    for rows in _rows(model, contexts):
        mass, logs = mass + rows.exp().sum(0), logs + rows.sum(0)
        entropies.append(-_expected(rows.exp(), rows))
    entropy = torch.cat(entropies)
    sums: list[Tensor] = []  # of the divergences from each context, and to it; from itself the divergence is 0
    for rows, own in zip(_rows(model, contexts), entropies, strict=True):
        sums.append(-n * own - _expected(rows.exp(), logs) - entropy.sum() - _expected(mass, rows))
    pairs = torch.cat(sums).cpu()
    total = pairs.sum() / 2
    value = float(total) / (n * (n - 1))
    if not math.isfinite(value):
        return Estimate(value, value, value, float(n), "a word has no chance after some context and one after another")
    width = float(half_width((total - pairs) / ((n - 1) * (n - 2)) - value, level))
    return Estimate(value, max(0.0, value - width), value + width, float(n), few(n, "contexts"), level)


def _expected(probabilities: Tensor, logs: Tensor) -> Float[Tensor, " rows"]:
    """Σ p·log q, where 0·(−∞) is 0."""
    return torch.where(probabilities > 0, probabilities * logs, 0.0).sum(-1)
