"""Residual models held against enumeration: 5 tokens, 4 places, several prefixes."""

import itertools
import math

import pytest
import torch

from ebar.estimators import exact
from ebar.estimators.joint_perplexity import joint_perplexity
from ebar.estimators.last_step import last_step
from ebar.estimators.per_step import per_step
from ebar.maths.jackknife import log_mean_bounds
from ebar.models.ngram import Tabular
from ebar.samplers.importance import Resampling
from ebar.types import Sequences, Space
from tests.estimators.exact_per_step import exact_per_step
from tests.estimators.residual import ENDED, FIXED, Residual, conditions, residual

SPACES = {"fixed": FIXED, "ended": ENDED, "one token": Space(5, 1), "two with an end": Space(3, 2, end=1)}


def test_t_and_its_companions_have_the_biases_predicted(generator):
    # With w/Z = 1 + δ: E[T] = log Z + a/n + b/n² + …, a = −c = −μ₂/2, b = μ₃/3 − 3μ₂²/4; the jackknife J then has the
    # bias −b/(n(n − 1)), and 2J − T has +c/n to first order. Every estimate has the unbiased (w̄ − Z)/Z taken off, which
    # leaves its mean and takes most of its noise. Checks at 4.5 standard errors: one false alarm in 16,000 runs.
    small, runs, n = residual(), 20_000, 64
    log_z, energies = small.log_z(), small.energies()
    drawn = torch.multinomial(small.log_q().exp(), runs * n, replacement=True, generator=generator)
    for row in range(3):
        log_weights = -energies[row][drawn[row]].view(runs, n)
        ratio = torch.exp(-energies[row] - log_z[row]) - 1
        mu2, mu3 = (float((small.log_q()[row].exp() * ratio**power).sum()) for power in (2, 3))
        first, second = -mu2 / 2, mu3 / 3 - 3 * mu2**2 / 4
        bounds = log_mean_bounds(log_weights)
        noise = torch.exp(log_weights - log_z[row]).mean(-1) - 1
        predicted = {
            "lower": first / n + second / n**2,
            "corrected": -second / (n * (n - 1)),
            "upper": -first / n - second / n**2 - 2 * second / (n * (n - 1)),
        }
        for name, bias in predicted.items():
            found = getattr(bounds, name) - log_z[row] - noise
            error = float(found.std()) / math.sqrt(runs)
            assert float(found.mean()) == pytest.approx(bias, abs=4.5 * error + 20 * mu2 / n**3), (name, row)
        assert predicted["lower"] + 4.5 * error < 0 < predicted["upper"] - 4.5 * error  # and so they bracket log Z


