"""E(x, C): costs of a whole sequence."""

from ebar.energies.linear import Linear

ENERGIES = {"linear": Linear}
