import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

from ebar.errors import UserError
from ebar.training.batches import Budgeted, Source
from ebar.types import Context, Sequences


def rows_of(*lengths):
    """Each row spells its number in its first place."""
    counts = torch.tensor(lengths)
    tokens = torch.zeros(len(counts), int(counts.max()), dtype=torch.long)
    tokens[:, 0] = torch.arange(len(counts))
    return Sequences(tokens, counts)


def numbers(batches):
    return [batch[0].tokens[:, 0].tolist() for batch in batches]


def test_batches_by_hand():
    # 12 tokens: three rows of 4, or six of 2; the last of 2 does not go with those of 4, where it would be 4 wide.
    batches = Budgeted(data=rows_of(4, 2, 2, 4, 2, 2, 4, 2, 2, 2), tokens=12, shuffle=False)
    assert isinstance(batches, Source)
    assert [batch.tokens[:, 0].tolist() for batch in batches.at(0, 0)] == [[1, 2, 4, 5, 7, 8], [9, 0, 3], [6]]
    few = Budgeted(data=rows_of(1, 1, 1), tokens=12, most_rows=2, shuffle=False)
    assert [batch.tokens.shape for batch in few.at(0, 0)] == [(2, 1), (1, 1)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    st.integers(40, 200),
    st.integers(0, 5),
)
def test_every_epoch_has_each_row_once_within_the_budget_and_as_many_batches(lengths, tokens, seed):
    x, given_ = (rows_of(*side) for side in zip(*lengths, strict=True))
    batches = Budgeted(data=(x, Context(given_)), tokens=tokens, seed=seed)
    for epoch in range(3):
        found = list(batches.at(epoch, 0))
        assert len(found) == len(batches)
        assert sorted(number for batch in numbers(found) for number in batch) == list(range(len(lengths)))
        for target, context in found:
            assert 0 < target.tokens.numel() <= tokens
            assert context.given.tokens.numel() <= tokens
            assert target.tokens[:, 0].equal(context.given.tokens[:, 0])  # sources stay with their targets


def test_asking_from_a_later_batch_gives_the_rest_of_the_same_epoch():
    x = rows_of(*torch.randint(1, 30, (200,), generator=Generator().manual_seed(0)).tolist())
    batches = Budgeted(data=(x, None), tokens=64, seed=3)
    whole = numbers(batches.at(2, 0))
    assert all(numbers(batches.at(2, start)) == whole[start:] for start in range(len(batches) + 1))
    assert numbers(Budgeted(data=(x, None), tokens=64, seed=3).at(2, 0)) == whole


def test_epochs_and_seeds_mix_rows_and_order_anew():
    x = rows_of(*[5] * 20, *[9] * 20)
    orders = {str(numbers(Budgeted(data=(x, None), tokens=45, seed=s).at(e, 0))) for s in range(4) for e in range(4)}
    meetings = {
        frozenset(batch) for epoch in range(4) for batch in numbers(Budgeted(data=(x, None), tokens=45).at(epoch, 0))
    }
    assert len(orders) == 16
    assert len(meetings) > 4 * 6  # not the same rows together every time


def test_little_is_padding():
    generator = Generator().manual_seed(1)
    lengths = torch.randint(2, 60, (2, 5000), generator=generator)
    lengths[1] = (lengths[0] + torch.randint(-1, 2, (5000,), generator=generator)).clamp(min=1)
    x, source = (rows_of(*side.tolist()) for side in lengths)
    batches = Budgeted(data=(x, Context(source)), tokens=2048)
    held = float(lengths[0].sum()) / len(batches)
    assert held > 0.85 * 2048
    padded = sum(batch[0].tokens.numel() for batch in batches.at(0, 0))
    assert float(lengths[0].sum()) / padded > 0.93


def test_a_sequence_longer_than_a_batch_and_no_sequence_are_errors():
    with pytest.raises(UserError, match="A sequence of 30 tokens does not fit in batches of 20"):
        Budgeted(data=rows_of(3, 30), tokens=20)
    with pytest.raises(ValueError, match="at least one row"):
        Budgeted(data=rows_of(3), tokens=20, most_rows=0)
    with pytest.raises(UserError, match="no rows"):
        Budgeted(data=Sequences(torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)), tokens=20)
