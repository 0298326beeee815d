"""Local-XL as a backbone: every way to read agrees, and nothing beyond its reach matters."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones import BACKBONES
from ebar.backbones.backbone import Carries
from ebar.backbones.local_xl import LocalBidirectional, LocalXl
from ebar.errors import UserError
from ebar.types import Sequences
from tests.backbones.reading import (
    ANYTHING,
    CONTEXTS,
    ROWS,
    SHARED,
    UNEQUAL,
    VOCABULARY,
    assert_all_ways_agree,
    assert_gradients_agree,
    assert_it_reads_and_steps,
    assert_nothing_later_matters,
    assert_padding_never_matters,
    assert_rows_can_be_selected,
    lively,
    some_tokens,
)

PREFIXES = {"none": None, **CONTEXTS}
SETTINGS: dict[str, dict[str, Any]] = {
    "chunks": {"chunk": 3},
    "window": {"chunk": 3, "window": True},
    "growing": {"chunk": [1, 2, 4]},
    "long": {"chunk": 50},
}


def small(dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    torch.manual_seed(0)
    return lively(LocalXl(VOCABULARY, **{"layers": 3, "hidden": 12, "heads": 3, "chunk": 3, **settings}), dtype)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_ways_to_read_agree(settings: str, prefix: str) -> None:
    assert_all_ways_agree(small(**SETTINGS[settings]), PREFIXES[prefix], torch.float64)


@pytest.mark.parametrize("terms", ["content", "bias", "dynamic", "light", "content+dynamic", "bias+light"])
def test_all_ways_to_read_agree_by_some_terms(terms: str) -> None:
    assert_all_ways_agree(small(terms=terms), UNEQUAL, torch.float64)


def test_all_ways_to_read_agree_in_single_precision() -> None:
    assert_all_ways_agree(small(torch.float32), SHARED, torch.float32)


@pytest.mark.parametrize("prefix", ["none", "unequal", "shared"])
def test_its_laws(prefix: str) -> None:
    backbone, context = small(), PREFIXES[prefix]
    assert_it_reads_and_steps(backbone, 12)
    assert_nothing_later_matters(backbone, context)
    assert_rows_can_be_selected(backbone, context)
    assert_gradients_agree(backbone, context)


def test_padding_of_prefixes_never_matters() -> None:
    assert_padding_never_matters(small())
    assert_padding_never_matters(small(window=True))


def first_that_matter(backbone: Any, length: int) -> list[int]:
    """The first place, of the beginning and the tokens, that each hidden vector depends on: by gradient, exactly."""
    tokens = torch.randint(0, VOCABULARY, (1, length), generator=Generator().manual_seed(3))
    inputs = torch.cat([backbone.embed(torch.tensor([[VOCABULARY]])), backbone.embed(tokens)], 1)
    inputs = inputs.detach().requires_grad_()
    hidden = backbone._through(inputs, backbone._before(1))[0]
    found = []
    for place in range(length + 1):
        (gradient,) = torch.autograd.grad(hidden[0, place, 0], inputs, retain_graph=True)
        found.append(int((gradient[0].abs().amax(1) > 0).nonzero()[0]))
    return found


def test_a_place_depends_on_one_chunk_more_for_each_layer() -> None:
    """Chunks of 3 in two layers: place 11, of the fourth chunk, reaches the second; the sum of 2C − 1 is never
    exceeded."""
    found = first_that_matter(small(layers=2, chunk=3), 14)
    assert found == [0] * 9 + [3] * 3 + [6] * 3
    assert max(place - first for place, first in enumerate(found)) == 8 <= 2 * 5


def test_a_place_depends_on_a_window_more_for_each_layer() -> None:
    found = first_that_matter(small(layers=3, chunk=3, window=True), 14)
    assert found == [max(0, place - 3 * 2) for place in range(15)]


def test_chunks_that_grow_by_layer_reach_as_far_as_they_say() -> None:
    """The top layer sees from the chunk of 4 before its own on, the one below from the chunk of 2 before that on."""
    found = first_that_matter(small(layers=2, chunk=[2, 4]), 14)
    assert found == [max(0, place // 4 * 4 - 4 - 2) for place in range(15)]


@pytest.mark.parametrize("settings", SETTINGS)
def test_segments_may_be_cut_anywhere(settings: str) -> None:
    backbone, tokens = small(**SETTINGS[settings]), some_tokens(17)
    whole = backbone.read(backbone.embed(tokens)).detach()
    assert isinstance(backbone, Carries)
    with_beginning = torch.nn.functional.pad(tokens, (1, 0), value=VOCABULARY)
    empty = backbone.empty_memory(ROWS)
    for lengths in ([18], [6, 12], [1, 4, 11, 2], [1] * 18):
        memory, parts = empty, []
        for segment in torch.split(with_beginning, lengths, 1):
            hidden, memory = backbone.read_segment(segment, memory)
            parts.append(hidden)
            assert [part.shape for part in memory] == [part.shape for part in empty]
            assert not memory.inputs.requires_grad
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-9)
        assert memory.place.tolist() == [18] * ROWS


def test_rows_of_a_memory_go_on_from_where_each_stands() -> None:
    backbone, tokens = small(), some_tokens(17)
    whole = backbone.read(backbone.embed(tokens)).detach()
    with_beginning = torch.nn.functional.pad(tokens, (1, 0), value=VOCABULARY)
    memories = [backbone.read_segment(with_beginning[:, :n], backbone.empty_memory(ROWS))[1] for n in (1, 8, 3)]
    rows = [0, 1, 2]  # the first has read one token, the second eight, the third three
    mixed = type(memories[0])(*(torch.stack([of[row] for of, row in zip(parts, rows, strict=True)])
                                for parts in zip(*memories, strict=True)))  # fmt: skip
    following = torch.stack([with_beginning[row, n : n + 7] for row, n in zip(rows, (1, 8, 3), strict=True)])
    found, after = backbone.read_segment(following, mixed)
    wanted = torch.stack([whole[row, n : n + 7] for row, n in zip(rows, (1, 8, 3), strict=True)])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
    assert after.place.tolist() == [8, 15, 10]


def test_gradients_end_at_the_memory() -> None:
    backbone, tokens = small(), some_tokens(8)
    _, memory = backbone.read_segment(tokens[:, :4], backbone.empty_memory(ROWS))
    hidden, _ = backbone.read_segment(tokens[:, 4:], memory)
    (gradient,) = torch.autograd.grad(hidden.square().sum(), backbone.inputs)
    unread = [token for token in range(VOCABULARY) if token not in tokens[:, 4:]]
    assert bool(gradient[tokens[:, 4:].unique()].abs().amax(1).min() > 0)
    assert not bool(gradient[[*unread, VOCABULARY]].any())


def test_a_state_and_a_stepper_are_bounded() -> None:
    backbone = small(chunk=[1, 2, 4])
    _, state = backbone.start(ROWS)
    for _ in range(4):
        _, state = backbone.advance(some_tokens(), state)
    assert [layer.shape[1] for layer in state.memory] == [1, 3, 7]
    stepper = backbone.stepper(state)
    for token in some_tokens().unbind(1):
        stepper.step(token)
    assert [cache.memory.shape[3] for cache in stepper.caches] == [2, 4, 8]


def encoder(**settings: Any) -> Any:
    torch.manual_seed(0)
    made = LocalBidirectional(VOCABULARY, **{"layers": 2, "hidden": 12, "heads": 3, "chunk": 3, **settings})
    return lively(made)


@pytest.mark.parametrize("settings", [{}, {"window": True}, {"chunk": [2, 50]}], ids=str)
def test_padding_never_matters_to_the_encoder(settings: dict[str, Any]) -> None:
    network, lengths = encoder(**settings), torch.tensor([11, 0, 4, 7, 1, 10])
    x = Sequences(torch.where(torch.arange(11) < lengths[:, None], some_tokens(11), ANYTHING), lengths)
    with torch.no_grad():
        found = network(x)
        assert bool(found.isfinite().all())
        wider = network(Sequences(torch.nn.functional.pad(x.tokens, (0, 9), value=-1), lengths))
        for row, length in enumerate(lengths.tolist()):
            alone = network(Sequences(x.tokens[row : row + 1, :length], lengths[row : row + 1]))[0]
            torch.testing.assert_close(found[row, :length], alone, rtol=0, atol=1e-12)
            torch.testing.assert_close(wider[row, :length], alone, rtol=0, atol=1e-12)


def test_the_encoder_sees_one_chunk_more_to_each_side_for_each_layer() -> None:
    network, tokens = encoder(), some_tokens(20)[:1]
    lengths = torch.tensor([20])
    with torch.no_grad():
        before: Tensor = network(Sequences(tokens, lengths))[0]
        changed = tokens.clone()
        changed[0, 10] = (changed[0, 10] + 1) % VOCABULARY  # place 11 with the beginning, of the chunk 9 … 11
        moved = (network(Sequences(changed, lengths))[0] - before).abs().amax(1) > 1e-9
    assert moved.nonzero().flatten().tolist() == list(range(2, 17))  # places 3 … 17 with the beginning


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": [3, 3]}, "chunk has 2 numbers for 4 layers: give one, or one for each layer"),
        ({"chunk": 0}, "chunk must be at least 1, not 0"),
        ({"terms": "content+colour"}, "terms must be all, or some of content, bias, dynamic, light joined by"),
        ({"hidden": 10, "heads": 4}, "hidden must be a multiple of heads"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BACKBONES.make("local_xl", options, vocabulary=3)
