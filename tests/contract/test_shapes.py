"""What a user brings in a wrong shape is one sentence that says which came and which was needed, at every entrance."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.lstm import Lstm
from ebar.energies.conditional import ConditionalLinear
from ebar.energies.linear import Linear
from ebar.energies.neural import Encoded, Neural
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.divergences import divergence
from ebar.estimators.joint_perplexity import joint_perplexity
from ebar.estimators.last_step import last_step
from ebar.estimators.log_z import log_z
from ebar.estimators.per_step import per_step
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.energy_distributions import energy_distributions
from ebar.evaluation.next_words import next_words
from ebar.features.feature import Features
from ebar.features.functions import Predicate, TextScore
from ebar.features.regular import Motif
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive, FromLogits
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.objectives.conditional_moments import ConditionalMoments
from ebar.objectives.nce import Contrasted, Nce
from ebar.objectives.policy_gradient import PolicyGradient
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.smc import Prefixes
from ebar.samplers.smc import energy as energy_twist
from ebar.types import Clock, Context, Estimate, Sequences, Space, Weighted
from tests.estimators.exact_per_step import exact_per_step
from tests.models.examples import FIXED

GENERATOR = Generator().manual_seed(0)
Q = Tabular.random(FIXED, conditions=3, generator=GENERATOR)
X = Q.sample(3, generator=GENERATOR)
ONE = Context(Sequences(torch.tensor([[1]]), torch.tensor([1])))


class Column(nn.Module):
    """As `nn.Linear(h, 1)` leaves it: [n, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1).double()

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        counts = torch.stack([(x.tokens == token).sum(1) for token in range(3)], 1)
        return self.layer(counts.double())  # type: ignore[no-any-return]


