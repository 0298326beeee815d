"""Mixtures of softmaxes and of contexts, tied heads and the wide softmax."""

import copy
import inspect
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.heads import HEADS, mixture
from ebar.heads.mixture import MixtureOfContexts, MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax, WideSoftmax
from ebar.models.construction import assemble
from ebar.objectives.earm import Earm
from ebar.types import Space
from tests.heads.test_given_targets import Largest

WIDTH, VOCABULARY, SIZE = 5, 7, 3
MIXTURES = [MixtureOfSoftmaxes, MixtureOfContexts]


def hidden(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=Generator().manual_seed(2), dtype=torch.float64)


def made(kind: Any, **options: Any) -> Any:
    """Away from its first weights, so that components differ and biases matter."""
    torch.manual_seed(0)
    head = kind(WIDTH, VOCABULARY, **options).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return head


def formula(head: Any, given: Tensor) -> tuple[Tensor, Tensor]:
    """Of Yang et al. 2018, written out: vectors of the components and their weights."""
    latent, prior = head.components.latent, head.components.prior
    vectors = torch.tanh(given @ latent.weight.T + latent.bias).unflatten(-1, (prior.out_features, -1))
    return vectors, torch.softmax(given @ prior.weight.T, -1)


# --- numbers by hand ---


def test_two_components_by_hand() -> None:
    head = MixtureOfSoftmaxes(1, 2, components=2, size=1).double()
    with torch.no_grad():
        head.components.latent.weight.zero_()
        head.components.latent.bias.copy_(torch.tensor([0.0, math.atanh(0.5)]))  # vectors 0 and ½
        head.components.prior.weight.copy_(torch.tensor([[0.0], [math.log(3)]]))  # weights ¼ and ¾ at hidden 1
        head.linear.weight.copy_(torch.tensor([[0.0], [2 * math.log(4)]]))
        head.linear.bias.zero_()
    given = torch.ones(1, 1, dtype=torch.float64)
    wanted = 1 / 4 * 1 / 2 + 3 / 4 * 4 / 5
    torch.testing.assert_close(head(given).exp()[0, 1].item(), wanted)
    torch.testing.assert_close(head.log_probs(given, torch.tensor([1])).exp().item(), wanted)


def test_the_mixture_is_one_of_probabilities_and_of_contexts_one_of_vectors() -> None:
    given = hidden(4, 2)
    softmaxes, contexts = made(MixtureOfSoftmaxes, components=3, size=SIZE), made(MixtureOfContexts, components=3)
    vectors, weights = formula(softmaxes, given)
    probabilities = (weights[..., None] * torch.softmax(softmaxes.linear(vectors), -1)).sum(-2)
    torch.testing.assert_close(softmaxes(given).exp(), probabilities, rtol=0, atol=1e-12)
    vectors, weights = formula(contexts, given)
    torch.testing.assert_close(contexts(given), contexts.linear((weights[..., None] * vectors).sum(-2)))


def test_one_component_is_the_softmax_of_the_tanh_projection_and_the_wide_softmax() -> None:
    head, given, targets = made(MixtureOfSoftmaxes, components=1, size=SIZE), hidden(4), torch.tensor([0, 6, 3, 3])
    wanted = torch.log_softmax(head.linear(torch.tanh(head.components.latent(given))), -1)
    assert torch.equal(head(given), wanted)
    wide = WideSoftmax(WIDTH, VOCABULARY, size=SIZE).double()
    wide.projection, wide.linear = head.components.latent, head.linear
    assert torch.equal(wide(given).log_softmax(-1), wanted)
    assert torch.equal(wide.log_probs(given, targets), head.log_probs(given, targets))


def test_the_weights_of_components_have_no_bias_and_first_values_are_the_originals() -> None:
    head = MixtureOfSoftmaxes(WIDTH, VOCABULARY, components=4, size=SIZE)
    shapes = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    assert shapes == {
        "components.latent.weight": (12, 5), "components.latent.bias": (12,), "components.prior.weight": (4, 5),
        "linear.weight": (7, 3), "linear.bias": (7,),
    }  # fmt: skip
    assert 0.05 < head.linear.weight.abs().max().item() <= 0.1
    assert not bool(head.linear.bias.any())


def test_log_probabilities_stay_finite_where_probabilities_underflow() -> None:
    head, given = made(MixtureOfSoftmaxes, components=3), hidden(4)
    with torch.no_grad():
        head.linear.bias[0] = 2000.0
    log_probs = head(given)
    assert bool(log_probs.isfinite().all())
    assert log_probs[:, 1:].max().item() < -1900  # log(0 + 1e-8) would be −18
    torch.testing.assert_close(head.log_probs(given, torch.ones(4, dtype=torch.long)), log_probs[:, 1])


# --- dropout ---


@pytest.mark.parametrize("kind", MIXTURES)
def test_dropout_is_on_the_vectors_with_one_mask_for_all_places_of_a_sequence(kind: Any) -> None:
    head = made(kind, components=2, size=50, dropout=0.4).train()
    given = hidden(3, 1).expand(3, 6, WIDTH)  # the same at every place
    vectors, log_prior = head.components(given)
    dropped = vectors == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    assert 0.2 < float(dropped.double().mean()) < 0.6
    whole = head.eval().components(given)[0]
    torch.testing.assert_close(vectors, torch.where(dropped, 0.0, whole / 0.6))
    assert torch.equal(log_prior, head.components(given)[1])


