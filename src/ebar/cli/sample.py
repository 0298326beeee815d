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
from ebar.samplers.draw import stream
from ebar.samplers.importance import Ancestral
from ebar.types import Weighted

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class SampleConfig(TiltedDrawing):
    """What to draw."""

    n: Count = 10
    """Draws."""


def main(words: Sequence[str]) -> int:
    """Print draws, one a line, with their log-weights where draws are weighted."""
    config = read(words, MANUAL, SampleConfig)
    data, base, target, sampler, generator = open_drawing(config)
    with shown(not config.json):
        proposal = None if target is None else build_proposal(config, sampler, target, config.n, generator)
        batches = stream(
            Ancestral() if target is None else sampler, target or base, config.n, proposal=proposal, generator=generator
        )
        summary = _write(_first(batches, config.n), data, config, tilted=target is not None)
    if config.json:
        show_json(summary)
    elif target is not None:
        # Resampled particles and slow chains repeat themselves: the number of distinct draws shows it.
        said = [f"{summary['distinct']} distinct sequences of {config.n}"]
        if "effective_sample_size" in summary:
            said.append(f"effective sample size {summary['effective_sample_size']:.1f}")
            said += [f"⚠ {summary['warning']}"] if summary["warning"] else []
        sys.stderr.write("; ".join(said) + "\n")
    return 0


def _first(batches: Iterator[Weighted], n: int) -> Iterator[Weighted]:
    """The first n draws, batch by batch."""
    for batch in batches:
        yield batch.select(slice(n))
        n -= batch.log_weights.shape[1]
        if n <= 0:
            return


def _write(batches: Iterator[Weighted], data: Corpus, config: SampleConfig, *, tilted: bool) -> dict[str, Any]:
    """Lines as they come; as JSON, all of them at the end. Of a tilted model, also the effective sample size."""
    samples: list[dict[str, object]] = []
    weights: list[Weighted] = []
    seen: set[str] = set()
    for batch in batches:
        weighted = tilted and batch.estimates_z
        if tilted:
            weights.append(batch._replace(x=batch.x._replace(tokens=batch.x.tokens[:, :0])))
        for place, (text, weight) in enumerate(zip(data.text(batch.x), batch.log_weights[0].tolist(), strict=True)):
            seen.update([text] if tilted else [])
            if not config.json:
                sys.stdout.write(f"{weight:.6f}\t{text}\n" if weighted else f"{text}\n")
                continue
            group = {} if batch.groups is None else {"group": int(batch.groups[place])}
            samples.append({"text": text} | ({"log_weight": weight} if weighted else {}) | group)
    if not tilted:
        return {"draws": config.n, "samples": samples}
    summary: dict[str, Any] = {"draws": config.n, "distinct": len(seen)}
    drawn = Weighted.join(weights, one_stream=True)
    if drawn.estimates_z:
        found = log_z(drawn._replace(target=None))[0].estimate
        summary |= {"effective_sample_size": found.effective_sample_size, "warning": found.warning}
    return {**summary, "samples": samples}
