"""Wall time to 500 samples of P on disk: look-ahead against rejection from r, on a motif of Parshakova et al. 2019.

P(x) = r(x)·exp(λ·[14-bit motif absent]), λ = −10.09 as in Table 2 of the paper, r trained by the authors' recipe on
|D| = 500 strings. Both sides are `distil` to a file, all included: fitting the proposal, the pilot, writing. The fast
side is timed several times and its best counts, the slow side once. `speedup` is the median over the seeds of r.

The two files must agree: Fisher's exact test on three features (motif absent; begins with 1; half of 00110011…
absent) and Kolmogorov–Smirnov on log r, with a false alarm in 1 % of runs over all tests and seeds (Bonferroni).

    python benchmarks/distil.py --json      # the figures, as one JSON object on the last line
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from authors_lstm import Recipe, kept, prepare
from scipy.stats import fisher_exact, ks_2samp

from ebar.data.corpus import read_corpus
from ebar.data.tokenisers import Alphabet
from ebar.energies.linear import Linear
from ebar.features.feature import Feature, Features
from ebar.features.regular import Motif, StartsWith
from ebar.models.construction import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.training.distillation import Distilled, distil
from ebar.types import Sampler, Sequences

SIZE = 500  # |D|
COEFFICIENT = -10.09
FALSE_ALARM = 0.01
ALPHABET = Alphabet("01")


def main(argv: list[str] | None = None) -> int:
    """Train what is missing, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--cache", type=Path, default=Path(".cache/benchmarks"), help="where models are kept")
    parser.add_argument("--seeds", type=int, default=3, help="models")
    parser.add_argument("--n", type=int, default=500, help="samples")
    parser.add_argument("--times", type=int, default=5, help="timings of the fast side")
    parser.add_argument("--large", type=int, default=0, help="also time this many samples by looking ahead")
    options = parser.parse_args(argv)
    recipes = [Recipe(size=SIZE, seed=seed) for seed in range(options.seeds)]
    if not all(kept(recipe, options.cache).exists() for recipe in recipes):
        print(f"Models are missing in {options.cache}: training them first, which takes minutes.", file=sys.stderr)
    found = []
    for recipe in recipes:
        found.append(measure(recipe, prepare(recipe, options.cache), options.n, options.times, options.large))
        print(f"seed {recipe.seed}: {found[-1]}", file=sys.stderr)
    p_values = [p for each in found for p in each["p_values"].values()]
    figures = {
        "speedup": statistics.median(each["speedup"] for each in found),
        "agree": min(p_values) >= FALSE_ALARM / len(p_values),
        "smallest_p": min(p_values),
        "threshold": FALSE_ALARM / len(p_values),
        "false_alarm_rate": FALSE_ALARM,
        "threads": torch.get_num_threads(),
        "per_seed": found,
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"speedup: {figures['speedup']:.0f}; agree: {figures['agree']} (smallest p {figures['smallest_p']:.3g})")
    return 0


def measure(recipe: Recipe, model: Autoregressive, n: int, times: int, large: int) -> dict[str, Any]:
    """Both sides for one r, and whether their files agree."""
    absent = Motif(motif=recipe.motif, alphabet="01", end=recipe.space.end, absent=True)
    target = Tilted(model, Linear(Features((absent,)), torch.tensor([COEFFICIENT])))

    def timed(
        folder: Path, name: str, sampler: Sampler, count: int, seed: int
    ) -> tuple[float, Sequences, Distilled, float]:
        path, begun, computed = folder / name, time.perf_counter(), time.process_time()
        look_ahead = isinstance(sampler, QuasiRejection)
        made = distil(
            target, count, path, decode=ALPHABET.decode, seed=seed, sampler=sampler, look_ahead=look_ahead
        )  # fmt: skip
        seconds, processor = time.perf_counter() - begun, time.process_time() - computed
        return seconds, read_corpus(path, ALPHABET, recipe.space), made, processor

    with TemporaryDirectory() as name:
        folder = Path(name)
        fast = [timed(folder, f"fast-{turn}", QuasiRejection(), n, 1000 + turn) for turn in range(times)]
        slow_seconds, slow, rejected, slow_processor = timed(folder, "slow", Rejection(), n, 2000)
        many = timed(folder, "many", QuasiRejection(), large, 3000)[0] if large else None
    fast_seconds = min(seconds for seconds, *_ in fast)
    _, drawn, ahead, _ = fast[0]  # the first, not the best: what is tested was not chosen
    assert ahead.acceptance_rate is not None
    assert rejected.acceptance_rate is not None
    assert ahead.total_variation is not None
    return {
        "seed": recipe.seed,
        "speedup": slow_seconds / fast_seconds,
        "processor_speedup": slow_processor / min(processor for *_, processor in fast),  # other work disturbs it less
        "rejection_seconds": slow_seconds,
        "look_ahead_seconds": fast_seconds,
        "look_ahead_all_seconds": [seconds for seconds, *_ in fast],
        "rejection_acceptance": rejected.acceptance_rate.value,
        "look_ahead_acceptance": ahead.acceptance_rate.value,
        "total_variation": ahead.total_variation._asdict(),
        "p_values": compare(recipe, model, slow, drawn),
        **({} if many is None else {"many": large, "many_per_second": large / many}),
    }


@torch.no_grad()
def compare(recipe: Recipe, model: Autoregressive, first: Sequences, second: Sequences) -> dict[str, float]:
    """p-values of two-sample tests."""
    end = recipe.space.end
    half = ("00110011" * len(recipe.motif))[: len(recipe.motif) // 2]
    features: dict[str, Feature] = {
        "motif_absent": Motif(motif=recipe.motif, alphabet="01", end=end, absent=True),
        "d0": StartsWith(prefix="1", alphabet="01", end=end),
        "d3": Motif(motif=half, alphabet="01", end=end, absent=True),
    }
    found = {}
    for name, feature in features.items():
        counts = [[int(feature(x).sum()), int((feature(x) == 0).sum())] for x in (first, second)]
        found[name] = float(fisher_exact(counts).pvalue)
    found["log_r"] = float(ks_2samp(model.log_prob(first).numpy(), model.log_prob(second).numpy()).pvalue)
    return found


if __name__ == "__main__":
    sys.exit(main())
