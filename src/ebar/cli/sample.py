"""`ebar sample`: draw from a trained model, or from the model tilted by an energy."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jsonargparse.typing import PositiveInt
from torch import Generator

from ebar.build.corpus import Corpus
from ebar.cli.show import show_json
from ebar.cli.trained import (
    add_sampler,
    add_tilt,
    add_truncation,
    build_proposal,
    build_sampler,
    load_trained,
    tilted,
    truncated,
)
from ebar.config.options import parse, parser
from ebar.maths.importance import diagnose
from ebar.maths.log_space import effective_sample_size
from ebar.progress import bar, shown
from ebar.samplers.ancestral import Ancestral
from ebar.types import Sampler, Sequences, Weighted, WeightedSampler


def main(words: Sequence[str]) -> int:
    """Print draws, one a line, with their log-weights where draws are weighted."""
    options = parser(
        words,
        "sample",
        "Draw from a trained model, or from the model tilted by an energy. Where the draws of a sampler carry\n"
        "weights, each line begins with its log-weight and a tab.",
        "ebar sample runs/motif --n 5\n"
        "  ebar sample runs/motif --n 5 --tilt '!motif:10001011111000=-10' --sampler.kind resampling\n"
        "  ebar sample runs/motif --n 5 --tilt 'expression:(01){3}=4' 'length:=-0.1' --sampler.kind look_ahead",
    )
    options.add_argument("run", type=Path, help="folder of a trained run")
    options.add_argument("--n", type=PositiveInt, default=10, help="draws")
    add_tilt(options)
    add_truncation(options)
    add_sampler(options, words, "resampling")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    trained = load_trained(arguments.run)
    base = truncated(trained.model, arguments)
    target = tilted(base, arguments, trained)
    sampler: Sampler = Ancestral() if target is None else build_sampler(arguments)
    generator = Generator(device=next(trained.model.parameters()).device).manual_seed(arguments.seed)
    with shown(not arguments.json):
        proposal = None if target is None else build_proposal(arguments, sampler, target, generator)
        stream = sampler.stream(target or base, arguments.n, proposal=proposal, generator=generator)
        drawn = _first(stream, arguments.n, weighted=target is not None)
        summary = _write(drawn, trained.corpus, arguments.n, as_json=arguments.json, counted=target is not None)
    if isinstance(sampler, WeightedSampler) and sampler.independent and target is not None:
        summary |= _worth(summary.pop("log_weights"))
    if arguments.json:
        show_json({key: value for key, value in summary.items() if key != "log_weights"})
    elif target is not None:
        # Resampled particles and slow chains repeat themselves: the number of distinct draws shows it.
        worth = [f"{summary['distinct']} distinct sequences of {arguments.n}"]
        if "effective_sample_size" in summary:
            worth.append(f"effective sample size {summary['effective_sample_size']:.1f}")
            worth += [f"⚠ {summary['warning']}"] if summary["warning"] else []
        sys.stderr.write("; ".join(worth) + "\n")
    return 0


def _first(
    stream: Iterator[Weighted] | Iterator[Sequences], n: int, *, weighted: bool
) -> Iterator[tuple[Sequences, list[float] | None]]:
    """The first n draws, batch by batch, with log-weights where there are any."""
    for batch in stream:
        x, weights = (batch.x, batch.log_weights[0].tolist()) if isinstance(batch, Weighted) else (batch, None)
        kept = Sequences(x.tokens[:n], x.lengths[:n])
        yield kept, weights[:n] if weighted and weights is not None else None
        n -= len(kept.lengths)
        if n <= 0:
            return


def _write(
    batches: Iterator[tuple[Sequences, list[float] | None]], corpus: Corpus, n: int, *, as_json: bool, counted: bool
) -> dict[str, Any]:
    """Lines as they come; as JSON, all of them at the end. Only where they are counted is anything kept of them."""
    samples: list[dict[str, object]] = []
    log_weights: list[float] = []
    seen: set[str] = set()
    with bar("sampling", n, "draws") as progress:
        for x, weights in batches:
            lines = corpus.text(x)
            log_weights += weights or []
            seen.update(lines if counted else ())
            if as_json and weights is None:
                samples += [{"text": line} for line in lines]
            elif as_json:
                samples += [{"text": line, "log_weight": one} for line, one in zip(lines, weights or [], strict=True)]
            elif weights is None:
                sys.stdout.writelines(f"{line}\n" for line in lines)
            else:
                sys.stdout.writelines(f"{one:.6f}\t{line}\n" for line, one in zip(lines, weights, strict=True))
            progress.advance(len(lines))
    distinct = {"distinct": len(seen)} if counted else {}
    return {"draws": n, **distinct, "log_weights": log_weights, "samples": samples}


def _worth(log_weights: list[float]) -> dict[str, Any]:
    """How many equally weighted draws these are worth, and whether to believe it."""
    weights = torch.tensor([log_weights], dtype=torch.float64)
    return {"effective_sample_size": float(effective_sample_size(weights)[0]), "warning": diagnose(weights)[0]}
