"""How far predictions go along with the truth: Matthews', Pearson's and Spearman's correlation.

Intervals are made on Fisher's scale z = artanh r, where they are nearly symmetric, and never leave [−1, 1].
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.jackknife import half_width
from ebar.types import Estimate

NEARLY_ONE = 1 - 1e-12  # artanh of 1 is infinite


def matthews_correlation(
    predicted: Int[Tensor, " rows"], labels: Int[Tensor, " rows"], *, level: float = 0.95
) -> Estimate:
    """Matthews' correlation of classes (1975), of more than two as Gorodkin has it (2004).

    The interval is the jackknife's over rows. Where all predictions are right nothing varies between rows: there it
    reaches down to what z² further rows would give that are all wrong in the worst way, which for the accuracy
    is Wilson's. Where predictions or labels are of one class only the correlation is 0 by convention, with a warning.
    """
    _check(predicted, labels)
    if bool((labels < 0).any()):
        raise UserError("Some labels are not known (−1): predictions are scored on labelled data.")
    classes = int(torch.stack([predicted.max(), labels.max()]).max()) + 1
    cells = labels.long().cpu() * classes + predicted.long().cpu()
    counts = torch.bincount(cells, minlength=classes**2).double().view(classes, classes)
    rows = float(len(labels))
    if bool((counts.sum(0) == rows).any() | (counts.sum(1) == rows).any()):
        warning = "predictions or labels are of one class only: their correlation is 0 by convention"
        return Estimate(0.0, -1.0, 1.0, rows, warning, level)
    value = float(_of_counts(counts))
    if value == 1:
        return Estimate(1.0, _worst(counts, level), 1.0, rows, None, level)
    seen = counts.flatten().nonzero().flatten()
    without = counts.repeat(len(seen), 1, 1).flatten(1)
    without[torch.arange(len(seen)), seen] -= 1
    left_out = torch.zeros(classes**2, dtype=torch.float64)
    left_out[seen] = _of_counts(without.view(-1, classes, classes))
    return _on_fisher_scale(value, left_out[cells], level)


def _of_counts(counts: Float[Tensor, "*tables true predicted"]) -> Float[Tensor, "*tables"]:
    """(n·right − Σₖ tₖpₖ) / √((n² − Σp²)(n² − Σt²)); 0 where a side has one class."""
    total = counts.sum((-2, -1))
    right = counts.diagonal(dim1=-2, dim2=-1).sum(-1)
    truth, predicted = counts.sum(-1), counts.sum(-2)
    spread = (total.square() - predicted.square().sum(-1)) * (total.square() - truth.square().sum(-1))
    covariance = total * right - (truth * predicted).sum(-1)
    return torch.where(spread > 0, covariance / spread.clamp(min=1e-300).sqrt(), 0.0)


def _worst(counts: Float[Tensor, "classes classes"], level: float) -> float:
    from scipy.special import ndtri

    more = float(ndtri((1 + level) / 2)) ** 2
    places = (~torch.eye(len(counts), dtype=torch.bool)).flatten().nonzero().flatten()
    tables = counts.flatten().repeat(len(places), 1)
    tables[torch.arange(len(places)), places] += more
    return float(_of_counts(tables.view(-1, *counts.shape)).min())


def pearson_correlation(
    predicted: Float[Tensor, " rows"], labels: Float[Tensor, " rows"], *, level: float = 0.95
) -> Estimate:
    """Pearson's linear correlation; the interval is the jackknife's over rows, so numbers need not be normal.

    It is not defined, NaN with a warning, where the predictions or the labels are all equal.
    """
    _check(predicted, labels)
    x, y = _centred(predicted), _centred(labels)
    if x is None or y is None:
        return _undefined(len(labels), level)
    value = float((x * y).sum())
    rows = len(labels)
    # Sums without row i, by taking away its share: means move by x/(n − 1).
    factor = rows / (rows - 1)
    covariance = value - factor * x * y
    spreads = (1 - factor * x.square()).clamp(min=0) * (1 - factor * y.square()).clamp(min=0)
    left_out = torch.where(spreads > 0, covariance / spreads.clamp(min=1e-300).sqrt(), 0.0)
    return _on_fisher_scale(max(-1.0, min(1.0, value)), left_out, level)


def spearman_correlation(
    predicted: Float[Tensor, " rows"], labels: Float[Tensor, " rows"], *, level: float = 0.95
) -> Estimate:
    """Pearson's correlation of ranks, equal values sharing the mean of theirs.

    The interval is that of Bonett & Wright (2000): on Fisher's scale the variance is (1 + r²/2)/(n − 3).
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    _check(predicted, labels)
    ranks = [torch.as_tensor(rankdata(values.double().cpu().numpy())) for values in (predicted, labels)]
    x, y = (_centred(values) for values in ranks)
    if x is None or y is None:
        return _undefined(len(labels), level)
    value, rows = max(-1.0, min(1.0, float((x * y).sum()))), len(labels)
    width = math.inf
    if rows > 3:
        width = float(ndtri((1 + level) / 2)) * math.sqrt((1 + value**2 / 2) / (rows - 3))
    return _within(value, width, rows, level)


def _on_fisher_scale(value: float, left_out: Float[Tensor, " rows"], level: float) -> Estimate:
    moved = left_out.clamp(-NEARLY_ONE, NEARLY_ONE).atanh() - _fisher(value)
    return _within(value, float(half_width(moved, level)), len(left_out), level)


def _within(value: float, width: float, rows: int, level: float) -> Estimate:
    """A correlation and its interval, `width` to either side of it on Fisher's scale."""
    low, high = math.tanh(_fisher(value) - width), math.tanh(_fisher(value) + width)
    exact = "predictions and labels go along exactly, so their spread tells nothing of the interval"
    warning = exact if abs(value) >= NEARLY_ONE else None
    return Estimate(value, min(low, value), max(high, value), float(rows), warning, level)


def _fisher(value: float) -> float:
    return math.atanh(max(-NEARLY_ONE, min(NEARLY_ONE, value)))


def _centred(values: Float[Tensor, " rows"]) -> Float[Tensor, " rows"] | None:
    """Less their mean, and of length 1; None where they are all equal."""
    values = values.double().cpu()
    if not bool(values.isfinite().all()):
        raise UserError("Some numbers are not finite: a correlation needs finite predictions and labels.")
    if float(values.min()) == float(values.max()):
        return None
    values = (values - values.mean()) / (values.max() - values.min())
    length: Tensor = values.norm()
    return values / length


def _undefined(rows: int, level: float) -> Estimate:
    warning = "predictions or labels are all equal: their correlation is not defined"
    return Estimate(math.nan, -1.0, 1.0, float(rows), warning, level)


def _check(predicted: Tensor, labels: Tensor) -> None:
    if len(labels) < 2 or len(labels) != len(predicted):
        raise UserError(
            f"{len(predicted):,} predictions and {len(labels):,} labels have no correlation: give two pairs at least."
        )
