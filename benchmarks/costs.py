"""What GAM, residual energies and control of a model of 7 billion weights would take, at a price per GPU-hour you give.

    python benchmarks/costs.py --price 2.0
    python benchmarks/costs.py --measure --record

With --measure, costs per unit are measured here, on one thread, with a small Transformer (4 layers × 256 over 8,000
tokens), as ratios to the bare matrix products of the same sizes:

- `drawing`: time of a token that ebar draws with its cache in a batch of 64, in that of its products.
- `scoring`: time of a token that is scored, whole texts at a time, in that of its products.
- `training`: time of a token that is learnt from, in that of three times those products.
- `bytes_per_token`: of a pool of negatives on disk.

Without it, the table of the page on 7 billion weights is computed from those and from the published figures below.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Generator

# As `--measure --record` wrote them.
RECORD = Path(__file__).parents[1] / "docs" / "results" / "costs.json"
MEASURED: dict[str, float] = json.loads(RECORD.read_text())["figures"]

# Touvron et al. 2023: the 7B model has 6.74e9 weights, 32 layers of width 4,096.
WEIGHTS, LAYERS, WIDTH = 6.74e9, 32, 4096
# NVIDIA's data sheet of the A100 80 GB (SXM): bfloat16 products per second, bytes per second, bytes.
FLOPS, BANDWIDTH, MEMORY = 312e12, 2.039e12, 80e9
# Touvron et al. 2023, table 15: 82,432 GPU-hours for 1e12 tokens. As a share of the peak, where a training
# step takes 6 operations per weight and token (Kaplan et al. 2020).
USE = 6 * WEIGHTS * 1e12 / (82_432 * 3600) / FLOPS
CACHE = 2 * LAYERS * WIDTH * 2  # bytes of keys and values per token, in bfloat16
BATCH = 512  # texts drawn at a time
REFUSED = 57.3  # draws of the model for each that rejection accepts (docs/results/spine/samplers.cpu.md)

ROWS, LENGTH, VOCABULARY, SMALL_WIDTH, SMALL_LAYERS = 64, 64, 8000, 256, 4


def seconds(function: Callable[[], object], rounds: int = 3) -> float:
    """The best of some."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        function()
        found.append(time.perf_counter() - begun)
    return min(found)


def products(rows: int) -> Callable[[], None]:
    """The matrix products of one token of each row: attention's four, the feed-forward layer's two, the head's."""
    width = SMALL_WIDTH
    shapes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    weights = [torch.randn(shape) for _ in range(SMALL_LAYERS) for shape in shapes] + [torch.randn(width, VOCABULARY)]
    inputs = {inner: torch.randn(rows, inner) for inner in (width, 4 * width)}

    def run() -> None:
        for weight in weights:
            torch.mm(inputs[weight.shape[0]], weight)

    return run


def measure() -> dict[str, float]:
    """Ratios, on one thread."""
    import ebar
    from ebar.heads.softmax import Softmax
    from ebar.journeys.residual.negatives import draw_negatives
    from ebar.models.construction import Autoregressive
    from ebar.models.tilted import propose, score
    from ebar.types import Space

    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = ebar.Transformer(VOCABULARY, layers=SMALL_LAYERS, hidden=SMALL_WIDTH, heads=4, dropout=0.0)
    q = Autoregressive(backbone, Softmax(SMALL_WIDTH, VOCABULARY), Space(VOCABULARY, LENGTH))
    generator = Generator().manual_seed(0)
    x, _ = propose(q, ROWS, None, generator)

    def step() -> None:
        q.zero_grad()
        (-q.log_prob(x).mean()).backward()  # type: ignore[no-untyped-call]

    with TemporaryDirectory() as name:
        draw_negatives(Path(name), q, None, 1, rows=ROWS, seed=0, at_once=ROWS)
        size = sum(path.stat().st_size for path in Path(name).glob("part-*"))
    many = seconds(products(ROWS * LENGTH))
    return {
        "drawing": seconds(lambda: propose(q, ROWS, None, generator)) / (LENGTH * seconds(products(ROWS))),
        "scoring": seconds(lambda: score(q, x, None)) / many,
        "training": seconds(step) / (3 * many),
        "bytes_per_token": size / (ROWS * LENGTH),
    }


