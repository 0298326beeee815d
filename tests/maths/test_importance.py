import math

import pytest
import torch

from ebar.errors import UserError
from ebar.maths.importance import check_weights, concentrated, diagnose, heavy_tailed, pareto_k, tail_size


def pareto(index: float, rows: int, draws: int, generator: torch.Generator) -> torch.Tensor:
    """Log-weights whose tail index is known: w = U^(−k)."""
    return -index * torch.rand(rows, draws, dtype=torch.float64, generator=generator).log()


def test_k_is_the_index_and_not_its_negative(generator):
    # Mean of 20 fits: standard error 0.02 at most, so 0.1 is five of them.
    for index in (0.2, 0.5, 0.9):
        assert float(pareto_k(pareto(index, 20, 4000, generator)).mean()) == pytest.approx(index, abs=0.1)


def test_the_tail_is_the_one_arviz_fits():
    from arviz_stats.base import array_stats  # type: ignore[attr-defined]

    for draws in (100, 226, 900, 901, 1000, 10_000):
        arviz = array_stats._get_ps_tails(draws, 0.25, tail="right")
        assert tail_size(draws) == int(arviz)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_two_valued_weights_have_no_k_and_the_sample_size_speaks(generator, noise):
    heavy = torch.rand(4, 1000, generator=generator, dtype=torch.float64) < 0.01
    heavy[1] = False
    heavy[1, 0] = True  # drawn once only
    heavy[2] = False
    log_weights = torch.where(heavy, 12.0, 0.0) + noise * torch.randn(4, 1000, generator=generator, dtype=torch.float64)
    assert bool(pareto_k(log_weights).isnan().all())
    said = diagnose(log_weights)
    assert "1,000 draws have an effective sample size of only" in str(said[0])
    assert "size of only 1.0" in str(said[1])
    assert said[2] is None  # all equal: nothing that weights alone could tell


def test_weights_of_zero_are_ties_and_no_weight_at_all_is_said():
    log_weights = torch.full((2, 500), -math.inf)
    log_weights[0, :100] = torch.linspace(0, 1, 100)
    assert bool(pareto_k(log_weights).isnan()[1])
    said = diagnose(log_weights)
    assert said[0] is None
    assert "all 500 draws have weight zero" in str(said[1])


def test_a_few_draws_have_no_tail(generator):
    assert bool(pareto_k(pareto(0.9, 1, 99, generator)).isnan().all())


def test_the_silence_needs_k_to_be_clearly_below_the_limit():
    # A tail of 600 at n = 10,000: 1.5 standard errors are 1.5·(1 + k)/24.49, so the line is at 0.6022.
    assert heavy_tailed(torch.tensor([0.60, 0.605, math.nan]), 10_000).tolist() == [False, True, False]


def test_heavy_values_under_equal_weights_are_noticed(generator):
    values = pareto(0.95, 1, 4000, generator).exp()
    assert diagnose(torch.zeros(1, 4000)) == [None]
    said = str(diagnose(torch.zeros(1, 4000), values.float())[0])
    assert said.startswith("the values averaged are heavy-tailed")
    assert "may be too narrow" in said


def test_each_warning_names_what_is_wrong(generator):
    said = str(diagnose(pareto(0.95, 1, 4000, generator))[0])
    assert said.startswith("the weights are heavy-tailed")
    assert "may be too narrow, try a better proposal" in said
    assert diagnose(torch.zeros(1, 29)) == ["only 29 draws: the interval may be too narrow below 30"]
    assert diagnose(torch.zeros(1, 30)) == [None]
    # 50 draws, one of weight 49 among ones: (49 + 49)²/(49² + 49) = 3.92.
    uneven = torch.zeros(1, 50)
    uneven[0, 7] = math.log(49)
    assert str(diagnose(uneven)[0]).startswith(
        "the weights are uneven, 50 draws have an effective sample size of only 3.9: "
    )


def test_a_tail_matters_where_one_draw_holds_more_than_a_twentieth_and_the_rest_little():
    # By hand, n = 10: deviations 3, then ones: (3 + 9)²/(10·18) = 0.8, even. One of 30 and nine ones:
    # 39²/(10·909) = 0.167, share 0.99. Two draws of a hundred at 10: 118²/(100·298) = 0.467. 25 of 1,000 at 100, the
    # rest 1: (2,500 + 975)²/(1,000·250,975) = 0.048, but each of the 25 holds 10,000/250,975 = 0.0398 only.
    def deviations(large: int, value: float, draws: int) -> torch.Tensor:
        found = torch.ones(1, draws, dtype=torch.float64)
        found[0, :large] = value
        return found.log()

    cases = [(1, 3.0, 10, False), (1, 30.0, 10, True), (2, 10.0, 100, False), (25, 100.0, 1000, False)]
    for large, value, draws, expected in cases:
        assert concentrated(deviations(large, value, draws)).tolist() == [expected]
    assert concentrated(torch.full((1, 5), -math.inf)).tolist() == [False]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_numbers_are_refused(bad):
    with pytest.raises(UserError, match="draw 2 in row 1"):
        check_weights(torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, bad]]))
