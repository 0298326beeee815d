import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.awd_lstm import AwdLstm
from ebar.backbones.lstm import Lstm
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.models.outputs import GivesOutputs, TokenOutputs
from ebar.models.stepwise import teacher_forced, token_log_probs
from ebar.objectives.activation_regularisation import ActivationRegularised, size_and_speed
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.types import Clock, Context, Loss, Sequences, Space

ENDING, WINDOWS = Space(4, 5, end=3), Space(4, 5)
PREFIXES = Context(Sequences(torch.tensor([[1, 2], [0, 0], [2, 99]]), torch.tensor([2, 2, 1])))
RAGGED = Sequences(torch.tensor([[0, 1, 3, 99, 99], [2, 2, 0, 1, 3], [3, 99, 99, 99, 99]]), torch.tensor([3, 5, 1]))


def model(space: Space = ENDING, *, plain: bool = False) -> Any:
    torch.manual_seed(0)
    backbone = Lstm(4, layers=1, hidden=6, dropout=0.5) if plain else AwdLstm(4, layers=2, hidden=5, embedding=6)
    made = Autoregressive(backbone, Softmax(6, 4), space).double()
    with torch.no_grad():
        made.head.linear.weight.mul_(10)  # type: ignore[attr-defined]
    return made


def loss_of(objective: Any, batch: Any) -> Loss:
    with torch.no_grad():
        (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator())
    return Loss(*loss)


