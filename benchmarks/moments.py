"""Fitting λ with a feature that costs 1 ms: Newton on cached features against first-order steps that ask again.

Both have the same 2,048 draws of r and the same wanted moments. Newton evaluates every feature once per draw, which
is counted. A first-order iteration evaluates them on all draws anew; 20 are timed and scaled to 1,000. That the two
end at the same moments is shown by going on with first-order steps on the cached values, which costs nothing.

    python benchmarks/moments.py --json   # the figures, as one JSON object on the last line
"""

import argparse
import json
import sys
import time

import torch
from torch import Generator

from ebar.features.feature import Features
from ebar.features.functions import Predicate
from ebar.features.regular import Motif
from ebar.maths.exponential_family import match, tilt
from ebar.models.ngram import Tabular
from ebar.training.moment_matching.newton import Newton
from ebar.types import Distribution, Sequences, Space

DRAWS = 2048
ITERATIONS = 1000
COST = 1e-3  # seconds
SPACE = Space(3, 11, end=2)
WANTED = torch.tensor([0.7, 0.3], dtype=torch.float64)


class Calls:
    """How often the costly feature was asked about a sequence."""

    def __init__(self) -> None:
        self.count = 0

    def costly(self, tokens: list[int]) -> bool:
        """More ones than zeros, after 1 ms of thought."""
        self.count += 1
        time.sleep(COST)
        return 2 * sum(tokens) > len(tokens)


class Given:
    """r, whose draws have been made already: both methods get the same."""

    def __init__(self, base: Distribution, x: Sequences):
        self.space, self.base, self.x = base.space, base, x

    def log_prob(self, x: Sequences, context: object = None) -> torch.Tensor:
        """Of r."""
        return self.base.log_prob(x)

    def sample(self, n: int, context: object = None, *, generator: Generator) -> Sequences:
        """The next n."""
        rows = Sequences(self.x.tokens[:n], self.x.lengths[:n])
        self.x = Sequences(self.x.tokens[n:], self.x.lengths[n:])
        return rows


def main(argv: list[str] | None = None) -> int:
    """Measure both, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--timed", type=int, default=20, help="first-order iterations to time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    figures = measure(options.timed, options.seed)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name}: {value}")
    return 0


@torch.no_grad()
def measure(timed: int, seed: int) -> dict[str, float]:
    """Seconds of each, and the moments at which they end."""
    generator = Generator().manual_seed(seed)
    base = Tabular.random(SPACE, scale=0.5, generator=generator)
    x = base.sample(DRAWS, generator=generator)
    calls = Calls()
    features = Features(
        [
            Predicate(name="more ones than zeros", function=calls.costly, end=SPACE.end),
            Motif(motif="101", alphabet="01", end=SPACE.end),
        ]
    )
    begun = time.monotonic()
    method = Newton(draws=DRAWS, proposal="base", batch_size=DRAWS)
    fitted = method.fit(Given(base, x), features, moments=WANTED, generator=generator)
    newton_seconds = time.monotonic() - begun
    if calls.count != DRAWS:
        raise AssertionError(f"the feature was evaluated {calls.count} times on {DRAWS} draws")
    print(f"newton: {newton_seconds:.2f} s, {calls.count:,} evaluations", file=sys.stderr)

    zeros = torch.zeros(DRAWS, dtype=torch.float64)
    coefficients = torch.zeros_like(WANTED)
    begun = time.monotonic()
    for _ in range(timed):
        anew = Sequences(x.tokens.clone(), x.lengths.clone())  # or the values would be known again by the tensors
        coefficients += 4 * (WANTED - tilt(features(anew).double(), zeros, coefficients).moments)
    first_seconds = (time.monotonic() - begun) / timed * ITERATIONS
    if calls.count != DRAWS * (1 + timed):
        raise AssertionError("a first-order iteration did not evaluate the feature on every draw")
    print(f"first order: {first_seconds:.0f} s for {ITERATIONS:,} iterations", file=sys.stderr)
    values = features(x).double()
    for _ in range(ITERATIONS - timed):
        coefficients += 4 * (WANTED - tilt(values, zeros, coefficients).moments)

    ends = {
        "newton": tilt(values, zeros, fitted.coefficients).moments,
        "first_order": tilt(values, zeros, coefficients).moments,
    }
    gap = float((ends["newton"] - ends["first_order"]).abs().max())
    if gap > 1e-5:
        raise AssertionError(f"the two end {gap:.2g} apart in moments")
    return {
        "speedup": first_seconds / newton_seconds,
        "newton_seconds": newton_seconds,
        "newton_iterations": len(fitted.trace) - 1,
        "first_order_seconds": first_seconds,
        "first_order_timed": timed,
        "evaluations_per_draw": 1.0,
        "moments_apart": gap,
        "newton_from_wanted": float((ends["newton"] - WANTED).abs().max()),
        "first_order_from_wanted": float((ends["first_order"] - WANTED).abs().max()),
        "exact_solution_apart": float((match(values, zeros, WANTED).coefficients - fitted.coefficients).abs().max()),
    }


if __name__ == "__main__":
    sys.exit(main())
