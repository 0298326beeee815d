"""Randomness where nobody has given a generator."""

import torch
from torch import Generator


def default_generator() -> Generator:
    """A generator seeded from torch's own state, so that `torch.manual_seed` repeats a whole script."""
    return Generator().manual_seed(int(torch.randint(2**62, ())))
