import math
from typing import Any

import pytest
import torch
from torch import nn

from ebar.backbones import BACKBONES
from ebar.backbones.backbone import Backbone, Quick
from ebar.backbones.lstm import Lstm, LstmStepper, _sigmoid, _update
from ebar.heads import HEADS
from ebar.heads.head import Head
from ebar.heads.softmax import Softmax
from ebar.models.stepwise import ancestral_by_token, token_log_probs
from ebar.types import Space
from tests.models.examples import lstm


def test_tables_hold_what_the_protocols_ask_for():
    for backbone in BACKBONES.values():
        assert isinstance(backbone(3), Backbone)
        assert isinstance(backbone(3), Quick) or backbone.any_order  # which draws by repeated `advance`
    for head in HEADS.values():
        assert isinstance(head(4, 3), Head)


def one_cell() -> Any:
    """Width 1, every weight by hand: i = σ(0) = ½, f = σ(log 3) = ¾, g = tanh(±½ log 3) = ±½, o = σ(0) = ½."""
    backbone: Any = Lstm(2, layers=1, hidden=1, dropout=0.0).double()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.zero_()
        backbone.lstm.bias_ih_l0[1] = math.log(3)
        backbone.lstm.weight_ih_l0[2] = torch.tensor([0.5, -0.5], dtype=torch.float64) * math.log(3)
    return backbone


@torch.no_grad()
def test_a_cell_of_width_one_by_hand():
    backbone = one_cell()
    hidden, state = backbone.start(1)
    assert float(hidden) == 0  # the beginning is a zero vector: g = 0, so c = 0
    after, state = backbone.advance(torch.tensor([[0, 1]]), state)
    # c₁ = ½·½ = ¼; c₂ = ¾·¼ − ¼ = −1/16; h = ½·tanh c
    wanted = torch.tensor([0.5 * math.tanh(0.25), 0.5 * math.tanh(-1 / 16)], dtype=torch.float64)
    torch.testing.assert_close(after[0, :, 0], wanted)
    assert float(state.cell) == pytest.approx(-1 / 16)


@torch.no_grad()
def test_the_fused_step_of_a_cell_of_width_one_by_hand():
    backbone = one_cell()
    _, state = backbone.start(1)
    stepper = backbone.stepper(state)
    assert float(stepper.step(torch.tensor([0]))) == pytest.approx(0.5 * math.tanh(0.25), abs=1e-12)
    assert float(stepper.step(torch.tensor([1]))) == pytest.approx(0.5 * math.tanh(-1 / 16), abs=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("embedding", [None, 5])
@torch.no_grad()
def test_the_fused_step_is_nn_lstm(layers, embedding, generator):
    backbone = Lstm(4, layers=layers, hidden=6, embedding=embedding).double().eval()
    _, state = backbone.start(8)
    tokens = torch.randint(0, 4, (8, 5), generator=generator)
    together, after = backbone.advance(tokens, state)
    stepper = backbone.stepper(state)
    for place in range(5):
        torch.testing.assert_close(stepper.step(tokens[:, place]), together[:, place], rtol=0, atol=1e-12)
        if place == 2:
            kept = torch.tensor([7, 1, 1, 4])
            stepper.keep(kept)
            tokens, together = tokens[kept], together[kept]
    torch.testing.assert_close(stepper.cells[-1] / -2, after.cell[-1][kept])


@torch.no_grad()
def test_saturated_gates_stay_finite():
    torch.manual_seed(0)
    backbone = Lstm(2, layers=1, hidden=3, dropout=0.0).double()
    for parameter in backbone.parameters():
        parameter.mul_(1e4)
    _, state = backbone.start(2)
    stepper = backbone.stepper(state)
    tokens = torch.tensor([0, 1])
    for _ in range(4):
        hidden = stepper.step(tokens)
        wanted, state = backbone.advance(tokens[:, None], state)
        torch.testing.assert_close(hidden, wanted[:, 0])


def test_the_input_is_frozen_one_hot_unless_an_embedding_is_asked_for():
    frozen = Lstm(3)
    assert frozen.inputs.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert not any("inputs" in name for name in frozen.state_dict())
    learnt = Lstm(3, embedding=5)
    assert learnt.inputs.shape == (4, 5)
    assert learnt.inputs.requires_grad


def test_dropout_is_on_input_between_layers_and_on_output():
    torch.manual_seed(0)
    backbone = Lstm(3, layers=2, hidden=50, dropout=0.5)
    hidden, state = backbone.start(2)
    assert int((hidden == 0).sum()) > 20  # on output
    assert bool((state.hidden != 0).all())  # but not on what is remembered
    assert backbone.lstm.dropout == 0.5  # between layers
    embedded = backbone._dropped(backbone.embed(torch.zeros(400, 1, dtype=torch.long)))
    assert set(embedded[:, 0, 0].tolist()) == {0.0, 2.0}  # on input
    assert Lstm(3, layers=1, dropout=0.5).lstm.dropout == 0


def test_the_head_starts_small_and_unbiased():
    head = Softmax(300, 3)
    weight = head.linear.weight.detach()
    assert head.free_logits
    assert float(weight.abs().max()) <= 0.1
    assert float(weight.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.15)  # 900 weights: 10 σ
    assert not bool(head.linear.bias.any())


def test_the_sigmoid_that_is_compiled_is_a_sigmoid():
    x = torch.linspace(-40, 40, 200_001)
    wanted = torch.sigmoid(x.double())
    assert float((_sigmoid(x).double() - wanted).abs().max()) < 3e-7
    assert torch.equal(_sigmoid(x.double()), wanted)


@torch.no_grad()
def test_what_is_compiled_is_what_is_not(monkeypatch, generator):
    monkeypatch.setattr("ebar.backbones.lstm._compiled_update", lambda: _update)
    backbone = nn.LSTM(3, 6, 2, batch_first=True)
    inputs = torch.eye(4, 3)
    zeros = torch.zeros(2, 5, 6)
    plain = LstmStepper(inputs, backbone.all_weights, zeros, zeros)
    fused = LstmStepper(inputs, backbone.all_weights, zeros, zeros, compiled=True)
    for _ in range(4):
        tokens = torch.randint(0, 3, (5,), generator=generator)
        torch.testing.assert_close(plain.step(tokens), fused.step(tokens), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
@torch.no_grad()
def test_compiled_draws_agree_with_log_prob(generator):
    model = lstm(Space(3, 4), dtype=torch.float32, layers=1)
    model.backbone.compiled = True
    x, log_q = ancestral_by_token(model, 20, generator=generator)
    torch.testing.assert_close(token_log_probs(model, x), log_q, rtol=0, atol=1e-5)


def test_nothing_to_read_leaves_the_beginning():
    backbone = Lstm(3, layers=1, hidden=5, dropout=0.0)
    assert torch.equal(backbone.read(torch.zeros(2, 0, 3))[:, 0], backbone.start(2)[0])
