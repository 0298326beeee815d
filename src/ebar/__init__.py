"""Sequence models that carry an energy: P(x|C) = q(x|C)·exp(−E(x, C))."""

__version__ = "0.1.0"
