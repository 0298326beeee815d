"""E(x, C): costs of a whole sequence. `kinds.ENERGIES` lists those that can be chosen by name."""
