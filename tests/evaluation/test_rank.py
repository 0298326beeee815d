import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.lstm import Lstm
from ebar.errors import UserError
from ebar.evaluation import rank
from ebar.evaluation.rank import (
    log_probability_matrix,
    numerical_rank,
    pairwise_divergence,
    singular_values,
    spaced_contexts,
)
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, FromLogits
from ebar.models.stepwise import teacher_forced
from ebar.types import Sequences, Space
from tests.models.examples import ENDING, lstm, three_contexts


class Rows(nn.Module):
    """Next-token probabilities by the last token alone."""

    def __init__(self, rows: list[list[float]]):
        super().__init__()
        self.register_buffer("logits", torch.tensor(rows, dtype=torch.float64).log())
        self.logits: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits[tokens]


def by_rows(rows: list[list[float]]) -> FromLogits:
    return FromLogits(Rows(rows), Space(len(rows), 3), beginning=0)


def each_token(vocabulary: int) -> Sequences:
    return Sequences(torch.arange(vocabulary)[:, None], torch.ones(vocabulary, dtype=torch.long))


def random_words(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(4))


def softmax_model(width: int, *, bias: bool = True, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(1)
    model: Any = Autoregressive(Lstm(60, layers=1, hidden=width), Softmax(width, 60), Space(60, 8)).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)
        model.head.linear.bias.normal_() if bias else model.head.linear.bias.zero_()
    return model


def contexts(number: int = 80) -> Sequences:
    return spaced_contexts(torch.randint(60, (400,), generator=Generator().manual_seed(3)), number, 5)


def test_a_matrix_of_known_singular_values():
    # Rows (3, 0), (0, 4), (0, 0): σ = 4, 3. The tolerance is ½·√(3 + 2 + 1)·4·2⁻⁵².
    found = singular_values(torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    assert found.values.tolist() == pytest.approx([4, 3])
    assert found.tolerance == pytest.approx(0.5 * math.sqrt(6) * 4 * 2.0**-52)
    assert (found.rank, found.above(0.5), found.above(0.8)) == (2, 2, 1)
    assert found.share_below(torch.tensor([0.1, 0.74, 0.75, 0.9, 1.0])).tolist() == [0, 0, 0.5, 0.5, 1]


def test_the_tolerance_is_told_and_leaves_rounding_out():
    matrix = random_words(60, 4) @ random_words(4, 50)
    found = numerical_rank(matrix)
    assert found.rank == 4
    smallest = torch.linalg.svdvals(matrix)
    assert smallest[4] < found.tolerance < smallest[3]
    assert numerical_rank(matrix + 1e-9 * random_words(60, 50)).rank == 50


@pytest.mark.parametrize(("bias", "most"), [(True, 12), (False, 11)])
def test_a_softmax_of_width_10_has_rank_12_and_11_without_its_bias(bias, most):
    model = softmax_model(10, bias=bias)
    found = numerical_rank(log_probability_matrix(model, contexts()))
    assert found.rank == most


def test_a_model_in_single_precision_is_measured_in_double():
    model = softmax_model(10, dtype=torch.float32)
    found = log_probability_matrix(model, contexts(), torch.arange(50))
    assert found.dtype == torch.float64
    assert numerical_rank(found).rank == 12
    assert next(model.parameters()).dtype == torch.float32
    assert numerical_rank(found.float()).rank > 12  # so the rounding of single precision would not do


def test_rows_of_words_are_those_of_the_parallel_pass(monkeypatch):
    model = softmax_model(6)
    some = contexts(20)
    whole = torch.log_softmax(teacher_forced(model, torch.cat([some.tokens, some.tokens[:, :1]], 1)), -1)[:, -1]
    words = torch.tensor([7, 0, 59])
    found = log_probability_matrix(model, some, words)
    assert torch.allclose(found, whole[:, words], atol=1e-12)
    monkeypatch.setattr(rank, "ELEMENTS", 60 * 3)  # three contexts at a time
    assert torch.allclose(log_probability_matrix(model, some, words), found, atol=1e-12)
    assert torch.allclose(log_probability_matrix(model, some).exp().sum(1), torch.ones(20).double())


def test_contexts_may_have_unequal_lengths():
    model, given = lstm(ENDING), three_contexts().given
    given = Sequences(given.tokens[:2], given.lengths[:2])
    found = log_probability_matrix(model, given)
    alone = [
        log_probability_matrix(model, Sequences(given.tokens[row : row + 1, :length], given.lengths[row : row + 1]))
        for row, length in enumerate(given.lengths.tolist())
    ]
    assert torch.allclose(found, torch.cat(alone), atol=1e-12)


def test_pretrained_networks_read_contexts_as_prefixes():
    from tests.models.pretrained_examples import pretrained, ragged

    model, given = pretrained("gpt2"), ragged().given
    found = log_probability_matrix(model, given, torch.tensor([2, 0]))
    assert torch.equal(found[1], found[3])  # the same prefix
    alone = log_probability_matrix(model, Sequences(given.tokens[:1, :1], given.lengths[:1]), torch.tensor([2, 0]))
    assert torch.allclose(found[0], alone[0], atol=1e-9)


def test_divergences_between_three_contexts_worked_out_by_hand():
    # P₀ = (½, ½), P₁ = (¼, ¾), P₂ = P₀. KL(0‖1) = ½ log 2 + ½ log ⅔ = ½ log 4/3; KL(1‖0) = ¼ log ½ + ¾ log 3/2;
    # of the six pairs, two are each of these and two are 0.
    model = by_rows([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5, 0.0]])
    there, back = 0.5 * math.log(4 / 3), 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    found = pairwise_divergence(model, each_token(3))
    assert found.value == pytest.approx((there + back) / 3)
    # Leaving out 0 or 2 leaves the pair (there + back)/2, leaving out 1 leaves 0.
    half = (there + back) / 2
    left = [half, 0.0, half]
    mean = sum(left) / 3
    variance = 2 / 3 * sum((own - mean) ** 2 for own in left)
    assert found.high - found.value == pytest.approx(4.302652729911275 * math.sqrt(variance))
    assert "3 contexts are few" in str(found.warning)


