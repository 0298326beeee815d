import copy
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.evaluation import dynamic
from ebar.evaluation.blocks import block_mean
from ebar.evaluation.cross_entropy import stream_cost
from ebar.evaluation.dynamic import (
    DynamicCost,
    GradientStatistics,
    dynamic_evaluation,
    from_old_scaling,
    gradient_statistics,
)
from ebar.evaluation.reading import at_beginning, segment_log_probs
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, FromLogits
from ebar.models.ngram import Tabular
from ebar.models.stepwise import token_log_probs
from ebar.types import Sequences, Space
from tests.models.carrying import carrying_model
from tests.models.examples import FIXED, lstm


class Coin(nn.Module):
    """Logits (0, θ), whatever came before."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(self.theta), self.theta]).expand(*tokens.shape, 2)


def coin() -> FromLogits:
    return FromLogits(Coin(), Space(2, 4), beginning=0)


def stream(length: int, vocabulary: int = 3) -> Tensor:
    return torch.randint(vocabulary, (length,), generator=Generator().manual_seed(5))


def costs_of(model: Any, text: Tensor, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Tensor]:
    """The costs token by token, static, dynamic and their difference, on their way to the means."""
    seen: list[Tensor] = []

    def kept(costs: Tensor, **more: Any) -> Any:
        seen.append(costs)
        return block_mean(costs, blocks=2)

    monkeypatch.setattr(dynamic, "block_mean", kept)
    dynamic_evaluation(model, text, **options)
    return seen


def test_gradient_descent_on_a_coin_worked_out_by_hand(monkeypatch):
    # −log σ(θ) has gradient σ(θ) − 1, −log(1 − σ(θ)) has σ(θ). From θ = 0, η = 1: heads at cost log 2, g = −½, θ = ½;
    # tails at cost log(1 + e^½); g = σ(½) = 0.6224593312, θ = −0.1224593312; heads at log(1 + e^0.1224593312).
    text = torch.tensor([1, 0, 1])
    still, moved, difference = costs_of(coin(), text, monkeypatch, learning_rate=1.0, decay=0.0, segment=1)
    assert moved.tolist() == pytest.approx([math.log(2), math.log1p(math.exp(0.5)), math.log1p(math.exp(0.1224593312))])
    assert still.tolist() == pytest.approx([math.log(2)] * 3)
    assert torch.equal(difference, moved - still)


def test_a_segment_moves_by_the_mean_gradient_of_its_tokens_after_it_is_scored(monkeypatch):
    # Two heads and a tail cost log 2 each; mean gradient (−½ − ½ + ½)/3 = −1/6, so θ = 1/6 for the last token.
    _, moved, _ = costs_of(coin(), torch.tensor([1, 0, 1, 0]), monkeypatch, learning_rate=1.0, decay=0.0, segment=3)
    assert moved.tolist() == pytest.approx([math.log(2)] * 3 + [math.log1p(math.exp(1 / 6))])


def test_root_mean_squares_and_decay_worked_out_by_hand(monkeypatch):
    # r = √4 = 2, its mean is 2, d = 1. ε = ½, η = 1, λ = 0.1: θ = 0 + ½/2.5 = 0.2 after the head; after the tail
    # θ = 0.2 + 0.1·(0 − 0.2) − σ(0.2)/2.5 = 0.18 − 0.549833997/2.5 = −0.0399335989.
    statistics = GradientStatistics({"module.theta": torch.tensor(4.0, dtype=torch.float64)}, 1)
    _, moved, _ = costs_of(
        coin(), torch.tensor([1, 0, 1]), monkeypatch, statistics=statistics, learning_rate=1.0, decay=0.1, epsilon=0.5,
        segment=1,
    )  # fmt: skip
    expected = [math.log(2), math.log1p(math.exp(0.2)), math.log1p(math.exp(0.0399335989))]
    assert moved.tolist() == pytest.approx(expected)


class TwoCoins(nn.Module):
    """Logits (0, a + b₀ + b₁): three weights in two tensors, all with one gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(self.a), self.a + self.b.sum()]).expand(*tokens.shape, 2)


