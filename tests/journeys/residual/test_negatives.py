"""Draws on disk: the same whatever interrupted their making, and for what they were asked only."""

import json
import shutil
from contextlib import suppress

import pytest
import torch
from scipy.stats import chisquare
from torch import Generator

from ebar.errors import UserError
from ebar.journeys.residual import negatives as pools
from ebar.journeys.residual.negatives import Partition, draw_negatives
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.shards import part_name
from ebar.types import Context, Sequences, Space
from tests.store.disk import Dead, failing

SPACE = Space(3, 3, 2)


@pytest.fixture
def q(generator):
    return Tabular.random(SPACE, conditions=3, generator=generator)


def contexts(*conditions: int) -> Context:
    tokens = torch.tensor(conditions)[:, None]
    return Context(Sequences(tokens, torch.ones(len(conditions), dtype=torch.long)))


def content(folder):
    """All but times and the lock."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "lock"}
    header = json.loads(found["header.json"])
    return found | {"header.json": {key: header[key] for key in ("description", "done", "seed", "state")}}


@pytest.mark.parametrize(
    ("rows", "draws", "at_once"), [(5, 1, 2), (5, 2, 4), (3, 5, 4), (1, 1, 1), (2, 7, 3), (4, 3, 100), (2, 4, 4)]
)
def test_every_draw_of_every_context_is_in_one_part(rows, draws, at_once):
    layout = Partition(rows=rows, draws=draws, at_once=at_once)
    seen = []
    for number in range(len(layout)):
        part = layout.part(number)
        assert 0 < len(part.contexts) * len(part.draws) <= at_once
        assert all(number in layout.parts_of(row) for row in part.contexts)
        seen += [(row, draw) for row in part.contexts for draw in part.draws]
    assert sorted(seen) == [(row, draw) for row in range(rows) for draw in range(draws)]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("at_once", [3, 4, 5, 100])  # a context in several parts, in one, several in one
def test_what_is_fetched_is_context_major(q, tmp_path, at_once):
    context = contexts(0, 1, 2, 1, 0)
    pool = draw_negatives(tmp_path, q, context, 4, seed=1, at_once=at_once)
    assert (len(pool), pool.draws) == (5, 4)
    rows = torch.tensor([4, 1, 1])
    x = pool.fetch(rows)
    assert x.lengths.shape == (12,)
    assert bool(q.log_prob(x, context.select(rows)).isfinite().all())
    assert [x.prefix(row) for row in range(4, 8)] == [x.prefix(row) for row in range(8, 12)]
    some = torch.tensor([2, 0])
    again = pool.fetch(torch.tensor([3]), draws=some)
    whole = pool.fetch(torch.tensor([3]))
    assert again.lengths.tolist() == whole.lengths[some].tolist()
    for row, draw in enumerate(some.tolist()):
        assert again.prefix(row) == whole.prefix(draw)


def test_the_draws_follow_q(q, tmp_path):
    """A chi-square test of 4,000 draws over all 7 sequences: a false alarm in 10,000 seeds, and the seed is fixed."""
    pool = draw_negatives(tmp_path, q, contexts(1), 4000, seed=2, at_once=1000)
    x = pool.fetch(torch.tensor([0]))
    everything = all_sequences(SPACE)
    names = [tuple(everything.prefix(row)) for row in range(len(everything.lengths))]
    drawn = [tuple(x.prefix(row)) for row in range(4000)]
    expected = q.log_prob(everything, contexts(1)).exp() * 4000
    assert chisquare([drawn.count(name) for name in names], expected.detach()).pvalue > 1e-4
    # Parts are not copies of one another.
    assert len({tuple(drawn[begin : begin + 1000]) for begin in range(0, 4000, 1000)}) == 4


def test_negatives_killed_or_out_of_space_at_any_change_of_the_disk_end_as_those_that_never_were(q, tmp_path):
    context = contexts(0, 1, 2, 0, 1)
    with failing() as disk:
        draw_negatives(tmp_path / "whole", q, context, 2, seed=3, at_once=2)
    whole = content(tmp_path / "whole")
    assert len(whole) == 6
    assert disk.count > 6 * 3
    for full in (False, True):
        for at in range(1, disk.count + 1):
            folder = tmp_path / f"{full}-{at}"
            with suppress(Dead, UserError), failing(at, full=full):
                draw_negatives(folder, q, context, 2, seed=3, at_once=2)
            begun = {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}
            draw_negatives(folder, q, context, 2, seed=3, at_once=2)
            assert content(folder) == whole, at
            assert begun == {name: (folder / name).stat().st_mtime_ns for name in begun}  # not drawn again


def test_the_draws_depend_on_the_seed_and_on_nothing_drawn_before(q, tmp_path):
    context = contexts(0, 1, 2)
    first = content_of_parts(draw_negatives(tmp_path / "a", q, context, 30, seed=4))
    torch.manual_seed(123)
    torch.rand(5)
    assert content_of_parts(draw_negatives(tmp_path / "b", q, context, 30, seed=4)) == first
    assert content_of_parts(draw_negatives(tmp_path / "c", q, context, 30, seed=5)) != first


def content_of_parts(pool):
    return {name: data for name, data in content(pool.folder).items() if name.startswith("part-")}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 7}, "seed"),
        ({"n": 3}, "draws"),
        ({"context": contexts(0, 2)}, "prefixes\\.sequences"),
        ({"context": contexts(0, 1, 1)}, "prefixes\\.sequences, rows"),
        ({"at_once": 5}, "size of parts"),
    ],
)
def test_another_request_is_refused(q, tmp_path, change, named):
    request = {"context": contexts(0, 1), "n": 2, "seed": 6}
    draw_negatives(tmp_path, q, contexts(0, 1), 2, seed=6)
    changed = request | change
    with pytest.raises(UserError, match=rf"made from something else \(what differs: {named}\)"):
        draw_negatives(tmp_path, q, changed.pop("context"), changed.pop("n"), **changed)


def test_another_model_is_refused_and_padding_is_no_other_prefix(q, tmp_path):
    context = contexts(0, 1)
    draw_negatives(tmp_path, q, context, 2, seed=6)
    padded = Context(Sequences(torch.tensor([[0, 9], [1, 9]]), torch.tensor([1, 1])))
    draw_negatives(tmp_path, q, padded, 2, seed=6)
    other = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(9))
    with pytest.raises(UserError, match=r"what differs: base model\."):
        draw_negatives(tmp_path, other, context, 2, seed=6)


def test_a_damaged_part_is_told(q, tmp_path):
    pool = draw_negatives(tmp_path, q, contexts(0, 1), 2, seed=6)
    (tmp_path / part_name(0)).write_bytes(b"12345678 no tensors")
    fresh = draw_negatives(tmp_path, q, contexts(0, 1), 2, seed=6)
    with pytest.raises(UserError, match=r"part-000000.safetensors is damaged \(.*\): delete it, and run"):
        fresh.fetch(torch.tensor([0]))
    (tmp_path / "header.json").write_text("{")
    with pytest.raises(UserError, match=r"header.json is damaged \(.*\): delete .*, and run"):
        draw_negatives(tmp_path, q, contexts(0, 1), 2, seed=6)
    shutil.rmtree(tmp_path)
    with pytest.raises(IndexError):
        pool.fetch(torch.tensor([2]))


def test_large_vocabularies_keep_their_tokens(tmp_path, generator):
    space = Space(70_000, 1)
    logits = torch.full((1, 1, 70_000), -torch.inf)
    logits[0, 0, 69_999] = 0.0
    q = Tabular(space, logits)
    pool = draw_negatives(tmp_path, q, contexts(0), 3, seed=0)
    assert pool.fetch(torch.tensor([0])).tokens.tolist() == [[69_999]] * 3
    space = json.loads((tmp_path / "header.json").read_text())["description"]["space"]
    assert (space["vocabulary"], space["length"], space["end"]) == (70_000, 1, None)


def test_no_draws_at_all_are_refused(q, tmp_path):
    with pytest.raises(UserError, match="a prefix and a draw at least"):
        draw_negatives(tmp_path, q, contexts(0), 0, seed=0)


def test_memory_is_bounded_however_large_the_pool(q, tmp_path, monkeypatch):
    pool = draw_negatives(tmp_path, q, contexts(*[0, 1, 2] * 4), 2, seed=1, at_once=2)
    monkeypatch.setattr(pools, "MEMORY", 60)  # bytes: parts have from 12 to 20
    first = pool.fetch(torch.arange(12))
    assert len(pool._read) < 5
    assert pool.fetch(torch.arange(12)).tokens.tolist() == first.tokens.tolist()
