import math

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.classifier_score import classifier_score


def test_sure_and_balanced_is_the_number_of_classes_and_undecided_is_one():
    sure = torch.eye(3).repeat(4, 1).log()
    found = classifier_score(sure)
    assert math.isclose(found.value, 3.0)
    assert found.high == pytest.approx(3.0)
    assert math.isclose(classifier_score(torch.full((6, 4), -math.log(4.0))).value, 1.0)
    assert math.isclose(classifier_score(torch.tensor([[0.7, 0.3]]).log().repeat(5, 1)).value, 1.0)


def test_by_hand_of_two_images():
    # p̄ = (½, ½); KL of each image to it is 0.9·log 1.8 + 0.1·log 0.2.
    found = classifier_score(torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log())
    assert math.isclose(found.value, math.exp(0.9 * math.log(1.8) + 0.1 * math.log(0.2)), rel_tol=1e-6)


def test_the_score_is_the_mean_divergence_from_the_mean(generator):
    log_probs = torch.randn(40, 5, generator=generator).double().log_softmax(1)
    mean = log_probs.exp().mean(0)
    divergence = (log_probs.exp() * (log_probs - mean.log())).sum(1).mean()
    assert math.isclose(classifier_score(log_probs).value, math.exp(divergence), rel_tol=1e-9)


def test_the_interval_is_the_jackknife_left_out_one_by_one(generator):
    log_probs = (3 * torch.randn(12, 3, generator=generator)).double().log_softmax(1)
    rows = torch.arange(12)
    left_out = torch.tensor([math.log(classifier_score(log_probs[rows != row]).value) for row in rows.tolist()])
    spread = math.sqrt(11 / 12 * float((left_out - left_out.mean()).square().sum()))
    found = classifier_score(log_probs)
    assert spread < math.log(found.high / found.value) < 4 * spread  # Student's quantile, at least the normal 1.96
    assert math.log(found.high / found.value) > 1.9 * spread


def test_intervals_cover():
    """95 % intervals of 200 images, 300 times: fewer than 265 hits in 1 of 10⁶ runs if coverage is 0.94 or more."""
    generator = Generator().manual_seed(5)
    wide = (2 * torch.randn(200_000, 4, generator=generator)).double().log_softmax(1)
    truth = classifier_score(wide).value
    hits = 0
    for _ in range(300):
        rows = torch.randint(len(wide), (200,), generator=generator)
        found = classifier_score(wide[rows])
        hits += found.low <= truth <= found.high
    assert hits >= 265


def test_what_is_no_log_probability_is_refused():
    with pytest.raises(UserError, match="log_softmax"):
        classifier_score(torch.zeros(3, 2))
    with pytest.raises(UserError, match="two images"):
        classifier_score(torch.zeros(1, 1))