def test_decay_is_relative_to_the_mean_over_tensors_and_never_overshoots(monkeypatch):
    # r is 1 of a, and 3 and 5 of b: means 1 and 4 of the two tensors, 2.5 in all; d = 0.4, 1.2, 2. With λ = 0.6 the
    # rates are 0.24, 0.72 and 1.2, of which the last is cut to 1. η = 1, ε = 0: after a head (g = −½ for all three)
    # the weights are ½, 1/6, 0.1, whose sum is 23/30; after the tail, where g = σ(23/30),
    # 0.76·½ + 0.28/6 + 0·0.1 − g·(1 + 1/3 + 1/5).
    squares = {"module.a": torch.tensor(1.0), "module.b": torch.tensor([9.0, 25.0])}
    statistics = GradientStatistics({name: own.double() for name, own in squares.items()}, 1)
    model = FromLogits(TwoCoins(), Space(2, 4), beginning=0)
    _, moved, _ = costs_of(
        model, torch.tensor([1, 0, 1]), monkeypatch, statistics=statistics, learning_rate=1.0, decay=0.6, epsilon=0.0,
        segment=1,
    )  # fmt: skip
    gradient = 1 / (1 + math.exp(-23 / 30))
    last = 0.38 + 0.28 / 6 - gradient * (1 + 1 / 3 + 1 / 5)
    assert moved.tolist() == pytest.approx(
        [math.log(2), math.log1p(math.exp(23 / 30)), math.log1p(math.exp(-last))]
    )  # fmt: skip


def test_gradient_statistics_worked_out_by_hand():
    # Two columns, 1 1 0 and 1 0 0, one token at a time: gradients of the means −½, 0 and ½, mean square 1/6.
    found = gradient_statistics(coin(), torch.tensor([1, 1, 0, 1, 0, 0]), rows=2, segment=1)
    assert found.batches == 3
    assert found.mean_squares["module.theta"].item() == pytest.approx(1 / 6)
    # The first batch alone; and segments of two, of which there is one.
    assert gradient_statistics(
        coin(), torch.tensor([1, 1, 0, 1, 0, 0]), rows=2, segment=1, batches=1
    ).mean_squares["module.theta"].item() == pytest.approx(1 / 4)  # fmt: skip
    pairs = gradient_statistics(coin(), torch.tensor([1, 1, 0, 1, 0, 0]), rows=2, segment=2)
    assert pairs.batches == 1
    assert pairs.mean_squares["module.theta"].item() == pytest.approx(1 / 16)


def test_the_old_scaling_gives_the_same_updates():
    # Its rule, with S = Σg² over 4 batches: Δ = λ·(√S/Σ mean √S)(θ₀ − θ) − η·g/(√S + ε).
    sums = [torch.tensor([4.0, 16.0]), torch.tensor([36.0])]
    statistics = GradientStatistics({"a": sums[0] / 4, "b": sums[1] / 4}, 4)
    rates = from_old_scaling(statistics, learning_rate=0.3, decay=0.2, epsilon=0.1)
    assert rates == (0.15, 0.1, 0.05)
    whole = sum(float(own.sqrt().mean()) for own in sums)
    mean = whole / 2 / 2  # over two tensors, of roots that are √4 times smaller
    for own in sums:
        new = (own / 4).sqrt()
        assert torch.allclose(rates.learning_rate / (new + rates.epsilon), 0.3 / (own.sqrt() + 0.1))
        assert torch.allclose(rates.decay * new / mean, 0.2 * own.sqrt() / whole)


def test_gradient_descent_agrees_with_that_of_torch():
    model, text = carrying_model("transformer", FIXED), stream(40)
    found = dynamic_evaluation(model, text, learning_rate=0.1, decay=0.0, segment=4, blocks=10)
    twin = copy.deepcopy(model).eval()
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1)
    total = 0.0
    for window in text.split(4):  # as long as the model's own: nothing is read before them
        loss = -token_log_probs(twin, Sequences(window[None], torch.tensor([4]))).mean()
        total += 4 * loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert found.dynamic.total == pytest.approx(total, rel=1e-12)
    assert found.static.total != pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("kind", ["transformer", "tabular"])
