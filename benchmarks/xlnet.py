"""XLNet: what local attention saves.

    python benchmarks/xlnet.py --json

In float32 with torch's default threads. Variants take turns and each counts with its best of several calls, so that a
busy machine slows all of them or none.

- `local_speedup`: a fine-tuning step (forward, backward, Adam) of a classifier on the last place of the content stream,
  2 layers of width 128, 4 heads, dropout 0.1, with full attention, over one with chunks of 64; texts of 1,024 tokens,
  the same weights. `local_speedup at …` are other lengths; every batch has 4,096 tokens.
- `local_memory`: at 1,024 tokens, the most memory that a step takes beyond the weights with full attention, over that
  with chunks, as torch's profiler counts what is allocated and freed.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from command import run
from torch import nn
from xl import best_times, most_memory

from ebar.backbones.xlnet import XlNet

VOCABULARY, LAYERS, WIDTH, HEADS, CLASSES = 8000, 2, 128, 4, 2
CHUNK, TOKENS, LENGTHS = 64, 4096, (128, 512, 1024)


def tuning_step(chunk: int | None, length: int) -> Callable[[], object]:
    """One step of Adam on the same texts each time, half of which are padded."""
    torch.manual_seed(0)
    network = XlNet(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS, chunk=chunk)
    head = nn.Linear(WIDTH, CLASSES)
    rows = TOKENS // length
    tokens, labels = torch.randint(0, VOCABULARY, (rows, length)), torch.randint(0, CLASSES, (rows,))
    lengths = torch.full((rows,), length)
    lengths[::2] -= torch.randint(0, length // 4, (len(lengths[::2]),))
    inside, last = torch.arange(length) < lengths[:, None], lengths - 1
    optimiser = torch.optim.Adam([*network.parameters(), *head.parameters()], 1e-4)

    def step() -> None:
        content = network(tokens, inside=inside).content
        loss = F.cross_entropy(head(content[torch.arange(rows), last]), labels)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()

    return step


def local() -> dict[str, float]:
    """Full attention over local, by the length of texts."""
    figures: dict[str, float] = {}
    for length in LENGTHS:
        steps = {"full": tuning_step(None, length), "local": tuning_step(CHUNK, length)}
        best = best_times(steps, rounds=9)
        figures[f"local_speedup at {length:,}"] = best["full"] / best["local"]
        figures |= {f"microseconds per token, {name}, {length:,}": 1e6 * t / TOKENS for name, t in best.items()}
        if length == LENGTHS[-1]:
            figures["local_speedup"] = best["full"] / best["local"]
            figures["local_memory"] = most_memory(steps["full"]) / most_memory(steps["local"])
    return figures


def measure() -> dict[str, float]:
    """All figures."""
    return {**local(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    run(__doc__, measure)
