"""How well documents are ranked for their queries: NDCG and expected reciprocal rank of the first k.

Grades are whole numbers or not, 0 and below being irrelevant. Documents of equal score are ranked worst first, so that
no order of the file can help. A query without any relevant document counts as 0. Intervals are over queries, the
jackknife's.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.means import plain_mean
from ebar.types import Estimate

Documents = Float[Tensor, " documents"]
Ranked = Float[Tensor, " ranked"]  # the grades of one query's documents, from the first to the last


def ndcg(
    scores: Documents, grades: Documents, group: Int[Tensor, " documents"], *, k: int = 20, level: float = 0.95
) -> Estimate:
    """The mean over queries of DCG@k over its greatest value, DCG@k = Σ_{r ≤ k} (2^g_r − 1) / log₂(1 + r).

    The best order is of all documents of the query that are given. Burges et al. 2005; Järvelin & Kekäläinen 2002.
    """

    def of_query(ranked: Ranked) -> float:
        ideal = _dcg(ranked.sort(descending=True).values, k)
        return _dcg(ranked, k) / ideal if ideal > 0 else 0.0

    values = [of_query(ranked) for ranked in _ranked(scores, grades, group, k)]
    return plain_mean(values, low=0.0, high=1.0, name=f"NDCG@{k}", level=level)


def expected_reciprocal_rank(
    scores: Documents, grades: Documents, group: Int[Tensor, " documents"], *, k: int = 20,
    greatest: int | float | None = None, level: float = 0.95,
) -> Estimate:  # fmt: skip
    """The mean over queries of ERR@k = Σ_{r ≤ k} R_r/r · Π_{i < r} (1 − R_i), R = (2^g − 1)/2^greatest.

    A reader goes down the list and stops at a document with chance R. `greatest` is the highest grade there can be, by
    default the highest there is. Chapelle et al. 2009.
    """
    highest = float(grades.max().clamp(min=0)) if greatest is None and len(grades) else float(greatest or 0)
    if len(grades) and float(grades.max()) > highest:
        raise UserError(f"There is a grade of {float(grades.max()):g}, above the greatest, {highest:g}: give that.")

    def of_query(ranked: Ranked) -> float:
        stops = (torch.exp2(ranked[:k]) - 1) / 2**highest
        goes_on = torch.cat([torch.ones(1, dtype=stops.dtype), (1 - stops).cumprod(0)[:-1]])
        return float((goes_on * stops / torch.arange(1, len(stops) + 1)).sum())

    values = [of_query(ranked) for ranked in _ranked(scores, grades, group, k)]
    return plain_mean(values, low=0.0, high=1.0, name=f"ERR@{k}", level=level)


def _dcg(ranked: Ranked, k: int) -> float:
    first = ranked[:k]
    return float(((torch.exp2(first) - 1) / torch.log2(torch.arange(2, len(first) + 2).double())).sum())


def _ranked(scores: Documents, grades: Documents, group: Int[Tensor, " documents"], k: int) -> list[Tensor]:
    """The grades of each query's documents, in the order of their scores; what is below 0 is 0."""
    if len(group) == 0 or k < 1:
        raise UserError("Documents of one query at least are needed, and a k of 1 or more.")
    scores, grades, group = scores.double().cpu(), grades.double().cpu().clamp(min=0), group.cpu()
    if not bool(scores.isfinite().all() and grades.isfinite().all()):
        raise UserError("Some scores or grades are not finite: documents are ranked by finite ones.")
    worst_first = torch.argsort(grades, stable=True)
    order = worst_first[torch.argsort(scores[worst_first], descending=True, stable=True)]
    order = order[torch.argsort(group[order], stable=True)]
    sizes = torch.unique_consecutive(group[order], return_counts=True)[1]
    return list(torch.split(grades[order], sizes.tolist()))
