"""XLNet: who sees what, exactly; memory, segments, directions; full and local attention; any order."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from ebar.backbones.backbone import Backbone, Reads
from ebar.backbones.xlnet import XlNet, XlNetMemory
from ebar.errors import UserError
from ebar.testing import check_backbone
from ebar.testing.backbones import by_segments
from ebar.types import Context, Sequences
from tests.backbones.reading import CONTEXTS, assert_nothing_later_matters

VOCABULARY, ROWS = 7, 3
SAME = 1e-12


def small(seed: int = 0, **settings: Any) -> Any:
    """In double precision, every parameter far from where it was set; without dropout."""
    backbone = XlNet(VOCABULARY, **{"layers": 2, "hidden": 8, "heads": 2, **settings}).double().eval()
    generator = Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return backbone


def twin(backbone: Any, **settings: Any) -> Any:
    """The same weights, attending otherwise."""
    other = small(layers=len(backbone.layers), **settings)
    other.load_state_dict(backbone.state_dict())
    return other


def draw(high: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(0, high, shape, generator=Generator().manual_seed(seed))


def near(length: int, chunk: int | None) -> Tensor:
    """Which places lie in the same chunk or in neighbours."""
    at = torch.arange(length) // (chunk or length)
    return (at[:, None] - at).abs() <= 1


def reached(hidden_from: Tensor, chunks: list[int | None]) -> tuple[Tensor, Tensor]:
    """Which tokens the content and the query of each place depend on after all layers, in one row."""
    itself = torch.eye(len(hidden_from), dtype=torch.bool)
    content, query = itself.clone(), torch.zeros_like(itself)
    for chunk in chunks:
        sees = ~hidden_from & near(len(itself), chunk)
        query = query | ((sees & ~itself).double() @ content.double() > 0)
        content = (sees | itself).double() @ content.double() > 0
    return content, query


def changes(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().amax(-1) > SAME


CHUNKS: list[Any] = [None, 1, 2, 3, [1, 2], [3, 1]]


@settings(max_examples=40)
@given(
    length=st.integers(2, 9), chunk=st.sampled_from(CHUNKS), permutation=st.booleans(), memory=st.sampled_from([0, 4]),
    segments=st.booleans(), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_a_token_changes_what_may_see_it_and_nothing_else(length, chunk, permutation, memory, segments, seed):
    """Of orders, and of any masks at all; through all layers, with and without memory, full and local."""
    backbone, generator = small(seed, chunk=chunk, memory=memory), Generator().manual_seed(seed)
    if permutation:
        rank = torch.rand(ROWS, length, generator=generator).argsort(1)
        hidden_from = rank[:, :, None] <= rank[:, None]
    else:
        hidden_from = torch.rand(ROWS, length, length, generator=generator) < 0.6
    told: dict[str, Any] = {"hidden_from": hidden_from, "targets": torch.arange(length).expand(ROWS, -1)}
    tokens = draw(VOCABULARY, ROWS, length, seed=seed)
    if segments:
        told["segments"] = draw(3, ROWS, length, seed=seed + 1)
    if memory:
        told["memory"] = backbone(draw(VOCABULARY, ROWS, 5, seed=seed + 2)).memory
    may = [reached(row, backbone.chunks) for row in hidden_from]
    with torch.no_grad():
        before = backbone(tokens, **told)
        for place in range(length):
            changed = tokens.clone()
            changed[:, place] = (changed[:, place] + 1) % VOCABULARY
            after = backbone(changed, **told)
            for row, (content, query) in enumerate(may):
                assert torch.equal(changes(after.content[row], before.content[row]), content[:, place])
                assert torch.equal(changes(after.query[row], before.query[row]), query[:, place])


@settings(max_examples=40)
@given(
    length=st.integers(1, 11), chunk=st.sampled_from(CHUNKS), masked=st.booleans(), segments=st.booleans(),
    padded=st.booleans(), predicted=st.integers(0, 6), backwards=st.booleans(), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_local_attention_is_full_attention_that_hides_what_is_far(
    length, chunk, masked, segments, padded, predicted, backwards, seed
):
    chunk = chunk if not isinstance(chunk, list) else chunk[0]
    local, generator = small(seed, chunk=chunk), Generator().manual_seed(seed)
    told: dict[str, Any] = {"targets": draw(length + 1, ROWS, predicted, seed=seed) - 1}
    tokens, hidden = draw(VOCABULARY, ROWS, length, seed=seed), torch.zeros(ROWS, length, length, dtype=torch.bool)
    if masked:
        hidden = torch.rand(ROWS, length, length, generator=generator) < 0.5
    if segments:
        told["segments"] = draw(3, ROWS, length, seed=seed + 1)
    if backwards:
        told["backwards"] = torch.tensor([True, False, True])
    inside = torch.ones(ROWS, length, dtype=torch.bool)
    if padded:
        inside = torch.arange(length) < draw(length, ROWS, 1, seed=seed) + 1
        told["inside"] = inside
    with torch.no_grad():
        ours = local(tokens, hidden_from=hidden if masked else None, **told)
        full = twin(local)(tokens, hidden_from=hidden | ~near(length, chunk), **told)
        torch.testing.assert_close(ours.content[inside], full.content[inside], rtol=0, atol=SAME)
        real = told["targets"] >= 0
        torch.testing.assert_close(ours.query[real], full.query[real], rtol=0, atol=SAME)


@pytest.mark.parametrize("memory", [0, 5])
def test_a_chunk_as_long_as_the_text_is_full_attention(memory):
    full, tokens, targets = small(memory=memory), draw(VOCABULARY, ROWS, 6), draw(6, ROWS, 3)
    local = twin(full, memory=memory, chunk=6)
    remembered = None
    with torch.no_grad():
        for _ in range(2):
            ours, wanted = (net(tokens, targets=targets, memory=remembered, reuse=4) for net in (full, local))
            assert all(torch.equal(one, other) for one, other in zip(ours[:2], wanted[:2], strict=True))
            remembered = ours.memory


@pytest.mark.parametrize("chunk", [None, 2, 3, 6])
def test_memory_stands_left_of_the_text(chunk):
    """With one layer what is remembered are tokens, so that two texts one after the other are one text."""
    backbone, tokens = small(layers=1, memory=6, chunk=chunk), draw(VOCABULARY, ROWS, 15)
    targets = draw(9, ROWS, 4)
    with torch.no_grad():
        first = backbone(tokens[:, :6])
        assert first.memory.filled.tolist() == [6] * ROWS
        second = backbone(tokens[:, 6:], targets=targets, memory=first.memory)
        whole = backbone(tokens, targets=targets + 6)
        torch.testing.assert_close(second.content, whole.content[:, 6:], rtol=0, atol=SAME)
        torch.testing.assert_close(second.query, whole.query, rtol=0, atol=SAME)
        assert bool(changes(second.content, backbone(tokens[:, 6:]).content)[:, 0].all())  # and it is seen


def test_memory_is_of_fixed_size_and_each_row_has_its_own():
    backbone, tokens = small(memory=5), draw(VOCABULARY, ROWS, 4)
    empty = backbone.empty_memory(ROWS)
    assert empty.inputs.shape == (ROWS, 2, 5, 8)
    assert empty.filled.tolist() == [0] * ROWS
    with torch.no_grad():
        memory = backbone(tokens, memory=empty, reuse=3).memory
        assert (memory.inputs.shape, memory.filled.tolist()) == (empty.inputs.shape, [3] * ROWS)
        fuller = backbone(tokens, memory=memory, reuse=3).memory
        assert fuller.filled.tolist() == [5] * ROWS
        torch.testing.assert_close(fuller.inputs[:, 0, -3:], backbone.embed(tokens[:, :3]), rtol=0, atol=0)
        torch.testing.assert_close(fuller.inputs[:, :, :2], memory.inputs[:, :, -2:], rtol=0, atol=0)
        assert torch.equal(backbone(tokens, memory=memory, reuse=0).memory.inputs, memory.inputs)
        mixed = XlNetMemory(fuller.inputs, torch.tensor([0, 3, 5]))
        together = backbone(tokens, memory=mixed).content
        for row, own in enumerate((empty, mixed, fuller)):
            alone = backbone(tokens[row : row + 1], memory=XlNetMemory(*(part[row : row + 1] for part in own)))
            torch.testing.assert_close(together[row], alone.content[0], rtol=0, atol=SAME)
    assert not backbone(tokens).memory.inputs.requires_grad
    assert small()(tokens).memory is None
    with pytest.raises(UserError, match="begin anew"):
        small(memory=4)(tokens, memory=empty)


def test_segments_matter_where_they_differ_and_only_there():
    backbone, tokens, targets = small(memory=3), draw(VOCABULARY, ROWS, 6), draw(6, ROWS, 2)

    def read(segments: Tensor | None, memory: XlNetMemory | None = None) -> Any:
        return backbone(tokens, segments=segments, targets=targets, memory=memory)

    with torch.no_grad():
        plain, two = read(None), draw(2, ROWS, 6)
        for same in (torch.zeros_like(tokens), torch.full_like(tokens, 2), draw(3, ROWS, 1).expand(-1, 6)):
            one = read(same)
            assert torch.equal(one.content, plain.content)
            assert torch.equal(one.query, plain.query)
        assert bool(changes(read(two).content, plain.content).all())
        torch.testing.assert_close(read(two).content, read(2 - 2 * two).content, rtol=0, atol=SAME)  # by any names
        ones = torch.ones_like(tokens)
        assert bool(changes(read(ones, plain.memory).content, read(0 * ones, plain.memory).content).all())
        assert torch.equal(read(0 * ones, plain.memory).content, read(None, plain.memory).content)


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_text_read_backwards_is_the_text_turned_around(chunk):
    backbone, tokens = small(chunk=chunk, clamp_length=3), draw(VOCABULARY, ROWS, 6)
    backwards = torch.tensor([True, False, True])
    turned = torch.where(backwards[:, None], tokens.flip(1), tokens)
    with torch.no_grad():
        plain = backbone(tokens).content
        wanted = torch.where(backwards[:, None, None], plain.flip(1), plain)
        torch.testing.assert_close(backbone(turned, backwards=backwards).content, wanted, rtol=0, atol=SAME)
        all_turned = backbone(tokens.flip(1), backwards=torch.ones(ROWS, dtype=torch.bool)).content
        torch.testing.assert_close(all_turned, plain.flip(1), rtol=0, atol=SAME)
        assert bool(changes(backbone(tokens.flip(1)).content, plain.flip(1)).any())


@pytest.mark.parametrize("chunk", [None, 2])
def test_padding_never_matters(chunk):
    backbone, tokens, lengths = small(chunk=chunk), draw(VOCABULARY, ROWS, 5), torch.tensor([5, 2, 4])
    inside = torch.arange(5) < lengths[:, None]
    with torch.no_grad():
        wanted = backbone(tokens, inside=inside).content
        anything = torch.nn.functional.pad(tokens.where(inside, 99), (0, 4), value=-5)
        wider = backbone(anything, inside=torch.nn.functional.pad(inside, (0, 4))).content[:, :5]
        torch.testing.assert_close(wider[inside], wanted[inside], rtol=0, atol=SAME)
        for row, length in enumerate(lengths.tolist()):
            alone = backbone(tokens[row : row + 1, :length]).content[0]
            torch.testing.assert_close(alone, wanted[row, :length], rtol=0, atol=SAME)
        assert bool(backbone(tokens, inside=torch.zeros_like(inside)).content.isfinite().all())


def left_to_right(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu().expand(ROWS, -1, -1)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_in_the_order_of_the_text_it_reads_from_left_to_right(chunk):
    backbone, tokens = small(chunk=chunk, clamp_length=4), draw(VOCABULARY, ROWS, 7)
    with torch.no_grad():
        query = backbone(tokens, hidden_from=left_to_right(7), targets=torch.arange(7).expand(ROWS, -1)).query
        stepped = by_segments(backbone, tokens, None, [1] * 7)[:, :-1]
        torch.testing.assert_close(query, stepped, rtol=0, atol=SAME)


@settings(max_examples=25)
@given(
    chunk=st.sampled_from(CHUNKS), lengths=st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS),
    seed=st.integers(0, 10_000),
)  # fmt: skip
def test_in_any_order_steps_agree_with_one_pass(chunk, lengths, seed):
    """Given tokens see each other; a token to come sees them, those before it and itself."""
    backbone, given_lengths = small(seed, chunk=chunk), torch.tensor(lengths)
    order = torch.rand(ROWS, 7, generator=Generator().manual_seed(seed)).argsort(1)
    tokens = draw(VOCABULARY, ROWS, 7, seed=seed)  # in the order in which they come
    most = int(given_lengths.max())
    context = Context(Sequences(tokens[:, :most], given_lengths), order)
    rank = (torch.arange(7) - given_lengths[:, None] + 1).clamp(min=0)
    by_place = torch.zeros_like(tokens).scatter(1, order, rank)
    text = torch.zeros_like(tokens).scatter(1, order, tokens)
    with torch.no_grad():
        hidden_from = (by_place[:, :, None] <= by_place[:, None]) & (by_place[:, None] > 0)
        wanted = backbone(text, hidden_from=hidden_from, targets=order).query
        to_come = 7 - most
        each = given_lengths[:, None] + torch.arange(to_come)
        coming = tokens.gather(1, each)
        for cuts in ([to_come], [1] * to_come):
            steps = by_segments(backbone, coming, context, cuts)[:, :-1]
            own = wanted.gather(1, each[:, :, None].expand(-1, -1, 8))
            torch.testing.assert_close(steps, own, rtol=0, atol=SAME)
        check_backbone(backbone, vocabulary=VOCABULARY, length=to_come, rows=ROWS, context=context)


@pytest.mark.parametrize("prefix", CONTEXTS)
@pytest.mark.parametrize("chunk", [None, 2])
def test_the_laws_of_backbones_hold(prefix, chunk):
    backbone, context = small(chunk=chunk), CONTEXTS[prefix]
    check_backbone(backbone, vocabulary=5, length=6, rows=6, context=context)
    if chunk is None:
        assert_nothing_later_matters(small(), context)
    assert isinstance(backbone, Backbone)
    assert isinstance(backbone, Reads)


@pytest.mark.parametrize("chunk", [None, 2, [1, 3]])
def test_gradients_are_those_of_differences(chunk):
    backbone, tokens = small(chunk=chunk, memory=3), draw(VOCABULARY, ROWS, 7)
    told: dict[str, Any] = {
        "segments": draw(2, ROWS, 7), "hidden_from": left_to_right(7), "targets": draw(8, ROWS, 4) - 1,
        "backwards": torch.tensor([False, True, False]), "memory": backbone(tokens).memory,
    }  # fmt: skip
    weights = torch.randn(2, ROWS, 7, 8, dtype=torch.float64, generator=Generator().manual_seed(3))

    def loss() -> Tensor:
        output = backbone(tokens, **told)
        real = (told["targets"] >= 0)[:, :, None]
        total: Tensor = (output.content * weights[0]).sum() + (output.query * real * weights[1, :, :4]).sum()
        return total

    torch.autograd.backward(loss())
    for name, parameter in backbone.named_parameters():
        assert parameter.grad is not None, name
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=Generator().manual_seed(4))
        with torch.no_grad():
            differences = []
            for step in (1e-5, -1e-5):
                kept = parameter.clone()
                parameter.add_(step * direction)
                differences.append(loss())
                parameter.copy_(kept)
        slope = (differences[0] - differences[1]) / 2e-5
        torch.testing.assert_close((parameter.grad * direction).sum(), slope, rtol=1e-5, atol=1e-5, msg=name)


def test_a_query_that_sees_nothing_has_a_gradient_and_no_nan():
    backbone = small(dropout=0.1, attention_dropout=0.1, chunk=2).train()
    output = backbone(
        draw(VOCABULARY, ROWS, 7), inside=torch.arange(7) < torch.tensor([[7], [1], [3]]),
        hidden_from=left_to_right(7), targets=torch.tensor([[0, 3], [0, -1], [0, 2]]),
    )  # fmt: skip
    torch.autograd.backward(output.query.square().mean() + output.content.sum())
    assert all(
        bool(parameter.grad.isfinite().all()) for parameter in backbone.parameters() if parameter.grad is not None
    )


def test_dropout_is_of_the_training_mode_alone():
    backbone, tokens = small(dropout=0.5, attention_dropout=0.5), draw(VOCABULARY, ROWS, 5)
    assert torch.equal(backbone(tokens).content, backbone(tokens).content)
    backbone.train()
    assert not torch.equal(backbone(tokens).content, backbone(tokens).content)


def test_a_query_at_a_place_that_is_none_is_no_query():
    """They may stand anywhere among the targets, in any number."""
    backbone, tokens = small(chunk=2), draw(VOCABULARY, ROWS, 7)
    targets = torch.tensor([[5, -1, 0, 6], [-1, -1, -1, -1], [3, 3, -1, 2]])
    with torch.no_grad():
        every = backbone(tokens, targets=torch.arange(7).expand(ROWS, -1)).query
        some = backbone(tokens, targets=targets).query
        for row, column in (targets >= 0).nonzero().tolist():
            torch.testing.assert_close(some[row, column], every[row, targets[row, column]], rtol=0, atol=SAME)
        assert backbone(tokens, targets=targets[:, :0]).query.shape == (ROWS, 0, 8)
        assert backbone(tokens[:0], targets=targets[:0]).content.shape == (0, 7, 8)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hidden": 7}, "multiple of heads"), ({"memory": -1}, "memory"), ({"clamp_length": 0}, "clamp_length"),
        ({"chunk": [1]}, "chunk has 1 numbers for 2"), ({"chunk": 0}, "chunk must"), ({"dropout": 1.0}, "dropout"),
        ({"head_size": 0}, "head_size"), ({"layers": 0}, "layers"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        small(**settings)
