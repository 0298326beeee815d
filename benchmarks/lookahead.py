"""Effective samples per proposal draw: look-ahead against plain q, on the 14-bit motif of Parshakova et al. 2019.

P(x) = r(x)·exp(λ·[motif absent]), λ = −10.09 as in Table 2 of the paper, r trained by the authors' recipe on |D| =
500 and 1000 strings. The ratio for each |D| is the median over the seeds of r.

    python benchmarks/lookahead.py --prepare   # trains the models: minutes, once
    python benchmarks/lookahead.py --json      # the figures, as one JSON object on the last line
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

import torch
from authors_lstm import Recipe, kept, prepare
from torch import Generator

from ebar.energies.linear import Linear
from ebar.estimators.log_z import log_z
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.maths.log_space import effective_sample_size
from ebar.models.construction import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead, guided

SIZES = (500, 1000)
COEFFICIENT = -10.09


def main(argv: list[str] | None = None) -> int:
    """Train what is missing, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", action="store_true", help="only train the models, and keep them")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--cache", type=Path, default=Path(".cache/benchmarks"), help="where models are kept")
    parser.add_argument("--seeds", type=int, default=3, help="models for each |D|")
    parser.add_argument("--plain-draws", type=int, default=50_000, help="from q, for each model")
    parser.add_argument("--draws", type=int, default=10_000, help="from the look-ahead proposal, for each model")
    options = parser.parse_args(argv)
    recipes = [Recipe(size=size, seed=seed) for size in SIZES for seed in range(options.seeds)]
    if not options.prepare and not all(kept(recipe, options.cache).exists() for recipe in recipes):
        print(f"Models are missing in {options.cache}: training them first, which takes minutes.", file=sys.stderr)
    figures: dict[str, list[dict[str, float]]] = {}
    for recipe in recipes:
        begun = time.monotonic()
        model = prepare(recipe, options.cache)
        print(f"|D| = {recipe.size}, seed {recipe.seed}: r in {time.monotonic() - begun:.1f} s", file=sys.stderr)
        if not options.prepare:
            found = measure(recipe, model, options.plain_draws, options.draws)
            figures.setdefault(str(recipe.size), []).append(found)
            print(f"    {found}", file=sys.stderr)
    if options.prepare:
        return 0
    ratios = {f"ratio_{size}": statistics.median(found["ratio"] for found in each) for size, each in figures.items()}
    if options.json:
        print(json.dumps({**ratios, "coefficient": COEFFICIENT, "per_seed": figures}))
    else:
        for name, value in ratios.items():
            print(f"{name}: {value:.0f}")
    return 0


@torch.no_grad()
def measure(recipe: Recipe, model: Autoregressive, plain_draws: int, draws: int) -> dict[str, float]:
    """Effective samples per draw, plain and looking ahead, and per second."""
    generator = Generator().manual_seed(1000 + recipe.seed)
    absent = Motif(motif=recipe.motif, alphabet="01", end=recipe.space.end, absent=True)
    target = Tilted(model, Linear(Features((absent,)), torch.tensor([COEFFICIENT])))
    begun = time.monotonic()
    plain = torch.cat([w.log_weights[0] for w in Importance().stream(target, plain_draws, generator=generator)])
    plain_seconds, begun = time.monotonic() - begun, time.monotonic()
    proposal = guided(target, generator=generator)
    fitting_seconds, begun = time.monotonic() - begun, time.monotonic()
    batches = list(LookAhead().stream(target, draws, proposal=proposal, generator=generator))
    ahead_seconds = time.monotonic() - begun
    ahead = torch.cat([batch.log_weights[0] for batch in batches]).double()
    present = torch.cat([absent(batch.x) == 0 for batch in batches])
    # The weights of q are 1 with probability p, that of the motif, and else e^λ. p is known from looking ahead.
    # Where q never drew the motif its weights are all equal, and their effective sample size a lie: p tells it.
    motif_rate = float(torch.where(present, ahead.exp(), 0).mean())
    rest = math.exp(COEFFICIENT)
    expected = (motif_rate + (1 - motif_rate) * rest) ** 2 / (motif_rate + (1 - motif_rate) * rest**2)
    seen = int((plain == 0).sum())
    per_draw_plain = float(effective_sample_size(plain.double())) / len(plain) if seen else expected
    per_draw_ahead = log_z(batches)[0].estimate.effective_sample_size / len(ahead)
    return {
        "plain": per_draw_plain,
        "plain_expected": expected,
        "ahead": per_draw_ahead,
        "ratio": per_draw_ahead / per_draw_plain,
        "ratio_per_second": per_draw_ahead * len(ahead) / ahead_seconds / (per_draw_plain * len(plain) / plain_seconds),
        "motif_rate_of_q": motif_rate,
        "motif_rate_ahead": float(present.double().mean()),
        "motifs_drawn_by_q": seen,
        "fitting_seconds": fitting_seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