def test_size_and_speed_by_hand():
    raw = torch.tensor([[[1.0, 2.0], [3.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [9.0, 9.0], [9.0, 9.0]]])
    dropped = torch.tensor([[[2.0, 0.0], [6.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [9.0, 9.0], [9.0, 9.0]]])
    counted = torch.tensor([[True, True, True], [True, False, False]])
    size, speed = size_and_speed(raw, dropped, counted)
    assert float(size) == (4 + 36 + 0 + 4) / 8  # four places of two elements
    assert float(speed) == (4 + 0 + 9 + 4) / 4  # two pairs, both of the first row
    assert float(size_and_speed(raw[:, :1], dropped[:, :1], counted[:, :1])[1]) == 0  # no pair at all


def test_over_whole_rows_they_are_the_means_of_the_authors_code():
    raw, dropped = torch.randn(3, 7, 4).double(), torch.randn(3, 7, 4).double()
    size, speed = size_and_speed(raw, dropped, torch.ones(3, 7, dtype=torch.bool))
    torch.testing.assert_close(size, dropped.pow(2).mean())
    torch.testing.assert_close(speed, (raw[:, 1:] - raw[:, :-1]).pow(2).mean())


@pytest.mark.parametrize("plain", [False, True], ids=["awd_lstm", "lstm"])
@pytest.mark.parametrize("context", [None, PREFIXES], ids=["unconditional", "conditional"])
def test_one_pass_gives_what_the_model_gives(plain, context):
    made = model(plain=plain).eval()
    tokens = torch.where(RAGGED.mask(), RAGGED.tokens, 0)
    for width in (1, 3, 5):
        outputs = made.outputs(tokens[:, :width], context)
        logits = teacher_forced(made, tokens[:, :width], context)
        wanted = logits.log_softmax(-1).gather(2, tokens[:, :width, None]).squeeze(2)
        torch.testing.assert_close(outputs.log_probs, wanted, rtol=0, atol=1e-12)
        assert outputs.raw.shape == outputs.dropped.shape == (3, width, 6)
        assert torch.equal(outputs.raw, outputs.dropped)  # in evaluation


@pytest.mark.parametrize("plain", [False, True], ids=["awd_lstm", "lstm"])
def test_in_training_raw_is_before_dropout_and_dropped_after_it(plain):
    outputs = model(plain=plain).train().outputs(torch.zeros(8, 5, dtype=torch.long))
    assert bool((outputs.raw != 0).all())
    kept = outputs.dropped != 0
    assert 0.2 < float(kept.double().mean()) < 0.9
    scale = 2.0 if plain else 1 / 0.6
    torch.testing.assert_close(outputs.dropped[kept], outputs.raw[kept] * scale)


@torch.no_grad()
def test_the_loss_is_the_cross_entropy_and_both_costs():
    made = model().eval()
    objective = ActivationRegularised(model=made, alpha=3.0, beta=0.5)
    loss, plain = loss_of(objective, RAGGED), loss_of(MaximumLikelihood(model=made), RAGGED)
    outputs = made.outputs(torch.where(RAGGED.mask(), RAGGED.tokens, 0))
    size, speed = size_and_speed(outputs.raw, outputs.dropped, RAGGED.mask())
    torch.testing.assert_close(loss.value, plain.value + 3 * size + 0.5 * speed, rtol=0, atol=1e-12)
    assert loss.metrics["nll_per_token"] == pytest.approx(float(plain.value), abs=1e-12)
    assert loss.weight == plain.weight == 9
    assert float(loss_of(objective.validation, RAGGED).value) == pytest.approx(float(plain.value))
    assert float(-token_log_probs(made, RAGGED).sum() / 9) == pytest.approx(loss.metrics["nll_per_token"])


def test_parts_add_up_where_all_sequences_have_one_length():
    objective = ActivationRegularised(model=model(WINDOWS).eval())
    tokens = torch.randint(0, 4, (6, 5), generator=Generator().manual_seed(1))
    whole = Sequences(tokens, torch.full((6,), 5))
    parts = [loss_of(objective, whole.select(rows)) for rows in (slice(0, 2), slice(2, 6))]
    mean = sum(part.value * part.weight for part in parts) / sum(part.weight for part in parts)
    torch.testing.assert_close(mean, loss_of(objective, whole).value, rtol=0, atol=1e-12)


class InAStream:
    """A model of what follows a segment: all that the objective asks of one."""

    def __init__(self, made: Any, tokens: Tensor):
        self.space, self.made, backbone = WINDOWS, made, made.backbone
        begun = torch.cat([torch.full((len(tokens), 1), 4), tokens[:, :-1]], 1)
        self.memory, self.last = backbone.read_segment(begun, backbone.empty_memory(len(tokens)))[1], tokens[:, -1:]

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        raise NotImplementedError

    sample = log_prob

    def outputs(self, tokens: Tensor, context: Context | None = None) -> TokenOutputs:
        read = torch.cat([self.last, tokens[:, :-1]], 1)
        raw, dropped = self.made.backbone.segment_outputs(read, self.memory)[0]
        log_probs = self.made.head(dropped).log_softmax(-1).gather(2, tokens[..., None]).squeeze(2)
        return TokenOutputs(log_probs, raw, dropped)


@torch.no_grad()
def test_in_a_stream_it_is_the_loss_of_what_follows():
    made = model(Space(4, 10)).eval()
    tokens = torch.randint(0, 4, (3, 10), generator=Generator().manual_seed(1))
    whole = made.outputs(tokens)
    continued: Any = InAStream(made, tokens[:, :5])
    shown: object = continued
    assert isinstance(shown, GivesOutputs)
    loss = loss_of(ActivationRegularised(model=continued), Sequences(tokens[:, 5:], torch.full((3,), 5)))
    size, speed = size_and_speed(whole.raw[:, 5:], whole.dropped[:, 5:], torch.ones(3, 5, dtype=torch.bool))
    torch.testing.assert_close(loss.value, -whole.log_probs[:, 5:].mean() + 2 * size + speed, rtol=0, atol=1e-12)


def test_a_sequence_outside_the_space_costs_infinitely_much():
    endless = Sequences(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([5]))
    assert float(loss_of(ActivationRegularised(model=model().eval()), endless).value) == math.inf


def test_what_shows_no_outputs_is_refused_in_a_sentence():
    table: Any = Tabular.random(ENDING, generator=Generator().manual_seed(0))
    with pytest.raises(UserError, match="shows no outputs"):
        loss_of(ActivationRegularised(model=table), RAGGED)
    with pytest.raises(ValueError, match="at least 0"):
        ActivationRegularised(model=table, beta=-1.0)


def test_both_costs_have_gradients_and_lower_the_activations():
    made = model(WINDOWS).train()
    batch = Sequences(torch.randint(0, 4, (8, 5), generator=Generator().manual_seed(1)), torch.full((8,), 5))
    for alpha, beta in ((50.0, 0.0), (0.0, 50.0)):
        torch.manual_seed(0)
        (loss,) = ActivationRegularised(model=made, alpha=alpha, beta=beta).losses(
            batch, Clock(0, 0), generator=Generator()
        )
        torch.manual_seed(0)
        (plain,) = ActivationRegularised(model=made, alpha=0.0, beta=0.0).losses(
            batch, Clock(0, 0), generator=Generator()
        )
        (gradient,) = torch.autograd.grad(loss.value - plain.value, [made.backbone.layers[1].bias_ih_l0])
        assert float(gradient.abs().max()) > 1e-3