def test_the_optimal_energy_is_below_the_base_and_a_bad_one_above(generator):
    # E = log q − log p_data makes the joint model p_data itself, with Z = 1 and a difference of −KL(p_data‖q).
    q, rows, n = residual(rows=3).q, 150, 500
    noise = 0.4 * torch.randn(q.logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    data = Tabular(FIXED, q.logits + noise).requires_grad_(False)
    context = conditions(torch.arange(3).repeat(rows // 3))
    x = data.sample(1, context, generator=generator)

    def energy(y: Sequences, sign: float) -> torch.Tensor:
        return sign * (q.log_prob(y, context) - data.log_prob(y, context))

    draws, log_q = q.sample(n, context, generator=generator), q.log_prob(x, context)
    found = joint_perplexity(log_q, energy(x, 1.0), energy(draws, 1.0).view(rows, n), x.lengths)
    data_cost = -float(data.log_prob(x, context).sum()) / (4 * rows)
    assert found.verdict.startswith("below by ")
    assert found.established
    assert found.low < math.exp(data_cost) < found.high < found.base
    divergence = float(exact.divergence("kl", data, q, conditions(torch.arange(3))).mean()) / 4
    assert found.difference.low < -divergence < found.difference.high
    worse = joint_perplexity(log_q, energy(x, -1.0), energy(draws, -1.0).view(rows, n), x.lengths)
    assert worse.verdict.startswith("above by ")


@pytest.mark.parametrize("space", SPACES)
def test_the_exact_twin_sums_to_one_at_every_step_and_multiplies_to_the_joint_model(space: str, generator):
    small = residual(SPACES[space])
    context = conditions(torch.arange(3).repeat(4))
    x = small.q.sample(1, context, generator=generator)
    found = exact_per_step(small.q, small.energy, x, context)
    inside = x.mask()
    assert found.next_log_probs[inside].exp().sum(-1) == pytest.approx(1.0, abs=1e-12)
    log_z = small.log_z().repeat(4)
    assert found.log_means[:, 0].tolist() == pytest.approx(log_z.tolist(), abs=1e-12)
    picked = found.next_log_probs.gather(2, torch.where(inside, x.tokens, 0)[:, :, None]).squeeze(2)
    joint = small.joint.log_score(x, context) - log_z
    assert torch.where(inside, picked, 0.0).sum(1).tolist() == pytest.approx(joint.tolist(), abs=1e-12)


@pytest.mark.parametrize("exact_last", [True, False])
@pytest.mark.parametrize("space", SPACES)
def test_estimated_steps_telescope_to_the_joint_model(space: str, exact_last: bool, generator):
    small = residual(SPACES[space])
    context = conditions(torch.arange(3).repeat(5))
    x = small.q.sample(1, context, generator=generator)
    found = per_step(small.q, small.energy, x, context, n=7, exact_last=exact_last, rows_at_once=4, generator=generator)
    joint = small.joint.log_score(x, context) - found.log_means[:, 0]
    assert (found.log_joint.sum(1) - joint).abs().max() < 1e-9
    assert (found.log_joint[~x.mask()] == 0).all()


@pytest.mark.parametrize("space", SPACES)
def test_steps_tend_to_their_exact_twin_and_the_last_is_it(space: str, generator):
    # At most 9 stems and 4 places, each within 4.5 standard errors of T and its bias: one false alarm in 4,000.
    small, n = residual(SPACES[space]), 1000
    context = conditions(torch.arange(3).repeat(3))
    x = small.q.sample(1, context, generator=generator)
    truth = exact_per_step(small.q, small.energy, x, context).log_means
    found = per_step(small.q, small.energy, x, context, n=n, generator=generator)
    # 2J − T lies above T by 2c/n, and the variance of T is 2c/n too.
    error = (found.log_means_upper - found.log_means).clamp(min=0).sqrt()
    assert ((found.log_means - truth).abs() <= 4.5 * error + error.square() + 1e-12).all()
    closing = max(0, small.q.space.length - (1 if small.q.space.end is None else 2))
    assert (found.log_means - truth)[:, closing:].abs().max() < 1e-12
    assert ((found.log_means_upper >= found.log_means - 1e-12) & (found.log_means_upper < found.log_means + 0.05)).all()


@pytest.mark.parametrize("space", SPACES)
def test_the_last_step_is_that_of_the_twin(space: str, generator):
    small = residual(SPACES[space])
    closing = max(0, small.q.space.length - (1 if small.q.space.end is None else 2))
    context = conditions(torch.arange(3).repeat(5))
    x = small.q.sample(1, context, generator=generator)
    there = (x.lengths > closing).nonzero().squeeze(1)
    own, some = context.select(there), x.select(there)
    twin = exact_per_step(small.q, small.energy, some, own).next_log_probs[:, closing]
    step = last_step(small.q, small.energy, x, context)
    assert step.rows.tolist() == there.tolist()
    assert step.rest == 0
    picked = twin.gather(1, some.tokens[:, closing][:, None]).squeeze(1)
    assert torch.allclose(step.log_joint, picked, atol=1e-12)
    costs = [float(-values.mean()) for values in (step.log_q, step.log_joint)]
    assert [step.base.value, step.joint.value] == pytest.approx(costs)
    assert step.difference.value == pytest.approx(costs[1] - costs[0], abs=1e-12)


def test_resampling_tends_to_the_joint_model_as_candidates_grow(generator):
    # One draw out of each of 5,000 pools, for two prefixes; the frequencies of exact draws are 0.03 from their law too.
    small, pools = residual(Space(3, 3), rows=2, seed=12), 5000
    law = exact.log_probabilities(small.joint, small.context).detach().exp()
    context = conditions(torch.arange(2).repeat_interleave(pools))
    floor = distance(torch.multinomial(law, pools, replacement=True, generator=generator), law)
    found = []
    for n in (1, 3, 9, 27):
        sampler = Resampling(proposals_per_draw=n, batch_size=2 * pools * n)
        [batch] = sampler.stream(small.joint, 1, context=context, generator=generator)
        found.append(distance(positions(small, batch.x).view(2, pools), law))
    assert found[0] > 0.25
    for before, after in itertools.pairwise(found):
        assert after < 0.7 * before
    assert floor < found[-1] < 2 * floor


def positions(small: Residual, x: Sequences) -> torch.Tensor:
    """Where in the enumeration each sequence stands."""
    sorted_index, order = small.energy.index(small.everything).sort()
    return order[torch.searchsorted(sorted_index, small.energy.index(x))]


def distance(drawn: torch.Tensor, law: torch.Tensor) -> float:
    """Mean total variation of the draws' frequencies to the law."""
    counts = torch.stack([torch.bincount(row, minlength=law.shape[1]) for row in drawn])
    return float((counts / drawn.shape[1] - law).abs().sum(-1).mean()) / 2
