"""The mixture of logistics over levels of intensity."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.heads import logistic_mixture
from ebar.heads.logistic_mixture import LOG_SCALES, LogisticMixture
from tests.heads.test_given_targets import Largest

WIDTH = 4


def made(levels: int, *, components: int = 3, spread: float = 1.0, dtype: Any = torch.float64) -> LogisticMixture:
    """Away from its first weights; the wider the spread, the more extreme its means and scales."""
    torch.manual_seed(0)
    head = LogisticMixture(WIDTH, levels, components=components).to(dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, dtype=dtype))
    return head


def hidden(*shape: int, dtype: Any = torch.float64) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=Generator().manual_seed(2), dtype=torch.float64).to(dtype)


def saying(levels: int, weights: list[float], means: list[float], scales: list[float]) -> LogisticMixture:
    """A head that says the same after every hidden vector."""
    head = LogisticMixture(WIDTH, levels, components=len(means)).double()
    with torch.no_grad():
        head.linear.weight.zero_()
        parts = [torch.tensor(part).double() for part in (weights, means, scales)]
        head.linear.bias.copy_(torch.cat([parts[0].log(), parts[1], parts[2].log()]))
    return head


# --- numbers by hand ---


def test_three_levels_by_hand() -> None:
    # Edges at ±½. Scale ½/log 3 around 0: the logistic function is ¼ and ¾ there. Around ½ with scale 1/log 3: ¼ and ½.
    head = saying(3, [0.25, 0.75], [0.0, 0.5], [0.5 / math.log(3), 1 / math.log(3)])
    first, second = torch.tensor([1 / 4, 1 / 2, 1 / 4]), torch.tensor([1 / 4, 1 / 4, 1 / 2])
    wanted = (first / 4 + second * 3 / 4).double()
    torch.testing.assert_close(head(hidden(2)).exp(), wanted.expand(2, 3))
    torch.testing.assert_close(head.log_probs(hidden(3), torch.arange(3)).exp(), wanted)


def test_mass_outside_the_range_is_added_by_the_share_of_the_bin_that_sticks_out() -> None:
    # 3 levels: bins are ½ wide on a scale from 0 to 1. Around ⅛ the bin goes from −⅛ to ⅜, half of its half outside.
    head = saying(3, [1.0], [0.0], [1.0])

    def logistic(intensity: float) -> float:
        return 1 / (1 + math.exp(1 - 2 * intensity))

    found = head.log_mass(hidden(3), torch.tensor([1 / 8, 0.0, 0.9]).double()).exp()
    inside = logistic(3 / 8) - logistic(-1 / 8)
    top = logistic(1.15) - logistic(0.65) + 0.6 * (1 - logistic(1.15))  # 0.15 of the 0.25 above 0.9 lie outside
    wanted = torch.tensor([inside + logistic(-1 / 8) / 2, logistic(1 / 4), top]).double()
    torch.testing.assert_close(found, wanted)


def test_at_first_every_level_has_some_of_the_mass() -> None:
    masses = LogisticMixture(WIDTH, 256)(torch.zeros(WIDTH)).exp() * 256
    assert masses[1:-1].min() > 0.5
    assert masses.max() < 12  # the open bins have more


# --- identities ---


@pytest.mark.parametrize("levels", [2, 3, 256])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
def test_masses_sum_to_one_and_have_gradients(levels: int, spread: float) -> None:
    head, given = made(levels, spread=spread, dtype=torch.float32), hidden(50, dtype=torch.float32).requires_grad_()
    if spread > 1:  # both bounds are met
        assert {float(end) for end in head.logistics(given).log_scales.detach().aminmax()} == set(LOG_SCALES)
    found = head(given)
    torch.testing.assert_close(found.double().exp().sum(-1), torch.ones(50).double(), rtol=0, atol=1e-5)
    assert found.isfinite().all()
    (gradient,) = torch.autograd.grad(found[:, ::5].sum(), given, retain_graph=True)
    assert gradient.isfinite().all()
    targets = torch.arange(50) % levels
    of_targets = head.log_probs(given, targets)
    wanted = found.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(of_targets, wanted, rtol=1e-6, atol=1e-5)
    one, other = (torch.autograd.grad(part.sum(), given)[0] for part in (of_targets, wanted))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * spread)


def test_masses_are_those_of_the_formula() -> None:
    head, given = made(256), hidden(7)
    log_weights, means, log_scales = head.logistics(given)
    edges = (torch.arange(255).double() + 0.5) * 2 / 255 - 1
    below = torch.sigmoid((edges - means[..., None]) / log_scales.exp()[..., None])
    below = torch.cat([torch.zeros(7, 3, 1), below, torch.ones(7, 3, 1)], -1)
    wanted = (log_weights.exp()[..., None] * below.diff(dim=-1)).sum(1)
    torch.testing.assert_close(head(given).exp(), wanted, rtol=0, atol=1e-12)


def test_far_from_every_mean_a_level_is_unlikely_and_not_impossible() -> None:
    """The difference of logistic functions is 0 there in any precision; its logarithm is −(distance − half a bin)/s."""
    head = saying(256, [1.0], [-1.0], [math.exp(-7)]).float()
    found = head.log_probs(torch.zeros(1, WIDTH), torch.tensor([200]))
    wanted = -(400 / 255 - 1 / 255) * math.exp(7)
    torch.testing.assert_close(found.item(), wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize("levels", [2, 3, 256])
def test_around_a_level_lies_its_mass(levels: int) -> None:
    head = made(levels, spread=3.0)
    given, targets = hidden(levels), torch.arange(levels)
    torch.testing.assert_close(
        head.log_mass(given, targets.double() / (levels - 1)), head.log_probs(given, targets), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("levels", [2, 256])
def test_the_mass_around_an_intensity_has_its_gradient(levels: int) -> None:
    half = 0.5 / (levels - 1)
    places = [0.1, 0.3, 0.7, 1.3, 2.6] if levels > 2 else [0.1, 0.3, 0.7]  # halves of a bin, from either end
    near = torch.tensor(places).double() * half
    intensities = torch.cat([near, 1 - near, torch.tensor([0.21, 0.84])]).double().requires_grad_()
    head, given = made(levels, spread=2.0), hidden(len(intensities)).requires_grad_()
    assert torch.autograd.gradcheck(head.log_mass, (given, intensities), eps=1e-7 * half * 200, atol=1e-5, rtol=1e-4)


def test_the_mass_around_an_intensity_has_no_cliff() -> None:
    head, half = made(256, spread=2.0), 0.5 / 255
    for place in (0.0, half, 1 - half, 1.0):
        near = (place + 1e-11 * torch.arange(-1, 2).double()).clamp(0, 1)
        found = head.log_mass(hidden(1).expand(3, -1), near)
        torch.testing.assert_close(found, found[1].expand(3), rtol=0, atol=1e-4)


def test_a_gradient_at_either_end_points_into_the_range() -> None:
    head = saying(256, [1.0], [-2.0], [0.2])
    ends = torch.tensor([0.0, 1.0]).double().requires_grad_()
    first, last = torch.autograd.grad(head.log_mass(hidden(2), ends).sum(), ends)[0]
    assert first < -100  # the mass outside is lost over half a bin
    assert last.isfinite()


# --- memory and errors ---


def test_no_places_by_components_by_levels_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    head, given, targets = made(256, components=10), hidden(64), torch.arange(64) * 4
    whole = head(given)
    with Largest() as seen:
        head.log_probs(given, targets).sum().backward()
    assert seen.numbers <= 64 * 30
    monkeypatch.setattr(logistic_mixture, "MASSES", 4 * 10 * 256)
    with Largest() as seen:
        found = head(given.requires_grad_())
        found.logsumexp(-1).sum().backward()
    assert seen.numbers <= 64 * 256
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("levels", "components", "said"), [(1, 3, "at least two levels"), (256, 0, "at least one component")]
)
def test_what_is_no_mixture_is_refused(levels: int, components: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LogisticMixture(WIDTH, levels, components=components)
