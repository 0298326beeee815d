"""How fast one prefix is continued: its keys and values shared by all rows, against each row reading it for itself.

    python benchmarks/residual.py --json

10,000 continuations of 40 tokens for one prefix of 120, by a Transformer of 4 layers × 256 over 8,000 tokens, in
float32 with torch's default threads; the time is that of everything, from weights to tokens. Both ways have a cache
of keys and values, and both have the draws' log-probabilities. They take turns, some of the rows each, so that a busy
machine slows both or neither; rows that read the prefix for themselves come in blocks of 250, as each keeps it.

- `speedup`: the time of rows that read the prefix for themselves, divided by that of rows that share it.
- `tokens_per_second`: of those that share it.
- `gigabytes`: the most memory that the process had while the rows shared the prefix, before any read it for itself.
"""

import resource
import time
from collections.abc import Callable

import torch
from command import run
from torch import Generator, Tensor

from ebar.backbones.transformer import Transformer
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.types import Context, Sequences, Space

ROWS, PREFIX, LENGTH, VOCABULARY, LAYERS, WIDTH, HEADS = 10_000, 120, 40, 8000, 4, 256, 4
TURNS, BLOCK = 5, 250
Draws = tuple[Sequences, Tensor]


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def shared(model: Autoregressive, prefix: Context, rows: int, generator: Generator) -> Draws:
    """What a user calls: the prefix is read once."""
    return model.sample_with_log_prob(rows, prefix, generator=generator)


def each_alone(model: Autoregressive, prefix: Context, rows: int, generator: Generator) -> Draws:
    """As many prefixes as rows: that they are all the same is nothing the model knows."""
    parts = [model.sample_with_log_prob(1, prefix.repeat(BLOCK), generator=generator) for _ in range(rows // BLOCK)]
    return Sequences.join([x for x, _ in parts]), torch.cat([log_q for _, log_q in parts])


def check(model: Autoregressive, prefix: Context) -> None:
    """A sampler that is fast and wrong would be no news."""
    (x, log_q), (other, other_log_q) = (
        draw(model, prefix, BLOCK, Generator().manual_seed(1)) for draw in (shared, each_alone)
    )
    torch.testing.assert_close(model.log_prob(x, prefix) / LENGTH, log_q / LENGTH, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.log_prob(other, prefix) / LENGTH, other_log_q / LENGTH, rtol=0, atol=1e-5)
    alike = (x.tokens == other.tokens).all(1)
    if float(alike.double().mean()) < 0.99:  # rounding changes a token once in a long while
        raise AssertionError("the two ways draw different texts with the same random numbers")


@torch.inference_mode()
def measure() -> dict[str, float]:
    """The figures, and the times they come from."""
    torch.manual_seed(0)
    backbone = Transformer(VOCABULARY, layers=LAYERS, hidden=WIDTH, heads=HEADS)
    model = Autoregressive(backbone, Softmax(WIDTH, VOCABULARY), Space(VOCABULARY, LENGTH)).eval()
    generator = Generator().manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (1, PREFIX), generator=generator)
    prefix = Context(Sequences(tokens, torch.tensor([PREFIX])))
    rows = ROWS // TURNS
    shared(model, prefix, rows, generator)  # warms caches
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    check(model, prefix)
    times = dict.fromkeys((shared, each_alone), 0.0)
    for _ in range(TURNS):
        for draw in times:
            times[draw] += seconds(lambda draw=draw: draw(model, prefix, rows, generator))  # type: ignore[misc]
    return {
        "speedup": times[each_alone] / times[shared],
        "tokens_per_second": ROWS * LENGTH / times[shared],
        "gigabytes": gigabytes,
        "threads": torch.get_num_threads(),
        "seconds shared": times[shared],
        "seconds each alone": times[each_alone],
    }


if __name__ == "__main__":
    run(__doc__, measure)