def test_a_word_without_a_chance_makes_the_divergence_infinite():
    model = by_rows([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.5, 0.5, 0.0]])
    found = pairwise_divergence(model, each_token(3))
    assert (found.value, found.low, found.high) == (math.inf, math.inf, math.inf)
    assert "no chance" in str(found.warning)


def test_divergences_agree_with_all_pairs():
    model, some = softmax_model(6), contexts(40)
    logs = log_probability_matrix(model, some)
    table = (logs.exp()[:, None] * (logs[:, None] - logs[None])).sum(-1)
    found = pairwise_divergence(model, some)
    assert found.value == pytest.approx(table.sum().item() / (40 * 39), rel=1e-10)
    assert found.low < found.value < found.high
    assert found.warning is None


def test_contexts_are_spaced_over_the_whole_text():
    found = spaced_contexts(torch.arange(10), 3, 2)
    assert found.tokens.tolist() == [[0, 1], [4, 5], [8, 9]]
    with pytest.raises(UserError, match="ask for fewer"):
        spaced_contexts(torch.arange(10), 10, 2)


def test_what_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="shorter ones"):
        log_probability_matrix(softmax_model(4), Sequences(torch.zeros(1, 8).long(), torch.tensor([8])))
    with pytest.raises(UserError, match="one token or more"):
        log_probability_matrix(softmax_model(4), Sequences(torch.zeros(1, 1).long(), torch.tensor([0])))
    with pytest.raises(UserError, match="not finite"):
        singular_values(torch.tensor([[0.0, -math.inf]]))
    with pytest.raises(UserError, match="three or more"):
        pairwise_divergence(softmax_model(4), contexts(2))
