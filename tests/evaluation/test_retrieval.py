import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebar.errors import UserError
from ebar.evaluation.retrieval import expected_reciprocal_rank, ndcg

ONE = torch.zeros(3, dtype=torch.long)
GRADES = torch.tensor([2.0, 0.0, 1.0])
SCORES = torch.tensor([0.5, 0.1, 0.9])  # so they are ranked 1, 2, 0


def test_one_query_by_hand():
    # (1/1 + 3/log₂3 + 0) / (3/1 + 1/log₂3)
    expected = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert ndcg(SCORES, GRADES, ONE).value == pytest.approx(expected, abs=1e-12)
    assert ndcg(SCORES, GRADES, ONE, k=1).value == pytest.approx(1 / 3, abs=1e-12)
    # R = 1/4, 3/4, 0: 1/4 + 3/4·3/4/2
    assert expected_reciprocal_rank(SCORES, GRADES, ONE).value == pytest.approx(0.53125, abs=1e-12)
    assert expected_reciprocal_rank(SCORES, GRADES, ONE, k=1).value == 0.25
    # With grades up to 4, R = 1/16, 3/16, 0: 1/16 + 15/16·3/16/2
    given_grade = expected_reciprocal_rank(SCORES, GRADES, ONE, greatest=4)
    assert given_grade.value == pytest.approx(1 / 16 + 15 * 3 / 512, abs=1e-12)


def test_queries_count_alike_whatever_their_number_of_documents_and_in_any_order():
    scores, grades = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0]), torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0])
    group = torch.tensor([7, 2, 7, 2, 2])
    # Query 7: the relevant one first, 1. Query 2: second of three, 1/log₂3.
    assert ndcg(scores, grades, group).value == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert expected_reciprocal_rank(scores, grades, group).value == pytest.approx((0.5 + 0.25) / 2)
    turned = torch.tensor([3, 0, 4, 2, 1])
    assert ndcg(scores[turned], grades[turned], group[turned]) == ndcg(scores, grades, group)


def test_equal_scores_are_ranked_worst_first_and_a_query_without_relevant_documents_is_0():
    same = torch.zeros(3)
    assert ndcg(same, GRADES, ONE, k=1).value == 0
    assert ndcg(same, GRADES.flip(0), ONE).value == ndcg(same, GRADES, ONE).value
    assert ndcg(SCORES, torch.zeros(3), ONE).value == 0
    assert expected_reciprocal_rank(SCORES, torch.zeros(3), ONE).value == 0
    assert ndcg(SCORES, torch.tensor([2.0, -2.0, 1.0]), ONE).value == ndcg(SCORES, GRADES, ONE).value  # below 0 is 0


def plain(grades: list[int], k: int, greatest: int) -> tuple[float, float]:
    """Of documents as they are ranked: NDCG and ERR, each by its definition."""

    def gain(own: list[int]) -> float:
        return sum((2.0**grade - 1) / math.log2(1 + rank) for rank, grade in enumerate(own[:k], 1))

    reads, expected = 1.0, 0.0
    for rank, grade in enumerate(grades[:k], 1):
        stops = (2**grade - 1) / 2**greatest
        expected += reads * stops / rank
        reads *= 1 - stops
    best = gain(sorted(grades, reverse=True))
    return (gain(grades) / best if best else 0.0), expected


@given(
    queries=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), min_size=1, max_size=5), k=st.integers(1, 9)
)
def test_the_definitions_read_rank_by_rank(queries, k):
    grades = torch.tensor([float(grade) for query in queries for grade in query])
    scores = torch.tensor([-float(rank) for query in queries for rank in range(len(query))])
    group = torch.tensor([at for at, query in enumerate(queries) for _ in query])
    expected = [plain(query, k, 4) for query in queries]
    found = ndcg(scores, grades, group, k=k), expected_reciprocal_rank(scores, grades, group, k=k, greatest=4)
    for place, own in enumerate(found):
        assert own.value == pytest.approx(sum(one[place] for one in expected) / len(expected), abs=1e-12)
        assert 0 <= own.low <= own.value <= own.high <= 1
        assert own.effective_sample_size == pytest.approx(len(queries))


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(UserError, match="one query at least"):
        ndcg(SCORES[:0], GRADES[:0], ONE[:0])
    with pytest.raises(UserError, match="k of 1"):
        ndcg(SCORES, GRADES, ONE, k=0)
    with pytest.raises(UserError, match="not finite"):
        ndcg(SCORES * math.nan, GRADES, ONE)
    with pytest.raises(UserError, match="a grade of 2, above the greatest, 1"):
        expected_reciprocal_rank(SCORES, GRADES, ONE, greatest=1)