@pytest.mark.parametrize("kind", MIXTURES)
def test_targets_have_the_dropout_of_the_logits(kind: Any) -> None:
    head = made(kind, components=2, dropout=0.5).train()
    given, targets = hidden(3, 4), torch.randint(VOCABULARY, (3, 4), generator=Generator().manual_seed(1))
    torch.manual_seed(7)
    wanted = head(given).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.manual_seed(7)
    torch.testing.assert_close(head.log_probs(given, targets), wanted, rtol=0, atol=1e-12)


# --- memory ---


def test_no_tensor_holds_all_logits_of_all_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "LOGITS", 8 * VOCABULARY)
    head, given = made(MixtureOfSoftmaxes, components=4, size=2), hidden(20, 5).requires_grad_()
    targets = torch.randint(VOCABULARY, (20, 5), generator=Generator().manual_seed(1))
    learnt = [given, *head.parameters()]
    wanted = torch.logsumexp(formula(head, given)[1].log()[..., None]
                             + head.linear(formula(head, given)[0]).log_softmax(-1), -2)  # fmt: skip
    gradients = torch.autograd.grad((wanted * wanted.detach()).sum(), learnt)
    with Largest() as seen:
        found = head(given)
        ours = torch.autograd.grad((found * wanted.detach()).sum(), learnt)
    assert seen.numbers <= 100 * 4 * 2 < 100 * 4 * VOCABULARY
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    for one, other in zip(ours, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(head(given), wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(head.log_probs(given, targets), wanted.gather(-1, targets[..., None])[..., 0])


# --- tied ---


@pytest.mark.parametrize("name", HEADS)
def test_a_tied_head_learns_the_input_vectors_themselves(name: str) -> None:
    if "tied" not in inspect.signature(HEADS[name]).parameters or name == "adaptive_softmax":
        pytest.skip("it ties in a way of its own, if at all")
    torch.manual_seed(0)
    options = {"layers": 1, "hidden": 6, "embedding": 6}
    model = assemble(Space(4, 3), "lstm", options, name, {"tied": True}).double()
    vectors = model.backbone.inputs  # type: ignore[attr-defined]
    assert model.head.linear.weight is vectors  # type: ignore[attr-defined]
    assert sum(parameter is vectors for parameter in model.parameters()) == 1
    given, targets = torch.randn(2, 3, 6).double(), torch.tensor([[0, 1, 2], [3, 3, 0]])
    assert model.head(given).shape == (2, 3, 4)  # the beginning's vector is no token's
    first = torch.autograd.grad(model.head(given).log_softmax(-1).gather(-1, targets[..., None]).sum(), vectors)[0]
    second = torch.autograd.grad(model.head.log_probs(given, targets).sum(), vectors)[0]  # type: ignore[attr-defined]
    torch.testing.assert_close(first, second, rtol=0, atol=1e-10)
    assert bool(first[:4].any())
    assert not bool(first[4].any())
    twin = copy.deepcopy(model)
    assert twin.head.linear.weight is twin.backbone.inputs  # type: ignore[attr-defined]
    twin.load_state_dict(model.state_dict())


def test_an_untied_softmax_draws_the_random_numbers_that_it_always_did() -> None:
    torch.manual_seed(0)
    wanted = nn.Linear(4, 3)
    nn.init.uniform_(wanted.weight, -0.1, 0.1)
    after = torch.rand(1)
    torch.manual_seed(0)
    head = Softmax(4, 3)
    assert torch.equal(head.linear.weight, wanted.weight)
    assert torch.equal(torch.rand(1), after)


@pytest.mark.parametrize("name", ["softmax", "mixture_of_softmaxes", "mixture_of_contexts", "wide_softmax"])
def test_what_cannot_be_tied_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"learns no input vectors.*leave tied out"):
        assemble(Space(4, 3), "lstm", {"layers": 1, "hidden": 6}, name, {"tied": True})
    with pytest.raises(UserError, match="several sizes"):
        HEADS.make(name, {"tied": True}, width=3, vocabulary=4, embedding=object())
    options = {} if name == "softmax" else {"size": 6}
    vectors = {"layers": 1, "hidden": 6, "embedding": 5}
    with pytest.raises(UserError, match=r"input vectors have 5 dimensions and the head's 6.*leave tied out"):
        assemble(Space(4, 3), "lstm", vectors, name, {"tied": True, **options})


@pytest.mark.parametrize(
    ("option", "complaint"),
    [({"components": 0}, "at least one component"), ({"size": 0}, "at least 1"), ({"dropout": 1.0}, "below 1")],
)
def test_options_that_cannot_be_are_refused(option: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        HEADS.make("mixture_of_softmaxes", option, width=3, vocabulary=4)


# --- E-ARM ---


def test_earm_refuses_a_mixture_of_softmaxes_and_says_why() -> None:
    options = {"layers": 1, "hidden": 6}
    with pytest.raises(UserError, match=r"gives log-probabilities.*every LSE is 0.*the energy vanishes"):
        Earm(model=assemble(Space(4, 3), "lstm", options, "mixture_of_softmaxes"))
    Earm(model=assemble(Space(4, 3), "lstm", options, "mixture_of_contexts"))
