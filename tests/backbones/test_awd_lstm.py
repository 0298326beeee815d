import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebar.backbones.awd_lstm import AwdLstm, AwdLstmState, locked_dropout
from ebar.backbones.backbone import Carries, CarriesOutputs, ShowsOutputs
from ebar.modes import evaluation_mode
from tests.backbones import reading
from tests.backbones.reading import CONTEXTS, ROWS, VOCABULARY, some_tokens

NOTHING: dict[str, Any] = {f"dropout_{where}": 0.0 for where in ("embedding", "input", "hidden", "output", "weight")}


def small(**options: Any) -> Any:
    torch.manual_seed(3)
    return AwdLstm(VOCABULARY, **{"layers": 3, "hidden": 7, "embedding": 4, "last": 6, **options})


def lively(**options: Any) -> Any:
    return reading.lively(small(**options))


@pytest.mark.parametrize("name", [None, *CONTEXTS])
@pytest.mark.parametrize("layers", [1, 3])
def test_all_ways_of_reading_agree(name, layers):
    context = None if name is None else CONTEXTS[name]
    reading.assert_all_ways_agree(lively(layers=layers), context, torch.float64)


def test_padding_of_a_context_never_matters_nor_does_what_comes_later():
    reading.assert_padding_never_matters(lively())
    reading.assert_nothing_later_matters(lively(), reading.UNEQUAL)


@pytest.mark.parametrize("name", [None, "unequal"])
def test_gradients_agree_however_the_text_is_cut(name):
    reading.assert_gradients_agree(lively().train(False), None if name is None else CONTEXTS[name])


def test_it_is_the_protocols_that_it_claims():
    backbone = small()
    reading.assert_it_reads_and_steps(backbone, 6)
    assert isinstance(backbone, Carries)
    assert isinstance(backbone, ShowsOutputs)
    assert isinstance(backbone, CarriesOutputs)
    assert small(last=None).width == 4  # that of the word vectors, so that a head can tie to them
    assert small().embedding.shape == (VOCABULARY + 1, 4)


