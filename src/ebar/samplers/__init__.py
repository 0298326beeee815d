"""Ways of drawing from a tilted model.

Properly weighted samplers estimate Z; the draws of the others tend to p. What is drawn says which draws depend on one
another. A line in `SAMPLERS` puts a sampler in the configuration, the command line and the contract tests.
"""

from ebar.samplers.annealed import Annealed
from ebar.samplers.importance import Ancestral, Importance, Resampling
from ebar.samplers.look_ahead import LookAhead
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.samplers.smc import Smc
from ebar.tables import Table
from ebar.types import Sampler

SAMPLERS: Table[type[Sampler]] = Table(
    "sampler",
    {
        "ancestral": Ancestral,
        "rejection": Rejection,
        "importance": Importance,
        "quasi_rejection": QuasiRejection,
        "resampling": Resampling,
        "metropolis": Metropolis,
        "smc": Smc,
        "annealed": Annealed,
        "look_ahead": LookAhead,
    },
)
