"""What samplers and estimators do where the user said nothing must be right too."""

import math

import pytest
import torch
from torch import Generator

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators import exact
from ebar.estimators.divergences import divergence
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.look_ahead import guided
from ebar.samplers.rejection import QuasiRejection
from ebar.types import Space


def tilted(coefficient: float, generator: Generator, *, absent: bool = False) -> Tilted:
    base = Tabular.random(Space(3, 6, end=2), generator=generator)
    features = Features([Motif(motif="11", alphabet="01", end=2, absent=absent)])
    return Tilted(base, Linear(features, torch.tensor([coefficient], dtype=torch.float64)))


def test_quasi_rejection_finds_its_own_ceiling(generator: Generator) -> None:
    # Two-valued weights, 1 and e³: the pilot sees the larger, so the draws are exactly from p.
    target = tilted(3.0, generator)
    assert isinstance(target.energy, Linear)
    truth = exact.moments(target, target.energy.features)[0, 0].item()
    x = draw(QuasiRejection(), target, 4000, generator=generator).x
    found = float(target.energy.features(x).mean())
    assert abs(found - truth) < 5 * math.sqrt(truth * (1 - truth) / 4000)  # one false alarm in 1.7 million
    plain = exact.moments(target.base, target.energy.features)[0, 0].item()
    assert abs(plain - truth) > 20 * math.sqrt(truth * (1 - truth) / 4000)  # ignoring the tilt would be seen


def test_quasi_rejection_says_so_where_no_ceiling_can_be_found(generator: Generator) -> None:
    base = Tabular.random(Space(3, 6, end=2), generator=generator)
    everything = Features([Motif(motif="0", alphabet="01", end=2), Motif(motif="0", alphabet="01", end=2, absent=True)])
    target = Tilted(base, Linear(everything, torch.tensor([-math.inf, -math.inf], dtype=torch.float64)))
    with pytest.raises(UserError, match="no ceiling"):
        draw(QuasiRejection(), target, 10, generator=generator)


@pytest.mark.parametrize("kind", ["kl", "total_variation", "jensen_shannon", "reverse_kl"])
def test_a_proposal_that_never_leaves_the_constraint_does_not_hide_the_rest_of_q(
    kind: str, generator: Generator
) -> None:
    target = tilted(-math.inf, generator, absent=True)  # only sequences with the motif
    proposal = guided(target, generator=generator)
    q = target.base
    found = divergence(kind, target, q, proposal=proposal, draws=20_000, generator=generator)[0]
    truth = exact.divergence(kind, target, q)[0].item()
    if kind == "reverse_kl":
        assert truth == found.value == math.inf
        return
    # Three times a 95 % interval: outside once in about 10⁸ runs.
    assert abs(found.value - truth) < 3 * (found.high - found.low) / 2 + 1e-9
