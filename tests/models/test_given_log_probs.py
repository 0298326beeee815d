"""Given tokens scored without their logits: the same numbers, and where that way is taken."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.heads import head as heads
from ebar.models import stepwise
from ebar.models.construction import Autoregressive, assemble
from ebar.models.stepwise import teacher_forced, token_log_probs
from ebar.objectives.contrastive import token_scores
from ebar.objectives.scheduled_sampling import MaximumLikelihood, token_cross_entropy
from ebar.types import Clock, Context, Sequences, Space
from tests.heads.test_given_targets import Largest

SPACE = Space(5, 4, end=4)
OPTIONS: dict[str, dict[str, Any]] = {
    "lstm": {"layers": 1, "hidden": 6, "dropout": 0.0, "embedding": 6},
    "transformer": {"layers": 1, "hidden": 8, "heads": 2, "dropout": 0.0},
}
# Rows that end early, in the last place, not at all, and one with a token after the space's last place.
X = Sequences(
    torch.tensor([[4, 9, 9, 9, 9], [0, 1, 2, 4, 9], [3, 3, 2, 1, 9], [0, 1, 1, 0, 4]]), torch.tensor([1, 4, 4, 5])
)
CONTEXT = Context(Sequences(torch.tensor([[1, 9], [2, 0]]), torch.tensor([1, 2])))


def model_of(head: str = "mixture_of_softmaxes", backbone: str = "lstm", **options: Any) -> Autoregressive:
    torch.manual_seed(1)
    model = assemble(SPACE, backbone, OPTIONS[backbone], head, options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape))
    return model.double()


def dense(model: Autoregressive, x: Sequences, context: Context | None = None) -> Tensor:
    """By logits; what padding and places past the space's length have is written out."""
    safe = torch.where(x.mask(), x.tokens, 0)[:, :4]
    found = teacher_forced(model, safe, context).log_softmax(-1).gather(2, safe[..., None])[..., 0]
    found = torch.where(x.mask()[:, :4], found, 0.0)
    return torch.cat([found, torch.where(x.mask()[:, 4:], -math.inf, torch.zeros(4, 1).double())], 1)


@pytest.mark.parametrize("context", [None, CONTEXT], ids=["unconditional", "conditional"])
@pytest.mark.parametrize("backbone", OPTIONS)
@pytest.mark.parametrize("head", ["mixture_of_softmaxes", "mixture_of_contexts", "softmax"])
def test_scores_and_gradients_are_those_of_the_logits(
    monkeypatch: pytest.MonkeyPatch, head: str, backbone: str, context: Context | None
) -> None:
    monkeypatch.setattr(heads, "LARGE", 0)
    monkeypatch.setattr(heads, "LOGITS", 0)
    model = model_of(head, backbone, tied=True) if backbone == "lstm" else model_of(head, backbone)
    assert model.without_logits(1)
    found, wanted = token_log_probs(model, X, context), dense(model, X, context)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert found[1, 3].item() == 0.0  # the end in the last place is sure
    assert found[2, 3].item() == -math.inf
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ours, theirs = (torch.autograd.grad(each[:2].sum(), parameters) for each in (found, wanted))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("places", [1, 4, 8, 10_000])
@pytest.mark.parametrize("context", [None, CONTEXT], ids=["unconditional", "conditional"])
def test_without_gradients_rows_are_scored_in_blocks(
    monkeypatch: pytest.MonkeyPatch, places: int, context: Context | None
) -> None:
    model, wanted = model_of(), dense(model_of(), X, context).detach()
    monkeypatch.setattr(stepwise, "PLACES", places)
    blocks: list[int] = []

    def counted(tokens: Tensor, given: Context | None = None) -> Tensor:
        blocks.append(len(tokens))
        return Autoregressive.given_log_probs(model, tokens, given)

    monkeypatch.setattr(model, "given_log_probs", counted)
    with torch.no_grad():
        torch.testing.assert_close(token_log_probs(model, X, context), wanted, rtol=0, atol=1e-12)
        assert sum(blocks) == 4
        assert max(blocks) == {1: 1, 4: 1, 8: 2, 10_000: 4}[places]
        none = X.select(slice(0, 0))
        assert token_log_probs(model, none).shape == (0, 5)


def test_a_context_that_cannot_be_shared_evenly_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be shared evenly"):
        token_log_probs(model_of(), X.select(slice(0, 3)), CONTEXT)


def test_samples_have_the_log_probability_that_the_sampler_said() -> None:
    model = model_of()
    x, log_q = model.sample_with_log_prob(50, generator=Generator().manual_seed(0))
    torch.testing.assert_close(model.log_prob(x), log_q, rtol=0, atol=1e-12)


# --- which way is taken ---


@pytest.mark.parametrize(
    ("head", "places", "vocabulary", "without"),
    [
        ("softmax", 2**13, 2**12, True),
        ("softmax", 2**12, 2**12, False),  # few logits
        ("softmax", 2**20, 2**11, False),  # a small vocabulary, however many rows
        ("mixture_of_softmaxes", 1, 5, True),
        ("mixture_of_contexts", 1, 5, False),
    ],
)
def test_a_softmax_has_logits_while_they_are_few(head: str, places: int, vocabulary: int, without: bool) -> None:
    assert heads.without_logits(model_of(head).head, places, vocabulary) is without


def loss_of(model: Autoregressive, x: Sequences, **options: Any) -> Tensor:
    objective = MaximumLikelihood(model=model, **options)
    (loss,) = objective.losses(x, Clock(0, 0), generator=Generator())
    return loss.value


def by_logits(model: Autoregressive, x: Sequences) -> Tensor:
    safe = torch.where(x.mask(), x.tokens, 0)
    scores = token_scores(teacher_forced(model, safe), safe)
    return token_cross_entropy(scores, x, SPACE)[0] / int(x.lengths.sum())


def test_maximum_likelihood_of_a_mixture_never_holds_its_logits() -> None:
    rows = 200
    x = Sequences(torch.tensor([[0, 1, 2, 4]]).expand(rows, 4), torch.full((rows,), 4))
    model = model_of(components=20, size=1)
    wanted = by_logits(model, x)
    torch.testing.assert_close(loss_of(model, x), wanted, rtol=0, atol=1e-12)
    with Largest() as seen:
        loss_of(model, x).backward()
    assert seen.numbers < rows * 4 * 20 * 5
    with Largest() as seen:
        loss_of(model, x, label_smoothing=0.1).backward()
    assert seen.numbers >= rows * 4 * 20 * 5  # so that the law above can fail


def test_an_infinite_loss_stays_infinite() -> None:
    x = X.select(slice(2, 3))
    assert loss_of(model_of(), x).item() == math.inf


def test_maximum_likelihood_of_a_small_softmax_is_what_it_was_to_the_last_bit() -> None:
    model = model_of("softmax").float()
    x = Sequences(X.tokens[:2, :4].clamp(max=4), X.lengths[:2])
    assert torch.equal(loss_of(model, x), by_logits(model, x))
