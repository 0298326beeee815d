"""Certified intervals of log Z: how often they cover, and how much wider than normal ones they are.

For weights with which intervals from the sample's own variance fail: two values of which the large one is rare, two
lumps, and those of a saturated network, b·tanh of a wide normal. One prefix, or the mean over many, each with a law of
its own. The normal interval is that of `joint_perplexity`, from the lower limit of T to the upper one of 2J − T.
Coverage is a share of `--runs` runs; widths are medians. `--json` prints one object on the last line.
"""

import argparse
import json
import math

import torch
from torch import Generator, Tensor

from ebar.estimators.joint_perplexity import interval
from ebar.maths.jackknife import certified_log_means

BOUND = 3.0
SIZES = [(1, 32), (1, 128), (1, 512), (1, 4096), (10, 128), (100, 32), (100, 128), (300, 64)]
MOST = 4_000_000  # weights at a time


def two_point(uniform: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """−b, and b with a chance that differs from row to row, from 1 in 300 to 1 in 3."""
    chance = torch.exp(math.log(1 / 300) + rows * math.log(100))[:, None]
    truth = torch.log(chance * math.exp(BOUND) + (1 - chance) * math.exp(-BOUND))
    return torch.where(uniform < chance, BOUND, -BOUND), truth.squeeze(1)


def lumps(uniform: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform within 0.05 of −2.7, and of 2.7 with a chance from 1 in 20 to 1 in 2."""
    chance = (0.05 + 0.45 * rows)[:, None]
    high = uniform < chance
    inside = torch.where(high, uniform / chance, (uniform - chance) / (1 - chance))
    spread = math.log(math.sinh(0.05) / 0.05)
    truth = torch.log(chance * math.exp(2.7) + (1 - chance) * math.exp(-2.7)) + spread
    return torch.where(high, 2.7, -2.7) + 0.1 * (inside - 0.5), truth.squeeze(1)


def saturated(uniform: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """3·tanh(v/3) of a normal v with deviation 4 around a mean from −6 to 0: most at the floor, some at the ceiling."""
    centre = (-6 + 6 * rows)[:, None]

    def squashed(places: Tensor) -> Tensor:
        normal = math.sqrt(2) * torch.erfinv((2 * places - 1).clamp(-1 + 1e-15, 1 - 1e-15))
        return BOUND * torch.tanh((centre + 4 * normal) / BOUND)

    grid = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000  # the midpoint rule: exact to 1e-9 here
    return squashed(uniform), torch.logsumexp(squashed(grid[None]), 1) - math.log(200_000)


LAWS = {"two_point": two_point, "lumps": lumps, "saturated": saturated}


def measure(law: str, prefixes: int, draws: int, runs: int, seed: int) -> dict[str, float]:
    """Coverage of the mean log Z over the prefixes, and half the widths in nats."""
    generator = Generator().manual_seed(seed)
    rows = torch.linspace(0, 1, prefixes, dtype=torch.float64) if prefixes > 1 else torch.full((1,), 0.5).double()
    covered, narrow, widths = [], [], []
    left = runs
    while left > 0:
        some = min(left, max(1, MOST // (prefixes * draws)))
        left -= some
        uniform = torch.rand(some, prefixes, draws, dtype=torch.float64, generator=generator)
        log_weights, truth = LAWS[law](uniform, rows)
        total = truth.sum()
        limits = certified_log_means(log_weights, highest=BOUND, lowest=-BOUND)
        low, _, high = interval(torch.zeros(some, dtype=torch.float64), log_weights, 1.0)
        covered.append((limits.low <= total) & (total <= limits.high))
        narrow.append((low <= total) & (total <= high))
        widths.append(torch.stack([limits.high - limits.low, high - low], 1) / (2 * prefixes))
    both = torch.cat(widths).median(0).values.tolist()
    return {
        "certified_coverage": float(torch.cat(covered).double().mean()),
        "normal_coverage": float(torch.cat(narrow).double().mean()),
        "certified_half_width": both[0],
        "normal_half_width": both[1],
        "ratio": both[0] / both[1] if both[1] > 1e-9 else math.inf,
    }


def main() -> None:
    """Every law at every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of each law and size")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    told = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for law in LAWS:
        for prefixes, draws in SIZES:
            name = f"{law}, {prefixes} prefixes, {draws} draws"
            found[name] = measure(law, prefixes, draws, told.runs, told.seed)
            numbers = ", ".join(f"{key} {value:.4g}" for key, value in found[name].items())
            print(f"{name}: {numbers}", flush=True)
    if told.json:
        print(json.dumps({"runs": told.runs, "seed": told.seed, "level": 0.95, "cases": found}))


if __name__ == "__main__":
    main()