def test_without_updates_it_is_the_cost_of_a_window_that_moves_on_token_by_token(kind):
    own = (
        carrying_model(kind, FIXED)
        if kind == "transformer"
        else Tabular.random(FIXED, generator=Generator().manual_seed(1))
    )
    found = dynamic_evaluation(own, stream(50), learning_rate=0.0, decay=0.0, segment=1)
    expected = stream_cost(own, stream(50), stride=1)
    assert found.static.total == pytest.approx(expected.total, rel=1e-12)
    assert found.dynamic.total == found.static.total
    assert found.dynamic.tokens == 50
    assert tuple(found.difference[:3]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "convolution"])
def test_networks_of_hugging_face_are_evaluated_alike(kind):
    from tests.models.pretrained_examples import pretrained

    model = pretrained(kind)
    text = stream(31)
    expected = stream_cost(model, text, stride=1)
    found = dynamic_evaluation(model, text, learning_rate=0.0, decay=0.0, segment=1)
    assert found.static.total == pytest.approx(expected.total, rel=1e-9)
    weights = [weight.clone() for weight in model.parameters()]
    statistics = gradient_statistics(model, stream(60), rows=4, segment=2)
    easy = torch.tensor([0, 2, 1]).repeat(40)
    learnt = dynamic_evaluation(model, easy, statistics=statistics, learning_rate=0.01, segment=2)
    assert learnt.difference.high < 0
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))


def test_a_network_without_a_beginning_is_not_asked_for_the_first_token():
    from tests.models.pretrained_examples import pretrained

    model = pretrained("gpt2", beginning=None)
    for segment in (1, 2):
        found = dynamic_evaluation(model, stream(31), learning_rate=0.0, segment=segment)
        assert (found.static.tokens, found.dynamic.tokens) == (30, 30)
        assert found.static.total == pytest.approx(found.dynamic.total)


class RunningMemory(NamedTuple):
    total: Tensor


class Running(nn.Module):
    """Adds up the vectors of all tokens so far, and carries the sum."""

    width = 3

    def __init__(self, vocabulary: int):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(vocabulary + 1, 3, generator=Generator().manual_seed(2)).double())

    def empty_memory(self, rows: int) -> RunningMemory:
        return RunningMemory(torch.zeros(rows, 3).double())

    def read_segment(self, tokens: Tensor, memory: RunningMemory) -> tuple[Tensor, RunningMemory]:
        sums = memory.total[:, None] + self.vectors[tokens].cumsum(1)
        return torch.tanh(sums), RunningMemory(sums[:, -1].detach())

    def start(self, rows: int, context: Any = None) -> tuple[Tensor, Any]:
        hidden, memory = self.read_segment(torch.full((rows, 1), len(self.vectors) - 1), self.empty_memory(rows))
        return hidden[:, 0], memory

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.read_segment(tokens, state)


def test_a_memory_is_carried_from_segment_to_segment():
    torch.manual_seed(0)
    running: Any = Running(3)
    model: Any = Autoregressive(running, Softmax(3, 3), Space(3, 4)).double()
    text = stream(41)
    # Read at once: the memory reaches back to the beginning, however the text is cut and however short the window is.
    hidden = model.backbone.read_segment(
        torch.cat([torch.tensor([3]), text[:-1]])[None], model.backbone.empty_memory(1)
    )
    expected = -torch.log_softmax(model.head(hidden[0]), -1)[0].gather(1, text[:, None]).sum().item()
    for segment in (1, 5, 7):
        found = dynamic_evaluation(model, text, learning_rate=0.0, segment=segment)
        assert found.static.total == pytest.approx(expected, rel=1e-12)
        assert found.dynamic.total == pytest.approx(expected, rel=1e-12)
    easy = torch.tensor([0, 2, 2]).repeat(40)
    assert dynamic_evaluation(model, easy, learning_rate=0.1, decay=0.0).difference.high < 0


def test_frozen_parameters_stay_and_the_model_is_as_it_was(monkeypatch):
    model = lstm(FIXED).train()
    model.backbone.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    learners: list[Any] = []
    build = dynamic._Rule.of

    def seen(own: Any, learner: Any, *more: Any) -> Any:
        learners.append(learner)
        return build(own, learner, *more)

    monkeypatch.setattr(dynamic._Rule, "of", seen)
    dynamic_evaluation(model, stream(60), learning_rate=0.1, decay=0.0, segment=2)
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert model.training
    for name, own in learners[0].state_dict().items():
        assert torch.equal(own, before[name]) == name.startswith("backbone.")


