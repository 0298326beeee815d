"""What a mixture of softmaxes costs in training, against a softmax of as many parameters: time and memory of a step.

    python benchmarks/mixtures.py --json

The models of Yang et al. 2018 (arXiv:1711.03953) for WikiText-2, 33,278 words, tied, in float32 and with torch's
default threads, without dropout: a softmax on input vectors of 400 and LSTM layers of 1,150, 1,150 and 400; 10
softmaxes on 300 and 1,150, 1,150 and 650. A step is the loss of 15 rows of 70 tokens and its gradient. Both heads score
their targets without holding logits, as training does at this size.

- `slowdown`: the time of a step of the mixture divided by that of the softmax; they take turns, and each counts with
  its best of 3, so that a busy machine slows both or none.
- `slowdown_of_logits`: the same against a softmax that holds its logits, as one would write it with torch alone.
- `memory`: peak memory of a process that makes a model and one step, over what it had before, the mixture's divided by
  the softmax's. `memory_of_step` is the same over what it had after it made the model.
- `operations`: the multiplications of a step without anything computed twice, mixture over softmax.
- `slowdown_over_operations`: how much more than that the time is.
"""

import math
import multiprocessing
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from command import run
from torch import Tensor, nn

from ebar.heads.mixture import MixtureOfSoftmaxes
from ebar.heads.softmax import Softmax

VOCABULARY, ROWS, LENGTH = 33_278, 15, 70
SIZES = {"softmax": (400, 1150, 1150, 400), "mixture": (300, 1150, 1150, 650)}
COMPONENTS = 10
ROUNDS = 3
MEGABYTE = 2**20


class Network(nn.Module):
    """Input vectors, LSTM layers of unequal size, and a head that is tied to the input vectors."""

    def __init__(self, kind: str):
        super().__init__()
        sizes = SIZES[kind]
        self.inputs = nn.Parameter(torch.empty(VOCABULARY, sizes[0]).uniform_(-0.1, 0.1))
        self.layers = nn.ModuleList(nn.LSTM(inner, outer, batch_first=True) for inner, outer in pairwise(sizes))
        self.head: Softmax | MixtureOfSoftmaxes
        if kind == "softmax":
            self.head = Softmax(sizes[-1], VOCABULARY, self.inputs, tied=True)
        else:
            self.head = MixtureOfSoftmaxes(sizes[-1], VOCABULARY, self.inputs, components=COMPONENTS, tied=True)

    def forward(self, tokens: Tensor, targets: Tensor, *, logits: bool = False) -> Tensor:
        hidden = nn.functional.embedding(tokens, self.inputs)
        for layer in self.layers:
            hidden, _ = layer(hidden)
        if logits:
            return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())
        return -self.head.log_probs(hidden, targets).mean()


def step(network: Network, *, logits: bool = False) -> None:
    """A loss and its gradient, on random tokens."""
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1))
    network.zero_grad(set_to_none=True)
    network(tokens[:, :-1], tokens[:, 1:], logits=logits).backward()


def operations(kind: str) -> float:
    """Multiplications of a forward pass, of which every gradient takes twice as many: for one token."""
    sizes = SIZES[kind]
    layers = sum(4 * outer * (inner + outer) for inner, outer in pairwise(sizes))
    if kind == "softmax":
        return layers + sizes[-1] * VOCABULARY
    return layers + COMPONENTS * (sizes[-1] * (sizes[0] + 1) + sizes[0] * VOCABULARY)


def resident(what: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return float(line.split()[1]) / 1024


def peak_memory(kind: str) -> tuple[float, float]:
    """Of a step, over what there was before the model, and after it, in megabytes."""
    torch.manual_seed(0)
    small = nn.LSTM(2, 2)
    small(torch.zeros(1, 1, 2))[0].sum().backward()  # what torch itself takes at first is not the model's
    before = resident("VmRSS")
    network = Network(kind)
    after = resident("VmRSS")
    step(network)
    peak = resident("VmHWM")
    return peak - before, peak - after


def in_own_process(kind: str) -> tuple[float, float]:
    """A peak is a process's for good, so that each model has one of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(peak_memory, (kind,))


def measure() -> dict[str, float]:
    """The figures, and the times and megabytes they come from."""
    memory = {kind: in_own_process(kind) for kind in SIZES}
    torch.manual_seed(0)
    networks = {kind: Network(kind) for kind in SIZES}
    variants: dict[str, Callable[[], None]] = {
        "softmax": lambda: step(networks["softmax"]),
        "softmax with logits": lambda: step(networks["softmax"], logits=True),
        "mixture": lambda: step(networks["mixture"]),
    }
    best = dict.fromkeys(variants, math.inf)
    for number in range(ROUNDS + 1):  # the first warms caches and does not count
        for name, function in variants.items():
            start = time.perf_counter()
            function()
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    counted = operations("mixture") / operations("softmax")
    slowdown = best["mixture"] / best["softmax"]
    return {
        "slowdown": slowdown,
        "slowdown_of_logits": best["mixture"] / best["softmax with logits"],
        "memory": memory["mixture"][0] / memory["softmax"][0],
        "memory_of_step": memory["mixture"][1] / memory["softmax"][1],
        "operations": counted,
        "slowdown_over_operations": slowdown / counted,
        "tokens": ROWS * LENGTH,
        "threads": torch.get_num_threads(),
        **{f"seconds of a step, {name}": value for name, value in best.items()},
        **{f"megabytes, {kind}": value for kind, (value, _) in memory.items()},
        "megabytes of the mixture's logits alone": ROWS * LENGTH * COMPONENTS * VOCABULARY * 4 / MEGABYTE,
    }


if __name__ == "__main__":
    run(__doc__, measure)
