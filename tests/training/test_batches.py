import pytest
import torch

from ebar.maths.randomness import folded
from ebar.maths.rows import count_rows, named_tensors, process_share
from ebar.training.batches import Batches, Source
from ebar.types import Context, Sequences
from tests.training.tiny import data


def numbered(rows: int) -> torch.Tensor:
    return torch.arange(rows)[:, None]


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_holds_each_row_once(drop_last):
    batches = Batches(data=numbered(10), batch_size=4, drop_last=drop_last)
    assert isinstance(batches, Source)
    epoch = list(batches.at(0, 0))
    assert [len(batch) for batch in epoch] == ([4, 4] if drop_last else [4, 4, 2])
    assert len(batches) == len(epoch)
    rows = torch.cat(epoch)[:, 0].tolist()
    assert len(set(rows)) == len(rows)
    assert drop_last or sorted(rows) == list(range(10))


def test_asking_from_a_later_batch_gives_the_rest_of_the_same_epoch():
    batches = Batches(data=numbered(100), batch_size=7, seed=3)
    whole = list(batches.at(2, 0))
    for start in range(len(batches) + 1):
        rest = list(batches.at(2, start))
        assert len(rest) == len(whole) - start
        assert all(torch.equal(a, b) for a, b in zip(rest, whole[start:], strict=True))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(torch.cat(list(Batches(data=numbered(20), batch_size=20, seed=seed).at(epoch, 0)))[:, 0].tolist())
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25  # by chance two agree once in 10^16
    assert folded(0, 1) != folded(1, 0)


def test_a_batch_loses_the_padding_that_none_of_its_rows_needs():
    x = Sequences(torch.tensor([[1, 0, 9, 9], [0, 9, 9, 9]]), torch.tensor([2, 1]))
    (batch,) = Batches(data=(x, Context(x)), batch_size=2, shuffle=False).at(0, 0)
    assert batch[0].tokens.tolist() == [[1, 0], [0, 9]]
    assert batch[1].given.lengths.tolist() == [2, 1]


@pytest.mark.parametrize(("ranks", "parts"), [(1, 1), (2, 1), (3, 2), (4, 4)])
def test_the_shares_of_all_processes_make_up_the_batch(ranks, parts):
    batch = (data(9), Context(data(9, seed=1)), {"weight": torch.arange(9.0)})
    shares = [process_share(batch, rank=rank, ranks=ranks, parts=parts) for rank in range(ranks)]
    placed = [(piece, place) for part in zip(*shares, strict=True) for piece, place in part]
    pieces = [piece for piece, place in placed if place is None or place.counted]
    assert [place.first for piece, place in placed if place is not None and place.counted] == [
        int(piece[2]["weight"][0]) for piece in pieces if ranks * parts > 1
    ]
    assert all(place is None or (place.rows, place.everywhere) == (count_rows(piece), 9) for piece, place in placed)
    whole = named_tensors(batch)
    together = {name: torch.cat([named_tensors(piece)[name] for piece in pieces]) for name in whole}
    assert {name: value.tolist() for name, value in together.items()} == {n: v.tolist() for n, v in whole.items()}


def test_a_process_without_rows_computes_on_a_stand_in_that_does_not_count():
    shares = [process_share(data(1), rank=rank, ranks=2, parts=1) for rank in (0, 1)]
    assert sorted(place is not None and place.counted for ((_, place),) in shares) == [False, True]
    assert all(count_rows(part) == 1 for ((part, _),) in shares)


def test_tensors_that_do_not_share_their_rows_are_no_batch():
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        count_rows((torch.zeros(2), torch.zeros(3)))