COLUMN = Column()
P = Tilted(Q, COLUMN)
ASKED: dict[str, Callable[[], Any]] = {
    "log_score": lambda: P.log_score(X),
    "exact log Z": lambda: exact.log_z(P),
    "divergence": lambda: divergence("kl", P, Q),
    "divergence by sampling": lambda: divergence("kl", P, Q, proposal=Q, draws=10, generator=GENERATOR),
    "cross-entropy": lambda: cross_entropy(P, X, log_z=Estimate.exact(0.0)),
    "per_step": lambda: per_step(Q, COLUMN, X, n=2, generator=GENERATOR),
    "exact_per_step": lambda: exact_per_step(Q, COLUMN, X),
    "last_step": lambda: last_step(Q, COLUMN, X),
    "next_words": lambda: next_words(Q, COLUMN, n=2, generator=GENERATOR),
    "twist": lambda: energy_twist(Prefixes(P, Q, X, None, torch.zeros(3).double(), Q.start(3)[1])),
    "nce": lambda: next(Nce(energy=COLUMN).losses(Contrasted(X, None, (X,)), Clock(0, 0), generator=GENERATOR)),
    "conditional moments": lambda: next(
        ConditionalMoments(model=P, draws=4).losses(X, Clock(0, 0), generator=GENERATOR)
    ),
    "policy gradient": lambda: next(
        PolicyGradient(target=P, model=Q).losses(torch.empty(4, 0), Clock(0, 0), generator=GENERATOR)
    ),
} | {
    name: lambda sampler=sampler: draw(sampler(), P, 8, proposal=Q, generator=GENERATOR)
    for name, sampler in SAMPLERS.items()
    if name not in ("ancestral", "look_ahead", "rejection")
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_an_energy_of_one_column_is_refused_wherever_it_is_asked(name):
    with pytest.raises(UserError, match=r"The energy of (\d+) sequences must have shape \[\1\], not \[\1, 1\]: .*squ"):
        ASKED[name]()


def test_squeezed_it_is_what_enumeration_says():
    squeezed = Tilted(Q, lambda x, context=None: COLUMN(x).squeeze(-1))
    everything = exact.table(lambda x: Q.log_prob(x) - COLUMN(x).squeeze(-1), FIXED, device=torch.device("cpu"))
    torch.testing.assert_close(exact.log_z(squeezed), torch.logsumexp(everything, 1))


@pytest.mark.parametrize("value", [0.5, None, [1.0, 2.0, 3.0]])
def test_an_energy_that_is_no_tensor_is_refused(value):
    with pytest.raises(UserError, match=r"The energy of 3 sequences must be a tensor of shape \[3\], not"):
        Tilted(Q, lambda x, context=None: value).log_score(X)


class Given:
    """A feature of whatever values."""

    name, low, high = "mine", 0.0, 1.0

    def __init__(self, values: Any):
        self.values = values

    def __call__(self, x: Sequences, context: Context | None = None) -> Any:
        return self.values


@pytest.mark.parametrize("values", [torch.zeros(3, 1), torch.zeros(1), torch.zeros(2), torch.zeros(()), 0.5])
def test_a_feature_of_another_shape_is_refused(values):
    with pytest.raises(UserError, match=r"Feature 'mine' of 3 sequences must .*\[3\]"):
        Features([Given(values)])(X)
    with pytest.raises(UserError, match="Feature 'mine' of 3 sequences"):
        Tilted(Q, Linear(Features([Given(values)]), torch.ones(1).double())).log_score(X)


def test_a_predicate_and_a_score_of_another_shape_are_refused():
    predicate = Predicate(name="mine", function=lambda tokens: torch.zeros(2), end=None)
    with pytest.raises(UserError, match=r"Feature 'mine' on the sequence .* must have shape \[\], not \[2\]"):
        predicate(X)
    assert Predicate(name="one", function=lambda tokens: torch.ones(1), end=None)(X).tolist() == [1.0] * 3
    for values, words in (
        (torch.zeros(3, 1), r"\[3, 1\]: .*squeeze"),
        (torch.zeros(3, 2), r"\[3, 2\]"),
        ([1.0], r"\[1\]"),
    ):
        score = TextScore(name="mine", function=lambda texts, v=values: v, decode=str, end=None)  # type: ignore[misc]
        with pytest.raises(UserError, match=f"Feature 'mine' of 3 texts must have shape .* not {words}"):
            score(X)
    with pytest.raises(UserError, match="must give a number for each text"):
        TextScore(name="mine", function=lambda texts: None, decode=str, end=None)(X)  # type: ignore[arg-type, return-value]


def test_coefficients_of_another_shape_are_refused():
    features = Features([Motif(motif="01", alphabet="012", end=None)])
    with pytest.raises(UserError, match=r"of a linear energy must have shape \[1\], not \[1, 1\]: .*squeeze"):
        unchecked(Linear, features, torch.zeros(1, 1))
    for values in (torch.zeros(1), torch.zeros(1, 2), torch.zeros(2, 1)):
        energy = ConditionalLinear(features, lambda context, v=values: v)
        with pytest.raises(UserError, match=r"coefficients, a row for each context, must have shape \[1, 1\]"):
            energy(X, ONE)


class WrongEncoder(nn.Module):
    """Says that it is wider than its vectors are."""

    width = 5

    def forward(self, x: Sequences, context: Context | None, pool: str) -> Encoded:
        return Encoded(torch.zeros(*x.tokens.shape, 4), x.mask())


def test_hidden_vectors_of_another_width_are_refused():
    with pytest.raises(UserError, match=r"hidden vectors of the encoder must have shape \[3, 4, 5\], not \[3, 4, 4\]"):
        Neural(WrongEncoder())(X)


@pytest.mark.parametrize("made", [lambda t: torch.zeros(*t.shape, 4), lambda t: torch.zeros(len(t), 3), lambda t: (1,)])
def test_logits_of_another_shape_are_refused(made):
    class Wrong(nn.Module):
        def forward(self, tokens: Tensor) -> Any:
            return made(tokens)

    with pytest.raises(UserError, match=r"network makes of tokens \[3, 4\], .* must .*\[3, 4, 3\]"):
        FromLogits(Wrong(), FIXED, beginning=0).log_prob(X)


def test_a_head_that_is_not_as_wide_as_the_vocabulary_is_refused():
    model = Autoregressive(Lstm(3, layers=1, hidden=4), Softmax(4, 5), Space(3, 4))
    for asked in (lambda: model.log_prob(X), lambda: model.sample(2, generator=GENERATOR)):
        with pytest.raises(UserError, match="gives 5 logits for each token, and its space has a vocabulary of 3"):
            asked()


class Own:
    """A distribution of a user's, whose log-probabilities are a column."""

    space = FIXED

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return Q.log_prob(x)[:, None]

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        return Q.sample(n, generator=generator)


def test_log_probabilities_in_a_column_are_refused():
    own: Any = Own()
    target: Any = Tilted(Q, lambda x, context=None: x.lengths.double())
    for asked in (
        lambda: cross_entropy(own, X),
        lambda: exact.entropy(own),
        lambda: draw(SAMPLERS["importance"](), target, 4, proposal=own, generator=GENERATOR),
        lambda: Tilted(own, COLUMN).log_score(X),
    ):
        with pytest.raises(UserError, match=r"log_prob of (\d+) sequences must have shape \[\1\], not \[\1, 1\]"):
            asked()


def test_numbers_of_another_shape_are_refused():
    with pytest.raises(UserError, match=r"3 sequences need log-weights of shape .* \[1, 3\], and have \[3\]"):
        unchecked(log_z, Weighted(X, torch.zeros(3)))
    n, draws = torch.zeros(3).double(), torch.zeros(3, 4).double()
    for arguments in ((n[:, None], n, draws), (n, n[:, None], draws), (n, n, draws[:2]), (n, n, n)):
        with pytest.raises(UserError, match="must have shape"):
            unchecked(joint_perplexity, *arguments, torch.full((3,), 4))
    for arguments in ((n[:, None], draws), (n, draws[:2])):  # type: ignore[assignment]
        with pytest.raises(UserError, match="must have shape"):
            unchecked(energy_distributions, *arguments)


def unchecked(function: Any, *arguments: Any) -> Any:
    """As outside the tests, where no shape in a signature is checked."""
    from jaxtyping import config

    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        return function(*arguments)
    finally:
        config.update("jaxtyping_disable", before)
