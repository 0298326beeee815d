"""How fast an LSTM is sampled: the library's fused step against torch's own nn.LSTM, and against the machine.

    python benchmarks/lstm.py --json

2,048 sequences of 30 tokens from a 2×200 LSTM over 3 tokens, in float32 with torch's default threads; the time is
that of everything, from weights to tokens and their log-probabilities. Variants take turns and each counts with
its best of 5, so that a busy machine slows all of them or none.

- `speedup`: the time of a loop over nn.LSTM, one step at a time, under inference mode, and with whichever is faster
  of two ways to draw (torch.multinomial and inversion), divided by the time of the fused sampler.
- `peak_fraction`: the time that the sampler's matrix products take when nothing else is done, each shape timed
  alone, best of many, in the same run, divided by the time of the fused sampler.
- `compiled_…`: the same with the step compiled, compilation not counted.
"""

import math
import time
from collections.abc import Callable

import torch
from command import run
from torch import Generator, Tensor

from ebar.backbones.lstm import Lstm
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.types import Space

ROWS, LENGTH, VOCABULARY, LAYERS, WIDTH = 2048, 30, 3, 2, 200
ROUNDS = 5
PRODUCTS_PER_ROUND = 20


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@torch.inference_mode()
def plain(model: Autoregressive, generator: Generator, *, invert: bool) -> tuple[Tensor, Tensor]:
    """What one would write with nn.LSTM: tokens and their log-probabilities, one step at a time."""
    backbone = model.backbone
    assert isinstance(backbone, Lstm)
    hidden = cell = torch.zeros(LAYERS, ROWS, WIDTH)
    token = torch.full((ROWS,), VOCABULARY)  # the beginning of a sequence
    tokens = torch.empty(ROWS, LENGTH, dtype=torch.long)
    total = torch.zeros(ROWS)
    for place in range(LENGTH):
        output, (hidden, cell) = backbone.lstm(backbone.inputs[token][:, None], (hidden, cell))
        log_probs = torch.log_softmax(model.head(output[:, 0]), -1)
        probabilities = log_probs.exp()
        if invert:
            cumulative = probabilities.cumsum(1)
            u = torch.rand(ROWS, 1, generator=generator) * cumulative[:, -1:]
            token = (cumulative[:, :-1] <= u).sum(1)
        else:
            token = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        tokens[:, place] = token
        total += log_probs.gather(1, token[:, None]).squeeze(1)
    return tokens, total


def matrix_products() -> dict[str, Callable[[], object]]:
    """One step's products, by layer: shapes as in the sampler, written to memory that is there already."""
    shapes = [(WIDTH, 4 * WIDTH), *[(2 * WIDTH, 4 * WIDTH)] * (LAYERS - 1), (WIDTH, VOCABULARY)]
    products: dict[str, Callable[[], object]] = {}
    for index, (inner, outer) in enumerate(shapes):
        left, right, out = torch.randn(ROWS, inner), torch.randn(inner, outer), torch.zeros(ROWS, outer)
        products[f"{index}: {inner}×{outer}"] = lambda a=left, b=right, c=out: torch.mm(a, b, out=c)  # type: ignore[misc]
    return products


@torch.inference_mode()
def measure() -> dict[str, float]:
    """The figures, and the times they come from."""
    torch.manual_seed(0)
    generator = Generator().manual_seed(0)
    space = Space(VOCABULARY, LENGTH)
    fused = Autoregressive(Lstm(VOCABULARY, layers=LAYERS, hidden=WIDTH), Softmax(WIDTH, VOCABULARY), space).eval()
    compiled = Autoregressive(Lstm(VOCABULARY, layers=LAYERS, hidden=WIDTH, compiled=True), fused.head, space).eval()
    compiled.load_state_dict(fused.state_dict())
    variants: dict[str, Callable[[], object]] = {
        "plain, multinomial": lambda: plain(fused, generator, invert=False),
        "plain, inversion": lambda: plain(fused, generator, invert=True),
        "fused": lambda: fused.sample_with_log_prob(ROWS, generator=generator),
        "compiled": lambda: compiled.sample_with_log_prob(ROWS, generator=generator),
    }
    products = matrix_products()
    best = dict.fromkeys([*variants, *products], math.inf)
    for function in variants.values():
        function()  # warm caches, and compile
    for model in (fused, compiled):  # a sampler that is fast and wrong would be no news
        x, log_q = model.sample_with_log_prob(ROWS, generator=generator)
        torch.testing.assert_close(fused.log_prob(x) / LENGTH, log_q / LENGTH, rtol=0, atol=1e-5)
    for _ in range(ROUNDS):
        for name, function in variants.items():
            best[name] = min(best[name], seconds(function))
        for _ in range(PRODUCTS_PER_ROUND):
            for name, function in products.items():
                best[name] = min(best[name], seconds(function))
    reference = min(best["plain, multinomial"], best["plain, inversion"])
    peak = LENGTH * math.fsum(best[name] for name in products)
    return {
        "speedup": reference / best["fused"],
        "peak_fraction": peak / best["fused"],
        "compiled_speedup": reference / best["compiled"],
        "compiled_peak_fraction": peak / best["compiled"],
        "threads": torch.get_num_threads(),
        **{f"seconds of {name}": value for name, value in best.items()},
    }


if __name__ == "__main__":
    run(__doc__, measure)
