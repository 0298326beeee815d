"""Corollary 1 of Yang et al. 2018 (arXiv:1711.03953; Dai's thesis, A.2 and A.6), on a language of known rank.

Eight contexts, eight tokens: context c is followed by token c with chance ½ and by each other with 1/14. Its matrix of
log-probabilities is A = log 7·I + log(1/14)·J, so that rank A = 8, and A with its rows shifted to mean 0 is
log 7·(I − J/8), of rank 7: a softmax of dimension 7 has the language exactly and one of dimension 6 < rank A − 1 cannot
have it, whatever its backbone. How far it stays away is bounded from below by A's singular values.
"""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.heads.mixture import MixtureOfContexts, MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax, WideSoftmax

TOKENS = 8
EYE, ONES = torch.eye(TOKENS, dtype=torch.float64), torch.ones(TOKENS, TOKENS, dtype=torch.float64)
LANGUAGE = math.log(7) * EYE + math.log(1 / 14) * ONES


def rank(matrix: Tensor) -> int:
    """Singular values above ½·√(m + n + 1)·σ₁·ε (Press et al. 2007)."""
    values = torch.linalg.svdvals(matrix.detach())
    floor = 0.5 * math.sqrt(sum(matrix.shape) + 1) * values[0] * torch.finfo(matrix.dtype).eps
    return int((values > floor).sum())


def divergence(found: Tensor) -> Tensor:
    """Σ over contexts of KL(language ‖ model)."""
    return (LANGUAGE.exp() * (LANGUAGE - found)).sum()


def least_divergence(dimension: int) -> float:
    """What no model whose log-probabilities have this rank can go below.

    Eckart & Young: they are at least σ away from A, the first singular value past the rank. Pinsker: each row's chances
    are at most t = √(2·KL) away from A's, which all are at least p. So σ ≤ t / (p − t), that is t ≥ σ·p / (1 + σ).
    """
    sigma, p = float(torch.linalg.svdvals(LANGUAGE)[dimension]), float(LANGUAGE.exp().min())
    return 0.5 * (sigma * p / (1 + sigma)) ** 2


def with_weights(head: Any, scale: float = 1.0) -> Any:
    """Random weights, and biases other than 0."""
    generator = Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in head.double().parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return head


def hidden(contexts: int, width: int) -> Tensor:
    return torch.randn(contexts, width, generator=Generator().manual_seed(5), dtype=torch.float64)


# --- what a head's log-probabilities can be ---


@pytest.mark.parametrize("dimension", [1, 3, 10])
def test_a_softmax_has_rank_d_plus_2_and_d_plus_1_without_a_bias(dimension: int) -> None:
    head = with_weights(Softmax(dimension, 50))
    assert rank(head(hidden(40, dimension)).log_softmax(-1)) == dimension + 2
    with torch.no_grad():
        head.linear.bias.zero_()
    assert rank(head(hidden(40, dimension)).log_softmax(-1)) == dimension + 1


def test_a_mixture_of_contexts_has_the_rank_of_a_softmax_and_a_mixture_of_softmaxes_any() -> None:
    contexts = with_weights(MixtureOfContexts(12, 30, components=6, size=3))
    assert rank(contexts(hidden(40, 12)).log_softmax(-1)) == 3 + 2
    for components in (2, 6):
        softmaxes = with_weights(MixtureOfSoftmaxes(12, 30, components=components, size=3))
        assert rank(softmaxes(hidden(40, 12))) == 30


def test_a_wide_softmax_has_the_rank_of_its_size_and_would_not_without_the_tanh() -> None:
    head, given = with_weights(WideSoftmax(3, 30, size=8)), hidden(40, 3)
    assert rank(head(given).log_softmax(-1)) == 8 + 2
    assert rank(head.linear(head.projection(given)).log_softmax(-1)) == 3 + 2


# --- what they can be of the language ---


def test_the_language_has_rank_8_and_shifting_its_rows_takes_away_one() -> None:
    torch.testing.assert_close(LANGUAGE.exp().sum(1), torch.ones(TOKENS, dtype=torch.float64))
    assert rank(LANGUAGE) == 8
    shifted = math.log(7) * (EYE - ONES / TOKENS)
    torch.testing.assert_close(shifted.log_softmax(-1), LANGUAGE, rtol=0, atol=1e-12)
    assert rank(shifted) == 7
    for seed in range(5):  # property 2: never by more than one
        shift = torch.randn(TOKENS, 1, generator=Generator().manual_seed(seed), dtype=torch.float64)
        assert rank(LANGUAGE + shift) in (7, 8)


def test_a_softmax_of_dimension_7_has_the_language() -> None:
    head = Softmax(7, TOKENS).double()
    basis = torch.linalg.eigh(EYE - ONES / TOKENS).eigenvectors[:, 1:]  # orthonormal, and orthogonal to a shift
    with torch.no_grad():
        head.linear.weight.copy_(math.log(7) * basis)
        head.linear.bias.zero_()
    torch.testing.assert_close(head(basis).log_softmax(-1), LANGUAGE, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dimension", "bias"), [(6, False), (5, True), (2, True)])
def test_a_softmax_of_a_smaller_dimension_stays_away_from_it(dimension: int, bias: bool) -> None:
    """Hidden vectors are free: no backbone could do better."""
    least = least_divergence(dimension + 1 + bias)
    assert least > 1e-3
    found = best_fit(dimension, bias=bias)
    assert found > least
    assert best_fit(7, bias=bias) < 1e-6


def best_fit(dimension: int, *, bias: bool) -> float:
    """Smallest divergence that a search over all hidden vectors and weights comes to, from three starts."""
    return min(_fit(dimension, bias, Generator().manual_seed(seed)) for seed in range(3))


def _fit(dimension: int, bias: bool, generator: Generator) -> float:
    def start(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    head, vectors = Softmax(dimension, TOKENS).double(), nn.Parameter(start(TOKENS, dimension))
    head.linear.weight = nn.Parameter(start(TOKENS, dimension))
    head.linear.bias.requires_grad_(bias)
    learnt = [one for one in (vectors, *head.parameters()) if one.requires_grad]
    search = torch.optim.LBFGS(learnt, max_iter=100, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def closure() -> float:
        search.zero_grad()
        loss = divergence(head(vectors).log_softmax(-1))
        loss.backward()
        return loss.item()

    search.step(closure)
    return closure()


def test_a_mixture_of_two_softmaxes_of_dimension_2_has_the_language() -> None:
    """Four sevenths of a uniform distribution, and three of one that is sure of the token, as tokens lie on a circle:
    their vectors are long enough for the other chances to vanish."""
    head = MixtureOfSoftmaxes(TOKENS, TOKENS, components=2, size=2).double()
    angles = 2 * math.pi * torch.arange(TOKENS, dtype=torch.float64) / TOKENS
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    weights = torch.tensor([[4 / 7], [3 / 7]], dtype=torch.float64)
    with torch.no_grad():
        head.components.latent.bias.zero_()
        head.components.latent.weight.copy_(torch.cat([torch.zeros(TOKENS, 2), torch.atanh(circle / 2)], 1).T)
        head.components.prior.weight.copy_(weights.log().expand(2, TOKENS))
        head.linear.weight.copy_(1000 * circle)
        head.linear.bias.zero_()
    found = head(EYE)  # each context has a hidden vector of its own
    torch.testing.assert_close(found, LANGUAGE, rtol=0, atol=1e-12)
    assert rank(found) == 8 > 2 + 2
