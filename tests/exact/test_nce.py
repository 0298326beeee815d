"""Where noise-contrastive estimation ends up, by enumeration: of a tabular energy its optimum is known.

Chances are multiples of 1/16 (1/8 for ranking), so that a batch which holds every sequence as often as its chance says
has the expected loss, to rounding.
"""

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ebar.estimators import exact
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.objectives.nce import Contrasted, Nce
from ebar.types import Clock, Context, Sequences, Space

SPACE = Space(2, 2)  # 00, 01, 10, 11
CONTEXTS = Context(Sequences(torch.tensor([[0, 9], [1, 9]]), torch.tensor([1, 1])))
# Per context: chance of the first token, of the second after 0, after 1 (of token 0 each).
Q16 = [[(1, 4), (1, 2), (1, 4)], [(3, 4), (1, 4), (1, 2)]]
DATA16 = [[5, 1, 6, 4], [2, 2, 2, 10]]
Q8 = [[(1, 2), (1, 4), (1, 2)], [(1, 4), (1, 2), (1, 2)]]
DATA8 = [[3, 2, 2, 1], [1, 2, 4, 1]]
START = Clock(0, 0)


def table_of(chances: list[list[tuple[int, int]]]) -> Tabular:
    rows = [[[math.log(a), math.log(b - a)] for a, b in context] for context in chances]
    return Tabular(SPACE, torch.tensor(rows, dtype=torch.float64))


