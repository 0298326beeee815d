"""What Transformer-XL costs.

    python benchmarks/xl.py --json

- `step_ratio`: a training step (forward, backward, Adam) of a Transformer-XL without memory, divided by that of our
  plain Transformer of the same size: 4 layers of width 256, 4 heads, feed-forward 1,024, dropout 0.1, 16 sequences of
  128 tokens over 256, in float32 with torch's default threads. The two take turns, and each counts with its best of 9.
"""

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from command import run

from ebar.models.construction import Autoregressive, assemble
from ebar.types import Space

BATCH, LENGTH, VOCABULARY = 16, 128, 256
SIZES = {"layers": 4, "hidden": 256, "heads": 4, "dropout": 0.1}
ROUNDS = 9


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def training_step(model: Autoregressive) -> Callable[[], object]:
    """One step of Adam on the same tokens each time."""
    optimiser = torch.optim.Adam(model.train().parameters(), 1e-4)
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))

    def step() -> None:
        loss = F.cross_entropy(model.teacher_forced(tokens).flatten(0, 1), tokens.flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()

    return step


def steps() -> dict[str, float]:
    """A training step of both."""
    torch.manual_seed(0)
    space = Space(VOCABULARY, LENGTH)
    models = {
        "Transformer-XL": assemble(space, "transformer_xl", {**SIZES, "memory": LENGTH, "recurrence": False}),
        "Transformer": assemble(space, "transformer", SIZES),
    }
    functions = {name: training_step(model) for name, model in models.items()}
    best = dict.fromkeys(functions, math.inf)
    for function in functions.values():
        function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            best[name] = min(best[name], seconds(function))
    return {
        "step_ratio": best["Transformer-XL"] / best["Transformer"],
        **{f"seconds of a step of {name}": value for name, value in best.items()},
    }


def measure() -> dict[str, float]:
    """All figures."""
    return {**steps(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    run(__doc__, measure)
