"""The bidirectional encoder against torch's own, then what it sees and what it must not."""

from typing import Any

import pytest
import torch
from torch import nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.errors import UserError
from ebar.types import Sequences
from tests.backbones.reading import VOCABULARY, lively

TOKENS = torch.tensor([[0, 1, 2, 3, 4], [4, 4, 1, 99, -7], [2, 99, 99, 99, 99], [99] * 5])
X = Sequences(TOKENS, torch.tensor([5, 3, 1, 0]))


def small(**settings: Any) -> Any:
    torch.manual_seed(0)
    return lively(BidirectionalTransformer(VOCABULARY, **{"layers": 3, "hidden": 12, "heads": 3, **settings}))


@torch.no_grad()
def torchs_own(encoder: Any, x: Sequences) -> torch.Tensor:
    """The same arithmetic by torch's encoder, with our weights; the beginning left out."""
    own = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 3, 48, 0.0, "gelu", batch_first=True, norm_first=True), 3, nn.LayerNorm(12),
        enable_nested_tensor=False,
    ).double().eval()  # fmt: skip
    for theirs, ours in zip(own.layers, encoder.layers, strict=True):
        pairs: list[tuple[Any, Any]] = [
            (theirs.self_attn.in_proj_weight, ours.attention.into.weight),
            (theirs.self_attn.in_proj_bias, ours.attention.into.bias),
        ]
        parts = [(theirs.self_attn.out_proj, ours.attention.out), (theirs.norm1, ours.attention_norm)]
        parts += [(theirs.linear1, ours.wide), (theirs.linear2, ours.narrow), (theirs.norm2, ours.feedforward_norm)]
        pairs += [pair for a, b in parts for pair in ((a.weight, b.weight), (a.bias, b.bias))]
        for to, source in pairs:
            to.copy_(source)
    own.norm.load_state_dict(encoder.norm.state_dict())  # type: ignore[union-attr]
    tokens = torch.cat([torch.full((len(x.tokens), 1), VOCABULARY), torch.where(x.mask(), x.tokens, 0)], 1)
    inputs = encoder.inputs[tokens] * 12**0.5 + encoder.positions(0, tokens.shape[1])
    hidden = torch.cat([torch.zeros(len(tokens), 1, dtype=torch.bool), ~x.mask()], 1)
    return own(inputs, src_key_padding_mask=hidden)[:, 1:]  # type: ignore[no-any-return]


@pytest.mark.parametrize("positions", ["sinusoidal", "learnt"])
@torch.no_grad()
def test_it_is_torchs_encoder(positions):
    encoder = small(positions=positions)
    inside = X.mask()
    torch.testing.assert_close(encoder(X)[inside], torchs_own(encoder, X)[inside], rtol=0, atol=1e-10)


@torch.no_grad()
def test_every_token_sees_every_other_and_never_the_padding():
    encoder, inside = small(), X.mask()
    wanted = encoder(X)
    for content in (0, 3, -1):
        assert torch.equal(encoder(X._replace(tokens=torch.where(inside, TOKENS, content)))[inside], wanted[inside])
    wider = Sequences(nn.functional.pad(TOKENS, (0, 3), value=99), X.lengths)
    torch.testing.assert_close(encoder(wider)[:, :5][inside], wanted[inside], rtol=0, atol=1e-12)
    for row in range(3):  # as if it were alone, with no padding at all
        length = int(X.lengths[row])
        alone = encoder(Sequences(TOKENS[row : row + 1, :length], X.lengths[row : row + 1]))
        torch.testing.assert_close(alone[0], wanted[row, :length], rtol=0, atol=1e-12)
    for place in range(5):
        changed = TOKENS[:1].clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        moved = (encoder(Sequences(changed, X.lengths[:1])) - wanted[:1]).abs().amax(2)
        assert bool((moved > 1e-6).all())


def test_every_parameter_but_the_mask_learns_from_tokens_and_the_mask_from_a_hidden_one():
    encoder = small()
    encoder(Sequences(TOKENS[:1], X.lengths[:1])).square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in encoder.parameters())
    assert not bool(encoder.inputs.grad[encoder.mask_token].any())
    hidden = Sequences(torch.full((1, 2), encoder.mask_token), torch.tensor([2]))
    encoder(hidden).square().sum().backward()
    assert bool(encoder.inputs.grad[encoder.mask_token].any())


def test_sizes_that_cannot_be_are_told():
    with pytest.raises(UserError, match="Place 6 was asked for where 5 are learnt"):
        small(positions="learnt", maximal_length=5)(X)
    with pytest.raises(ValueError, match="multiple of heads"):
        BidirectionalTransformer(3, hidden=5, heads=2)
    with pytest.raises(ValueError, match="maximal_length"):
        BidirectionalTransformer(3, maximal_length=0)