@pytest.mark.parametrize("what", [KeyboardInterrupt, ZeroDivisionError])
def test_the_model_is_as_it_was_after_an_interruption(what, monkeypatch):
    model = lstm(FIXED).train()
    before = copy.deepcopy(model.state_dict())
    read, calls = segment_log_probs, []

    def breaks(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 9:
            raise what
        return read(*arguments)

    monkeypatch.setattr(dynamic, "segment_log_probs", breaks)
    with pytest.raises(what):
        dynamic_evaluation(model, stream(60), learning_rate=0.1, segment=2)
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())
    assert all(part.training for part in model.modules())


def test_it_learns_where_the_caller_has_gradients_off():
    with torch.no_grad():
        found = dynamic_evaluation(lstm(FIXED), stream(12).repeat(20), learning_rate=0.05, decay=0.0, segment=2)
        gradient_statistics(lstm(FIXED), stream(60), rows=2, segment=2)
    assert found.difference.high < 0
    assert found.perplexity_ratio.value == pytest.approx(found.dynamic.perplexity.value / found.static.perplexity.value)


def test_the_interval_is_students_over_means_of_blocks():
    # Blocks 1 1, 2 2 and 6 6: mean 3, variance of the means 7, so the half-width is t(.975; f)·√(7/3). The kurtosis of
    # −2, −1, 3 is 98/3 / (14/3)² = 1.5, which leaves 2·3/0.5 = 12 degrees of freedom, of which 2 are there.
    found = block_mean(torch.tensor([1.0, 1, 2, 2, 6, 6]), blocks=3)
    assert found.value == pytest.approx(3)
    assert found.high - found.value == pytest.approx(4.302652729911275 * math.sqrt(7 / 3))
    assert "3 independent groups" in str(found.warning)
    assert block_mean(torch.arange(61.0)).warning is None


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (lambda: lstm(Space(3, 5, 2)), {}, "no end"),
        (lambda: carrying_model("transformer", FIXED), {"segment": 5}, "1 to 4 tokens"),
        (lambda: lstm(FIXED), {"segment": 0}, "1 to 4 tokens"),
        (lambda: lstm(FIXED).requires_grad_(False), {}, "can learn"),
        (lambda: lstm(FIXED, dtype=torch.bfloat16), {}, "float32"),
        (lambda: lstm(FIXED), {"learning_rate": -1.0}, "learning_rate must be 0 or more"),
        (lambda: lstm(FIXED), {"learning_rate": 1e308}, "lower learning_rate"),
        (lambda: lstm(FIXED), {"blocks": 100}, "longer text"),
        (lambda: lstm(FIXED), {"statistics": GradientStatistics({}, 1)}, "this very model"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(model, options, sentence):
    with pytest.raises(UserError, match=sentence):
        dynamic_evaluation(model(), stream(40), **{"segment": 2, **options})


def test_the_result_has_an_interval_for_each_figure():
    found = dynamic_evaluation(lstm(FIXED), stream(400), learning_rate=0.01, segment=2)
    assert isinstance(found, DynamicCost)
    for estimate in (found.static.per_token, found.dynamic.per_token, found.difference):
        assert estimate.low < estimate.value < estimate.high
        assert estimate.effective_sample_size == pytest.approx(30, rel=0.01)


def test_a_transformer_that_carries_nothing_reads_its_window_again():
    """Segment by segment with nothing before it, every token would have lost its context."""
    model = carrying_model("transformer", Space(3, 6))
    text = torch.randint(3, (1, 9), generator=torch.Generator().manual_seed(1))
    carried, rest = at_beginning(model, text)
    found = []
    for segment in torch.split(rest, 2, 1):
        log_probs, carried = segment_log_probs(model, segment, carried)
        found.append(log_probs)
    assert carried.memory is None
    # Before the fourth segment of two tokens stand four others: a window has six.
    wanted = token_log_probs(model, Sequences(text[:, 2:8], torch.tensor([6])))[:, 4:]
    torch.testing.assert_close(found[3], wanted, rtol=0, atol=1e-12)
