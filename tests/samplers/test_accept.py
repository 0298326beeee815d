"""Chances so small that numbers of 24 bits would take them for larger ones."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.samplers.importance import RESAMPLERS, at_offsets, multinomial, systematic
from ebar.samplers.rejection import coin

ONE_LESS = 1 - 2.0**-53  # the largest number below 1


def scripted(monkeypatch: pytest.MonkeyPatch, *words: float) -> None:
    """torch.rand gives these, one for each of its first dimension."""

    def rand(*size: int | tuple[int, ...], dtype: torch.dtype | None = None, **_: object) -> Tensor:
        shape = size[0] if isinstance(size[0], tuple) else size
        given = torch.tensor(words, dtype=torch.float64).view(-1, *[1] * (len(shape) - 1))
        return given.to(dtype or torch.float32).expand(*shape)  # type: ignore[arg-type]

    monkeypatch.setattr(torch, "rand", rand)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_chance_of_e_to_the_minus_60_is_one_even_at_the_least_uniform_numbers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, generator: Generator
) -> None:
    """u = a + (1 − b)·2⁻⁵³ with a = 0: from 2⁻⁵³ = e^−36.7 at b = 0 down to 2⁻¹⁰⁶ = e^−73.5 at the largest b."""
    chances = torch.tensor([-30.0, -36.0, -37.0, -60.0, -73.0, -74.0, -math.inf], dtype=dtype)
    scripted(monkeypatch, 0.0, 0.0)
    assert coin(chances, generator).tolist() == [True, True, False, False, False, False, False]
    scripted(monkeypatch, 0.0, ONE_LESS)
    assert coin(chances, generator).tolist() == [True, True, True, True, True, False, False]


def test_what_is_certain_always_happens_and_what_is_impossible_never(
    monkeypatch: pytest.MonkeyPatch, generator: Generator
) -> None:
    chances = torch.tensor([0.0, 3.0, math.inf, -math.inf, math.nan])
    for words in ((0.0, 0.0), (0.0, ONE_LESS), (ONE_LESS, 0.0), (ONE_LESS, ONE_LESS), (0.5, 0.5)):
        scripted(monkeypatch, *words)
        assert coin(chances, generator).tolist() == [True, True, True, False, False]


def test_coins_of_one_seed_are_the_same_and_as_frequent_as_they_should() -> None:
    """1,000,000 of each: outside 4.5 standard deviations once in 100,000 runs each. e^−60: once in 10²⁰ runs."""
    chances = torch.tensor([0.5, 1e-3, math.exp(-60)]).log()[:, None].expand(3, 1_000_000)
    seed = int(torch.randint(2**62, ()))
    flips = coin(chances, Generator().manual_seed(seed))
    assert torch.equal(flips, coin(chances, Generator().manual_seed(seed)))
    heads = flips.double().sum(1)
    for count, chance in zip(heads.tolist()[:2], (0.5, 1e-3), strict=True):
        assert abs(count - 1e6 * chance) < 4.5 * math.sqrt(1e6 * chance * (1 - chance))
    assert heads[2] == 0


def test_a_draw_of_tiny_weight_is_chosen_by_no_coarser_number(
    monkeypatch: pytest.MonkeyPatch, generator: Generator
) -> None:
    """Of weights 10⁻¹² and 1 the first is chosen up to a share of 10⁻¹², which 24 bits cannot tell from 0."""
    log_weights = torch.tensor([[math.log(1e-12), 0.0]])
    for share, chosen in ((0.0, 0), (0.9e-12, 0), (1.1e-12, 1), (ONE_LESS, 1)):
        scripted(monkeypatch, share)
        assert systematic(log_weights, 1, generator).tolist() == [[chosen]]
        assert multinomial(log_weights, 1, generator).tolist() == [[chosen]]


def test_points_of_a_large_pool_stay_evenly_spaced() -> None:
    """In float32, 300,000 + ⅓ is 300,000.34375: the last points of n draws would be off by their own distance."""
    n = 1_000_000
    chosen = at_offsets(torch.zeros(1, n), n, torch.tensor([1 / 3]))
    assert torch.equal(chosen[0], torch.arange(n))


@pytest.mark.parametrize("name", ["systematic", "multinomial"])
def test_draws_of_no_weight_are_never_chosen(name: str, monkeypatch: pytest.MonkeyPatch, generator: Generator) -> None:
    log_weights = torch.tensor([[-math.inf, 0.0, -math.inf, 0.3, -math.inf]])
    for share in (0.0, ONE_LESS):
        scripted(monkeypatch, share)
        assert set(RESAMPLERS[name](log_weights, 3, generator)[0].tolist()) <= {1, 3}
