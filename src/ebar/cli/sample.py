"""`ebar sample`: draw from a trained model, or from the model tilted by an energy.

Draw from a trained model, or from the model tilted by an energy. Where the draws of a sampler carry weights, each
line begins with its log-weight and a tab.

Example:
    ebar sample runs/motif --n 5
    ebar sample runs/motif --n 5 --tilt '!motif:10001011111000=-10' --sampler.kind resampling
    ebar sample runs/motif --n 5 --tilt 'expression:(01){3}=4' 'length:=-0.1' --sampler.kind look_ahead
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ebar.bounds import Count
from ebar.build.drawing import build_proposal, open_drawing
from ebar.cli.show import show_json
from ebar.config.drawing import TiltedDrawing
from ebar.config.reader import Manual, read
from ebar.data.corpus import Corpus
from ebar.estimators.log_z import log_z
from ebar.progress import shown
from ebar.samplers.ancestral import Ancestral
from ebar.samplers.draw import stream
from ebar.types import Weighted

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class SampleConfig(TiltedDrawing):
    """What to draw."""

    n: Count = 10
    """Draws."""


def main(words: Sequence[str]) -> int:
    """Print draws, one a line, with their log-weights where draws are weighted."""
    arguments = read(words, MANUAL, SampleConfig)
    data, base, target, sampler, generator = open_drawing(arguments)
    if target is None:
        sampler = Ancestral()
    with shown(not arguments.json):
        proposal = None if target is None else build_proposal(arguments, sampler, target, arguments.n, generator)
        batches = stream(sampler, target or base, arguments.n, proposal=proposal, generator=generator)
        summary = _write(
            _first(batches, arguments.n), data, arguments.n, as_json=arguments.json, tilted=target is not None
        )
    if arguments.json:
        show_json(summary)
    elif target is not None:
        # Resampled particles and slow chains repeat themselves: the number of distinct draws shows it.
        worth = [f"{summary['distinct']} distinct sequences of {arguments.n}"]
        if "effective_sample_size" in summary:
            worth.append(f"effective sample size {summary['effective_sample_size']:.1f}")
            worth += [f"⚠ {summary['warning']}"] if summary["warning"] else []
        sys.stderr.write("; ".join(worth) + "\n")
    return 0


def _first(batches: Iterator[Weighted], n: int) -> Iterator[Weighted]:
    """The first n draws, batch by batch."""
    for batch in batches:
        yield batch.select(slice(n))
        n -= batch.log_weights.shape[1]
        if n <= 0:
            return


def _write(batches: Iterator[Weighted], corpus: Corpus, n: int, *, as_json: bool, tilted: bool) -> dict[str, Any]:
    """Lines as they come; as JSON, all of them at the end. Of a tilted model, what the draws are worth is told too."""
    samples: list[dict[str, object]] = []
    weights: list[Weighted] = []
    seen: set[str] = set()
    for batch in batches:
        lines = corpus.text(batch.x)
        weighted = tilted and batch.estimates_z
        if tilted:
            weights.append(batch._replace(x=batch.x._replace(tokens=batch.x.tokens[:, :0])))
            seen.update(lines)
        shown_weights = batch.log_weights[0].tolist()
        if as_json:
            samples += [
                {"text": line}
                | ({"log_weight": weight} if weighted else {})
                | ({"group": int(batch.groups[place])} if batch.groups is not None else {})
                for place, (line, weight) in enumerate(zip(lines, shown_weights, strict=True))
            ]
        elif weighted:
            sys.stdout.writelines(f"{one:.6f}\t{line}\n" for line, one in zip(lines, shown_weights, strict=True))
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines)
    if not tilted:
        return {"draws": n, "samples": samples}
    return {"draws": n, "distinct": len(seen), **_worth(weights), "samples": samples}


def _worth(batches: list[Weighted]) -> dict[str, Any]:
    """How many equally weighted, independent draws these are worth, and whether to believe it."""
    drawn = Weighted.join(batches, one_stream=True)
    if not drawn.estimates_z:
        return {}
    found = log_z(drawn._replace(target=None))[0].estimate
    return {"effective_sample_size": found.effective_sample_size, "warning": found.warning}
