"""How near several answers to a context are to several that people gave: precision and recall of sentence BLEU.

Zhao et al. 2017 (arXiv:1703.10960). Precision asks whether every answer is near some reference, the mean over answers
of the best match; recall whether every reference has an answer near it, the mean over references of the best match. A
model that always says one safe thing has the one without the other.

Sentence BLEU has to be smoothed, and scores of different smoothings cannot be compared. Here it is sacreBLEU's, as in
`self_bleu`: the n-th order in a row without a match counts as 2⁻ⁿ matches, and orders that an answer is too short for
are left out. The original uses NLTK's "method 7", which averages neighbouring orders and can exceed 1: of published
figures (Table A.4 of Dai 2019) the order of the models can be compared, not the values.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebar.errors import UserError
from ebar.evaluation.diversity import Items, bleu_of, items_of, ngrams
from ebar.evaluation.means import plain_mean
from ebar.types import Estimate

ORDERS = (1, 2, 3, 4)


class AnswerBleu(NamedTuple):
    """0 to 100, the mean over contexts; the intervals are over contexts, which are taken for independent."""

    precision: Estimate
    recall: Estimate


def answer_bleu(
    answers: Sequence[Sequence[str]], references: Sequence[Sequence[str]], *, orders: Sequence[int] = ORDERS,
    level: float = 0.95,
) -> dict[int, AnswerBleu]:  # fmt: skip
    """BLEU-n for each order n: for each context some answers and some references, words between blanks."""
    if len(answers) != len(references) or not answers:
        raise UserError(
            f"Answers in {len(answers):,} contexts cannot be scored against references in {len(references):,}: they go "
            "in pairs."
        )
    if not all(answers) or not all(references):
        raise UserError("In each context there must be an answer and a reference, or more: leave out those without.")
    tables = [
        _scores(items_of(list(own)), items_of(list(others)), orders)
        for own, others in zip(answers, references, strict=True)
    ]
    range_of: dict[str, Any] = {"low": 0.0, "high": 100.0, "name": "BLEU", "level": level}
    return {
        order: AnswerBleu(
            plain_mean([float(table[number].max(1).mean()) for table in tables], **range_of),
            plain_mean([float(table[number].max(0).mean()) for table in tables], **range_of),
        )
        for number, order in enumerate(orders)
    }


def _scores(answers: list[Items], references: list[Items], orders: Sequence[int]) -> list[NDArray[np.float64]]:
    """For each order, the score of each answer against each reference alone."""
    longest = max(orders)
    mine, theirs = (
        [[Counter(ngrams(text, n)) for n in range(1, longest + 1)] for text in side] for side in (answers, references)
    )
    matches = np.array(
        [[[(one & two).total() for one, two in zip(own, other, strict=True)] for other in theirs] for own in mine]
    )
    totals = np.array([[counts.total() for counts in own] for own in mine])
    shape = (len(answers), len(references))
    lengths = np.broadcast_to(np.array([len(text) for text in answers])[:, None], shape).reshape(-1)
    others = np.broadcast_to(np.array([len(text) for text in references])[None], shape).reshape(-1)
    flat, wide = matches.reshape(-1, longest), np.repeat(totals, len(references), 0)
    return [bleu_of(flat[:, :order], wide[:, :order], lengths, others).reshape(shape) for order in orders]
