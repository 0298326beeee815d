"""Transformer-XL read by segments: what is remembered, what is seen of it, and what has a gradient."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones import relative_attention
from ebar.backbones.relative_attention import attend, view
from ebar.backbones.transformer_xl import TransformerXl
from ebar.backbones.transformer_xl_layer import Dropout, SegmentMemory
from ebar.errors import UserError
from ebar.testing.backbones import by_segments, by_stepper
from ebar.types import Context, Sequences
from tests.backbones.reading import ROWS, VOCABULARY, some_tokens
from tests.backbones.test_transformer_xl import small

KINDS: dict[str, dict[str, Any]] = {
    "relative": {},
    "before": {"normalise": "before", "untie_biases": True},
    "shaw": {"positions": "shaw"},
    "clamped": {"clamp_length": 3},
    "adaptive": {"cutoffs": (2, 4), "divide": 2},
}


def segments(backbone: Any, tokens: Tensor, lengths: list[int], memory: SegmentMemory | None = None) -> Tensor:
    memory = backbone.empty_memory(len(tokens)) if memory is None else memory
    parts = []
    for segment in tokens.split(lengths, 1):
        hidden, memory = backbone.read_segment(segment, memory)
        parts.append(hidden)
    return torch.cat(parts, 1)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def scores_by_hand(query: float, v: float) -> list[float]:
    """Keys 0 and 1 at distances 1 and 0, values 8 and 4; r is log 2 and −1, u is log 3."""
    column = torch.tensor([0.0, query], dtype=torch.float64).reshape(1, 1, 2, 1)
    keys = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(1, 1, 2, 1)
    values = torch.tensor([8.0, 4.0], dtype=torch.float64).reshape(1, 1, 2, 1)
    r = torch.tensor([99.0, math.log(2), -1.0], dtype=torch.float64).reshape(1, 1, 3)
    biases = torch.tensor([math.log(3), v], dtype=torch.float64).reshape(2, 1, 1)
    hidden = view(0, 2, column.device).blocks[0].hidden
    return attend(column, keys, values, r, biases, hidden).flatten().tolist()


def test_attention_of_one_number_by_hand():
    """Query 1, v = 0: log 2 against 1 + log 3 − 1, so 2 to 3. Query 0, v = 1: log 2 against log 3 − 1."""
    first, second = scores_by_hand(1.0, 0.0)
    assert first == 8  # sees itself only, whatever the shift left above the diagonal
    assert second == pytest.approx((2 * 8 + 3 * 4) / 5)
    assert scores_by_hand(0.0, 1.0)[1] == pytest.approx((2 * 8 + 3 / math.e * 4) / (2 + 3 / math.e))


def test_shaws_terms_by_hand():
    """Without u and v, query log 3: r = 2 weighs the first key 9, key 1 the second 3. Without r, 1 and 3."""
    query = torch.full((1, 1, 2, 1), math.log(3), dtype=torch.float64)
    keys = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(1, 1, 2, 1)
    values = torch.tensor([8.0, 4.0], dtype=torch.float64).reshape(1, 1, 2, 1)
    r = torch.tensor([99.0, 2.0, 0.0], dtype=torch.float64).reshape(1, 1, 3)
    hidden = view(0, 2, query.device).blocks[0].hidden
    assert attend(query, keys, values, r, None, hidden)[0, 0, 1].item() == pytest.approx((9 * 8 + 3 * 4) / 12)
    assert attend(query, keys, values, None, None, hidden)[0, 0, 1].item() == pytest.approx((8 + 3 * 4) / 4)


def test_what_is_hidden_by_hand():
    """Two places after two others; the second row begins at place 1; three are seen at most."""
    block = view(2, 2, torch.device("cpu"), reach=3, first=torch.tensor([0, 1])).blocks[0]
    assert block.keys == slice(0, 4)
    assert block.hidden.int().tolist() == [[[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 0, 0, 1], [1, 0, 0, 0]]]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_segments_with_enough_memory_are_one_long_pass(kind):
    backbone, tokens = small(memory=12, **KINDS[kind]), some_tokens(12)
    whole = segments(backbone, tokens, [12])
    for lengths in ([5, 4, 3], [1] * 12, [11, 1]):
        close(segments(backbone, tokens, lengths), whole)
    assert not torch.allclose(segments(small(memory=2, **KINDS[kind]), tokens, [5, 4, 3]), whole)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_under_same_length_any_cutting_gives_the_same_numbers(kind):
    """And they are those of the steps: there the beginning is read first."""
    backbone, tokens = small(same_length=True, **KINDS[kind]), some_tokens(12)
    begun = torch.cat([torch.full((ROWS, 1), VOCABULARY), tokens], 1)
    whole = by_segments(backbone, tokens, None, [12])
    for lengths in ([13], [5, 4, 4], [1] * 13, [2, 10, 1]):
        close(segments(backbone, begun, lengths), whole)


@torch.no_grad()
def test_a_row_of_memory_is_as_if_it_were_alone():
    """Rows that have read nothing, two tokens and more than is remembered, side by side."""
    backbone, tokens = small(), some_tokens(8)
    memories = [backbone.empty_memory(ROWS)]
    for segment in (tokens[:, :2], tokens[:, 2:5]):
        memories.append(backbone.read_segment(segment, memories[-1])[1])
    assert [memory.valid.tolist() for memory in memories] == [[0] * ROWS, [2] * ROWS, [4] * ROWS]
    mixed = SegmentMemory(*(torch.stack([part[0] for part in parts]) for parts in zip(*memories, strict=True)))
    same = tokens[:1, 5:].expand(3, -1)
    hidden, after = backbone.read_segment(same, mixed)
    for row, memory in enumerate(memories):
        alone, kept = backbone.read_segment(same[:1], SegmentMemory(*(part[:1] for part in memory)))
        close(hidden[row], alone[0])
        close(after.hidden[row, :, -int(kept.valid) :], kept.hidden[0, :, -int(kept.valid) :])
    assert after.valid.tolist() == [3, 4, 4]


def test_gradients_reach_the_keys_of_memory_but_no_earlier_segment():
    """The derivative along a direction of W_k and W_v, memory held fixed, by differences."""
    backbone = small(layers=1)
    first, second = torch.zeros(2, 4, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    memory = backbone.read_segment(first, backbone.empty_memory(2))[1]
    assert not memory.hidden.requires_grad

    def loss() -> Tensor:
        hidden: Tensor = backbone.read_segment(second, memory)[0]
        return (hidden**3).sum()

    torch.autograd.backward(loss())
    assert not backbone.inputs.grad[0].any()
    assert backbone.inputs.grad[1].any()
    weight = backbone.layers[0].attention.into.weight
    direction = torch.randn(weight.shape, dtype=torch.float64, generator=Generator().manual_seed(0))
    direction[:12] = 0  # queries are of the segment alone
    found = float((weight.grad * direction).sum())
    with torch.no_grad():
        around = []
        for step in (1e-5, -2e-5):
            weight += step * direction
            around.append(float(loss()))
    assert found == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-6)


@torch.no_grad()
def test_a_token_beyond_the_reach_changes_nothing():
    """Three layers of four places see nine places back, and not ten."""
    backbone, tokens = small(), some_tokens(14)
    changed = tokens.clone()
    changed[:, 2] = (changed[:, 2] + 1) % VOCABULARY
    one, other = (backbone.read(backbone.embed(each)) for each in (tokens, changed))
    differs = (one - other).abs().amax((0, 2)) > 1e-9
    assert differs.tolist() == [place in range(3, 13) for place in range(15)]


@torch.no_grad()
def test_long_texts_are_read_in_blocks(monkeypatch):
    backbone, tokens = small(), some_tokens(300)
    whole = backbone.read(backbone.embed(tokens))
    shapes = [block.hidden.shape[1:] for block in view(0, 301, tokens.device, reach=4).blocks]
    assert max(queries * keys for queries, keys in shapes) <= 64 * 67
    close(by_stepper(backbone, tokens, None), whole)
    close(by_segments(backbone, tokens, None, [7, 130, 163]), whole)
    monkeypatch.setattr(relative_attention, "NARROWEST", 1000)
    close(backbone.read(backbone.embed(tokens)), whole)


@torch.no_grad()
def test_a_draw_of_any_length_takes_bounded_memory():
    backbone = small(layers=1)
    _, state = backbone.start(2)
    stepper = backbone.stepper(state)
    for _ in range(500):
        stepper.step(torch.tensor([1, 2]))
    assert stepper.memory[0].shape[3] <= 4 + 16
    _, state = backbone.advance(torch.ones(2, 500, dtype=torch.long), state)
    assert state.memory[0].shape[1] == 3
    assert state.memory[0].untyped_storage().nbytes() == state.memory[0].numel() * 8


@torch.no_grad()
def test_what_is_seen_moves_to_the_front_with_padding_still_before_it():
    """Room for 56 places, of which the shorter row has 38 empty ones when the first 17 are given up."""
    backbone, tokens = small(layers=1, memory=40), some_tokens(30)[:2]
    context = Context(Sequences(some_tokens(38)[:2], torch.tensor([0, 38])))
    whole = backbone.read(backbone.embed(tokens), context)
    close(by_stepper(backbone, tokens, context), whole)
    close(by_segments(backbone, tokens, context, [1, 20, 9]), whole)


@torch.no_grad()
def test_another_memory_is_the_same_network():
    backbone, tokens = small(), some_tokens()
    longer = backbone.with_memory(20, clamp_length=5, same_length=True)
    assert (longer.memory, longer.clamp_length, longer.same_length) == (20, 5, True)
    assert (backbone.memory, backbone.clamp_length, backbone.same_length) == (4, None, False)
    assert all(one is other for one, other in zip(longer.parameters(), backbone.parameters(), strict=True))
    close(segments(longer, tokens, [4, 5]), segments(small(memory=20, clamp_length=5), tokens, [4, 5]))
    none = backbone.with_memory(0)
    close(segments(none, tokens, [4, 5])[:, 4:], segments(none, tokens[:, 4:], [5]))
    with pytest.raises(UserError, match="at least 1"):
        none.start(1)
    with pytest.raises(UserError, match="begin anew"):
        backbone.read_segment(tokens, longer.empty_memory(ROWS))


@torch.no_grad()
def test_without_recurrence_nothing_is_carried():
    backbone, tokens = small(recurrence=False), some_tokens()
    assert backbone.empty_memory(3).hidden.shape == (3, 3, 0, 12)
    close(segments(backbone, tokens, [4, 5])[:, 4:], segments(backbone, tokens[:, 4:], [5]))


@torch.no_grad()
def test_absolute_places_are_those_within_the_segment():
    """Memory makes two segments of the same tokens alike at the input; a long pass tells their places apart."""
    backbone = small(positions="absolute", memory=20)
    tokens = some_tokens(4).repeat(1, 2)
    memory = backbone.read_segment(tokens[:, :4], backbone.empty_memory(ROWS))[1]
    memory = backbone.read_segment(tokens[:, 4:], memory)[1]
    close(memory.hidden[:, 0, -4:], memory.hidden[:, 0, -8:-4])
    assert not torch.allclose(segments(backbone, tokens, [4, 4]), segments(backbone, tokens, [8]))


@torch.no_grad()
def test_shaws_distances_beyond_the_table_are_the_farthest():
    backbone = small(positions="shaw", memory=4)
    assert backbone.layers[0].attention.table.shape == (8, 12)
    longer = backbone.with_memory(20)
    clamped = backbone.with_memory(20, clamp_length=7)
    close(segments(longer, some_tokens(16), [8, 8]), segments(clamped, some_tokens(16), [8, 8]))


def test_variational_dropout_drops_the_same_in_all_places():
    torch.manual_seed(0)
    ones = torch.ones(3, 50, 40)
    once = Dropout(0.5, variational=True)(ones)
    assert torch.equal(once, once[:, :1].expand(-1, 50, -1))
    assert not torch.equal(once[0], once[1])
    assert set(once.flatten().tolist()) == {0.0, 2.0}
    plain = Dropout(0.5)(ones)
    assert not torch.equal(plain, plain[:, :1].expand(-1, 50, -1))
    assert Dropout(0.5, variational=True).eval()(ones) is ones


@torch.no_grad()
def test_dropout_is_off_in_evaluation_and_in_a_stepper():
    backbone, tokens = small(dropout=0.5, attention_dropout=0.5, variational=True), some_tokens()
    whole = backbone.read(backbone.embed(tokens))
    _, state = backbone.start(ROWS)
    assert not torch.allclose(backbone.train().read(backbone.embed(tokens)), whole)
    close(backbone.stepper(state).step(tokens[:, 0]), whole[:, 1])


@torch.no_grad()
def test_first_weights_are_those_of_the_paper():
    torch.manual_seed(0)
    backbone: Any = TransformerXl(400, layers=1, hidden=64, heads=2)
    attention = backbone.layers[0].attention
    for weight in (backbone.inputs, attention.into.weight, attention.position.weight, backbone.layers[0].wide.weight):
        assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
    assert float(backbone.layers[0].attention_norm.weight.mean()) == pytest.approx(1, abs=0.02)
    assert not backbone.layers[0].wide.bias.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 10, "heads": 3}, "multiple of heads"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"clamp_length": 0}, "clamp_length"),
        ({"divide": 2}, "give cutoffs"),
        ({"cutoffs": (3, 2)}, "cutoffs must grow"),
        ({"cutoffs": (2, 4), "divide": 40}, "cannot be divided"),
        ({"dropout": 1.0}, "dropout"),
        ({"layers": 0}, "layers"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TransformerXl(VOCABULARY, **{"hidden": 12, "heads": 3, **options})
