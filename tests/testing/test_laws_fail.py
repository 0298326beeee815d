"""Each law notices what breaks it: a small wrong thing of every family, and which sentence it earns."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.automata.expressions import compile_expression
from ebar.backbones.lstm import Lstm
from ebar.data.tokenisers import Alphabet
from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.heads.softmax import Softmax
from ebar.models.ngram import Tabular
from ebar.models.points import GaussianMixture
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.samplers.importance import Importance
from ebar.testing import (
    LawError,
    check_backbone,
    check_distribution,
    check_energy,
    check_feature,
    check_head,
    check_objective,
    check_point_distribution,
    check_sampler,
    check_stepwise,
    check_tokeniser,
)
from ebar.types import Clock, Context, Loss, Sequences, Space, Weighted

ENDING = Space(vocabulary=3, length=4, end=2)


def tabular() -> Tabular:
    return Tabular.random(ENDING, generator=Generator().manual_seed(0))


class TooLikely(Tabular):
    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return super().log_prob(x, context) + 0.01


class Segmented(Tabular):
    """A segment of several tokens is read otherwise than the same tokens one by one."""

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, after = super().advance(tokens, state)
        later = torch.arange(tokens.shape[1])[:, None]
        return logits + 0.1 * later * torch.arange(3), after


class OwnRandomness(Tabular):
    def sample(self, n: int, context: Context | None = None, *, generator: Generator | None = None) -> Sequences:
        torch.rand(1)
        return super().sample(n, context, generator=generator)


@pytest.mark.parametrize(
    ("kind", "law"), [(TooLikely, "agree|add up to 1"), (OwnRandomness, "torch's own random state alone")]
)
def test_distributions(kind: type[Tabular], law: str) -> None:
    check_distribution(tabular())
    with pytest.raises(LawError, match=law):
        check_distribution(kind.random(ENDING, generator=Generator().manual_seed(0)))


def test_stepwise_models() -> None:
    check_stepwise(tabular())
    with pytest.raises(LawError, match="agree"):
        check_stepwise(Segmented.random(ENDING, generator=Generator().manual_seed(0)))


class Clairvoyant(Lstm):
    """Adds a vector of the last token of the segment to all before it."""

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, after = super().advance(tokens, state)
        return hidden + tokens[:, -1:, None] * 0.1, after


def test_backbones() -> None:
    torch.manual_seed(0)
    check_backbone(Lstm(3, layers=1, hidden=4, dropout=0.5), vocabulary=3, length=5)
    with pytest.raises(LawError, match=r"agree|changes nothing"):
        check_backbone(Clairvoyant(3, layers=1, hidden=4), vocabulary=3, length=5)


class Unnormalised(Softmax):
    free_logits = False


class OtherTargets(Softmax):
    def log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits: Tensor = self(hidden)
        return logits.gather(-1, targets[..., None])[..., 0]


class WithoutGradient(Softmax):
    def log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return super().log_probs(hidden, targets).detach()


class HalfTheGradient(Softmax):
    def log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        whole = super().log_probs(hidden, targets)
        return (whole + whole.detach()) / 2


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Unnormalised, "sum to 1"),
        (OtherTargets, "targets agree"),
        (WithoutGradient, "targets have a gradient"),
        (HalfTheGradient, "have the gradients that the logits give"),
    ],
)
def test_heads(kind: type[Softmax], law: str) -> None:
    check_head(Softmax(4, 5), width=4, vocabulary=5)
    with pytest.raises(LawError, match=law):
        check_head(kind(4, 5), width=4, vocabulary=5)


@dataclass
class Starts:
    """1 where the first token is 1; with faults on demand."""

    fault: str = ""
    name: ClassVar[str] = "starts"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @property
    def automaton(self) -> Any:
        return compile_expression("1.*" if self.fault != "automaton" else "0.*", "01", anywhere=False)

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        found = (x.tokens[:, 0] == 1).double()
        if self.fault == "bounds":
            return found * 2
        if self.fault == "padding":
            return found * (x.tokens[:, -1] != 1)
        return found


@pytest.mark.parametrize(("fault", "law"), [("bounds", "`high`"), ("padding", "padding"), ("automaton", "automaton")])
def test_features(fault: str, law: str) -> None:
    check_feature(Starts(), ENDING)
    with pytest.raises(LawError, match=law):
        check_feature(Starts(fault), ENDING)


class Batchwise(nn.Module):
    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        costs = x.lengths.double()
        return costs - costs.mean()


class Noisy(nn.Module):
    """Dropout that no mode switches off."""

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        return torch.rand(len(x.lengths)).double()


@pytest.mark.parametrize(("kind", "law"), [(Batchwise, "no other row"), (Noisy, "changes nothing")])
def test_energies(kind: type[nn.Module], law: str) -> None:
    check_energy(Linear(Features([Starts()]), torch.tensor([0.5]).double()), ENDING)
    with pytest.raises(LawError, match=law):
        check_energy(kind(), ENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Biased(Importance):
    """Leaves out the correction for the proposal by a tenth."""

    def stream(self, *arguments: Any, **named: Any) -> Iterator[Weighted[Any]]:
        for batch in Importance.stream(self, *arguments, **named):
            yield batch._replace(log_weights=batch.log_weights * 0.9)


class Denser(GaussianMixture):
    """A density that adds up to 1.05."""

    def log_prob(self, x: Tensor, context: Context | None = None) -> Tensor:
        return super().log_prob(x, context) + 0.05


class Wider(GaussianMixture):
    """Draws that lie 5 % further out than the density says."""

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Tensor:
        return 1.05 * super().sample(n, context, generator=generator)


@pytest.mark.parametrize(("kind", "law"), [(Denser, "adds up to 1 over the plane"), (Wider, "where log_prob says")])
def test_distributions_of_points(kind: type[GaussianMixture], law: str) -> None:
    means = torch.tensor([[-3.0, 0.0], [2.0, 1.0]])
    check_point_distribution(GaussianMixture(means))
    with pytest.raises(LawError, match=law):
        check_point_distribution(kind(means))


def test_samplers() -> None:
    check_sampler(Importance())
    with pytest.raises(LawError, match="properly weighted"):
        check_sampler(Biased())


@dataclass(frozen=True, kw_only=True)
class MeanOfMeans:
    """Forgets to say over how many tokens it is a mean."""

    model: Any

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        for loss in MaximumLikelihood(model=self.model).losses(batch, clock, generator=generator):
            yield loss._replace(weight=1.0)


@dataclass(frozen=True, kw_only=True)
class Infinite:
    model: Any

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        yield Loss(next(self.model.parameters()).sum() * math.inf)


@pytest.mark.parametrize(("kind", "law"), [(MeanOfMeans, "make up the whole"), (Infinite, "finite")])
def test_objectives(kind: Any, law: str) -> None:
    model = tabular()
    batch = model.sample(7, generator=Generator().manual_seed(1))
    check_objective(MaximumLikelihood(model=model), batch, [model])
    with pytest.raises(LawError, match=law):
        check_objective(kind(model=model), batch, [model])


class Shouting(Alphabet):
    def decode(self, tokens: list[int]) -> str:
        return super().decode(tokens).upper()


def test_tokenisers() -> None:
    check_tokeniser(Alphabet("ab "), ["", "ab ba"])
    with pytest.raises(LawError, match="became 'AB'"):
        check_tokeniser(Shouting("ab "), ["ab"])
