import random

import numpy
import pytest
import torch
from torch import Generator

from ebar.training.randomness import capture_random_state, restore_among, restore_random_state, seeded


def draws(generator: Generator) -> list[float]:
    """From every source; an odd number of Gaussians, of which Python and numpy keep half a pair."""
    return [
        float(torch.rand(())),
        float(torch.rand((), generator=generator)),
        *(random.gauss(0, 1) for _ in range(3)),
        *(float(numpy.random.standard_normal()) for _ in range(3)),
    ]


def test_a_restored_state_draws_the_same_again_from_every_source():
    generator = seeded(1)
    draws(generator)
    state = capture_random_state(generator)
    expected = draws(generator)
    other = seeded(2)
    assert all(a != b for a, b in zip(draws(other), expected, strict=True))
    restore_random_state(state, other)
    assert draws(other) == expected


def test_ranks_and_seeds_draw_differently():
    assert len({tuple(draws(seeded(seed, rank=rank))) for seed in range(3) for rank in range(3)}) == 9
    assert draws(seeded(1, rank=1)) == draws(seeded(1, rank=1))
    # What a generator draws, every process draws for the rows of all.
    assert torch.equal(seeded(1, rank=1).get_state(), seeded(1).get_state())


def test_another_number_of_processes_warns_and_gives_each_its_own():
    states = [capture_random_state(seeded(1, rank=rank)) for rank in (0, 1)]
    generator, drawn = Generator(), set()
    for rank in range(3):
        with pytest.warns(RuntimeWarning, match="saved by 2 processes and resumed by 3"):
            restore_among(states, generator, rank=rank, ranks=3)
        assert torch.equal(generator.get_state(), states[0]["generator"])
        drawn.add(tuple(draws(generator)))
    assert len(drawn) == 3
