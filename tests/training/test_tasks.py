"""Batches of pairs, and of several tasks in turn."""

from collections import Counter

import pytest
import torch

from ebar.data.labelled import Inputs, Labelled
from ebar.errors import UserError
from ebar.training.batches import Batches
from ebar.training.tasks import InTurn, Pairs, shared_out


def numbered(rows: int, labels=None, group=None, first: int = 0) -> Labelled:
    """Row i reads token first + i."""
    tokens = torch.arange(first, first + rows)[:, None, None]
    read = Inputs(tokens, torch.zeros_like(tokens), torch.ones(rows, 1, dtype=torch.long))
    labels = torch.zeros(rows, dtype=torch.long) if labels is None else torch.tensor(labels)
    return Labelled(read, labels, torch.arange(rows) if group is None else torch.tensor(group))


GRADES, QUERIES = [2.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 3.0], [5, 5, 5, 5, 9, 9, 7, 7]


def drawn(source, epochs=1):
    return [
        tuple(pair)
        for epoch in range(epochs)
        for batch in source.at(epoch, 0)
        for pair in batch.inputs.tokens[:, :, 0].tolist()
    ]


def test_each_better_document_is_paired_with_a_worse_one_of_its_query():
    source = Pairs(data=numbered(8, GRADES, QUERIES), batch_size=3, seed=1)
    found = Counter(drawn(source, epochs=200))
    assert len(source) == 2
    assert {pair[0] for pair in found} == {0, 2, 4, 7}
    assert Counter({0: 200, 2: 200, 4: 200, 7: 200}) == Counter(
        {better: sum(n for pair, n in found.items() if pair[0] == better) for better in (0, 2, 4, 7)}
    )
    # All worse ones come, none that is as good: 0 has 1, 2, 3; 2 has 1 and 3; 4 has 5; 7 has 6.
    assert set(found) == {(0, 1), (0, 2), (0, 3), (2, 1), (2, 3), (4, 5), (7, 6)}
    assert all(40 <= found[pair] <= 95 for pair in [(0, 1), (0, 2), (0, 3)])  # 5 standard deviations about 67


def test_pairs_are_the_same_when_asked_again_and_held_out_ones_in_every_epoch():
    source = Pairs(data=numbered(8, GRADES, QUERIES), batch_size=3, seed=1)
    whole = list(source.at(4, 0))
    assert torch.equal(whole[1].inputs.tokens, next(iter(source.at(4, 1))).inputs.tokens)
    fixed = Pairs(data=numbered(8, GRADES, QUERIES), batch_size=3, shuffle=False)
    assert drawn(fixed) == [tuple(pair) for b in fixed.at(3, 0) for pair in b.inputs.tokens[:, :, 0].tolist()]


def test_queries_without_different_grades_cannot_be_ranked():
    with pytest.raises(UserError, match="nothing to rank"):
        Pairs(data=numbered(3, [1.0, 1.0, 2.0], [0, 0, 1]), batch_size=2)


def test_shares_add_up():
    assert shared_out(30, [16.0, 4.0]) == [24, 6]
    assert shared_out(10, [1.0, 1.0, 1.0]) == [4, 3, 3]
    assert shared_out(5, [100.0, 0.01, 0.01]) == [3, 1, 1]


def several(mixing="size"):
    sources = [
        Batches(data=numbered(40), batch_size=4, seed=3),
        Batches(data=numbered(9, first=100), batch_size=4, seed=3),
    ]
    return InTurn(sources=sources, seed=3, mixing=mixing)


def test_in_turn_each_example_comes_once_an_epoch_and_batches_are_of_one_task():
    source = several()
    assert len(source) == 13
    for epoch in (0, 1):
        seen = list(source.at(epoch, 0))
        assert Counter(int(batch.task[0]) for batch in seen) == {0: 10, 1: 3}
        tokens = sorted(token for batch in seen for token in batch.labelled.inputs.tokens.flatten().tolist())
        assert tokens == [*range(40), *range(100, 109)]
        assert all((batch.labelled.inputs.tokens >= 100).all() == bool(batch.task[0]) for batch in seen)
    turns = [[int(batch.task[0]) for batch in source.at(epoch, 0)] for epoch in (0, 1)]
    assert turns[0] != turns[1]


def test_by_square_roots_small_tasks_come_more_often_and_passes_go_on_over_epochs():
    """10 and 3 batches: √10 : √3 of 13 is 8.4 : 4.6, so 8 and 5."""
    source = several("square_root")
    assert source.shares() == [8, 5]
    seen = [batch for epoch in range(3) for batch in source.at(epoch, 0) if batch.task[0] == 1]
    assert len(seen) == 15  # five whole passes
    counts = Counter(token for batch in seen for token in batch.labelled.inputs.tokens.flatten().tolist())
    assert set(counts.values()) == {5}


@pytest.mark.parametrize("mixing", ["size", "square_root"])
def test_in_turn_goes_on_from_any_batch(mixing):
    source = several(mixing)
    whole = list(source.at(2, 0))
    for start in range(len(source)):
        rest = list(source.at(2, start))
        assert len(rest) == len(whole) - start
        for one, other in zip(rest, whole[start:], strict=True):
            assert torch.equal(one.labelled.inputs.tokens, other.labelled.inputs.tokens)


def test_one_task_in_turn_is_that_task():
    alone = Batches(data=numbered(9), batch_size=4, seed=3)
    for one, other in zip(InTurn(sources=[alone], seed=8).at(1, 0), alone.at(1, 0), strict=True):
        assert torch.equal(one.labelled.inputs.tokens, other.inputs.tokens)
