"""Texts longer than a model's window."""

from typing import Any

import pytest
import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.models import stepwise
from ebar.models.construction import FromLogits, assemble
from ebar.models.rolling import Rolling, Unending, lengthened
from ebar.models.stepwise import ancestral_by_token, token_log_probs
from ebar.models.truncated import Truncated
from ebar.testing import check_stepwise
from ebar.types import Context, Sequences, Space
from tests.models.carrying import carrying_model

SPACE = Space(3, 4)
BITS = Space(2, 4)


def whole(tokens: torch.Tensor) -> Sequences:
    return Sequences(tokens, torch.full((len(tokens),), tokens.shape[1]))


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_rolling_is_a_stepwise_distribution(stride, marked):
    rolling = Rolling(carrying_model("transformer", BITS), 7, stride=stride, marked=marked)
    check_stepwise(rolling, tolerance=1e-9)
    given = Context(whole(torch.randint(2, (2, 6), generator=Generator().manual_seed(1))))
    check_stepwise(rolling, given, tolerance=1e-9)


@pytest.mark.parametrize("kind", ["lstm", "summing"])
def test_what_has_a_state_of_fixed_size_goes_on(kind):
    longer = lengthened(carrying_model(kind, BITS), 7)
    assert isinstance(longer, Unending)
    check_stepwise(longer, tolerance=1e-9)


def test_each_token_sees_what_its_window_holds():
    """Windows of 4 that move on by 2: token 4 sees tokens 2 and 3, token 5 sees 2 to 4, token 6 sees 4 and 5."""
    model = carrying_model("transformer", SPACE)
    text = torch.randint(3, (1, 7), generator=Generator().manual_seed(2))
    found = token_log_probs(Rolling(model, 7, stride=2), whole(text))[0]
    windows = {0: (0, 4), 4: (2, 6), 6: (4, 7)}
    expected = torch.zeros(7, dtype=torch.float64)
    for scored, (begin, end) in windows.items():
        own = token_log_probs(model, whole(text[:, begin:end]))[0]
        expected[scored:end] = own[scored - begin :]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_without_a_mark_a_window_begins_with_the_token_before_it():
    model = carrying_model("transformer", SPACE)
    text = torch.randint(3, (1, 6), generator=Generator().manual_seed(3))
    found = token_log_probs(Rolling(model, 6, stride=2, marked=False), whole(text))[0]
    hidden, _ = model.backbone.read_segment(text[:, 1:5], model.backbone.empty_memory(1))
    expected = torch.log_softmax(model.head(hidden), -1)[0, [2, 3]].gather(1, text[0, 4:, None]).squeeze(1)
    torch.testing.assert_close(found[4:], expected, rtol=0, atol=1e-12)


def test_a_network_of_the_users_own_rolls_too():
    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.Embedding(2, 2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.weights(tokens).cumsum(1)
            return found

    torch.manual_seed(0)
    check_stepwise(lengthened(FromLogits(Copies().double(), BITS, beginning=0), 7), tolerance=1e-9)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_two_thousand_tokens_from_windows_of_64_are_scored_as_they_were_drawn(kind):
    torch.manual_seed(0)
    options = {"hidden": 16, "layers": 1} | ({"embedding": 8} if kind == "lstm" else {"heads": 2})
    model: Any = assemble(Space(20, 64), kind, options).eval()
    with torch.no_grad():  # so that a token's chances are far from even
        for weight in [*model.head.parameters(), *(model.backbone.parameters() if kind == "lstm" else ())]:
            weight.mul_(6)
    longer = Truncated(lengthened(model, 2000), temperature=0.8, length=2000)
    x, drawn = ancestral_by_token(longer, 1, generator=Generator().manual_seed(4))
    assert x.tokens.shape == (1, 2000)
    assert float(drawn.mean()) > -2.9  # nats; even chances would be 3.0
    with torch.no_grad():
        assert float((token_log_probs(longer, x) - drawn).abs().max()) < 1e-5


def test_a_long_row_is_scored_a_few_logits_at_a_time(monkeypatch):
    model = lengthened(carrying_model("lstm", SPACE), 40)
    x = model.sample(3, generator=Generator().manual_seed(5))
    with torch.no_grad():
        expected = token_log_probs(model, x)
        most = []
        advance = type(model).advance

        def watched(self, tokens, state):
            most.append(tokens.numel())
            return advance(self, tokens, state)

        monkeypatch.setattr(type(model), "advance", watched)
        monkeypatch.setattr(stepwise, "LOGITS", 21)  # seven tokens of three logits
        torch.testing.assert_close(token_log_probs(model, x), expected, rtol=0, atol=1e-12)
    assert max(most) == 7


def test_sequences_that_end_are_as_long_as_they_are():
    ended = carrying_model("lstm", Space(3, 4, 2))
    assert lengthened(ended, 4) is ended
    with pytest.raises(ValueError, match="between 1 and the model's 4"):
        lengthened(ended, 5)
    with pytest.raises(ValueError, match="moves on by 1 to 4"):
        Rolling(carrying_model("transformer", SPACE), 9, stride=5)
    unequal = Context(Sequences(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 2])))
    with pytest.raises(UserError, match="prefixes of one length"):
        Rolling(carrying_model("transformer", SPACE), 9).start(2, unequal)
