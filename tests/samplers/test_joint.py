"""Draws of the joint model, and the numbers beside them."""

import math

import pytest
import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.truncated import Truncation
from ebar.samplers.joint import WAYS, generate
from ebar.samplers.rejection import Rejection
from ebar.types import Context, Sequences, Space

SPACE = Space(3, 2)
CONTEXT = Context(Sequences(torch.tensor([[1]]), torch.tensor([1])))


class Table(nn.Module):
    """One energy for each sequence."""

    def __init__(self, energies: list[float]) -> None:
        super().__init__()
        self.energies = nn.Parameter(torch.tensor(energies, dtype=torch.float64))

    def forward(self, x, context=None):
        if x.tokens.shape[1] < 2:  # sequential Monte Carlo asks for prefixes too
            return torch.zeros(len(x.lengths), dtype=torch.float64)
        return self.energies[x.tokens[:, 0] * 3 + x.tokens[:, 1]]


@pytest.fixture
def q(generator):
    return Tabular.random(SPACE, conditions=2, generator=generator)


@pytest.fixture
def energy():
    return Table([0.5, -1.0, 0.0, 2.0, -0.3, 1.1, -1.2, 0.4, 0.9])


def exact(q, energy, base=None):
    everything = all_sequences(SPACE)
    scores = (base or q).log_prob(everything, CONTEXT) - energy(everything, CONTEXT)
    return torch.softmax(scores, 0).detach()


def counted(x):
    return torch.bincount(x.tokens[:, 0] * 3 + x.tokens[:, 1], minlength=9).double()


@pytest.mark.parametrize("way", WAYS)
def test_the_draws_of_every_way_tend_to_the_joint_model(q, energy, way, generator):
    """Total variation of 4,000 draws: about 0.02 by chance alone, 0.06 only if the law is another."""
    sampler = Rejection(log_bound=1.2) if way == "rejection" else None
    made = generate(q, energy, CONTEXT, count=4000, candidates=20_000, way=way, sampler=sampler, generator=generator)
    truth = exact(q, energy)
    drawn = counted(made.drawn.x) / 4000
    assert float((drawn - truth).abs().sum() / 2) < 0.06
    base = q.log_prob(all_sequences(SPACE), CONTEXT).exp().detach()
    assert float((base - truth).abs().sum() / 2) > 0.2  # the base's own draws would not have passed
    torch.testing.assert_close(made.drawn.energy, energy(made.drawn.x).detach())
    torch.testing.assert_close(made.drawn.log_q, q.log_prob(made.drawn.x, CONTEXT).detach())


def test_weights_are_shares_of_exp_minus_energy(q, energy, generator):
    made = generate(q, energy, CONTEXT, candidates=5, generator=generator)
    by_hand = [math.exp(-value) for value in made.candidates.energy.tolist()]
    shares = torch.tensor([value / sum(by_hand) for value in by_hand], dtype=torch.float64)
    torch.testing.assert_close(made.candidate_weights, shares)
    assert made.effective_sample_size == pytest.approx(sum(by_hand) ** 2 / sum(value**2 for value in by_hand))
    assert math.isnan(made.k)  # five candidates have no tail
    row = [made.candidates.x.prefix(row) for row in range(5)].index(made.drawn.x.prefix(0))
    assert float(made.weights[0]) == pytest.approx(float(shares[row]))


def test_a_candidate_that_decides_alone_is_told(q):
    """Energies 20 apart: the lowest takes all, and is worth as many draws as there are copies of it."""
    energy, told = Table([20.0 * place for place in range(9)]), []
    for seed in range(30):
        made = generate(q, energy, CONTEXT, candidates=5, generator=Generator().manual_seed(seed))
        copies = int((made.candidates.energy == made.candidates.energy.min()).sum())
        assert made.effective_sample_size == pytest.approx(copies)
        assert (made.warning is not None) == (copies == 1)
        told.append(copies == 1)
    assert any(told)
    assert not all(told)


