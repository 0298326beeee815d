import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.transformer import EncoderDecoder
from ebar.backbones.transformer_layer import CrossAttention, sinusoids
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import ancestral_by_token, teacher_forced, token_log_probs
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space
from tests.backbones.reading import (
    CONTEXTS,
    SHARED,
    UNEQUAL,
    VOCABULARY,
    assert_all_ways_agree,
    assert_gradients_agree,
    assert_it_reads_and_steps,
    assert_nothing_later_matters,
    assert_padding_never_matters,
    assert_rows_can_be_selected,
    last_loss,
    lively,
    some_tokens,
)


def small(dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 2, "encoder_layers": 3, "hidden": 12, "heads": 3, **settings}
    return lively(EncoderDecoder(VOCABULARY, **sizes), dtype)


@torch.no_grad()
def test_attention_to_a_source_of_width_one_by_hand():
    """Query log 3 against keys 0, 1 and 1 weighs them 1 : 3 : 3; the values are twice the keys."""
    attention: Any = CrossAttention(1, 1).double()
    attention.query.weight.fill_(math.log(3))
    attention.memory.weight.copy_(torch.tensor([[1.0], [2.0]]))
    attention.out.weight.fill_(1)
    memory = attention.remember(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64).reshape(1, 3, 1))
    assert memory.flatten().tolist() == [0, 0, 1, 2, 1, 2]
    inputs = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    torch.testing.assert_close(
        attention(inputs, memory, None).flatten(), torch.tensor([12 / 7, 4 / 3], dtype=torch.float64)
    )
    mask = torch.tensor([True, True, False]).reshape(1, 1, 1, 3)
    torch.testing.assert_close(attention(inputs, memory, mask).flatten(), torch.tensor([6 / 4, 1], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("source_vocabulary", [None, 7])
@pytest.mark.parametrize("source", CONTEXTS)
def test_all_ways_of_reading_agree(source, source_vocabulary, dtype):
    assert_all_ways_agree(small(dtype, source_vocabulary=source_vocabulary), CONTEXTS[source], dtype)


@pytest.mark.parametrize("source", ["unequal", "equal"])
def test_nothing_later_matters(source):
    assert_nothing_later_matters(small(), CONTEXTS[source])


def test_padding_never_matters():
    assert_padding_never_matters(small())


@pytest.mark.parametrize("source", CONTEXTS)
def test_rows_can_be_selected(source):
    assert_rows_can_be_selected(small(), CONTEXTS[source])


@pytest.mark.parametrize("source", ["unequal", "equal", "shared"])
@pytest.mark.parametrize("source_vocabulary", [None, 7])
def test_gradients_agree(source, source_vocabulary):
    assert_gradients_agree(small(source_vocabulary=source_vocabulary), CONTEXTS[source])


@torch.no_grad()
def test_every_token_of_the_source_matters_wherever_it_stands():
    backbone = small()
    tokens, given = some_tokens(), UNEQUAL.given
    whole = backbone.read(backbone.embed(tokens), UNEQUAL)
    for row, place in given.mask().nonzero().tolist():
        other = given.tokens.clone()
        other[row, place] = (other[row, place] + 1) % VOCABULARY
        changed = backbone.read(backbone.embed(tokens), Context(Sequences(other, given.lengths)))
        moved = (changed - whole).abs().amax(2) > 1e-6
        assert bool(moved[row].all())
        assert int(moved.sum()) == moved.shape[1]  # and only in its own row


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_it_is_torchs_own_transformer(activation):
    """nn.TransformerEncoder and nn.TransformerDecoder, normalised first, with the same weights."""
    ours = small(activation=activation)
    sizes: dict[str, Any] = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": True}
    norms = [nn.LayerNorm(12, dtype=torch.float64) for _ in range(2)]
    layer = nn.TransformerEncoderLayer(12, 3, 48, **sizes, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 3, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 3, 48, **sizes, dtype=torch.float64), 2, norms[1])
    for mine, theirs in zip(ours.encoder, encoder.layers, strict=True):
        _same(theirs, mine)
        theirs.norm2.load_state_dict(mine.feedforward_norm.state_dict())
    for mine, theirs in zip(ours.decoder.layers, decoder.layers, strict=True):
        _same(theirs, mine)
        theirs.norm2.load_state_dict(mine.cross_norm.state_dict())
        theirs.norm3.load_state_dict(mine.feedforward_norm.state_dict())
        across = theirs.multihead_attn
        across.in_proj_weight.copy_(torch.cat([mine.cross.query.weight, mine.cross.memory.weight]))
        across.in_proj_bias.copy_(torch.cat([mine.cross.query.bias, mine.cross.memory.bias]))
        across.out_proj.load_state_dict(mine.cross.out.state_dict())
    norms[0].load_state_dict(ours.norm.state_dict())
    norms[1].load_state_dict(ours.decoder.norm.state_dict())
    rows = torch.tensor([0, 1, 2, 4, 5])  # an empty source is something torch's own has no answer to
    source, tokens = UNEQUAL.given.select(rows), some_tokens()[rows]
    where = sinusoids(20, 12).double()
    known = torch.where(source.mask(), source.tokens, 0)
    read = encoder(ours.embed(known) + where[:4], src_key_padding_mask=~source.mask())
    begun = torch.cat([ours.decoder.beginning(5), ours.embed(tokens)], 1) + where[:10]
    causal = torch.ones(10, 10, dtype=torch.bool).triu(1)
    wanted = decoder(begun, read, tgt_mask=causal, memory_key_padding_mask=~source.mask())
    torch.testing.assert_close(ours.read(ours.embed(tokens), Context(source)), wanted, rtol=0, atol=1e-9)


def _same(theirs: Any, mine: Any) -> None:
    """What both kinds of layer have."""
    theirs.self_attn.in_proj_weight.copy_(mine.attention.into.weight)
    theirs.self_attn.in_proj_bias.copy_(mine.attention.into.bias)
    theirs.self_attn.out_proj.load_state_dict(mine.attention.out.state_dict())
    theirs.linear1.load_state_dict(mine.wide.state_dict())
    theirs.linear2.load_state_dict(mine.narrow.state_dict())
    theirs.norm1.load_state_dict(mine.attention_norm.state_dict())


@pytest.mark.parametrize("source", ["unequal", "equal"])
@torch.no_grad()
def test_draws_are_worth_what_log_prob_says(source, generator):
    space, context = Space(VOCABULARY, 7, end=4), CONTEXTS[source]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        model = Autoregressive(small(dtype), Softmax(12, VOCABULARY).to(dtype), space).eval()
        x, drawn = ancestral_by_token(model, 40, context, generator=generator)
        torch.testing.assert_close(token_log_probs(model, x, context), drawn, rtol=0, atol=tolerance)
        logits = teacher_forced(model, torch.where(x.mask(), x.tokens, 0), context)
        picked = torch.log_softmax(logits, -1).gather(2, torch.where(x.mask(), x.tokens, 0)[:, :, None]).squeeze(2)
        torch.testing.assert_close(torch.where(x.mask(), picked, 0.0), drawn, rtol=0, atol=tolerance)


@torch.no_grad()
def test_probabilities_of_the_whole_space_add_up_to_one():
    space = Space(VOCABULARY, 4, end=4)
    model = Autoregressive(small(), Softmax(12, VOCABULARY).double(), space).eval()
    log_probs = model.log_prob(whole_space(space, SHARED), SHARED).reshape(2, -1)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(2, dtype=torch.float64))
    assert float((log_probs[0] - log_probs[1]).abs().max()) > 0.1  # the source matters


