"""`ebar language`: languages whose every figure is known exactly."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse.typing import NonNegativeInt, PositiveInt

from ebar.cli.show import show_json, show_table
from ebar.config.options import parse, parser
from ebar.data.languages import Language
from ebar.estimators.divergences import divergence
from ebar.maths.divergences import DIVERGENCES
from ebar.types import Estimate

ACTIONS = {
    "describe": "every exact figure",
    "entropy": "the entropy alone",
    "sample": "draws, one a line",
    "compare": "divergences to another language, given by --other.motif, --other.expression …",
}


def main(words: Sequence[str]) -> int:
    """Describe, sample, or compare languages."""
    actions = "\n".join(f"  {name:<9} {purpose}" for name, purpose in ACTIONS.items())
    options = parser(
        words,
        "language",
        f"Noise that holds a motif, or that matches a regular expression as a whole.\n\nactions:\n{actions}",
        "ebar language --motif 10001011111000 --length 30 --presence 0.9\n"
        "  ebar language sample --expression '.*(00|11).*' --length 10 --n 5\n"
        "  ebar language compare --motif 101 --length 12 --other.motif 110 --other.length 12",
    )
    options.add_argument("action", nargs="?", choices=list(ACTIONS), default="describe", help="default: describe")
    options.add_class_arguments(Language, instantiate=False)
    options.add_class_arguments(Language, "other", instantiate=False)
    options.add_argument("--n", type=PositiveInt, default=10, help="draws")
    options.add_argument("--draws", type=PositiveInt, default=100_000, help="for divergences known only by sampling")
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    given = parse(options, words).as_dict()
    other = Language(**given.pop("other"))
    action, n, draws, seed, as_json = (given.pop(key) for key in ("action", "n", "draws", "seed", "json"))
    language = Language(**given)
    if action == "sample":
        return _sample(language, n, seed, as_json)
    figures: Mapping[str, object] = (
        _compare(language, other, draws, seed) if action == "compare" else language.describe()
    )
    if action == "entropy":
        figures = {key: figures[key] for key in ("entropy", "entropy_per_token")}
    if as_json:
        show_json({"language": given, **({"other": _options(other)} if action == "compare" else {}), **figures})
    else:
        show_table(_title(language), ("figure", "value"), [(name.replace("_", " "), v) for name, v in figures.items()])
    return 0


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
        show_json({"language": _options(language), "seed": seed, "samples": lines})
    return 0


def _compare(language: Language, other: Language, draws: int, seed: int) -> dict[str, Estimate]:
    """Exact for KL and on small spaces, otherwise from draws."""
    from torch import Generator

    p, q = language.distribution(), other.distribution()
    return {
        kind: divergence(kind, p, q, draws=draws, generator=Generator().manual_seed(seed))[0] for kind in DIVERGENCES
    }


def _options(language: Language) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(language)


def _title(language: Language) -> str:
    what = f"motif {language.motif}" if language.motif is not None else f"expression {language.expression}"
    what = "noise" if language.motif is None and language.expression is None else what
    return f"{what} over {language.alphabet!r}, length {language.length}, presence {language.presence:g} (nats)"