class TabularEnergy(nn.Module):
    """A free number for each sequence in each context."""

    def __init__(self, generator: Generator | None = None):
        super().__init__()
        start = torch.zeros(2, 4) if generator is None else torch.randn(2, 4, generator=generator)
        self.values = nn.Parameter(start.double())

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        assert context is not None
        condition = context.repeat(len(x.lengths) // context.rows).given.tokens[:, 0]
        return self.values[condition, 2 * x.tokens[:, 0] + x.tokens[:, 1]]


def counts_of(q: Tabular, parts: int) -> list[list[int]]:
    """How often each sequence stands in `parts` of q; that these are whole numbers is checked."""
    chances = exact.log_probabilities(q, CONTEXTS).exp() * parts
    torch.testing.assert_close(chances, chances.round())
    return chances.round().int().tolist()


def listed(counts: list[int]) -> list[int]:
    return [word for word, times in enumerate(counts) for _ in range(times)]


def batch_of(rows: list[tuple[int, tuple[int, ...]]]) -> Contrasted:
    """Rows (context, (datum, negatives …)), sequences by their number."""
    everything = all_sequences(SPACE)
    condition = torch.tensor([context for context, _ in rows])
    words = torch.tensor([words for _, words in rows])
    data, *noise = (everything.select(each) for each in words.unbind(1))
    return Contrasted(data, CONTEXTS.select(condition), tuple(noise))


def marginal(q: Tabular, data: list[list[int]], negatives: int) -> Contrasted:
    """The expected binary loss: it is a sum of one term for each sequence, so only their frequencies matter."""
    rows = []
    for context, noise in enumerate(counts_of(q, 16)):
        columns = [listed(data[context]), *([listed(noise)] * negatives)]
        rows += [(context, words) for words in zip(*columns, strict=True)]
    return batch_of(rows)


def product(q: Tabular, data: list[list[int]], negatives: int) -> Contrasted:
    """The expected ranking loss: every datum with every draw."""
    rows = []
    for context, noise in enumerate(counts_of(q, 8)):
        columns = [listed(data[context]), *([listed(noise)] * negatives)]
        rows += [(context, words) for words in itertools.product(*columns)]
    return batch_of(rows)


def minimised(energy: Any, loss: Any) -> None:
    """Newton-like steps until the gradient is nothing."""
    optimiser = torch.optim.LBFGS(
        energy.parameters(), max_iter=100, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value: Tensor = loss()
        value.backward()
        return value

    optimiser.step(closure)
    (gradient,) = torch.autograd.grad(loss(), energy.parameters())
    assert float(gradient.abs().max()) < 1e-8


def loss_of(energy: Any, form: Any, batch: Contrasted) -> Tensor:
    (loss,) = Nce(energy=energy, form=form).losses(batch, START, generator=Generator())
    return loss.value


@pytest.mark.parametrize("negatives", [1, 3])
def test_binary_reaches_the_data_with_log_z_0_in_every_context(negatives, generator):
    q, energy = table_of(Q16), TabularEnergy(generator)
    batch = marginal(q, DATA16, negatives)
    minimised(energy, lambda: loss_of(energy, "binary", batch))
    model = Tilted(q, energy)
    log_data = torch.tensor(DATA16, dtype=torch.float64).log() - math.log(16)
    log_q = exact.log_probabilities(q, CONTEXTS).detach()
    torch.testing.assert_close(energy.values.detach(), log_q - log_data, rtol=0, atol=1e-6)
    torch.testing.assert_close(exact.log_z(model, CONTEXTS).detach(), torch.zeros(2).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(exact.log_probabilities(model, CONTEXTS).detach(), log_data, rtol=0, atol=1e-6)


def test_without_log_nu_the_energy_absorbs_the_ratio(generator):
    """What unequal counts would do: 3 negatives taken for 1 leave log Z at −log 3."""
    q, energy = table_of(Q16), TabularEnergy(generator)
    batch = marginal(q, DATA16, 3)

    def uncorrected() -> Tensor:
        every = torch.stack([energy(x, batch.context) for x in (batch.x, *batch.negatives)])
        return F.softplus(every[0]).mean() + F.softplus(-every[1:]).sum(0).mean()

    minimised(energy, uncorrected)
    log_z = exact.log_z(Tilted(q, energy), CONTEXTS).detach()
    torch.testing.assert_close(log_z, torch.full((2,), -math.log(3)).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("negatives", [1, 2])
def test_ranking_reaches_the_data_up_to_a_constant_of_each_context(negatives, generator):
    q, energy = table_of(Q8), TabularEnergy(generator)
    batch = product(q, DATA8, negatives)
    (gradient,) = torch.autograd.grad(loss_of(energy, "ranking", batch), energy.values)
    torch.testing.assert_close(gradient.sum(1), torch.zeros(2).double(), rtol=0, atol=1e-12)  # no constant is moved
    minimised(energy, lambda: loss_of(energy, "ranking", batch))
    log_data = torch.tensor(DATA8, dtype=torch.float64).log() - math.log(8)
    apart = (energy.values - (exact.log_probabilities(q, CONTEXTS) - log_data)).detach()
    torch.testing.assert_close(apart, apart[:, :1].expand(2, 4), rtol=0, atol=1e-6)
    assert float(apart[:, 0].abs().min()) > 1e-3  # and the constant is whatever it was
    model = Tilted(q, energy)
    torch.testing.assert_close(exact.log_probabilities(model, CONTEXTS).detach(), log_data, rtol=0, atol=1e-6)
    torch.testing.assert_close(exact.log_z(model, CONTEXTS).detach(), -apart[:, 0], rtol=0, atol=1e-6)


def exact_gradient(energy: TabularEnergy, q: Tabular, negatives: int) -> Tensor:
    """Of context 0: p·σ(E + log ν) − ν·q·σ(−E − log ν), by hand."""
    p, chances = torch.tensor(DATA16[0]).double() / 16, exact.log_probabilities(q, CONTEXTS)[0].detach().exp()
    shifted = energy.values.detach()[0] + math.log(negatives)
    return p * torch.sigmoid(shifted) - negatives * chances * torch.sigmoid(-shifted)


def gradient_of(energy: TabularEnergy, batch: Contrasted) -> Tensor:
    return torch.autograd.grad(loss_of(energy, "binary", batch), energy.values)[0][0]


@pytest.mark.parametrize(("size", "negatives"), [(1, 1), (1, 2), (2, 1)])
def test_the_mean_gradient_of_a_batch_is_exact(size, negatives, generator):
    """Over every batch there can be, weighed by its chance."""
    q, energy = table_of(Q16), TabularEnergy(generator)
    p, chances = torch.tensor(DATA16[0]).double() / 16, exact.log_probabilities(q, CONTEXTS)[0].detach().exp()
    row = list(itertools.product(range(4), repeat=1 + negatives))
    weight = {words: float(p[words[0]] * chances[list(words[1:])].prod()) for words in row}
    mean = torch.zeros(4).double()
    for rows in itertools.combinations_with_replacement(row, size):
        orders = math.factorial(size) / math.prod(math.factorial(times) for times in Counter(rows).values())
        chance = orders * math.prod(weight[words] for words in rows)
        mean += chance * gradient_of(energy, batch_of([(0, words) for words in rows]))
    torch.testing.assert_close(mean, exact_gradient(energy, q, negatives), rtol=0, atol=1e-12)


def test_draws_of_q_have_the_exact_gradient_as_their_mean(generator):
    """40 batches of 400: four comparisons with Student's t of 39, a false alarm in 10,000 runs."""
    q, energy = table_of(Q16), TabularEnergy(generator)
    everything, context = all_sequences(SPACE), CONTEXTS.select(torch.tensor([0])).repeat(400)
    p = torch.tensor(DATA16[0]).double() / 16
    found = []
    for _ in range(40):
        x = everything.select(torch.multinomial(p, 400, replacement=True, generator=generator))
        negatives = tuple(q.sample(1, context, generator=generator) for _ in range(2))
        found.append(gradient_of(energy, Contrasted(x, context, negatives)))
    gradients = torch.stack(found)
    errors = (gradients.mean(0) - exact_gradient(energy, q, 2)) / (gradients.std(0) / 40**0.5)
    assert float(errors.abs().max()) < 4.8
