"""How often an estimate warns, where its interval covers and where it does not.

Quiet cases, whose 95 % intervals cover: means of plain draws, and log Z from nearly equal or light-tailed weights.
Loud cases: weights of tail index 0.9, whose intervals cover half of the time. For each case and number of draws: the
share of runs that warn, and the share whose interval holds the truth.

    python benchmarks/warning_rates.py --json   # the figures, as one JSON object on the last line: about 5 minutes
"""

import argparse
import json
import math
import sys
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.types import Estimate

DRAWS = (100, 150, 200, 300, 500, 1000)
ROWS = 500  # runs at a time

Draw = Callable[[int, int, Generator], Tensor]


def uniform(rows: int, draws: int, generator: Generator) -> Tensor:
    """In (0, 1)."""
    return torch.rand(rows, draws, dtype=torch.float64, generator=generator).clamp(min=1e-17)


def normal(rows: int, draws: int, generator: Generator) -> Tensor:
    """Standard."""
    return torch.randn(rows, draws, dtype=torch.float64, generator=generator)


def near_one(rows: int, draws: int, generator: Generator) -> Tensor:
    """Log-weights like those of look-ahead: most are all but equal, and one in fifty is at the end of the range."""
    bulk = 0.02 * normal(rows, draws, generator)
    rare = uniform(rows, draws, generator)
    return bulk.where(rare > 0.02, math.log(0.78)).where(rare > 0.01, math.log(1.31))


def generalised_pareto(k: float) -> Draw:
    """Log-weights with the tail (1 + kw)^(−1/k)."""
    return lambda *size: torch.log(torch.expm1(-k * uniform(*size).log()) / k)


def pareto(k: float) -> Draw:
    """Log-weights of w = u^(−k)."""
    return lambda *size: -k * uniform(*size).log()


MEANS: dict[str, tuple[Draw, float]] = {  # values, and their mean
    "mean of normal": (normal, 0.0),
    "mean of exponential": (lambda *size: -uniform(*size).log(), 1.0),
    "mean of log-normal ½": (lambda *size: (normal(*size) / 2).exp(), math.exp(1 / 8)),
}
WEIGHTS: dict[str, tuple[Draw, float]] = {  # log-weights, and log Z
    "weights near one, lumps": (near_one, math.log(0.98 * math.exp(0.0002) + 0.01 * (0.78 + 1.31))),
    "weights near one, uniform": (lambda *size: torch.log(0.78 + 0.53 * uniform(*size)), math.log(1.045)),
    "exponential weights": (lambda *size: (-uniform(*size).log()).log(), 0.0),
    "log-normal ½ weights": (lambda *size: normal(*size) / 2, 1 / 8),
    "log-normal 1 weights": (normal, 1 / 2),
    "generalised Pareto 0.3": (generalised_pareto(0.3), -math.log(0.7)),
    "Pareto 0.3": (pareto(0.3), -math.log(0.7)),
    "Pareto 0.5": (pareto(0.5), -math.log(0.5)),
    "Pareto 0.7": (pareto(0.7), -math.log(0.3)),
    "log-normal 2 weights": (lambda *size: 2 * normal(*size), 2.0),
    "generalised Pareto 0.9": (generalised_pareto(0.9), math.log(10)),
    "Pareto 0.9": (pareto(0.9), math.log(10)),
}


def main(argv: list[str] | None = None) -> int:
    """Every case, at every number of draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--runs", type=int, default=2000, help="of each case")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    generator = Generator().manual_seed(options.seed)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name in (*MEANS, *WEIGHTS):
        for draws in DRAWS:
            found = measure(name, draws, options.runs, generator)
            figures.setdefault(name, {})[str(draws)] = found
            print(f"{name}, n = {draws}: {found}", file=sys.stderr)
    if options.json:
        print(json.dumps({"runs": options.runs, "seed": options.seed, "rates": figures}, ensure_ascii=False))
    return 0


def measure(name: str, draws: int, runs: int, generator: Generator) -> dict[str, float]:
    """Shares of runs that warn, and whose interval covers."""
    warned = covered = 0
    for begin in range(0, runs, ROWS):
        rows = min(ROWS, runs - begin)
        found, truth = _estimates(name, rows, draws, generator)
        warned += sum(one.warning is not None for one in found)
        covered += sum(one.low <= truth <= one.high for one in found)
    return {"warned": warned / runs, "covered": covered / runs}


def _estimates(name: str, rows: int, draws: int, generator: Generator) -> tuple[list[Estimate], float]:
    if name in MEANS:
        draw, truth = MEANS[name]
        values = draw(rows, draws, generator)
        return weighted_mean(torch.zeros_like(values), values), truth
    draw, truth = WEIGHTS[name]
    return [one.estimate for one in log_mean(draw(rows, draws, generator))], truth


if __name__ == "__main__":
    sys.exit(main())
