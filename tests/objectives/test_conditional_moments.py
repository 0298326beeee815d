"""Equation 3 with its chain rule: by hand on a coin, exactly by enumeration, then a run that finds the true λ(C)."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.conditional import ConditionalLinear, ConstantCoefficients, MeanPool, Recurrent, TabularCoefficients
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.features.counts import Length
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.maths.enumeration import all_sequences, number_of_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.objectives.conditional_moments import ConditionalMoments
from ebar.testing.enumeration import whole_space
from ebar.training.batches import Batches
from ebar.training.loop import fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.types import Clock, Context, Objective, Sequences, Space, context_rows
from tests.models.examples import lstm

COIN = Space(vocabulary=2, length=1)
HEADS = Features([Motif(motif="1", alphabet="01", end=None)])
SPACE = Space(vocabulary=3, length=5, end=2)
FEATURES = Features([Motif(motif="11", alphabet="01", end=2), Length(longest=5, end=2)])
THREE = Context(Sequences(torch.tensor([[0, 99], [1, 0], [2, 1]]), torch.tensor([1, 2, 2])))
ROWS = torch.tensor([0, 2, 2, 1, 0, 2, 0])  # the contexts of a batch of seven
SOME = torch.tensor([3, 9, 30, 22, 0, 12, 12])  # its sequences, by number

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*have an effective sample size below:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Some data have a feature:RuntimeWarning"),
]


class Everything:
    """Each sequence of the space once, as if drawn uniformly: then r/g makes Ẑ the exact Z."""

    def __init__(self, space: Space):
        self.space = space

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return torch.full((len(x.lengths),), -math.log(number_of_sequences(self.space)), dtype=torch.float64)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        assert n == number_of_sequences(self.space)
        return whole_space(self.space, context)


class Tossed:
    """A coin that fell `heads` times."""

    def __init__(self, heads: int):
        self.space, self.heads = COIN, heads

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return torch.full((len(x.lengths),), math.log(0.5), dtype=torch.float64)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        tokens = (torch.arange(n) < self.heads).long()[:, None].repeat(context_rows(context), 1)
        return Sequences(tokens, torch.ones(len(tokens), dtype=torch.long))


def only(objective: Any, batch: Any, generator: Generator) -> Any:
    (loss,) = objective.losses(batch, Clock(0, 0), generator=generator)
    return loss


def batch() -> tuple[Sequences, Context]:
    return all_sequences(SPACE).select(SOME), THREE.select(ROWS)


def network(kind: str) -> Any:
    torch.manual_seed(5)
    if kind == "table":
        return TabularCoefficients(THREE, torch.randn(3, 2, dtype=torch.float64))
    made: Any = (
        ConstantCoefficients(2) if kind == "constant" else {"mean_pool": MeanPool, "recurrent": Recurrent}[kind](3, 2)
    )
    for parameter in made.parameters():  # λ is 0 at first, and where it is, hidden layers have no gradient
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double()


def model_of(kind: str) -> Any:
    base = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1))
    return Tilted(base, ConditionalLinear(FEATURES, network(kind)))


def exact_twin(model: Any, **options: Any) -> ConditionalMoments:
    return ConditionalMoments(model=model, draws=number_of_sequences(SPACE), proposal=Everything(SPACE), **options)


def coin(coefficient: float) -> Any:
    base = Tabular(COIN, torch.zeros(1, 1, 2, dtype=torch.float64))
    return Tilted(base, Linear(HEADS, torch.tensor([coefficient], dtype=torch.float64)))


def test_a_coin_by_hand(generator):
    # λ = log 3. Draws: one head in four, so Ẑ = (3 + 1 + 1 + 1)/4 = 3/2 and the model's moment is 3/6 = ½.
    # Data: two heads, one tail. Loss: −⅔·log 3 + log 3/2; gradient: ½ − ⅔.
    model = coin(math.log(3))
    objective = ConditionalMoments(model=model, draws=4, proposal=Tossed(1))
    loss = only(objective, Sequences(torch.tensor([[1], [1], [0]]), torch.ones(3, dtype=torch.long)), generator)
    assert loss.value.item() == pytest.approx(math.log(1.5) - 2 / 3 * math.log(3), abs=1e-12)
    assert (loss.player, loss.weight) == ("model", 3.0)
    assert loss.metrics["moments_l1"] == pytest.approx(1 / 6)
    assert loss.metrics["ess_min"] == pytest.approx(36 / 12)
    loss.value.backward()
    assert model.energy.coefficients.grad.item() == pytest.approx(1 / 2 - 2 / 3, abs=1e-12)


def test_the_bias_of_the_gradient_is_that_of_self_normalised_weights_and_falls_as_one_over_n(generator):
    # Every outcome of n fair tosses, with its chance: the expected gradient is exact. λ = log 3, so μ = ¾ and
    # n·bias → −E_r[(w/Z)²(φ − μ)] = −½·(9/4·1/4 − 1/4·3/4) = −3/16.
    heads = Sequences(torch.ones(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long))
    scaled = []
    for n in (16, 64, 256):
        expected = 0.0
        for k in range(n + 1):
            model = coin(math.log(3))
            only(ConditionalMoments(model=model, draws=n, proposal=Tossed(k)), heads, generator).value.backward()
            expected += math.comb(n, k) / 2**n * model.energy.coefficients.grad.item()
        scaled.append(n * (expected - (3 / 4 - 1)))
    assert scaled == pytest.approx([-3 / 16] * 3, rel=0.2)
    assert scaled[2] == pytest.approx(-3 / 16, rel=0.01)


@pytest.mark.parametrize("kind", ["constant", "table", "mean_pool", "recurrent"])
def test_with_every_sequence_drawn_loss_and_gradient_are_those_of_the_exact_likelihood(kind, generator):
    model = model_of(kind)
    x, context = batch()
    loss = only(exact_twin(model), (x, context), generator)
    ours = torch.autograd.grad(loss.value, list(model.energy.network.parameters()))
    log_p = exact.log_probabilities(model, THREE)[ROWS, SOME]
    true = -(log_p - model.base.log_prob(x, context).detach()).mean()
    theirs = torch.autograd.grad(true, list(model.energy.network.parameters()))
    torch.testing.assert_close(loss.value, true, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["table", "mean_pool", "recurrent"])
def test_equation_3_needs_its_chain_rule(kind, generator):
    model = model_of(kind)
    x, context = batch()
    parameters = list(model.energy.network.parameters())
    ours = torch.autograd.grad(only(exact_twin(model), (x, context), generator).value, parameters)
    # φ(x) − E_p φ for each row, then through ∂λ/∂η by hand, coefficient by coefficient.
    surplus = (FEATURES(x, context) - exact.moments(model, FEATURES, THREE)[ROWS]).detach()
    by_hand = [torch.zeros_like(parameter) for parameter in parameters]
    coefficients = model.energy.coefficients(context)
    for row in range(len(ROWS)):
        for feature in range(2):
            jacobian = torch.autograd.grad(coefficients[row, feature], parameters, retain_graph=True)
            for total, part in zip(by_hand, jacobian, strict=True):
                total -= part * surplus[row, feature] / len(ROWS)
    torch.testing.assert_close(list(ours), by_hand, rtol=0, atol=1e-9)


def test_the_base_learns_too_when_told_and_only_then(generator):
    model = model_of("recurrent")
    x, context = batch()
    loss = only(exact_twin(model, train_base=True), (x, context), generator)
    true = -exact.log_probabilities(model, THREE)[ROWS, SOME].mean()
    parameters = list(model.parameters())
    torch.testing.assert_close(loss.value, true, rtol=0, atol=1e-9)
    ours = torch.autograd.grad(loss.value, parameters)
    torch.testing.assert_close(ours, torch.autograd.grad(true, parameters), rtol=0, atol=1e-9)
    only(exact_twin(model), (x, context), generator).value.backward()
    assert model.base.logits.grad is None


def test_drawn_from_the_base_itself_its_gradient_is_that_of_equation_1(generator):
    # Values are those of the plain objective, r/r being 1; the gradient in r is that of log r at data less E_p's.
    model = model_of("table")
    x, context = batch()
    objective = ConditionalMoments(model=model, draws=50, train_base=True)
    plain = ConditionalMoments(model=model, draws=50)
    seed = 8
    loss = only(objective, (x, context), Generator().manual_seed(seed))
    fixed = only(plain, (x, context), Generator().manual_seed(seed))
    base_cost = -model.base.log_prob(x, context).mean()
    torch.testing.assert_close(loss.value, fixed.value + base_cost)
    first = list(dict.fromkeys(ROWS.tolist()))  # in the order they come
    drawn = model.base.sample(50, THREE.select(torch.tensor(first)), generator=Generator().manual_seed(seed))
    contexts = THREE.select(torch.tensor(first))
    shares = (-model.energy(drawn, contexts)).view(3, 50).softmax(1).detach()
    counts = torch.tensor([ROWS.tolist().count(row) / len(ROWS) for row in first], dtype=torch.float64)
    theirs = base_cost + (counts[:, None] * shares * model.base.log_prob(drawn, contexts).view(3, 50)).sum()
    (ours,) = torch.autograd.grad(loss.value, [model.base.logits])
    torch.testing.assert_close(ours, torch.autograd.grad(theirs, [model.base.logits])[0], rtol=0, atol=1e-9)


def test_draws_have_no_dropout_and_the_bases_mode_comes_back(generator):
    base = lstm(SPACE, dropout=0.5).train()
    model = Tilted(base, ConditionalLinear(FEATURES, ConstantCoefficients(2).double()))
    x, context = batch()
    loss = only(ConditionalMoments(model=model, draws=40, train_base=True), (x, context), generator)
    # λ = 0: every weight is r/r, which is 1 only if both are taken without dropout.
    assert loss.metrics["ess_min"] == pytest.approx(40, rel=1e-4)
    assert loss.value.item() == pytest.approx(-float(base.eval().log_prob(x, context).detach().mean()), rel=1e-4)
    base.train()
    only(ConditionalMoments(model=model, draws=5), (x, context), generator)
    assert base.training


def test_contexts_that_are_the_same_share_their_draws(generator):
    asked = []

    class Counting(Everything):
        def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
            asked.append(context_rows(context))
            return super().sample(n, context, generator=generator)

    objective = ConditionalMoments(model=model_of("table"), draws=number_of_sequences(SPACE), proposal=Counting(SPACE))
    only(objective, batch(), generator)
    assert asked == [3]


def test_a_run_finds_the_true_coefficients_of_each_context(generator):
    base = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1))
    true = torch.tensor([[2.0, -0.5], [-1.0, 0.4], [1.5, 0.3]], dtype=torch.float64)
    truth = Tilted(base, ConditionalLinear(FEATURES, TabularCoefficients(THREE, true)))
    size = 6000
    chances = exact.log_probabilities(truth, THREE).exp().detach()
    which = torch.multinomial(chances, size, replacement=True, generator=generator).flatten()
    data = (all_sequences(SPACE).select(which), THREE.repeat(size))
    torch.manual_seed(0)
    model: Any = Tilted(base, ConditionalLinear(FEATURES, Recurrent(3, 2, hidden=16).double()))
    before = exact.divergence("kl", truth, model, THREE).detach()
    optimiser = OPTIMISERS["adam"](learning_rate=0.03).build(model.energy.parameters())
    objective = ConditionalMoments(model=model, draws=512)
    steps = fit(objective, Batches(data=data, batch_size=600), {"model": Player(module=model, optimiser=optimiser)},
                generator=generator)  # fmt: skip
    for step in steps:
        if step.number == 170:
            for group in optimiser.param_groups:
                group["initial_lr"] = 0.002  # less noise at the end
        if step.number == 240:
            break
    after = exact.divergence("kl", truth, model, THREE).detach()
    assert before.min() > 0.01
    # Two parameters from 6,000 rows cost 2/(2·6,000) nats on average; the seed is fixed, so no false alarm.
    assert after.max() < 2e-3
    assert (model.energy.coefficients(THREE).detach() - true).abs().max() < 0.25


def test_little_effective_size_warns_and_no_weight_at_all_is_an_error(generator):
    model = coin(8.0)
    x = Sequences(torch.ones(1, 1, dtype=torch.long), torch.ones(1, dtype=torch.long))
    with pytest.warns(RuntimeWarning, match="100 draws of some context have an effective sample size below 30"):
        only(ConditionalMoments(model=model, draws=100, proposal=Tossed(1)), x, generator)
    forbids = coin(-math.inf)
    with pytest.raises(UserError, match="None of 3 draws has a positive weight"):
        only(ConditionalMoments(model=forbids, draws=3, proposal=Tossed(3)), x, generator)
    base = Tabular(COIN, torch.zeros(2, 1, 2, dtype=torch.float64))
    table = Tilted(base, ConditionalLinear(HEADS, TabularCoefficients(THREE, torch.full((3, 1), -math.inf).double())))
    pairs = (x, THREE.select(torch.tensor([1])))
    with pytest.raises(UserError, match=r"None of 3 draws for the context \[1, 0\]"):
        only(ConditionalMoments(model=table, draws=3, proposal=Tossed(3)), pairs, generator)


def test_a_feature_of_the_data_that_was_never_drawn_is_told_though_the_weights_look_perfect(generator):
    x = Sequences(torch.tensor([[1], [0]]), torch.ones(2, dtype=torch.long))
    with pytest.warns(RuntimeWarning, match="no draw of their context has"):
        loss = only(ConditionalMoments(model=coin(3.0), draws=100, proposal=Tossed(0)), x, generator)
    assert loss.metrics["ess_min"] == pytest.approx(100)
    assert loss.metrics["unseen"] == 0.5
    assert (
        only(ConditionalMoments(model=coin(3.0), draws=100, proposal=Tossed(50)), x, generator).metrics["unseen"] == 0
    )


def test_what_does_not_fit_is_told(generator):
    x, context = batch()
    with pytest.raises(ValueError, match="as many contexts"):
        only(ConditionalMoments(model=model_of("table")), (x, THREE), generator)
    with pytest.raises(UserError, match="At least one draw"):
        only(ConditionalMoments(model=model_of("table"), draws=0), (x, context), generator)
    assert isinstance(ConditionalMoments(model=model_of("table")), Objective)