def drawn_seconds(texts: float, prefix: int, length: int) -> float:
    """GPU-seconds to draw texts of so many tokens after a prefix; it is read at the speed of scoring.

    A step of a batch takes what its products take or what reading weights and cache takes, whichever is longer.
    """
    reads = (2 * WEIGHTS + BATCH * (prefix + length / 2) * CACHE) / BANDWIDTH
    computes = 2 * WEIGHTS * BATCH / (FLOPS * USE) * MEASURED["drawing"]
    return texts / BATCH * length * max(reads, computes) + scored_seconds(texts * prefix)


def scored_seconds(tokens: float, weights: float = WEIGHTS) -> float:
    """GPU-seconds to score tokens: 2 operations per weight."""
    return tokens * 2 * weights / (FLOPS * USE) * MEASURED["scoring"]


def trained_seconds(tokens: float, weights: float = WEIGHTS) -> float:
    """GPU-seconds to learn from tokens: 6 operations per weight, at the rate of the published training."""
    return tokens * 6 * weights / (FLOPS * USE)


def table(share: float) -> list[tuple[str, float, float, float]]:
    """Part, draws, bytes on disk, GPU-hours. Sizes are those of the page; `share`: effective samples per draw."""
    size = MEASURED["bytes_per_token"]
    prefixes, prefix, length = 1e6, 120, 40  # Deng et al. 2020: continuations of 40 tokens after 120
    whole = prefix + length
    tests, per_test = 300, 1000
    lines, text = 1e6, 160
    steps, batch, tuned = 300, 2048, 100
    parts = [
        ("residual: negatives", prefixes, prefixes * length * size, drawn_seconds(prefixes, prefix, length)),
        ("residual: energy of 7e9 weights, 3 epochs", 0.0, 0.0, trained_seconds(3 * prefixes * 2 * whole)),
        ("residual: energy of 3.55e8 weights, 3 epochs", 0.0, 0.0, trained_seconds(3 * prefixes * 2 * whole, 3.55e8)),
        ("residual: log Z of 300 prefixes, 1,000 draws each", tests * per_test, tests * per_test * length * size,
         drawn_seconds(tests * per_test, 0, length) + scored_seconds(tests * per_test * whole)),
        ("GAM: draws for λ", 4000 / share, 0.0, drawn_seconds(4000 / share, 0, text)),
        ("GAM: a million texts of p, by look-ahead", lines / share, lines * text * size,
         drawn_seconds(lines / share, 0, text)),
        ("GAM: the same by rejection from the model", lines * REFUSED, lines * text * size,
         drawn_seconds(lines * REFUSED, 0, text)),
        ("GAM: π trained on them, 1 epoch", 0.0, 0.0, trained_seconds(lines * text)),
        ("control: draws for λ", 4000.0, 0.0, drawn_seconds(4000, 0, tuned)),
        ("control: 300 steps of policy gradient, 2,048 draws each", float(steps * batch), 0.0,
         drawn_seconds(steps * batch, 0, tuned) + scored_seconds(2 * steps * batch * tuned)
         + trained_seconds(steps * batch * tuned)),
    ]  # fmt: skip
    return [(name, draws, space, time / 3600) for name, draws, space, time in parts]


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--prepare", action="store_true", help="nothing to prepare")
    parser.add_argument("--measure", action="store_true", help="costs per unit, here")
    parser.add_argument("--record", action="store_true", help="keep them, for the table")
    parser.add_argument("--share", type=float, default=0.5, help="effective samples per draw by look-ahead")
    parser.add_argument("--price", type=float, default=2.0, help="of a GPU for an hour")
    options = parser.parse_args()
    if options.prepare:
        return
    if options.measure:
        figures = measure()
        if options.record:
            told = {"command": "python benchmarks/costs.py --measure --record", "torch": str(torch.__version__)}
            RECORD.write_text(json.dumps({**told, "threads": 1, "figures": figures}, indent=1) + "\n")
        print(json.dumps(figures) if options.json else "\n".join(f"{key:20} {one:.3g}" for key, one in figures.items()))
        return
    rows = table(options.share)
    if options.json:
        names = ("draws", "bytes", "gpu_hours", "cost")
        print(json.dumps({name: dict(zip(names, (*row, row[-1] * options.price))) for name, *row in rows}))  # noqa: B905
        return
    print(f"| part | draws | bytes on disk | GPU-hours | at {options.price:g} an hour |\n|---|---|---|---|---|")
    for name, draws, space, hours in rows:
        size = f"{draws:,.0f}" if draws else "–", f"{space / 1e6:,.0f} MB" if space else "–"
        print(f"| {name} | {size[0]} | {size[1]} | {hours:,.2f} | {hours * options.price:,.2f} |")


if __name__ == "__main__":
    main()