def test_equal_weights_are_worth_as_many_as_they_are(q, generator):
    many = generate(q, Table([0.0] * 9), CONTEXT, candidates=200, generator=generator)
    assert many.effective_sample_size == pytest.approx(200)
    assert many.warning is None


def test_a_truncated_base_keeps_its_own_support(q, energy, generator):
    truncation = Truncation(top_k=2)
    made = generate(q, energy, CONTEXT, count=4000, candidates=20_000, truncation=truncation, generator=generator)
    base = q.truncated(top_k=2)
    truth = exact(q, energy, base)
    assert int((truth > 0).sum()) == 4
    drawn = counted(made.drawn.x) / 4000
    assert float((drawn - truth).abs().sum() / 2) < 0.06
    assert float(drawn[truth == 0].sum()) == 0
    # log q is the whole base's, not the truncated one's.
    torch.testing.assert_close(made.drawn.log_q, q.log_prob(made.drawn.x, CONTEXT).detach())


def test_draws_that_were_not_chosen_among_candidates_have_no_weight(q, energy, generator):
    made = generate(q, energy, CONTEXT, count=3, candidates=10, way="metropolis", generator=generator)
    assert made.weights.isnan().all()
    assert made.candidate_weights.sum() == pytest.approx(1)
    assert made.candidates.x.lengths.shape == (10,)


def test_nothing_is_refused(q, energy, generator):
    with pytest.raises(UserError, match="At least one draw"):
        generate(q, energy, CONTEXT, candidates=0, generator=generator)
    with pytest.raises(UserError, match="needs a bound"):
        generate(q, energy, CONTEXT, way="rejection", generator=generator)
    with pytest.raises(UserError, match="cannot be truncated so"):
        generate(q, energy, CONTEXT, truncation=Truncation(top_p=3.0), generator=generator)


ONE_ALLOWED = [math.inf] * 8 + [0.0]  # only the sequence (2, 2)


def uniform() -> Tabular:
    return Tabular(SPACE, torch.zeros(2, 4, 3, dtype=torch.float64))


@pytest.mark.parametrize("way", ["joint", "quasi_rejection", "smc"])
def test_no_text_of_probability_zero_is_given(way):
    """One sequence of nine has weight and two candidates are drawn at a time, up to eight times.

    All sixteen miss it with a chance of (8/9)^16 = 0.15: over 60 seeds both outcomes come, but for 1 in 10,000 runs
    of any seeds (0.15^60, and 0.85^60 = 6e-5).
    """
    texts, refusals = [], []
    for seed in range(60):
        generator = Generator().manual_seed(seed)
        try:
            made = generate(uniform(), Table(ONE_ALLOWED), CONTEXT, candidates=2, way=way, generator=generator)
            texts.append((made.drawn.x.prefix(0), float(made.drawn.energy[0])))
        except UserError as error:
            refusals.append(str(error))
    assert texts
    assert all(text == ([2, 2], 0.0) for text in texts)
    assert refusals
    assert all("None of 16 candidates has any weight" in refusal for refusal in refusals)


def test_candidates_that_were_drawn_in_vain_are_told():
    """Sixteen candidates all miss the one sequence with a chance of (8/9)^16 = 0.15, eight such sets with 3e-7."""
    told = 0
    for seed in range(60):
        generator = Generator().manual_seed(seed)
        made = generate(uniform(), Table(ONE_ALLOWED), CONTEXT, candidates=16, generator=generator)
        told += made.warning is not None and "before these had no weight at all" in made.warning
    assert 0 < told < 60  # 0.85^60 is 5e-5


def test_a_text_that_comes_twice_is_told(q, energy, generator):
    made = generate(q, energy, CONTEXT, count=12, candidates=50, generator=generator)
    texts = {tuple(made.drawn.x.prefix(row)) for row in range(12)}
    assert made.distinct == len(texts) <= 9
    assert made.warning is not None
    assert f"the 12 draws hold only {made.distinct} different texts" in made.warning
    once = generate(q, energy, CONTEXT, count=1, candidates=50, generator=generator)
    assert once.distinct == 1
    assert once.warning is None or "different texts" not in once.warning
