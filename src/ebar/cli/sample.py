"""`ebar sample`: draw from a trained model, or from the model tilted by an energy.

Draw from a trained model, or from the model tilted by an energy; after --prompt, its continuations. Where the draws of
a sampler carry weights, each text begins with its log-weight and a tab. After a text that may have several lines comes
a line of dashes, or --separator. Images are printed as numbers, or drawn on a sheet, --output; --complete gives the
upper part of test images and draws the rest.

Example:
    ebar sample runs/motif --n 5
    ebar sample runs/motif --n 5 --tilt '!motif:10001011111000=-10' --sampler.kind resampling
    ebar sample runs/motif --n 5 --tilt 'expression:(01){3}=4' 'length:=-0.1' --sampler.kind look_ahead
    ebar sample runs/text --n 2 --prompt 'Once upon a time' 'The king' --maximal_length 300
    ebar sample runs/digits --n 4 --complete 5 --output sheet.png
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.bounds import Count, Share
from ebar.build.drawing import Opened, build_proposal, drawing_from
from ebar.build.train import load_trained
from ebar.cli.decode import input_lines
from ebar.cli.show import show_json
from ebar.config.drawing import TiltedDrawing
from ebar.config.given import given_options
from ebar.config.reader import Manual, list_option, option, read
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.estimators.log_z import log_z
from ebar.journeys.complete import complete_images
from ebar.journeys.train import Trained
from ebar.progress import shown
from ebar.report.image_sheet import Shape, completion_sheet, sample_sheet
from ebar.samplers.draw import stream
from ebar.samplers.importance import Ancestral
from ebar.store.writing import replace, saving
from ebar.types import Sequences, Weighted

MANUAL = Manual.of(__doc__)
DASHES = "---"


@dataclass(frozen=True, kw_only=True)
class SampleConfig(TiltedDrawing):
    """What to draw."""

    n: Count = 10
    """Draws; of each prompt or image, where some are given."""
    prompt: tuple[str, ...] = list_option("TEXT", lambda: "texts to go on from; --maximal_length counts what comes")
    prompts: str | None = option(metavar="FILE")
    """The same, one a line; - reads the pipe."""
    separator: str = option(DASHES, metavar="TEXT")
    """A line after each text that may have several lines; another than the default one, after any text."""
    output: Path | None = option(metavar="FILE.png")
    """A sheet of images."""
    complete: Count | None = None
    """Complete the first so many test images."""
    given: Share = 0.5
    """The share of an image's rows that is given to be completed."""


def main(words: Sequence[str]) -> int:
    """Print draws, with their log-weights where draws are weighted; or draw images on a sheet."""
    config = read(words, MANUAL, SampleConfig)
    trained = load_trained(config.run)
    _check(words, config, trained.data)
    if config.complete is not None:
        return _complete(config, trained)
    prompts = [*config.prompt, *([] if config.prompts is None else input_lines(config.prompts))]
    opened = [drawing_from(trained, config, prompt=one) for one in prompts or [""]]
    generator = opened[0].generator  # which goes on from prompt to prompt
    with shown(not config.json):
        found = [_drawn(one._replace(generator=generator), config) for one in opened]
    if config.json:
        show_json({"prompts": found} if prompts else found[0])
    return 0


def _check(words: Sequence[str], config: SampleConfig, data: Corpus) -> None:
    """An option that does nothing is a mistake."""
    asked = given_options(words)
    images = data.tokeniser is None
    idle = {
        "output": None if images else "for sheets of images, and text is printed: write `> FILE` after the command",
        "complete": None if images else "for images: give --prompt, the beginning of a text",
        "separator": "for texts, and these are images: leave it out" if images else None,
        "given": None if config.complete is not None else "for images to be completed: give --complete too",
    }
    if not config.tilt:
        idle |= dict.fromkeys(("sampler", "proposal"), "for a tilted model: give --tilt too, or leave it out")
    for name, why in idle.items():
        if why is not None and name in {one.partition(".")[0] for one in asked}:
            raise UserError(f"--{name} is {why}.")
    if config.complete is not None and (config.tilt or config.output is None):
        raise UserError("Images are completed by the model itself, on a sheet: leave out --tilt, and give --output.")
    if config.output is not None and config.output.suffix != ".png":
        raise UserError(f"A sheet of images is a PNG file: give --output {config.output.with_suffix('.png')}.")


