"""Transformers for long texts: what a training step costs.

    python benchmarks/xl.py --json

In float32 with torch's default threads. Variants take turns and each counts with its best of 7, so that a busy machine
slows all of them or none. A training step is the network of 2 layers of width 128 and a softmax over 256 characters,
forward and backward; the optimiser, the same for all, is left out.

- `local_growth`: Local-XL, chunks of 64: its time per token in one text of 8,192 tokens over that in 16 of 512. Every
  batch has 8,192 tokens; `local: …` are the lengths between.
- `local_speedup`: at 4 texts of 2,048 tokens, the time of the same network with full attention (a chunk as long as the
  text: the same relative positions, no left block) over that with chunks of 64.
- `local_memory_growth`: the most memory that a step takes beyond the weights at 1 × 8,192, over that at 16 × 512, as
  torch's profiler counts what is allocated and freed.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from command import run
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ebar.backbones.local_xl import LocalXl
from ebar.heads.softmax import Softmax

VOCABULARY, LAYERS, WIDTH, HEADS, CHUNK = 256, 2, 128, 4, 64
TOKENS, ROUNDS = 8192, 7
LENGTHS = (512, 1024, 2048, 4096, 8192)
COMPARED = 2048


def best_times(variants: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of each variant's best call, the variants in turns."""
    best = dict.fromkeys(variants, math.inf)
    for function in variants.values():
        function()
    for _ in range(rounds):
        for name, function in variants.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def most_memory(function: Callable[[], object]) -> int:
    """Bytes in use at once, at most, of those that the call allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    used = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            used += event.nbytes()
            most = max(most, used)
    return most


def training_step(backbone: LocalXl, head: Softmax, tokens: Tensor) -> Callable[[], None]:
    """Forward and backward over a segment from the beginning of a text on."""

    def step() -> None:
        for parameter in (*backbone.parameters(), *head.parameters()):
            parameter.grad = None
        hidden, _ = backbone.read_segment(tokens, backbone.empty_memory(len(tokens)))
        logits: Any = head(hidden[:, :-1])
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))

    return step


def local() -> dict[str, float]:
    """How Local-XL's time grows with the length of a text, and what full attention would take."""
    torch.manual_seed(0)
    backbone = LocalXl(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS, chunk=CHUNK)
    full = LocalXl(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS, chunk=COMPARED)
    full.load_state_dict(backbone.state_dict())
    head = Softmax(WIDTH, VOCABULARY)
    batches = {length: torch.randint(0, VOCABULARY, (TOKENS // length, length)) for length in LENGTHS}
    steps = {length: training_step(backbone, head, tokens) for length, tokens in batches.items()}
    variants: dict[str, Callable[[], object]] = {f"local: {length:,}": step for length, step in steps.items()}
    variants["full"] = training_step(full, head, batches[COMPARED])
    best = best_times(variants)
    per_token = {f"microseconds per token, {name}": 1e6 * value / TOKENS for name, value in best.items()}
    return {
        "local_growth": best["local: 8,192"] / best["local: 512"],
        "local_speedup": best["full"] / best[f"local: {COMPARED:,}"],
        "local_memory_growth": most_memory(steps[8192]) / most_memory(steps[512]),
        **per_token,
    }


def measure() -> dict[str, float]:
    """All figures."""
    return {**local(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    run(__doc__, measure)
