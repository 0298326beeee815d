import math

import torch

from ebar.samplers.importance import RESAMPLERS, at_offsets, flat_indices, resampled


def test_systematic_points_fall_where_they_should():
    """Weights ½, ¼, ¼ and 4 points at ⅛ + i/4: two, one and one copies."""
    log_weights = torch.tensor([[0.5, 0.25, 0.25]]).double().log()
    assert at_offsets(log_weights, 4, torch.tensor([0.5]).double()).tolist() == [[0, 0, 1, 2]]
    assert at_offsets(log_weights, 1, torch.tensor([0.6]).double()).tolist() == [[1]]


def test_systematic_copies_average_to_their_weights_over_all_offsets(generator):
    log_weights = torch.randn(1, 6, dtype=torch.float64, generator=generator)
    offsets = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    chosen = at_offsets(log_weights.expand(len(offsets), -1), 4, offsets)
    copies = torch.bincount(chosen.flatten(), minlength=6) / len(offsets)
    expected = 4 * torch.softmax(log_weights[0], 0)
    torch.testing.assert_close(copies.double(), expected, atol=1e-3, rtol=0)
    each = torch.nn.functional.one_hot(chosen, 6).sum(1)
    assert bool(((each - expected).abs() < 1).all())  # ⌊n·W⌋ or ⌈n·W⌉


def test_draws_of_no_weight_are_never_chosen_not_even_at_the_last_point():
    log_weights = torch.tensor([[-math.inf, 0.0, -math.inf, 0.3, -math.inf]])
    nearly_one = torch.nextafter(torch.tensor([1.0]).double(), torch.zeros(1).double())
    for offset in (torch.zeros(1).double(), nearly_one):
        assert set(at_offsets(log_weights, 1000, offset)[0].tolist()) == {1, 3}


def test_where_all_weights_are_zero_any_draw_will_do(generator):
    log_weights = torch.full((2, 3), -math.inf)
    for resample in RESAMPLERS.values():
        chosen = resample(log_weights, 3, generator)
        assert bool(((chosen >= 0) & (chosen < 3)).all())


def test_only_systems_of_low_effective_sample_size_resample(generator):
    log_weights = torch.tensor([[0.0, 0.0, 0.0, 0.0], [5.0, -5.0, -5.0, -5.0]], dtype=torch.float64)
    outcome = resampled(log_weights, 0.5, RESAMPLERS["systematic"], generator)
    assert outcome is not None
    ancestors, after = outcome
    assert ancestors.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    torch.testing.assert_close(after[0], log_weights[0])
    torch.testing.assert_close(after.exp().mean(1), log_weights.exp().mean(1))
    assert float(after[1].std()) == 0
    assert resampled(log_weights[:1], 0.5, RESAMPLERS["systematic"], generator) is None
    assert flat_indices(ancestors, 4).tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
