"""The laws that every model, sampler, feature, energy, head, objective and tokeniser keeps, as functions.

Run them on your own, in a test of your own: each returns None, or raises a `LawError` that says which law is broken and
by how much. ebar's own contract tests are these functions over its tables.

    from ebar.testing import check_stepwise
    check_stepwise(my_model, context)
"""

from ebar.testing.backbones import check_backbone, check_head
from ebar.testing.distributions import check_distribution, check_stepwise
from ebar.testing.energies import check_energy
from ebar.testing.features import check_feature
from ebar.testing.laws import LawError
from ebar.testing.objectives import check_objective
from ebar.testing.points import check_point_distribution
from ebar.testing.samplers import check_sampler
from ebar.testing.tokenisers import check_tokeniser

__all__ = [
    "LawError",
    "check_backbone",
    "check_distribution",
    "check_energy",
    "check_feature",
    "check_head",
    "check_objective",
    "check_point_distribution",
    "check_sampler",
    "check_stepwise",
    "check_tokeniser",
]
