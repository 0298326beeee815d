"""`ebar language`: languages whose every figure is known exactly.

Noise that holds a motif, or that matches a regular expression as a whole.

actions:
  describe  every exact figure
  entropy   the entropy alone
  sample    draws, one a line
  compare   divergences to another language, given by --other.motif, --other.expression …

Example:
    ebar language --motif 10001011111000 --length 30 --presence 0.9
    ebar language sample --expression '.*(00|11).*' --length 10 --n 5
    ebar language compare --motif 101 --length 12 --other.motif 110 --other.length 12
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ebar.bounds import Count, Seed
from ebar.cli.show import show, show_json
from ebar.config.reader import Answer, Manual, argument, read
from ebar.data.languages import Language
from ebar.estimators.divergences import divergence
from ebar.maths.divergences import DIVERGENCES
from ebar.types import Estimate

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(Answer):
    """What to do with a language, and another one to compare it with."""

    action: Literal["describe", "entropy", "sample", "compare"] = argument("describe")
    """By default describe."""
    other: Language = field(default_factory=Language)
    n: Count = 10
    """Draws."""
    draws: Count = 100_000
    """For divergences known only by sampling."""
    seed: Seed = 0
    """Of the draws."""


def main(words: Sequence[str]) -> int:
    """Describe, sample, or compare languages."""
    language, config = read(words, MANUAL, Language, LanguageConfig)
    action, other = config.action, config.other
    if action == "sample":
        return _sample(language, config.n, config.seed, config.json)
    figures: Mapping[str, object] = (
        _compare(language, other, config.draws, config.seed) if action == "compare" else language.describe()
    )
    if action == "entropy":
        figures = {key: figures[key] for key in ("entropy", "entropy_per_token")}
    if config.json:
        others = {"other": other} if action == "compare" else {}
        return show("", {"language": language, **others, **figures}, as_json=True)
    return show(_title(language), {name.replace("_", " "): value for name, value in figures.items()}, as_json=False)


def _sample(language: Language, n: int, seed: int, as_json: bool) -> int:
    from torch import Generator

    distribution = language.distribution()
    generator = Generator().manual_seed(seed)
    lines = []
    # In parts: a million draws is a normal request.
    for start in range(0, n, 65_536):
        x = distribution.sample(min(65_536, n - start), generator=generator)
        for tokens, length in zip(x.tokens.tolist(), x.lengths.tolist(), strict=True):
            symbols = tokens[: length - 1] if language.end else tokens[:length]
            lines.append("".join(language.alphabet[token] for token in symbols))
        if not as_json:
            sys.stdout.write("\n".join(lines) + "\n")
            lines = []
    if as_json:
        show_json({"language": language, "seed": seed, "samples": lines})
    return 0


def _compare(language: Language, other: Language, draws: int, seed: int) -> dict[str, Estimate]:
    """Exact for KL and on small spaces, otherwise from draws."""
    from torch import Generator

    p, q = language.distribution(), other.distribution()
    return {
        kind: divergence(kind, p, q, draws=draws, generator=Generator().manual_seed(seed))[0] for kind in DIVERGENCES
    }


def _title(language: Language) -> str:
    what = f"motif {language.motif}" if language.motif is not None else f"expression {language.expression}"
    what = "noise" if language.motif is None and language.expression is None else what
    return f"{what} over {language.alphabet!r}, length {language.length}, presence {language.presence:g} (nats)"
