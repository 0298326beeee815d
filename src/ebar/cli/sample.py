"""`ebar sample`: draw from a trained model, or from the model tilted by an energy."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jsonargparse.typing import PositiveInt
from torch import Generator

from ebar.cli.show import show_json
from ebar.cli.trained import (
    add_sampler,
    add_tilt,
    add_truncation,
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
from ebar.samplers.look_ahead import guided
from ebar.types import Sampler, Sequences, Weighted


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
    proposal = None
    with shown(not arguments.json):
        if target is not None and arguments.proposal == "look_ahead":
            proposal = guided(target, generator=generator)
        stream = sampler.stream(target or base, arguments.n, proposal=proposal, generator=generator)
        return _print(_first(stream, arguments.n), trained.corpus.text, arguments.n, arguments.json, target is not None)


def _first(stream: Iterator[Weighted] | Iterator[Sequences], n: int) -> Iterator[tuple[Sequences, list[float] | None]]:
    """The first n draws, batch by batch, with log-weights where there are any."""
    for batch in stream:
        x, weights = (batch.x, batch.log_weights[0].tolist()) if isinstance(batch, Weighted) else (batch, None)
        kept = Sequences(x.tokens[:n], x.lengths[:n])
        yield kept, None if weights is None else weights[:n]
        n -= len(kept.lengths)
        if n <= 0:
            return


def _print(
    batches: Iterator[tuple[Sequences, list[float] | None]], text: "object", n: int, as_json: bool, tilted: bool
) -> int:
    import torch

    everything: list[dict[str, object]] = []
    log_weights: list[float] = []
    with bar("sampling", n, "draws") as progress:
        for x, weights in batches:
            lines = text(x)  # type: ignore[operator]
            log_weights += weights or []
            if as_json:
                everything += [
                    {"text": line} if weights is None or not tilted else {"text": line, "log_weight": weights[row]}
                    for row, line in enumerate(lines)
                ]
            elif weights is None or not tilted:
                sys.stdout.writelines(f"{line}\n" for line in lines)
            else:
                sys.stdout.writelines(f"{weight:.6f}\t{line}\n" for weight, line in zip(weights, lines, strict=True))
            progress.advance(len(lines))
    summary: dict[str, object] = {"draws": n}
    if tilted and log_weights:
        weights_of = torch.tensor([log_weights], dtype=torch.float64)
        summary["effective_sample_size"] = float(effective_sample_size(weights_of)[0])
        summary["warning"] = diagnose(weights_of)[0]
    if as_json:
        show_json({**summary, "samples": everything})
    elif "warning" in summary:
        size = f"effective sample size {summary['effective_sample_size']:.1f} of {n}"
        sys.stderr.write(f"{size}{'' if summary['warning'] is None else '; ⚠ ' + str(summary['warning'])}\n")
    return 0
