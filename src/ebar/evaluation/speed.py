"""How fast a text is read: tokens per second, the best of a few runs.

For time per token as the attention grows, read the same text once with a carried memory and once by recomputation,
`stream_cost(model, text, stride=1)`, which reads a whole window for each token: Dai et al. 2019, Table 9, whose
recomputing Transformer is up to 1,874 times slower, on one GPU.
"""

import time
from collections.abc import Callable
from typing import NamedTuple


class Speed(NamedTuple):
    """The best run, and all of them: the best is what the machine can do, the spread is what else it was doing."""

    tokens_per_second: float
    seconds: tuple[float, ...]  # of each run


def speed(
    work: Callable[[], object], tokens: int, *, runs: int = 3, clock: Callable[[], float] = time.perf_counter
) -> Speed:
    """Of work that reads so many tokens: it is done once to warm up, and then timed."""
    work()
    found = []
    for _ in range(runs):
        begun = clock()
        work()
        found.append(clock() - begun)
    return Speed(tokens / min(found), tuple(found))
