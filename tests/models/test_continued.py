"""A model in the middle of a long text."""

import pytest
import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.maths.rows import take
from ebar.models.construction import FromLogits
from ebar.models.continued import Carried, Continued, begin, segment_log_probs
from ebar.models.stepwise import token_log_probs
from ebar.testing import check_stepwise
from ebar.types import Context, Sequences, Space
from tests.models.carrying import KINDS, Seen, carrying_model

SPACE = Space(3, 4)


def whole(tokens: torch.Tensor) -> Sequences:
    return Sequences(tokens, torch.full((len(tokens),), tokens.shape[1]))


def somewhere(kind: str, rows: int = 1) -> Continued:
    """After seven tokens of each text, read in two segments."""
    model = carrying_model(kind, SPACE)
    carried, text = begin(model, rows), torch.randint(3, (rows, 7), generator=Generator().manual_seed(1))
    for part in (text[:, :5], text[:, 5:]):
        _, carried = Continued(model, carried).read(part)
    return Continued(model, carried)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_stepwise_distribution_at_the_beginning_and_in_the_middle(kind):
    model = carrying_model(kind, SPACE)
    check_stepwise(Continued(model, begin(model, 1)), tolerance=1e-9)
    check_stepwise(somewhere(kind), tolerance=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_beginning_it_is_the_model_itself(kind):
    model = carrying_model(kind, SPACE)
    x = model.sample(20, generator=Generator().manual_seed(2))
    expected = model.log_prob(x)
    if kind == "summing":  # which as a stepwise model sees its memory only: two tokens more than there are here
        x = Sequences(x.tokens[:, :2], x.lengths.clamp(max=2))
        expected = token_log_probs(model, x).sum(1)
    found = Continued(model, begin(model, 1), length=x.tokens.shape[1]).log_prob(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_each_text_are_consecutive_and_scored_alike(kind):
    three = somewhere(kind, rows=3)
    x, drawn = three.sample_with_log_prob(5, generator=Generator().manual_seed(3))
    assert x.tokens.shape == (15, 4)
    torch.testing.assert_close(three.log_prob(x), drawn, rtol=0, atol=1e-12)
    for row in range(3):
        alone = Continued(three.model, take(three.carried, torch.tensor([row])))
        own = x.select(slice(5 * row, 5 * row + 5))
        torch.testing.assert_close(alone.log_prob(own), drawn[5 * row : 5 * row + 5], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_and_what_follows_are_scored_as_one(kind):
    continued = somewhere(kind)
    x = whole(torch.randint(3, (6, 4), generator=Generator().manual_seed(4)))
    prefix = Sequences(x.tokens[:, :2], torch.full((6,), 2))
    rest = Sequences(x.tokens[:, 2:], torch.full((6,), 2))
    two = Continued(continued.model, continued.carried, length=2)
    found = two.log_prob(prefix) + two.log_prob(rest, Context(prefix))
    torch.testing.assert_close(found, continued.log_prob(x), rtol=0, atol=1e-12)
    unequal = Context(Sequences(prefix.tokens, torch.tensor([2, 1, 2, 2, 2, 2])))
    with pytest.raises(UserError, match="as many tokens"):
        two.start(6, unequal)


def test_an_lstm_read_in_segments_is_the_lstm_read_at_once():
    model = carrying_model("lstm", SPACE)
    text = torch.randint(3, (2, 23), generator=Generator().manual_seed(5))
    at_once = torch.cat(list(segment_log_probs(model, text, segment=23)), 1)
    for segment in (1, 4, 22):
        found = torch.cat(list(segment_log_probs(model, text, segment=segment)), 1)
        torch.testing.assert_close(found, at_once, rtol=0, atol=1e-12)


def test_a_transformer_sees_its_segment_and_the_token_before_it_alone():
    model = carrying_model("transformer", SPACE)
    text = torch.randint(3, (1, 8), generator=Generator().manual_seed(6))
    other = text.clone()
    other[:, :3] = (other[:, :3] + 1) % 3
    _, second = segment_log_probs(model, text, segment=4)
    _, changed = segment_log_probs(model, other, segment=4)
    assert torch.equal(second, changed)
    other[:, 3] = (other[:, 3] + 1) % 3
    assert not torch.equal(second, list(segment_log_probs(model, other, segment=4))[1])


def test_the_memory_of_summing_by_hand():
    """Two tokens after the beginning, of which the last has not been read: mark and first token are remembered."""
    model = carrying_model("summing", SPACE)
    _, carried = Continued(model, begin(model, 1), length=2).read(torch.tensor([[2, 1]]))
    assert isinstance(carried.memory, Seen)
    inputs = model.backbone.inputs
    assert torch.equal(carried.memory.vectors[0], torch.stack([torch.zeros_like(inputs[0]), inputs[3], inputs[2]]))
    assert carried.memory.valid.tolist() == [2]
    assert carried.last.tolist() == [1]
    hidden, _ = Continued(model, carried, length=1).read(torch.tensor([[0]]))
    torch.testing.assert_close(hidden[0, 0], inputs[3] + inputs[2] + inputs[1])


@pytest.mark.parametrize("kind", KINDS)
def test_it_remembers_what_came_after_its_own_tokens_and_no_others(kind):
    continued = somewhere(kind, rows=2)
    own = torch.tensor([[0, 1, 2], [2, 1, 0]])
    watched = Continued(continued.model, continued.carried, own=own)
    watched.teacher_forced(own.flip(1))
    watched.teacher_forced(own.repeat_interleave(2, 0))
    watched.start(2)
    assert watched.after is None
    watched.teacher_forced(own)
    _, expected = continued.read(own)
    assert isinstance(watched.after, Carried)
    for found, wanted in zip(watched.after.memory, expected.memory, strict=True):
        assert torch.equal(found, wanted)
        assert not found.requires_grad
    assert watched.after.last.tolist() == [2, 0]


def test_what_cannot_go_on_is_refused():
    network = FromLogits(nn.Embedding(3, 3), SPACE, beginning=0)
    with pytest.raises(UserError, match="FromLogits cannot go on from one segment of a text to the next"):
        begin(network, 1)
    with pytest.raises(UserError, match="has no end"):
        Continued(carrying_model("lstm", Space(3, 4, 2)), begin(carrying_model("lstm", SPACE), 1))
