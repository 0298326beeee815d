"""LightConv and DynamicConv: numbers by hand, torch's own convolution, and local attention by one of its terms."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ebar.backbones import BACKBONES
from ebar.backbones.backbone import Carries
from ebar.backbones.local_attention import LocalAttention
from ebar.backbones.local_xl import Convolution, KernelConvolution, convolved
from ebar.errors import UserError
from tests.backbones.reading import (
    CONTEXTS,
    ROWS,
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

WIDTH, HEADS, PLACES = 6, 2, 4


def small(**settings: Any) -> Any:
    torch.manual_seed(0)
    options = {"layers": 3, "hidden": 12, "heads": 3, "kernel_size": [2, 4, 5], **settings}
    return lively(Convolution(VOCABULARY, **options))


def some(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def mixer(kernel: Any, width: int = WIDTH, heads: int = HEADS, places: int = PLACES, **settings: Any) -> Any:
    options = {"kernel_dropout": 0.0, "renormalise": False, **settings}
    return KernelConvolution(width, heads, places, kernel=kernel, **options).double().eval()


def by_hand(kernel: Any, scores: list[float], **settings: Any) -> list[float]:
    """What a kernel over two places makes of 2, 4, 6: half of it passes the gate, 1, 2, 3."""
    made = mixer(kernel, 1, 1, 2, **settings)
    with torch.no_grad():
        made.into.weight.copy_(torch.tensor([[1.0], [0.0]]))  # the gate is σ(0) = ½
        made.out.weight.fill_(1)
        weight = made.scores if kernel == "light" else made.scores.weight
        weight.copy_(torch.tensor(scores).reshape(weight.shape))
        x = torch.tensor([2.0, 4, 6], dtype=torch.float64).reshape(1, 3, 1)
        found: list[float] = made(x, x[:, :0], 0)[0].flatten().tolist()
    return found


def test_light_convolution_by_hand() -> None:
    """Scores log 3 of itself and 0 of the place before: weights ¾ and ¼, of which the first place loses ¼ to a zero."""
    assert by_hand("light", [math.log(3), 0]) == pytest.approx([3 / 4, 7 / 4, 11 / 4])
    assert by_hand("light", [math.log(3), 0], renormalise=True) == pytest.approx([1, 7 / 4, 11 / 4])


def test_dynamic_convolution_by_hand() -> None:
    """Scores (log 3, 0) times 1, 2, 3: itself weighs 3/4, 9/10, 27/28."""
    wanted = [3 / 4, (9 * 2 + 1) / 10, (27 * 3 + 2) / 28]
    assert by_hand("dynamic", [math.log(3), 0]) == pytest.approx(wanted)
    assert by_hand("dynamic", [math.log(3), 0], renormalise=True) == pytest.approx([1, *wanted[1:]])


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 4, 16, 40])
def test_a_light_convolution_is_torchs_own(length: int) -> None:
    made, gated = mixer("light"), some(3, length, WIDTH)
    kernels = made.weights(gated, 0)
    found = convolved(F.pad(gated, (0, 0, PLACES - 1, 0)), kernels)
    each = kernels[0, 0].flip(-1).repeat_interleave(WIDTH // HEADS, 0)[:, None]  # channels of a head share theirs
    wanted = F.conv1d(F.pad(gated.transpose(1, 2), (PLACES - 1, 0)), each, groups=WIDTH).transpose(1, 2)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["light", "dynamic"])
def test_it_is_local_attention_by_one_term(kernel: Any) -> None:
    """θ_d = ν·K_d/√size and W_d = W_qᵀ·K_d/√size; values are the gated vectors themselves."""
    size = WIDTH // HEADS
    attention: Any = LocalAttention(WIDTH, HEADS, chunk=PLACES, window=True, terms=(kernel,)).double()
    for number, parameter in enumerate(attention.parameters()):
        parameter.copy_(some(*parameter.shape, seed=number))
    attention.memory.weight.copy_(torch.eye(WIDTH))
    attention.memory.bias.zero_()
    table = attention.kernels(range(PLACES)) / math.sqrt(size)  # [heads, size, distances]
    x = some(3, 15, WIDTH, seed=9)
    for renormalise, since in ((True, 0), (False, PLACES - 1)):  # as long as no zeros take part in the softmax
        made = mixer(kernel, renormalise=renormalise)
        made.out.load_state_dict(attention.out.state_dict())
        if kernel == "light":
            made.scores.copy_(torch.einsum("hs,hsd->hd", attention.position_bias, table))
        else:
            attention.query.bias.zero_()  # the paper's kernels are predicted without one
            query = attention.query.weight.view(HEADS, size, WIDTH)
            made.scores.weight.copy_(torch.einsum("hsw,hsd->hdw", query, table).reshape(-1, WIDTH))
        gated = made.remember(x)
        wanted = attention(gated, attention.remember(gated[:, :0]), 0)[0]
        found = made(x, gated[:, :0], 0)[0]
        torch.testing.assert_close(found[:, since:], wanted[:, since:], rtol=0, atol=1e-12)
        assert renormalise or bool((found[:, 0] - wanted[:, 0]).abs().max() > 1e-3)


@torch.no_grad()
def test_kernels_sum_to_one_and_lose_single_weights_while_they_learn() -> None:
    made, gated = mixer("dynamic", kernel_dropout=0.5), some(3, 200, WIDTH)
    torch.testing.assert_close(made.weights(gated, 0).sum(-1), torch.ones(3, 200, HEADS, dtype=torch.float64))
    whole, left = made.weights(gated, 0), made.train().weights(gated, 0)
    lost = left == 0
    torch.testing.assert_close(left[~lost], 2 * whole[~lost])
    assert 0.4 < lost.double().mean() < 0.6  # of 4,800: 14 standard deviations to either side


@pytest.mark.parametrize("kernel", ["light", "dynamic"])
@pytest.mark.parametrize("renormalise", [False, True], ids=["zeros", "renormalised"])
def test_all_ways_to_read_agree(kernel: str, renormalise: bool) -> None:
    backbone = small(kernel=kernel, renormalise=renormalise)
    assert_it_reads_and_steps(backbone, 12)
    for context in (None, *CONTEXTS.values()):
        assert_all_ways_agree(backbone, context, torch.float64)
    assert_rows_can_be_selected(backbone, UNEQUAL)
    assert_padding_never_matters(backbone)
    assert_gradients_agree(backbone, UNEQUAL)


@pytest.mark.parametrize("kernel", ["light", "dynamic"])
def test_nothing_later_matters(kernel: str) -> None:
    assert_nothing_later_matters(small(kernel=kernel, kernel_size=9), None)


@pytest.mark.parametrize("kernel", ["light", "dynamic"])
def test_segments_may_be_cut_anywhere(kernel: str) -> None:
    backbone, tokens = small(kernel=kernel), some_tokens(17)
    whole = backbone.read(backbone.embed(tokens)).detach()
    assert isinstance(backbone, Carries)
    memory, parts = backbone.empty_memory(ROWS), []
    for segment in torch.split(F.pad(tokens, (1, 0), value=VOCABULARY), [1, 4, 11, 2], 1):
        hidden, memory = backbone.read_segment(segment, memory)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": [3, 7]}, "kernel_size has 2 numbers for 4 layers"),
        ({"kernel_dropout": 1.0}, "kernel_dropout must be at least 0 and below 1"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BACKBONES.make("convolution", options, vocabulary=3)
