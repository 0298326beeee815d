"""How often an estimate warns, where its interval covers and where it does not.

Quiet cases, whose 95 % intervals cover: means of plain draws, and log Z from nearly equal or light-tailed weights.
Loud cases: weights of tail index 0.9, whose intervals cover half of the time. For each case and number of draws: the
share of runs that warn, and the share whose interval holds the truth. Of the trade-off of quasi-rejection, for weights
of many tails and β at several of their quantiles: the same, and the share of misses that warn. Of budgets from pilots
of 1,000: the share refused, and of the others the share whose draws gave the half-width asked for, within 20 %.

    python benchmarks/warning_rates.py --json   # the figures, as one JSON object on the last line: about 20 minutes
    python benchmarks/warning_rates.py --json --only rates   # or trade_off, or budget
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor

from ebar.estimators.effective_samples import budget_or_reason, mean_influence
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import weighted_mean
from ebar.samplers.trade_off import trade_off
from ebar.types import Estimate

DRAWS = (100, 150, 200, 300, 500, 1000)
ROWS = 500  # runs at a time

Draw = Callable[[int, int, Generator], Tensor]
Found = Iterator[tuple[str, dict[str, float]]]


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

BETAS = (0.9, 0.5, 0.2, 0.05, 0.02)  # of the weights, the share above β
BUDGETS = ("weights near one, uniform", "exponential weights", "log-normal ½ weights", "log-normal 1 weights",
           "Pareto 0.3", "Pareto 0.5", "Pareto 0.9")  # fmt: skip


def log_normal(sigma: float) -> Callable[[Tensor], Tensor]:
    """Log-weights as a function of a uniform number, falling in it."""
    return lambda u: -sigma * torch.special.ndtri(u)


def power(k: float) -> Callable[[Tensor], Tensor]:
    """The same of w = u^(−k)."""
    return lambda u: -k * u.log()


TAILS: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"log-normal {sigma}": log_normal(sigma) for sigma in (0.5, 1.0, 1.5, 2.0)},
    **{f"Pareto {k}": power(k) for k in (0.3, 0.5, 0.7, 0.9)},
}


def main(argv: list[str] | None = None) -> int:
    """Every case, at every number of draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--runs", type=int, default=2000, help="of each case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("rates", "trade_off", "budget"), help="one part of it")
    options = parser.parse_args(argv)
    generator = Generator().manual_seed(options.seed)
    figures: dict[str, Any] = {}
    for part in PARTS if options.only is None else (options.only,):
        for place, found in PARTS[part](options.runs, generator):
            figures.setdefault(part, {})[place] = found
            print(f"{part}: {place}: {found}", file=sys.stderr)
    if options.json:
        print(json.dumps({"runs": options.runs, "seed": options.seed, **figures}, ensure_ascii=False))
    return 0


def rates(runs: int, generator: Generator) -> Found:
    """Every case, at every number of draws."""
    for name in (*MEANS, *WEIGHTS):
        for draws in DRAWS:
            yield f"{name}, n = {draws}", measure(name, draws, runs, generator)


def trade_offs(runs: int, generator: Generator) -> Found:
    """Total variation and KL at one β, for pools of 1,000 and, a quarter of the runs, of 10,000."""
    for draws, repeats in ((1000, runs), (10_000, runs // 4)):
        for name, quantile in TAILS.items():
            for upper in BETAS:
                log_beta = float(quantile(torch.tensor([upper], dtype=torch.float64)))
                truth = exact_point(quantile, log_beta)
                counts = {field: [0, 0, 0] for field in truth}  # covered, warned, missed with a warning
                for _ in range(repeats):
                    pool = quantile(uniform(1, draws, generator))
                    (point,) = trade_off(pool, torch.tensor([log_beta], dtype=torch.float64))
                    for field, value in truth.items():
                        one: Estimate = getattr(point, field)
                        covered, warned = one.low <= value <= one.high, one.warning is not None
                        for index, hit in enumerate((covered, warned, warned and not covered)):
                            counts[field][index] += hit
                for field, (covers, warns, both) in counts.items():
                    missed = repeats - covers
                    yield (
                        f"{name}, β at upper {upper}, n = {draws}, {field}",
                        {
                            "covered": covers / repeats,
                            "warned": warns / repeats,
                            "warned_of_missed": both / missed if missed else 1.0,
                        },
                    )


def exact_point(quantile: Callable[[Tensor], Tensor], log_beta: float) -> dict[str, float]:
    """TV and KL by the midpoint rule in s = −log u, which spreads the tail out."""
    s = (torch.arange(800_000, dtype=torch.float64) + 0.5) * 2e-4
    step = torch.exp(-s) * 2e-4
    log_w = quantile(torch.exp(-s))
    w, m = log_w.exp(), log_w.clamp(max=log_beta).exp()
    z, z_beta = float((w * step).sum()), float((m * step).sum())
    return {
        "total_variation": float(((w / z - m / z_beta).abs() * step).sum()) / 2,
        "divergence": float((w / z * (log_w - log_beta).clamp(min=0) * step).sum()) + math.log(z_beta / z),
    }


def budgets(runs: int, generator: Generator) -> Found:
    """log Z within a third of the half-width that 1,000 draws have on average."""
    for name in BUDGETS:
        draw, _ = WEIGHTS[name]
        usual = [one.estimate for one in log_mean(draw(100, 1000, generator))]
        within = sorted((one.high - one.low) / 2 for one in usual)[50] / 3
        refused = achieved = doubted = sure = 0
        for _ in range(runs // 4):
            pilot = draw(1, 1000, generator)
            found = budget_or_reason(log_mean(pilot)[0].estimate, mean_influence(pilot[0]), 1000, within=within)
            if isinstance(found, str):
                refused += 1
                continue
            one = log_mean(draw(1, found.draws, generator))[0].estimate
            good = abs((one.high - one.low) / 2 / within - 1) <= 0.2
            doubted += found.warning is not None
            achieved += good
            sure += good and found.warning is None
        answered = max(runs // 4 - refused, 1)
        yield (
            name,
            {
                "refused": refused / (runs // 4),
                "doubted": doubted / answered,
                "achieved": achieved / answered,
                "achieved_of_undoubted": sure / max(answered - doubted, 1),
            },
        )


PARTS: dict[str, Callable[[int, Generator], Found]] = {"rates": rates, "trade_off": trade_offs, "budget": budgets}


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
