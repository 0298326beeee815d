"""The bad GAN: its terms by hand, against an explicit softmax over K + 1 classes, and what it moves and stops at."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.models.classifiers import GaussianInference, MlpClassifier, initialise
from ebar.models.generators import SoftplusGenerator
from ebar.objectives.bad_gan import (
    CLASSIFIER,
    BadGan,
    BadGanTerms,
    SemiSupervised,
    class_entropy,
    fake_loss,
    feature_matching,
    low_density,
    pull_away,
    true_loss,
)
from ebar.testing import check_objective
from ebar.types import Clock, Game

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [30.0, -40.0, 0.0], [-60.0, -80.0, -70.0]], dtype=torch.float64)
START = Clock(0, 0)


def test_two_logits_of_log_one_and_log_two_make_three_to_one_against_the_generated_class() -> None:
    logits = torch.tensor([[0.0, math.log(2.0)]], dtype=torch.float64)  # weights 1, 2 and, for class K + 1, 1
    assert float(true_loss(logits)) == pytest.approx(-math.log(3 / 4))
    assert float(fake_loss(logits)) == pytest.approx(-math.log(1 / 4))
    assert float(class_entropy(logits)) == pytest.approx(math.log(3) - 2 / 3 * math.log(2))


def test_the_losses_are_those_of_an_explicit_softmax_over_one_more_class_with_logit_0() -> None:
    explicit = torch.cat([LOGITS, torch.zeros(3, 1, dtype=torch.float64)], 1).log_softmax(1)
    torch.testing.assert_close(true_loss(LOGITS), -explicit[:, :3].logsumexp(1))
    torch.testing.assert_close(fake_loss(LOGITS), -explicit[:, 3])
    sums = LOGITS.logsumexp(1)
    torch.testing.assert_close(true_loss(LOGITS), -sums + nn.functional.softplus(sums))  # as the public code has it
    torch.testing.assert_close(class_entropy(LOGITS), torch.distributions.Categorical(logits=LOGITS).entropy())


def test_feature_matching_compares_means_by_hand() -> None:
    generated, real = torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[1.0, 3.0]])
    assert float(feature_matching(generated, real)) == (1 + 9) / 2  # means (2, 0) and (1, 3)
    assert float(feature_matching(generated, real, "absolute")) == (1 + 3) / 2


def test_pull_away_by_hand() -> None:
    assert float(pull_away(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))) == 0.0
    assert float(pull_away(torch.tensor([[1.0, 0.0], [-4.0, 0.0]]))) == 1.0
    # Cosines of the pairs: 0, 1/√2 and 1/√2, each counted twice, of six.
    assert float(pull_away(torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]))) == pytest.approx(2 * (0.5 + 0.5) / 6)
    with pytest.raises(UserError, match="at least 2"):
        pull_away(torch.ones(1, 2))


def test_low_density_is_the_mean_excess_of_those_above_the_threshold_only() -> None:
    log_density = torch.tensor([-10.0, -3.0, -5.0], requires_grad=True)
    value = low_density(log_density, -6.0)
    assert value.item() == (3 + 1) / 2
    value.backward()
    assert log_density.grad is not None
    assert log_density.grad.tolist() == [0.0, 0.5, 0.5]
    assert float(low_density(torch.tensor([-10.0, -9.0]), -6.0)) == 0.0


def players(classes: int = 3, seed: int = 0) -> tuple[MlpClassifier, SoftplusGenerator]:
    torch.manual_seed(seed)
    classifier = MlpClassifier(shape=(1, 2, 2), classes=classes, widths=(6, 5))
    return classifier.double(), SoftplusGenerator(shape=(1, 2, 2), latent=3, widths=(4,)).double()


def batch(seed: int = 0) -> SemiSupervised:
    generator = Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    return SemiSupervised(
        drawn(4, 1, 2, 2), torch.tensor([0, 1, 2, 1]), drawn(5, 1, 2, 2), drawn(2, 5, 3), torch.tensor(0.05).double()
    )


@torch.no_grad()
def test_the_classifiers_loss_is_the_sum_of_its_parts_each_computed_by_itself() -> None:
    classifier, generator = players()
    classifier.eval()  # without noise, in one pass or in three
    one = batch()
    game = BadGan(classifier=classifier, generator=generator, terms=BadGanTerms(conditional_entropy=0.3))
    loss = next(game.losses(one, START, generator=Generator()))
    real, fake = classifier.logits(one.unlabelled), classifier.logits(generator(one.noise[0]))
    labelled = classifier.logits(one.labelled).log_softmax(1)
    ours = -labelled[torch.arange(4), one.labels].mean() + 0.3 * class_entropy(real).mean()
    ours += (true_loss(real).mean() + fake_loss(fake).mean()) / 2
    torch.testing.assert_close(loss.value, ours)
    assert loss.metrics["energy_data"] == pytest.approx(float(classifier(one.unlabelled).mean()))
    assert loss.metrics["fake_share"] == float((fake.amax(1) < 0).double().mean())
    assert loss.metrics["true_share"] == float((real.amax(1) > 0).double().mean())


def test_each_player_is_moved_by_its_own_loss_and_the_generator_by_every_term() -> None:
    classifier, generator = players()
    classifier.eval()
    encoder = GaussianInference(classifier_features(), 3, bound=1.0).double()
    terms = BadGanTerms(pull_away=0.7, variational=0.2, low_density=0.5, low_density_share=1.0, low_density_rows=3)
    game = BadGan(
        classifier=classifier, generator=generator, encoder=encoder, density=lambda x: -x.flatten(1).sum(1),
        threshold=-10.0, terms=terms, steps=10,
    )  # fmt: skip
    assert isinstance(game, Game)
    one = batch()
    first, second = game.losses(one, Clock(5, 0), generator=Generator())
    assert (first.player, second.player) == ("classifier", "generator")
    generated = generator(one.noise[1])
    features = classifier.features(generated)
    ours = feature_matching(features, classifier.features(one.unlabelled)) + 0.7 * pull_away(features)
    ours = ours - 0.2 * encoder.log_prob(one.noise[1], generated).mean()
    ours = ours + 0.5 * (10.0 - generated[:3].flatten(1).sum(1)).mean()
    torch.testing.assert_close(second.value, ours)
    check_objective(game, one, [classifier, generator, encoder], clock=Clock(5, 0), additive=False)


def classifier_features() -> MlpClassifier:
    return MlpClassifier(shape=(1, 2, 2), classes=2, widths=(4,), input_noise=0.0, hidden_noise=0.0)


def test_the_density_is_asked_from_its_start_on_and_as_often_as_its_share_says() -> None:
    classifier, generator = players()
    asked: list[int] = []

    def density(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x.flatten(1).sum(1)

    terms = BadGanTerms(low_density=1.0, low_density_share=0.1, low_density_start=0.5, low_density_rows=2)
    game = BadGan(classifier=classifier, generator=generator, density=density, threshold=0.0, terms=terms)
    game = game.for_steps(10)
    for step, chance in ((4, 0.05), (5, 0.15), (5, 0.05)):
        list(game.losses(batch()._replace(chance=torch.tensor(chance)), Clock(step, 0), generator=Generator()))
    assert asked == [2]


def test_only_the_labelled_examples_count_where_there_is_no_generator() -> None:
    classifier, _ = players()
    classifier.eval()
    one = batch()
    (loss,) = BadGan(classifier=classifier, terms=BadGanTerms(supervised=True)).losses(
        one, START, generator=Generator()
    )
    torch.testing.assert_close(loss.value, nn.functional.cross_entropy(classifier.logits(one.labelled), one.labels))


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"energy_data": 0.0, "energy_generated": 2e4, "variance_ratio": 1.0}, "generated samples has grown to 2e"),
        ({"energy_data": -3e4, "energy_generated": 0.0, "variance_ratio": 1.0}, "the data has grown to -3e"),
        ({"energy_data": 0.0, "energy_generated": 0.0, "variance_ratio": 1e-8}, "collapsed"),
    ],
)
def test_divergence_and_collapse_are_reasons_to_stop(metrics: dict[str, float], said: str) -> None:
    game = BadGan(classifier=None)
    found = game.after_step({f"{CLASSIFIER}.{name}": value for name, value in metrics.items()})
    assert found is not None
    assert said in found
    assert game.after_step({"classifier.energy_data": 5.0, "classifier.variance_ratio": 0.5}) is None


def test_a_generator_that_gives_one_sample_has_no_variance() -> None:
    classifier, generator = players()
    with torch.no_grad():
        for weight in generator.parameters():
            weight.zero_()
        one = batch()
        constant: Any = lambda noise: torch.full((len(noise), 1, 2, 2), 0.5, dtype=torch.float64)  # noqa: E731
        loss = next(BadGan(classifier=classifier, generator=constant).losses(one, START, generator=Generator()))
    assert loss.metrics["variance_ratio"] == 0.0


def test_terms_that_need_more_than_is_given_are_refused() -> None:
    with pytest.raises(UserError, match="needs an encoder"):
        BadGan(classifier=None, terms=BadGanTerms(variational=1.0))
    with pytest.raises(UserError, match="needs a density"):
        BadGan(classifier=None, terms=BadGanTerms(low_density=1.0))
    with pytest.raises(UserError, match="between 0 and 100"):
        BadGanTerms(low_density_centile=101.0)
    with pytest.raises(UserError, match="pull_away must be"):
        replace(BadGanTerms(), pull_away=-1.0)


def test_initialising_makes_units_of_mean_0_and_deviation_1_once() -> None:
    classifier, _ = players()
    x = torch.rand(200, 1, 2, 2, generator=Generator().manual_seed(3), dtype=torch.float64)
    torch.manual_seed(5)
    initialise(classifier, x)
    kept = {name: value.clone() for name, value in classifier.state_dict().items()}
    torch.manual_seed(5)  # the same noise
    classifier.train()
    logits = classifier.logits(x)
    torch.testing.assert_close(logits.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(logits.std(0, correction=0), torch.ones(3, dtype=torch.float64))
    initialise(classifier, 3 * x + 1)
    assert all(torch.equal(value, kept[name]) for name, value in classifier.state_dict().items())
    other, _ = players(seed=1)
    other.load_state_dict(kept)
    initialise(other, 3 * x + 1)  # loaded weights are not initialised either
    assert all(torch.equal(value, kept[name]) for name, value in other.state_dict().items())
