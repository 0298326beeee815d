"""`ebar decode`: translate or continue lines with a trained model.

Translate lines, or continue them: by beam search, greedily, by sampling, or by resampling candidates with the model's
own energy. Without an input: the test sentences of a translation run, or the empty beginning. With --best above 1
each line begins with the number of its source and its log-probability, and tabs.

Example:
    ebar decode runs/de-en --input german.txt > english.txt
    echo 'Guten Morgen.' | ebar decode runs/de-en --input - --best 3
    ebar decode runs/de-en --input german.txt --method energy --candidates 10 --weights lse
    ebar decode runs/text --input beginnings.txt --method sample --top_p 0.9 --maximal_length 40
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Generator

from ebar.build.train import load_trained
from ebar.cli.show import show_json
from ebar.config.drawing import OfRun
from ebar.config.given import given_options
from ebar.config.reader import Manual, option, read
from ebar.data.corpus import numbered_lines
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.decode import Decoding, decode
from ebar.progress import shown

MANUAL = Manual.of(__doc__)
# Options that only some methods have.
USES = {
    "width": ("beam",), "length_penalty": ("beam",), "enough": ("beam",), "candidates": ("energy",),
    "weights": ("energy",), "distinct": ("energy",),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DecodeConfig(Decoding, OfRun):
    """How to decode, and what."""

    input: str | None = option(metavar="FILE")
    """A line each; - reads the pipe."""


def main(words: Sequence[str]) -> int:
    """Print one line for each line of the input, or several with their number and score."""
    config = read(words, MANUAL, DecodeConfig)
    for name in given_options(words) & set(USES):
        if config.method not in USES[name]:
            raise UserError(f"--{name} does nothing here: leave it out, or choose --method {' or '.join(USES[name])}.")
    trained = load_trained(config.run)
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    texts = None if config.input is None else input_lines(config.input)
    where = "the input" if config.input in (None, "-") else str(config.input)
    found: list[dict[str, object]] = []
    warnings: dict[str, None] = {}
    with shown(not config.json):
        for number, one in enumerate(
            decode(trained.model, trained.data, texts, config, where=where, generator=generator), 1
        ):
            warnings |= {} if one.warning is None else {one.warning: None}
            if config.json:
                outputs = [{name: value for name, value in each._asdict().items() if value is not None}
                           for each in one.outputs]  # fmt: skip
                found.append({"source": one.source, "outputs": outputs})
            for output in () if config.json else one.outputs:
                start = f"{number}\t{output.log_prob:.6f}\t" if config.best > 1 else ""
                # One line each, whatever the text holds.
                sys.stdout.write(start + output.text.replace("\n", "\\n") + "\n")
    if config.json:
        show_json({"method": config.method, "lines": found, "warnings": list(warnings)})
    for warning in warnings:
        sys.stderr.write(f"⚠ {warning}\n")
    return 0


def input_lines(name: str) -> Iterator[str]:
    """The lines of a file; - is the pipe."""
    if name != "-":
        yield from (text for _, text in numbered_lines(Path(name)))
        return
    try:
        yield from (line.rstrip("\r\n") for line in sys.stdin)
    except UnicodeDecodeError as error:
        raise UserError(f"The input is not UTF-8 text: {error}.") from None
