"""Where draws depend on one another, an interval needs batches that do not."""

import pytest
import torch
from torch import Generator

from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.estimators.log_z import log_z
from ebar.features.feature import Features
from ebar.features.motif import Motif
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import independent_batches
from ebar.types import Space, WeightedSampler


@pytest.fixture
def target(generator: Generator) -> Tilted:
    base = Tabular.random(Space(3, 5, end=2), generator=generator)
    features = Features([Motif(motif="11", alphabet="01", end=2)])
    return Tilted(base, Linear(features, torch.tensor([1.5], dtype=torch.float64)))


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "ancestral" and SAMPLERS[name].weighted])
def test_there_are_enough_batches_and_their_interval_holds_log_z(
    name: str, target: Tilted, generator: Generator
) -> None:
    sampler = SAMPLERS[name]()
    assert isinstance(sampler, WeightedSampler)
    batches = list(independent_batches(sampler, target, 2000, generator=generator))
    assert sum(batch.log_weights.shape[1] for batch in batches) >= 2000
    assert sampler.independent or len(batches) >= 20
    found = log_z(batches, target=target, independent=sampler.independent)[0].estimate
    # Three times a 95 % interval: outside once in about 10⁸ runs of independent draws, 10⁵ of twenty batches.
    width = 3 * (found.high - found.low) / 2
    assert abs(found.value - exact.log_z(target)[0].item()) < width
    assert width > 0