def test_a_source_is_read_once_however_many_rows_it_serves(monkeypatch):
    backbone = small()
    read = []
    forward = backbone.encoder[0].forward

    def counted(x, *rest):
        read.append(len(x))
        return forward(x, *rest)

    monkeypatch.setattr(backbone.encoder[0], "forward", counted)
    _, state = backbone.start(6, SHARED)
    backbone.advance(some_tokens(), state)
    backbone.read(backbone.embed(some_tokens()), SHARED)
    assert read == [2, 2]


def test_without_a_source_there_is_nothing_to_translate(generator):
    backbone = small()
    with pytest.raises(UserError, match="give it source sentences"):
        backbone.start(2)
    with pytest.raises(UserError, match="give it source sentences"):
        backbone.read(backbone.embed(some_tokens()))


def test_both_sides_share_their_vectors_unless_the_source_has_its_own():
    shared, own = EncoderDecoder(5, hidden=8, heads=2), EncoderDecoder(5, hidden=8, heads=2, source_vocabulary=9)
    assert shared.source_inputs is None
    assert own.source_inputs is not None
    assert own.source_inputs.shape == (10, 8)
    large = Context(Sequences(torch.tensor([[8, 7]]), torch.tensor([2])))
    assert own.eval().start(1, large)[0].shape == (1, 8)
    with pytest.raises(ValueError, match="source_vocabulary must be at least 1, not 0"):
        EncoderDecoder(5, source_vocabulary=0)
    with pytest.raises(ValueError, match="layers, not 0"):
        EncoderDecoder(5, encoder_layers=0)


def test_dropout_is_on_in_training_alone():
    torch.manual_seed(0)
    backbone = EncoderDecoder(VOCABULARY, hidden=12, heads=3, dropout=0.3)
    inputs = backbone.embed(some_tokens()).detach()
    assert not torch.equal(backbone.read(inputs, UNEQUAL), backbone.read(inputs, UNEQUAL))
    memories = [backbone.encode(UNEQUAL.given).source[0] for _ in range(2)]
    assert not torch.equal(*memories)  # in the encoder too
    backbone.eval()
    assert torch.equal(backbone.read(inputs, UNEQUAL), backbone.read(inputs, UNEQUAL))


def test_it_learns_to_copy_backwards():
    """Sources of three tokens, targets their reverse: chance is log 4 a token."""
    torch.manual_seed(0)
    backbone = EncoderDecoder(4, layers=1, encoder_layers=1, hidden=32, heads=2, dropout=0.0)
    model = Autoregressive(backbone, Softmax(32, 4), Space(4, 3))

    def loss_of(generator: Generator) -> Tensor:
        source = torch.randint(0, 4, (64, 3), generator=generator)
        logits = teacher_forced(model, source.flip(1), Context(Sequences(source, torch.full((64,), 3))))
        return nn.functional.cross_entropy(logits.flatten(0, 1), source.flip(1).flatten())

    assert last_loss(model, loss_of, 250) < 0.1  # some kinds of processor need 120


def test_it_is_a_backbone_that_reads_and_steps():
    assert_it_reads_and_steps(EncoderDecoder(3), width=256)
