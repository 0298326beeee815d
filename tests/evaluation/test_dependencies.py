"""Dependencies that objectives of pretraining cover: the example of the paper by hand, then on drawn inputs."""

from itertools import combinations
from typing import Any

import pytest
import torch

from ebar.data.pretraining_inputs import Form, PretrainingBatch, read_inputs
from ebar.evaluation.dependencies import WAYS, count_dependencies, count_pairs, covered, dependencies, seen_by_targets
from tests.training.tiny import to_pretrain_on

NEW, YORK, IS, A, CITY = range(5)


def example(order: list[int], targets: list[int], *, corrupted: bool = False) -> PretrainingBatch:
    """[New, York, is, a, city] with a factorisation order."""
    rank = torch.tensor([order.index(place) for place in range(5)])
    hidden = rank[:, None] <= rank[None]
    if corrupted:
        hidden = torch.zeros_like(hidden)
    flag = torch.tensor([False])
    return PretrainingBatch(
        tokens=torch.arange(5)[None], segments=torch.zeros(1, 5).long(), hidden_from=hidden[None],
        targets=torch.tensor([targets]), labels=torch.tensor([targets]), backwards=flag, follows=flag, begins=flag,
        column=torch.tensor([0]), reuse=torch.tensor([0]), corrupted=torch.tensor([corrupted]),
    )  # fmt: skip


def contexts(batch: PretrainingBatch) -> dict[int, set[int]]:
    seen = seen_by_targets(batch)[0]
    return {
        int(target): set(row.nonzero().flatten().tolist()) for target, row in zip(batch.targets[0], seen, strict=True)
    }


def test_new_york_is_a_city_by_hand():
    """log p(New | is a city) + log p(York | New, is a city), of which BERT lacks New in the second term."""
    xlnet = example([IS, A, CITY, NEW, YORK], [NEW, YORK])
    bert = example([IS, A, CITY, NEW, YORK], [NEW, YORK], corrupted=True)
    gpt = example([NEW, YORK, IS, A, CITY], [NEW, YORK, IS, A, CITY])
    assert contexts(xlnet) == {NEW: {IS, A, CITY}, YORK: {NEW, IS, A, CITY}}
    assert contexts(bert) == {NEW: {IS, A, CITY}, YORK: {IS, A, CITY}}
    assert contexts(gpt) == {NEW: set(), YORK: {NEW}, IS: {NEW, YORK}, A: {NEW, YORK, IS}, CITY: {NEW, YORK, IS, A}}

    def counts(batch: PretrainingBatch, size: int = 1) -> list[int]:
        found = count_dependencies(batch, size=size)
        return [int(found[name]) for name in ("pairs", "with_targets", "with_later")]

    # Contexts of one token: 3 + 4, of which (York, {New}) holds a target; New has three later ones, York three.
    assert counts(xlnet) == [7, 1, 6]
    assert counts(bert) == [6, 0, 6]
    assert counts(gpt) == [10, 10, 0]
    # Of two: 3 + 6, of which New is in three of York's; every one of New's and York's holds a later token.
    assert counts(xlnet, 2) == [9, 3, 9]
    assert counts(bert, 2) == [6, 0, 6]
    assert counts(gpt, 2) == [0 + 0 + 1 + 3 + 6, 10, 0]


def test_the_other_order_covers_new_from_york():
    assert contexts(example([IS, A, CITY, YORK, NEW], [NEW, YORK])) == {NEW: {YORK, IS, A, CITY}, YORK: {IS, A, CITY}}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_contexts_are_counted_as_enumeration_does(size):
    seen = torch.tensor([[[True, False, True, True, False], [False] * 5]])
    places = [place for place in range(5) if seen[0, 0, place]]
    assert count_pairs(seen, size=size).tolist() == [[len([*combinations(places, size)]), 0]]


def drawn(predict: Any, number: int = 2) -> PretrainingBatch:
    text = to_pretrain_on(600, form=Form(length=40, reuse=20, predict=predict, partial=4))
    return read_inputs(text, text.backwards(), 6, number, seed=1, epoch=0)


def test_an_order_covers_all_that_denoising_does_and_more():
    """With the same targets, term by term: V is N and the targets before."""
    order, mask = drawn("permutation"), drawn("denoising")
    assert torch.equal(order.targets, mask.targets)
    specials = to_pretrain_on().specials
    more, fewer = seen_by_targets(order, specials), seen_by_targets(mask, specials)
    assert (more | ~fewer).all()
    assert more.sum() > fewer.sum()
    between = count_dependencies(order, specials)["with_targets"]
    assert torch.equal(between, (more.sum((1, 2)) - fewer.sum((1, 2))))


def test_all_ways_on_the_inputs_of_a_text():
    """Of n targets in a part each pair has one order in which one sees the other: n(n − 1)/2 of them."""
    text = to_pretrain_on(3000, form=Form(length=40, reuse=20, partial=4))
    found = dependencies(text, inputs=200)
    assert set(found) == set(WAYS)
    order, mask, left = (found[way] for way in WAYS)
    assert order.targets.value == mask.targets.value == 10
    assert left.targets.value == 37
    assert mask.with_targets.value == 0
    # 5 targets in each part, and those of the second part see the 5 of the first.
    assert order.with_targets.value == pytest.approx(5 * 4 / 2 + 5 * 4 / 2 + 5 * 5)
    assert left.with_later.high == 0
    assert order.of_a_target.value > mask.of_a_target.value


def test_in_expectation_an_order_covers_everything_and_left_to_right_half_of_it():
    """In the reused part, after many draws: all pairs of different tokens, or those with the context on the left."""
    text = to_pretrain_on(600, form=Form(length=23, reuse=8, partial=2))
    everything = ~torch.eye(8, dtype=torch.bool)
    assert torch.equal(covered(text, "permutation", draws=150)[:8, :8], everything)
    assert torch.equal(covered(text, "left_to_right", draws=3)[:8, :8], everything.tril())
    one = covered(text, "permutation", draws=1)[:8, :8]
    assert 0 < one.sum() < everything.sum()


def test_a_query_does_not_see_itself_whatever_is_hidden():
    batch = example([NEW, YORK, IS, A, CITY], [YORK])
    batch = batch._replace(hidden_from=torch.zeros_like(batch.hidden_from))
    assert contexts(batch) == {YORK: {NEW, IS, A, CITY}}
