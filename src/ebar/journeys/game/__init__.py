"""A generator and an energy, trained against each other."""
