"""XLNet: what local attention saves, and how quickly inputs of pretraining are made.

    python benchmarks/xlnet.py --json

In float32 with torch's default threads. Variants take turns and each counts with its best of several calls, so that a
busy machine slows all of them or none.

- `local_speedup`: a fine-tuning step (forward, backward, Adam) of a classifier on the last place of the content stream,
  2 layers of width 128, 4 heads, dropout 0.1, with full attention, over one with chunks of 64; texts of 1,024 tokens,
  the same weights. `local_speedup at …` are other lengths; every batch has 4,096 tokens.
- `local_memory`: at 1,024 tokens, the most memory that a step takes beyond the weights with full attention, over that
  with chunks, as torch's profiler counts what is allocated and freed.
- `data_ratio`: tokens a second of the data pipeline of pretraining alone (columns, pairs, targets, orders, masks), over
  those that a step of pretraining takes (4 layers of width 128, memory 64, AdamW); 32 inputs of 128 tokens of a made-up
  text of 240,000 words. `data_ratio, denoising` and `data_ratio, left_to_right` are the other ways to predict.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from command import run
from torch import nn
from xl import best_times, most_memory

from ebar.backbones.xlnet import XlNet
from ebar.data.pretraining_inputs import Form, Predict, PretrainingText
from ebar.data.specials import Specials
from ebar.models.construction import assemble
from ebar.objectives.pretraining import Pretraining
from ebar.training.loop import fit
from ebar.training.players import Player
from ebar.training.streams import OnStream, PretrainingColumns
from ebar.types import Space

VOCABULARY, LAYERS, WIDTH, HEADS, CLASSES = 8000, 2, 128, 4, 2
CHUNK, TOKENS, LENGTHS = 64, 4096, (128, 512, 1024)
WORDS, COLUMNS, LENGTH = 240_000, 32, 128  # data_ratio


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


def made_up_text(predict: Predict) -> PretrainingText:
    """Words drawn by lot, in sentences of 20 and documents of 1,000."""
    generator, places = numpy.random.default_rng(0), numpy.arange(WORDS)
    return PretrainingText(
        tokens=generator.integers(0, VOCABULARY, WORDS, dtype=numpy.int32), words=generator.random(WORDS) < 0.6,
        sentences=places[::20], documents=places[::1000], specials=Specials(*range(VOCABULARY, VOCABULARY + 4)),
        size=VOCABULARY, form=Form(length=LENGTH, reuse=LENGTH // 2, predict=predict),
    )  # fmt: skip


def pretraining(predict: Predict) -> float:
    """How many times as quick inputs are made as a small network learns from them."""
    torch.manual_seed(0)
    source = PretrainingColumns(text=made_up_text(predict), columns=COLUMNS)
    sizes = {"layers": 4, "hidden": 128, "heads": 4, "memory": LENGTH // 2}
    model = assemble(Space(VOCABULARY + 4, LENGTH), "xlnet", sizes, "softmax", {"tied": True})
    objective = OnStream.of(Pretraining(model=model), model, source)
    players = {
        "model": Player(module=model, optimiser=torch.optim.AdamW(model.parameters())),
        "objective": Player(module=objective.memory),
    }
    inputs = itertools.chain.from_iterable(source.at(epoch, 0) for epoch in itertools.count())
    batch = next(inputs)
    steps = fit(objective, Always(batch), players, generator=torch.Generator())
    best = best_times({"data": lambda: next(inputs), "step": lambda: next(steps)}, rounds=5)
    return best["step"] / best["data"]


@dataclass(frozen=True)
class Always:
    """One and the same batch, so that a step has nothing else to do."""

    batch: Any

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        return itertools.repeat(self.batch)


def data() -> dict[str, float]:
    """By the way tokens are predicted."""
    ways: tuple[Predict, ...] = ("permutation", "denoising", "left_to_right")
    found = {f"data_ratio, {way}": pretraining(way) for way in ways}
    return {"data_ratio": found.pop("data_ratio, permutation"), **found}


def measure() -> dict[str, float]:
    """All figures."""
    return {**local(), **data(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    run(__doc__, measure)