def _drawn(opened: Opened, config: SampleConfig) -> dict[str, Any]:
    """Draws from one prompt, or from none, printed as they come."""
    _, base, target, sampler, generator, *_ = opened
    proposal = None if target is None else build_proposal(config, sampler, target, config.n, generator)
    batches = stream(
        Ancestral() if target is None else sampler, target or base, config.n, proposal=proposal, generator=generator
    )
    first = _first(batches, config.n)
    if config.output is not None:
        x = Sequences.join([batch.x for batch in first])
        return _on_a_sheet(config.output, sample_sheet(x, _shape(opened.data)), config)
    summary = _write(first, opened, config)
    if target is not None and not config.json:
        # Resampled particles and slow chains repeat themselves: the number of distinct draws shows it.
        said = [f"{summary['distinct']} distinct sequences of {config.n}"]
        if "effective_sample_size" in summary:
            said.append(f"effective sample size {summary['effective_sample_size']:.1f}")
            said += [f"⚠ {summary['warning']}"] if summary["warning"] else []
        sys.stderr.write("; ".join(said) + "\n")
    return {"prompt": opened.prompt, **summary} if opened.prompt else summary


def _first(batches: Iterator[Weighted], n: int) -> Iterator[Weighted]:
    """The first n draws, batch by batch."""
    for batch in batches:
        yield batch.select(slice(n))
        n -= batch.log_weights.shape[1]
        if n <= 0:
            return


def _write(batches: Iterator[Weighted], opened: Opened, config: SampleConfig) -> dict[str, Any]:
    """Texts as they come; as JSON, all of them at the end. Of a tilted model, also the effective sample size."""
    samples: list[dict[str, object]] = []
    weights: list[Weighted] = []
    seen: set[str] = set()
    tilted = opened.target is not None
    data = opened.data
    several = data.tokeniser is not None and data.space.end is None and not data.space.completes  # lines of a text
    between = f"{config.separator}\n" if several or config.separator != DASHES else ""
    for batch in batches:
        weighted = tilted and batch.estimates_z
        if tilted:
            weights.append(batch._replace(x=batch.x._replace(tokens=batch.x.tokens[:, :0])))
        for place, (text, weight) in enumerate(zip(opened.texts(batch.x), batch.log_weights[0].tolist(), strict=True)):
            seen.update([text] if tilted else [])
            if not config.json:
                sys.stdout.write((f"{weight:.6f}\t{text}\n" if weighted else f"{text}\n") + between)
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


def _complete(config: SampleConfig, trained: Trained[Any]) -> int:
    """Test images, and draws of what follows their upper rows."""
    assert config.complete is not None
    assert config.output is not None
    shape = _shape(trained.data)
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    originals = trained.data.test.select(slice(config.complete))
    rows = max(1, min(shape.height - 1, round(config.given * shape.height)))
    given = rows * shape.width * shape.channels
    with shown(not config.json):
        whole = complete_images(config.of(trained.model), originals, given, n=config.n, generator=generator)
    summary = _on_a_sheet(config.output, completion_sheet(originals, whole, given, shape), config)
    if config.json:
        show_json({**summary, "images": len(originals.lengths), "rows_given": rows})
    return 0


def _shape(data: Corpus) -> Shape:
    height, width, channels = (data.shape[name] for name in ("image_height", "image_width", "channels"))
    return Shape(height=height, width=width, channels=channels, levels=data.space.vocabulary)


def _on_a_sheet(path: Path, sheet: bytes, config: SampleConfig) -> dict[str, Any]:
    with saving(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, sheet)
    if not config.json:
        sys.stdout.write(f"{path}\n")
    return {"draws": config.n, "output": str(path)}
