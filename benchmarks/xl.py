"""Transformers for long texts: what a training step and an evaluation cost.

    EBAR_DATA=folder python benchmarks/xl.py --json

In float32 with torch's default threads. Variants take turns and each counts with its best of several calls, so that a
busy machine slows all of them or none.

- `step_ratio`: a training step (forward, backward, Adam) of a Transformer-XL without memory, divided by that of our
  plain Transformer of the same size: 4 layers of width 256, 4 heads, feed-forward 1,024, dropout 0.1, 16 sequences of
  128 tokens over 256.
- `local_growth`: Local-XL, 2 layers of width 128, chunks of 64: its time per token in one text of 8,192 tokens over
  that in 16 of 512, forward and backward. Every batch has 8,192 tokens; `local: …` are the lengths between.
- `local_speedup`: at 4 texts of 2,048 tokens, the time of the same network with full attention (a chunk as long as the
  text: the same relative positions, no left block) over that with chunks of 64.
- `local_memory_growth`: the most memory that a step takes beyond the weights at 1 × 8,192, over that at 16 × 512, as
  torch's profiler counts what is allocated and freed.
- `speedup`: evaluation of a text by a Transformer-XL (2 layers of width 64, trained on a slice of enwik8 for a minute),
  attention length 800: seconds per token where a window of 800 tokens is read anew for every token, over those where
  the text is read on with a memory of 800. Both are tried with several sizes (windows read together; tokens in a
  segment) and count with the best. `perplexity_ratio` is that with memory over that of windows, on the same tokens.
"""

import math
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from command import run
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ebar.backbones.local_xl import LocalXl
from ebar.data.stream import Stream, StreamData
from ebar.evaluation.segments import at_evaluation
from ebar.heads.softmax import Softmax
from ebar.journeys.train import train
from ebar.models.construction import Autoregressive, assemble, transformer_xl
from ebar.models.continued import begin
from ebar.recipes.grid import file_of
from ebar.recipes.xl.scoring import read_on, window_cost
from ebar.training.course import Training
from ebar.training.optimisers import Adam
from ebar.types import Space

VOCABULARY = 256
BATCH, LENGTH, SIZES = 16, 128, {"layers": 4, "hidden": 256, "heads": 4, "dropout": 0.1}  # step_ratio
LAYERS, WIDTH, HEADS, CHUNK, TOKENS, COMPARED = 2, 128, 4, 64, 8192, 2048  # local
LENGTHS = (512, 1024, 2048, 4096, 8192)
ATTENTION, SCORED, SEGMENTS, WINDOWS = 800, 256, (64, 128, 256), (4, 16, 64)  # speedup


def best_times(variants: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
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
    events: Any = record.profiler.kineto_results.events()
    for event in events:
        if event.name() == "[memory]":
            used += event.nbytes()
            most = max(most, used)
    return most


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
    """A training step of Transformer-XL and of a Transformer."""
    torch.manual_seed(0)
    space = Space(VOCABULARY, LENGTH)
    models = {
        "Transformer-XL": assemble(space, "transformer_xl", {**SIZES, "memory": LENGTH, "recurrence": False}),
        "Transformer": assemble(space, "transformer", SIZES),
    }
    best = best_times({name: training_step(model) for name, model in models.items()}, rounds=9)
    return {
        "step_ratio": best["Transformer-XL"] / best["Transformer"],
        **{f"seconds of a step of {name}": value for name, value in best.items()},
    }


def segment_step(backbone: LocalXl, head: Softmax, tokens: Tensor) -> Callable[[], None]:
    """Forward and backward over a segment from the beginning of a text on."""

    def step() -> None:
        for parameter in (*backbone.parameters(), *head.parameters()):
            parameter.grad = None
        hidden, _ = backbone.read_segment(tokens, backbone.empty_memory(len(tokens)))
        logits: Any = head(hidden[:, :-1])
        torch.autograd.backward(F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))

    return step


def local() -> dict[str, float]:
    """How Local-XL's time grows with the length of a text, and what full attention would take."""
    torch.manual_seed(0)
    backbone = LocalXl(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS, chunk=CHUNK)
    full = LocalXl(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS, chunk=COMPARED)
    full.load_state_dict(backbone.state_dict())
    head = Softmax(WIDTH, VOCABULARY)
    batches = {length: torch.randint(0, VOCABULARY, (TOKENS // length, length)) for length in LENGTHS}
    by_length = {length: segment_step(backbone, head, tokens) for length, tokens in batches.items()}
    variants: dict[str, Callable[[], object]] = {f"local: {length:,}": step for length, step in by_length.items()}
    variants["full"] = segment_step(full, head, batches[COMPARED])
    best = best_times(variants)
    return {
        "local_growth": best["local: 8,192"] / best["local: 512"],
        "local_speedup": best["full"] / best[f"local: {COMPARED:,}"],
        "local_memory_growth": most_memory(by_length[8192]) / most_memory(by_length[512]),
        **{f"microseconds per token, {name}": 1e6 * value / TOKENS for name, value in best.items()},
    }


def evaluation() -> dict[str, float]:
    """What the same tokens cost, in seconds and in perplexity, with a memory and with windows read anew."""
    data = StreamData(
        train=file_of("enwik8-10m/train.bin.xz"), test=file_of("enwik8-10m/test.bin.xz"), length=128, limit=500_000
    ).read()
    torch.manual_seed(0)
    model = transformer_xl(data, layers=2, hidden=64, heads=2, memory=256, dropout=0.0, head="softmax")
    with tempfile.TemporaryDirectory() as folder:
        training = Training(epochs=2, batch_size=16)
        model = train(model, data, training=training, optimiser=Adam(learning_rate=3e-3), seed=0, folder=folder).model
    test = data.parts["test"]
    assert isinstance(test, Stream)
    tokens = test.tokens.long()[: 3 * ATTENTION + SCORED]
    before, last = tokens[:-SCORED], tokens[-SCORED:]
    longer, without = (at_evaluation(model, memory=places, clamp_length=256) for places in (ATTENTION, 0))
    anew = torch.cat([before[-ATTENTION:], last])
    carried = {segment: read_on(longer, before, begin(longer, 1), segment)[1] for segment in SEGMENTS}
    with_memory = best_times(
        {str(segment): lambda segment=segment: read_on(longer, last, carried[segment], segment)  # type: ignore[misc]
         for segment in SEGMENTS}
    )  # fmt: skip
    windows = best_times(
        {str(rows): lambda rows=rows: window_cost(without, anew, ATTENTION, 1, at_once=rows)  # type: ignore[misc]
         for rows in WINDOWS}, rounds=2,
    )  # fmt: skip
    segment = min(with_memory, key=lambda name: with_memory[name])
    costs = read_on(longer, last, carried[int(segment)], int(segment))[0], window_cost(without, anew, ATTENTION, 1)
    return {
        "speedup": min(windows.values()) / min(with_memory.values()),
        "perplexity_ratio": math.exp(costs[0].per_token.value - costs[1].per_token.value),
        "perplexity with memory": math.exp(costs[0].per_token.value),
        "perplexity of windows": math.exp(costs[1].per_token.value),
        **{f"seconds per 1,000 tokens, segments of {name}": 1000 * t / SCORED for name, t in with_memory.items()},
        **{f"seconds per 1,000 tokens, {name} windows together": 1000 * t / SCORED for name, t in windows.items()},
    }


def measure() -> dict[str, float]:
    """All figures."""
    return {**steps(), **local(), **evaluation(), "threads": torch.get_num_threads()}


if __name__ == "__main__":
    run(__doc__, measure)
