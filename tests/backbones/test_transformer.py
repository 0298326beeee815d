import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ebar.backbones.transformer import Transformer
from ebar.backbones.transformer_layer import SelfAttention, Sinusoidal, dropped, sinusoids
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import ancestral_by_token, teacher_forced, token_log_probs
from ebar.testing.enumeration import whole_space
from ebar.types import Space
from tests.backbones.reading import (
    CONTEXTS,
    EQUAL,
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

PREFIXES = {"none": None, **CONTEXTS}


def small(dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    torch.manual_seed(0)
    return lively(Transformer(VOCABULARY, **{"layers": 3, "hidden": 12, "heads": 3, **settings}), dtype)


def by_hand(weights: list[float]) -> Any:
    """Attention of width 1: query, key and value are the input times a weight each; the output is the value."""
    attention: Any = SelfAttention(1, 1).double()
    with torch.no_grad():
        attention.into.weight.copy_(torch.tensor(weights)[:, None])
        attention.out.weight.fill_(1)
    return attention


@torch.no_grad()
def test_attention_of_width_one_by_hand():
    """Query log 3 against keys 0 and 1 weighs them 1 to 3; query 0 weighs all alike."""
    attention = by_hand([math.log(3), 1.0, 1.0])
    inputs = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).reshape(1, 3, 1)
    seen, memory = attention(inputs, None, causal=True)
    torch.testing.assert_close(seen.flatten(), torch.tensor([0, 3 / 4, 1 / 3], dtype=torch.float64))
    assert memory.flatten().tolist() == [0, 0, 1, 1, 0, 0]  # keys and values side by side
    # Not causal, the second sees a zero more: 3/(3 + 1 + 1).
    torch.testing.assert_close(float(attention(inputs, None)[0][0, 1]), 3 / 5)
    later, after = attention(inputs[:, 1:2], memory[:, :1])  # the same second place, from what the first left behind
    torch.testing.assert_close(float(later), 3 / 4)
    assert torch.equal(after, memory[:, :2])
    # A fourth like the second, the one before it hidden: two zeros are against two of weight 3, less the hidden zero.
    mask = torch.tensor([True, True, False, True]).reshape(1, 1, 1, 4)
    torch.testing.assert_close(float(attention(inputs[:, 1:2], memory, mask)[0]), 6 / 7)


def test_sinusoids_by_hand():
    table = sinusoids(3, 4)
    wanted = [[math.sin(1), math.sin(1e-4), math.cos(1), math.cos(1e-4)]]
    torch.testing.assert_close(table[1:2], torch.tensor(wanted))
    assert table[0].tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(sinusoids(3, 3), table[:, [0, 1, 2]])


def test_there_are_as_many_sinusoids_as_are_asked_for():
    positions = Sinusoidal(4)
    assert torch.equal(positions(1000, 2)[0], sinusoids(1002, 4)[1000:])
    rows = positions(torch.tensor([3, 5000]), 2)
    assert torch.equal(rows, sinusoids(5002, 4)[torch.tensor([[3, 4], [5000, 5001]])])
    assert positions(torch.zeros(0, dtype=torch.long), 1).shape == (0, 1, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("positions", ["sinusoidal", "learnt", "learnt_by_layer"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_ways_of_reading_agree(prefix, positions, dtype):
    assert_all_ways_agree(small(dtype, positions=positions), PREFIXES[prefix], dtype)


@pytest.mark.parametrize("prefix", ["none", "unequal", "equal"])
def test_nothing_later_matters(prefix):
    assert_nothing_later_matters(small(), PREFIXES[prefix])


def test_padding_never_matters():
    assert_padding_never_matters(small())


@pytest.mark.parametrize("prefix", PREFIXES)
def test_rows_can_be_selected(prefix):
    assert_rows_can_be_selected(small(), PREFIXES[prefix])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_gradients_agree(prefix):
    assert_gradients_agree(small(positions="learnt_by_layer"), PREFIXES[prefix])


@torch.no_grad()
def test_a_prefix_is_as_if_it_had_been_drawn():
    backbone = small()
    tokens = some_tokens()
    whole = backbone.read(backbone.embed(tokens))
    given = EQUAL._replace(given=EQUAL.given._replace(tokens=tokens[:, :2]))
    torch.testing.assert_close(backbone.read(backbone.embed(tokens[:, 2:]), given), whole[:, 2:], rtol=0, atol=1e-12)


@torch.no_grad()
def test_there_is_room_for_more_than_there_was_at_first():
    """80 steps: the memory of a draw grows more than once."""
    backbone = small()
    tokens = some_tokens(80)
    _, state = backbone.start(len(tokens), UNEQUAL)
    stepper = backbone.stepper(state)
    steps = torch.stack([stepper.step(token) for token in tokens.unbind(1)], 1)
    torch.testing.assert_close(steps, backbone.read(backbone.embed(tokens), UNEQUAL)[:, 1:], rtol=0, atol=1e-9)


@pytest.mark.parametrize("space", [Space(VOCABULARY, 6, end=4), Space(VOCABULARY, 5)], ids=["ending", "fixed"])
@pytest.mark.parametrize("prefix", ["none", "unequal", "equal"])
@torch.no_grad()
def test_draws_are_worth_what_log_prob_says(space, prefix, generator):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        model = Autoregressive(small(dtype), Softmax(12, VOCABULARY).to(dtype), space).eval()
        x, drawn = ancestral_by_token(model, 40, PREFIXES[prefix], generator=generator)
        torch.testing.assert_close(token_log_probs(model, x, PREFIXES[prefix]), drawn, rtol=0, atol=tolerance)
        # By the one parallel pass, too, which gradients take.
        logits = teacher_forced(model, torch.where(x.mask(), x.tokens, 0), PREFIXES[prefix])
        picked = torch.log_softmax(logits, -1).gather(2, torch.where(x.mask(), x.tokens, 0)[:, :, None]).squeeze(2)
        torch.testing.assert_close(torch.where(x.mask(), picked, 0.0), drawn, rtol=0, atol=tolerance)


@torch.no_grad()
def test_sample_has_no_dropout_whatever_the_mode(generator):
    model = Autoregressive(small(dropout=0.5), Softmax(12, VOCABULARY).double(), Space(VOCABULARY, 6, 4)).train()
    x, log_q = model.sample_with_log_prob(50, UNEQUAL, generator=generator)
    assert model.backbone.training  # type: ignore[attr-defined]
    torch.testing.assert_close(model.eval().log_prob(x, UNEQUAL), log_q)
    nothing, _ = model.sample_with_log_prob(0, UNEQUAL, generator=generator)
    assert len(nothing.lengths) == 0


@torch.no_grad()
def test_a_stepper_has_no_dropout_whatever_the_mode():
    backbone = small(dropout=0.5)
    tokens = some_tokens()
    whole = backbone.read(backbone.embed(tokens))
    _, state = backbone.start(len(tokens))
    stepper = backbone.train().stepper(state)
    torch.testing.assert_close(stepper.step(tokens[:, 0]), whole[:, 1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_probabilities_of_the_whole_space_add_up_to_one():
    space = Space(VOCABULARY, 4, end=4)
    model = Autoregressive(small(), Softmax(12, VOCABULARY).double(), space).eval()
    log_probs = model.log_prob(whole_space(space, UNEQUAL), UNEQUAL).reshape(6, -1)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("inner", [None, 20])
@torch.no_grad()
def test_it_is_gpt_2(inner, generator):
    transformers = pytest.importorskip("transformers")
    from ebar.testing.gpt2 import from_gpt2

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=12, n_embd=16, n_layer=3, n_head=4, n_inner=inner, bos_token_id=2,
        eos_token_id=2, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(0)
    gpt2 = transformers.GPT2Model(config).eval()
    for parameter in gpt2.parameters():  # biases and norms are constant in a new model
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    backbone = from_gpt2(gpt2).eval()
    tokens = some_tokens()
    wanted = gpt2(F.pad(tokens, (1, 0), value=2)).last_hidden_state
    torch.testing.assert_close(backbone.read(backbone.embed(tokens)), wanted, rtol=0, atol=1e-5)
    odd = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=4, activation_function="relu")
    with pytest.raises(ValueError, match="not relu"):
        from_gpt2(transformers.GPT2Model(odd))


def test_dropout_keeps_the_mean_and_drops_as_many_as_it_says():
    """Of 10⁶ elements 6 standard deviations are 0.0018; a false alarm about once in 10⁹."""
    torch.manual_seed(0)
    ones = torch.ones(1001, 999, requires_grad=True)
    once, again = dropped(ones, 0.1, True), dropped(ones, 0.1, True)
    rate = round(0.1 * 65536) / 65536
    assert float((once == 0).float().mean()) == pytest.approx(rate, abs=0.0018)
    assert float((once * again == 0).float().mean()) == pytest.approx(1 - (1 - rate) ** 2, abs=0.0025)
    assert float(((once == 0)[:, 1:] & (once == 0)[:, :-1]).float().mean()) == pytest.approx(rate**2, abs=0.0008)
    assert torch.unique(once).tolist() == [0, pytest.approx(1 / (1 - rate), abs=1e-6)]
    torch.autograd.backward(once.sum())
    assert torch.equal(ones.grad, once.detach())  # type: ignore[arg-type]
    assert dropped(ones, 0.1, False) is ones
    assert dropped(ones, 0.0, True) is ones
    assert dropped(torch.ones(3), 0.5, True).shape == (3,)


def test_dropout_is_on_input_and_on_what_each_part_adds():
    torch.manual_seed(0)
    backbone = Transformer(VOCABULARY, layers=1, hidden=50, heads=1, dropout=0.5)
    assert int((backbone.decoder.entered(torch.ones(1, 1, 50), 0) == 0).sum()) > 10
    layer: Any = backbone.decoder.layers[0]
    inputs = torch.ones(1, 4, 50)
    for part in (layer.attention.out, layer.narrow):
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.ones_(part.bias)
    added = layer(inputs, causal=True)[0] - inputs  # each part adds 0 or 2
    assert set(added.round().flatten().tolist()) == {0.0, 2.0, 4.0}


def test_the_same_seed_gives_the_same_gradient_under_deterministic_algorithms():
    def gradient() -> Any:
        torch.manual_seed(1)
        (backbone.read(backbone.embed(some_tokens()), UNEQUAL) ** 2).sum().backward()
        found = backbone.decoder.inputs.grad.clone()
        backbone.zero_grad()
        return found

    backbone = small(dropout=0.2).train()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(gradient(), gradient())
    finally:
        torch.use_deterministic_algorithms(False)


def test_it_learns_what_the_first_token_was():
    """Sequences that end with their first token: no model without attention gets below log 4 on the last."""
    torch.manual_seed(0)
    model = Autoregressive(Transformer(4, layers=1, hidden=32, heads=2, dropout=0.0), Softmax(32, 4), Space(4, 5))

    def loss_of(generator: Generator) -> Tensor:
        tokens = torch.randint(0, 4, (64, 5), generator=generator)
        tokens[:, 4] = tokens[:, 0]
        return F.cross_entropy(teacher_forced(model, tokens)[:, 4], tokens[:, 4])

    assert last_loss(model, loss_of, 100) < 0.05


def test_it_is_a_backbone_that_reads_and_steps():
    backbone = Transformer(3)
    assert_it_reads_and_steps(backbone, width=256)
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 4 * 256 + 4 * 12 * 256 * 256 + (
        4 * (256 * (3 + 1 + 4 + 1) + 4 * 256) + 2 * 256
    )


def test_at_first_hidden_vectors_are_of_the_size_a_head_expects():
    torch.manual_seed(0)
    backbone = Transformer(50, hidden=64).eval()
    with torch.no_grad():
        embedded = backbone.embed(torch.arange(50)[None])
        assert float(embedded.std()) == pytest.approx(1, rel=0.1)
        assert float(backbone.read(embedded, None).std()) == pytest.approx(1, rel=0.01)


def test_a_place_past_the_learnt_ones_is_refused():
    backbone = small(positions="learnt", maximal_length=4)
    with pytest.raises(UserError, match="Place 5 was asked for where 4 are learnt"):
        backbone.read(backbone.embed(some_tokens(4)))
    with pytest.raises(UserError, match="Place 6"):
        backbone.start(6, SHARED._replace(given=SHARED.given._replace(tokens=torch.zeros(2, 5, dtype=torch.long))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "between 1 and 1,000 layers, not 0"),
        ({"hidden": 10, "heads": 4}, "hidden must be a multiple of heads, not 10 of 4"),
        ({"heads": 0}, "not 256 of 0"),
        ({"feedforward": 0}, "feedforward must be at least 1, not 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ({"positions": "learnt", "maximal_length": 0}, "maximal_length must be at least 1, not 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Transformer(3, **settings)
