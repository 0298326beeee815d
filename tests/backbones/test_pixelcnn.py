from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.backbone import Backbone, Quick, Reads
from ebar.backbones.pixelcnn import GatedPixelCnn, PixelCnn, gated
from ebar.backbones.raster import MaskedConvolution
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import ancestral_by_token, teacher_forced, token_log_probs
from ebar.types import Context, Sequences, Space

KINDS = [PixelCnn, GatedPixelCnn]
SHAPES = [(2, 1, 7, 5), (256, 1, 5, 6), (2, 3, 3, 3), (256, 3, 5, 2), (2, 1, 1, 1), (3, 2, 1, 4), (2, 1, 6, 1)]
# levels, channels, height, width


def network(kind: Any, levels: int, channels: int, height: int, width: int, **options: Any) -> Any:
    torch.manual_seed(1)
    sizes = {"features": 2 * channels, "layers": 3, **options}
    return kind(levels, image_height=height, image_width=width, channels=channels, **sizes).double()


def images(backbone: Any, number: int, generator: Generator) -> Tensor:
    return torch.randint(0, backbone.vocabulary, (number, backbone.length), generator=generator)


def beginning(tokens: Tensor, length: int) -> Context:
    return Context(Sequences(tokens[:, :length], torch.full((len(tokens),), length)))


def test_a_masked_kernel_by_hand():
    convolution = MaskedConvolution(1, 1, above=1, side=1, own="before")
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor([[[[1.0, 10, 100], [1000, 1e4, 1e5]]]]))
        convolution.bias.fill_(0.5)
    # Only the three above and the one to the left count.
    assert convolution.kernel().tolist() == [[[[1, 10, 100], [1000, 0, 0]]]]
    x = torch.tensor([[[[1.0, 2, 3], [4, 5, 6]]]])
    assert convolution(x).tolist() == [[[[210.5, 4321.5, 5032.5]]]]


def test_a_group_sees_the_groups_before_it_in_its_own_place():
    before = MaskedConvolution(3, 6, own="before", channels=3).mask[:, :, 0, 0]
    assert before.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert MaskedConvolution(3, 3, channels=3).mask[:, :, 0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_the_gate_is_half_of_tanh_times_sigmoid(generator):
    x = torch.randn(2, 12, 3, 4, generator=generator, dtype=torch.float64)
    a, b = x[:, [0, 1, 4, 5, 8, 9]], x[:, [2, 3, 6, 7, 10, 11]]  # side by side in each of three groups
    torch.testing.assert_close(gated(x, 3), torch.tanh(a / 2) * torch.sigmoid(b) / 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_every_way_to_read_is_the_parallel_pass(kind, shape, generator):
    backbone = network(kind, *shape)
    for protocol in (Backbone, Reads, Quick):
        assert isinstance(backbone, protocol)
    tokens = images(backbone, 4, generator)
    whole = backbone.read(backbone.embed(tokens))
    assert whole.shape == (4, backbone.length + 1, backbone.width)
    assert not bool(whole[:, -1].any())  # beyond the image
    first, state = backbone.start(4)
    close(first, whole[:, 0])
    close(backbone.advance(tokens, state)[0], whole[:, 1:])
    stepper, by_one, place = backbone.stepper(state), state, 0
    for at in range(backbone.length):
        close(stepper.step(tokens[:, at]), whole[:, at + 1])
        hidden, by_one = backbone.advance(tokens[:, at : at + 1], by_one)
        close(hidden[:, 0], whole[:, at + 1])
    while place < backbone.length:  # pieces of any length
        size = int(torch.randint(1, 2 * backbone.in_a_row + 2, (), generator=generator))
        hidden, state = backbone.advance(tokens[:, place : place + size], state)
        close(hidden, whole[:, place + 1 : place + size + 1])
        place += size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 1, 8, 3), (256, 3, 7, 2)])