@torch.no_grad()
def test_in_evaluation_it_is_a_stack_of_torchs_own_layers():
    backbone = lively()
    tokens = some_tokens()
    vectors, states = backbone.embed(tokens), []
    for layer in backbone.layers:
        vectors, state = layer(vectors)
        states.append(state)
    hidden, memory = backbone.read_segment(tokens, backbone.empty_memory(ROWS))
    torch.testing.assert_close(hidden, vectors, rtol=0, atol=1e-12)
    torch.testing.assert_close(memory.hidden, torch.cat([state[0][0] for state in states], 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(memory.cell, torch.cat([state[1][0] for state in states], 1), rtol=0, atol=1e-12)


def test_segments_are_one_text_and_the_memory_has_no_gradient():
    backbone, tokens = lively(), some_tokens()
    whole, end = backbone.read_segment(tokens, backbone.empty_memory(ROWS))
    memory, parts = backbone.empty_memory(ROWS), []
    for segment in tokens.split([2, 4, 3], 1):
        hidden, memory = backbone.read_segment(segment, memory)
        parts.append(hidden)
        assert hidden.requires_grad
        assert not any(part.requires_grad for part in memory)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(memory, end, rtol=0, atol=1e-12)
    # From the beginning of a text it is what `read` has read.
    beginning = torch.full((ROWS, 1), VOCABULARY)
    again, _ = backbone.read_segment(torch.cat([beginning, tokens], 1), backbone.empty_memory(ROWS))
    torch.testing.assert_close(again, backbone.read(backbone.embed(tokens)), rtol=0, atol=1e-12)


def test_nothing_to_read_leaves_everything_as_it_was():
    backbone = lively()
    _, state = backbone.start(2)
    hidden, after = backbone.advance(torch.zeros(2, 0, dtype=torch.long), state)
    assert hidden.shape == (2, 0, 6)
    assert after is state
    none, memory = backbone.read_segment(torch.zeros(0, 4, dtype=torch.long), backbone.empty_memory(0))
    assert none.shape == (0, 4, 6)
    assert memory.hidden.shape == (0, 20)


def test_locked_dropout_has_one_mask_for_all_places_of_a_row():
    torch.manual_seed(0)
    dropped = locked_dropout(torch.ones(200, 5, 30), 0.25, True)
    assert bool((dropped == dropped[:, :1]).all())
    assert not bool((dropped[:1] == dropped).all())  # each row its own
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.04)  # 6,000 coins: 7 σ
    ones = torch.ones(2, 3, 4)
    assert locked_dropout(ones, 0.25, False) is ones


def test_a_dropped_word_is_dropped_wherever_it_stands():
    torch.manual_seed(0)
    backbone = AwdLstm(400, layers=1, embedding=3, dropout_embedding=0.5)
    tokens = torch.arange(400).repeat(2, 2)
    vectors = backbone.embed(tokens)
    assert bool((vectors == vectors[:1, :400].repeat(2, 2, 1)).all())
    gone = (vectors[0, :400] == 0).all(1)
    assert 130 < int(gone.sum()) < 270  # 400 coins: 7 σ
    kept = ~gone
    torch.testing.assert_close(vectors[0, :400][kept], 2 * backbone.inputs[:400][kept])
    assert torch.equal(backbone.eval().embed(tokens), backbone.inputs[tokens])


@pytest.mark.parametrize("where", ["input", "hidden", "output"])
def test_each_dropout_stands_in_its_place(where, monkeypatch):
    """With a mask that multiplies by 3 in the place of the one dropout that is on."""
    backbone, tokens = lively(**{**NOTHING, f"dropout_{where}": 0.5}).train(), some_tokens()
    monkeypatch.setattr("ebar.backbones.awd_lstm._mask", lambda like, shape, dropout: torch.full(shape, 3.0).to(like))
    vectors = backbone.embed(tokens) * (3 if where == "input" else 1)
    for number, layer in enumerate(backbone.layers):
        vectors = layer(vectors * (3 if where == "hidden" and number else 1))[0]
    outputs, _ = backbone.segment_outputs(tokens, backbone.empty_memory(ROWS))
    torch.testing.assert_close(outputs.raw, vectors, rtol=0, atol=1e-12)
    torch.testing.assert_close(outputs.dropped, vectors * (3 if where == "output" else 1), rtol=0, atol=1e-12)


def recurrent_weights(backbone: AwdLstm) -> list[Tensor]:
    return [layer.weight_hh_l0 for layer in backbone.layers]  # type: ignore[misc]


def test_recurrent_weights_are_dropped_in_training_and_never_in_evaluation(monkeypatch):
    backbone, tokens = lively(**{**NOTHING, "dropout_weight": 0.5}), some_tokens()
    before = [weight.detach().clone() for weight in recurrent_weights(backbone)]
    calm = backbone.read(backbone.embed(tokens))
    backbone.train()
    torch.manual_seed(0)
    restless = backbone.read(backbone.embed(tokens))
    torch.testing.assert_close(restless[:, 0], calm[:, 0])  # nothing is remembered yet
    assert bool((restless[:, 1:] != calm[:, 1:]).any())
    restless.sum().backward()
    for weight, own in zip(recurrent_weights(backbone), before, strict=True):
        assert torch.equal(weight, own)  # no parameter was changed
        assert weight.grad is not None
        assert 0.3 < float((weight.grad == 0).double().mean()) < 0.7  # what was dropped has no gradient
    with evaluation_mode(backbone):  # in which torch leaves recurrent layers in training mode, where gradients flow
        assert torch.equal(backbone.read(backbone.embed(tokens)), calm)
    assert torch.equal(backbone.eval().read(backbone.embed(tokens)), calm)
    # What is computed with is the dropped weight and no other.
    torch.manual_seed(5)
    masked = [nn.functional.dropout(weight, 0.5) for weight in before]
    with torch.no_grad():
        for weight, own in zip(recurrent_weights(backbone), masked, strict=True):
            weight.copy_(own)
        wanted = backbone.read(backbone.embed(tokens))
        for weight, own in zip(recurrent_weights(backbone), before, strict=True):
            weight.copy_(own)
    torch.manual_seed(5)
    torch.testing.assert_close(backbone.train().read(backbone.embed(tokens)), wanted, rtol=0, atol=1e-12)


def test_one_cell_of_width_one_by_hand():
    """i = σ(0) = ½, f = σ(log 3) = ¾, g = tanh(±½ log 3) = ±½, o = σ(0) = ½."""
    backbone: Any = AwdLstm(2, layers=1, embedding=1, **NOTHING).double()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.zero_()
        backbone.inputs.copy_(torch.tensor([[0.5], [-0.5], [0.0]]))
        backbone.layers[0].bias_ih_l0[1] = math.log(3)
        backbone.layers[0].weight_ih_l0[2] = math.log(3)
        hidden, memory = backbone.read_segment(torch.tensor([[2, 0, 1]]), backbone.empty_memory(1))
    # c: 0, then ½·½ = ¼, then ¾·¼ − ¼ = −1/16; h = ½·tanh c
    wanted = torch.tensor([0.0, 0.5 * math.tanh(0.25), 0.5 * math.tanh(-1 / 16)], dtype=torch.float64)
    torch.testing.assert_close(hidden[0, :, 0], wanted)
    assert float(memory.cell) == pytest.approx(-1 / 16)


@torch.no_grad()
def test_without_a_table_the_fused_step_is_the_same(monkeypatch):
    backbone, tokens = lively(), some_tokens()
    whole = backbone.read(backbone.embed(tokens))
    monkeypatch.setattr("ebar.backbones.awd_lstm.TABLE", 0)
    _, state = backbone.start(ROWS)
    stepper = backbone.stepper(state)
    assert stepper.table is None
    before = AwdLstmState(*(part.clone() for part in state))
    kept = torch.arange(ROWS)
    for place in range(tokens.shape[1]):
        torch.testing.assert_close(stepper.step(tokens[kept, place]), whole[kept, place + 1], rtol=0, atol=1e-12)
        if place == 3:
            kept = torch.tensor([4, 1, 1])
            stepper.keep(kept)
    torch.testing.assert_close(state, before, rtol=0, atol=0)  # a value


@pytest.mark.parametrize(
    "options", [{"layers": 0}, {"hidden": 0}, {"last": 0}, {"dropout_weight": 1.0}, {"dropout_embedding": -0.1}]
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match=r"must be|at least"):
        small(**options)


def test_the_beginnings_dropout_is_the_rows_own_in_one_pass():
    backbone, inputs = lively(dropout_input=0.0, dropout_hidden=0.0).train(), torch.zeros(50, 3, 4).double()
    outputs = backbone.read_outputs(inputs)
    zero = outputs.dropped == 0
    assert bool((zero == zero[:, :1]).all())  # one mask for the place before the first input as well
    assert bool((outputs.raw != 0).all())
    conditional = backbone.read_outputs(inputs[:6], CONTEXTS["unequal"]).dropped == 0
    assert bool((conditional == conditional[:, :1]).all())