@torch.no_grad()
def test_a_beginning_that_is_given_is_read_as_if_it_had_been_drawn(kind, shape, generator):
    backbone = network(kind, *shape)
    assert backbone.reach == 5  # so that some rows are left out
    tokens = images(backbone, 3, generator)
    inputs = backbone.embed(tokens)
    whole = backbone.read(inputs)
    for length in range(backbone.length + 1):
        context, end = beginning(tokens, length), min(length + 4, backbone.length)
        close(backbone.read(inputs[:, length:end], context), whole[:, length : end + 1])
        first, state = backbone.start(6, context)
        pair = torch.arange(3).repeat_interleave(2)
        close(first, whole[pair, length])
        close(backbone.advance(tokens[pair, length:], state)[0], whole[pair, length + 1 :])
        stepper = backbone.stepper(state)
        for at in range(length, end):
            close(stepper.step(tokens[pair, at]), whole[pair, at + 1])
    close(backbone.read(inputs[:, 4:].repeat_interleave(2, 0), beginning(tokens, 4)), whole[pair, 4:])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_single_precision_steps_agree_too(kind, generator):
    backbone = network(kind, 256, 3, 5, 5, features=24, layers=6).float()
    tokens = images(backbone, 5, generator)
    whole = backbone.read(backbone.embed(tokens))
    stepper = backbone.stepper(backbone.start(5)[1])
    steps = torch.stack([stepper.step(tokens[:, at]) for at in range(backbone.length)], 1)
    torch.testing.assert_close(steps, whole[:, 1:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_can_be_dropped_and_repeated_at_any_place(kind, generator):
    backbone = network(kind, 2, 3, 3, 2)
    for at in (1, 5, 6, 7, 14):
        tokens = images(backbone, 3, generator)
        stepper, state = backbone.stepper(backbone.start(3)[1]), backbone.start(3)[1]
        for place in range(at):
            stepper.step(tokens[:, place])
        _, state = backbone.advance(tokens[:, :at], state)
        kept = torch.tensor([2, 0, 2, 1, 2])
        stepper.keep(kept)
        tokens = torch.cat([tokens[kept, :at], images(backbone, 5, generator)[:, at:]], 1)
        whole = backbone.read(backbone.embed(tokens))
        close(backbone.advance(tokens[:, at:], state.select(kept))[0], whole[:, at + 1 :])
        for place in range(at, backbone.length):
            close(stepper.step(tokens[:, place]), whole[:, place + 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_never_changed(kind, generator):
    backbone = network(kind, 2, 1, 4, 4)
    tokens = images(backbone, 2, generator)
    _, state = backbone.start(2, beginning(tokens, 6))
    before = [part.clone() for part in (*state.above, state.row)]
    backbone.advance(tokens[:, 6:], state)
    stepper = backbone.stepper(state)
    for place in range(6, 16):
        stepper.step(tokens[:, place])
    for now, then in zip((*state.above, state.row), before, strict=True):
        assert torch.equal(now, then)


def influence(backbone: Any, tokens: Tensor) -> Tensor:
    """[t, u]: whether token t's change changes the hidden vector of place u."""
    rows = tokens.repeat(backbone.length, 1)
    base = backbone.read(backbone.embed(rows))  # as many rows, so that rounding is the same where numbers are
    at = torch.arange(backbone.length)
    rows[at, at] = (rows[at, at] + 1) % backbone.vocabulary
    changed: Tensor = (backbone.read(backbone.embed(rows)) != base).any(2)[:, :-1]
    return changed


def reached(backbone: Any, *, blind: bool) -> Tensor:
    """The same on paper: row by row, how far a kernel of 7 × 7 and two of 3 × 3 see."""
    channels, width = backbone.channels, backbone.image_width
    expected = torch.zeros(backbone.length, backbone.length, dtype=torch.bool)
    for t in range(backbone.length):
        for u in range(t + 1, backbone.length):
            (pixel, channel), (target, target_channel) = divmod(t, channels), divmod(u, channels)
            up = target // width - pixel // width
            right = pixel % width - target % width
            if up == 0:
                expected[t, u] = -5 <= right < 0 or (right == 0 and channel < target_channel)
            elif blind:
                # The first kernel looks three columns to the right, each other one more, but only one row up with it.
                expected[t, u] = up <= 5 and -5 <= right <= 3 + min(2, up - 1)
            else:
                expected[t, u] = up <= 5 and abs(right) <= 5
    return expected


@pytest.mark.parametrize("shape", [(2, 1, 7, 7), (256, 3, 3, 3)])
@torch.no_grad()
def test_gated_sees_all_that_is_within_reach_before_a_place_and_nothing_else(shape, generator):
    backbone = network(GatedPixelCnn, *shape, features=16 * shape[1])
    assert torch.equal(influence(backbone, images(backbone, 1, generator)), reached(backbone, blind=False))


@pytest.mark.parametrize("shape", [(2, 1, 7, 7), (256, 3, 3, 3)])
@torch.no_grad()
def test_the_plain_one_has_a_blind_spot_and_sees_nothing_that_comes_after(shape, generator):
    backbone = network(PixelCnn, *shape, features=16 * shape[1])
    tokens = images(backbone, 1, generator)
    seen = influence(backbone, tokens)
    assert not bool(seen.tril().any())
    assert not bool((seen & ~reached(backbone, blind=True)).any())
    # A rectifier can be shut, so not all that can be seen is; nearly all is.
    assert float(seen.sum()) > 0.95 * float(reached(backbone, blind=True).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_same_however_it_is_read(kind, generator):
    backbone = network(kind, 2, 3, 9, 4)
    tokens = images(backbone, 3, generator)
    context = beginning(tokens, 90)
    weights = torch.randn(3, 11, backbone.width, generator=generator, dtype=torch.float64)

    def gradients(hidden: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((hidden * weights).sum(), list(backbone.parameters()))

    inputs = backbone.embed(tokens)
    cropped = gradients(backbone.read(inputs[:, 90:100], context))
    whole = gradients(backbone.read(inputs)[:, 90:101])
    first, state = backbone.start(3, context)
    parts = [first[:, None]]
    for at in range(90, 100, 2):
        hidden, state = backbone.advance(tokens[:, at : at + 2], state)
        parts.append(hidden)
    stepwise = gradients(torch.cat(parts, 1))
    for one, other, third in zip(whole, cropped, stepwise, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        torch.testing.assert_close(one, third, rtol=0, atol=1e-10)
    assert all(bool(part.any()) for part in whole)


def model(kind: Any, levels: int, channels: int, height: int, width: int) -> Autoregressive:
    backbone = network(kind, levels, channels, height, width)
    space = Space(levels, height * width * channels)
    return Autoregressive(backbone, Softmax(backbone.width, levels), space).double()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_know_their_log_probability(kind, generator):
    q = model(kind, 3, 2, 3, 3)
    x, drawn = q.sample_with_log_prob(50, generator=generator)
    close(drawn, q.log_prob(x))
    tokens, by_token = ancestral_by_token(q, 4, generator=generator)
    close(by_token, token_log_probs(q, tokens))
    logits = teacher_forced(q, tokens.tokens)
    close(logits.log_softmax(2).gather(2, tokens.tokens[:, :, None]).squeeze(2), by_token)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_of_all_images_add_up_to_one(kind):
    q = model(kind, 2, 1, 3, 3)
    every = torch.cartesian_prod(*[torch.arange(2)] * 9)
    total = q.log_prob(Sequences(every, torch.full((512,), 9))).exp().sum()
    assert float(total.detach()) == pytest.approx(1, abs=1e-12)


def test_what_cannot_be_is_refused():
    backbone = network(GatedPixelCnn, 2, 1, 2, 3)
    given = Context(Sequences(torch.zeros(2, 4, dtype=torch.long), torch.tensor([4, 3])))
    with pytest.raises(UserError, match="must all have as many pixels"):
        backbone.start(2, given)
    with pytest.raises(UserError, match="has 6 tokens, and 7 were given"):
        backbone.read(backbone.embed(torch.zeros(1, 7, dtype=torch.long)))
    for wrong in ({"features": 4}, {"layers": 0}, {"image_width": 0}, {"vocabulary": 1}, {"output": 5}):
        for kind in KINDS:
            options: Any = {"vocabulary": 2, "channels": 3, "features": 3, **wrong}
            with pytest.raises(ValueError, match=r"must be|there is no image|at least two levels"):
                kind(**options)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
