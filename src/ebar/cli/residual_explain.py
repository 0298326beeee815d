"""`ebar residual explain`: what the energy changes about the next word.

The likeliest next words after a prompt, under the base and under the joint model, which looks at how the base would
go on after each. With a continuation: what each of its tokens costs under both, in nats.

Example:
    ebar residual explain runs/mine --prompt 'The old man' --futures 64
    ebar residual explain runs/mine --prompt 'The old man' --continuation ' went down to the sea and …'
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebar.bounds import Count
from ebar.build.residual import load_residual
from ebar.cli.show import show_json, show_table
from ebar.config.drawing import OfRun
from ebar.config.reader import Manual, read
from ebar.estimators.per_step import Steps
from ebar.evaluation.next_words import NextWord, NextWords
from ebar.journeys.residual.journey import Residual
from ebar.progress import shown
from ebar.types import Sequences

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class ExplainConfig(OfRun):
    """What is explained, and how thoroughly."""

    prompt: str
    """The text before."""
    continuation: str | None = None
    """Text after it, long enough."""
    words: Count = 10
    """Shown, of each model."""
    candidates: Count = 50
    """Tokens looked at, the base's likeliest."""
    futures: Count = 64
    """Of the base, after each token."""
    exact_last: bool = False
    """Score every token in the last place: as many energies as there are tokens."""


def main(words: Sequence[str]) -> int:
    """Next words under the base and the joint model; and, for a continuation, its cost token by token under both."""
    arguments = read(words, MANUAL, ExplainConfig)
    trained, prompt = load_residual(arguments.run), arguments.prompt
    with shown(not arguments.json):
        found, x, steps = trained.explain(
            prompt, arguments.continuation, candidates=arguments.candidates, futures=arguments.futures,
            exact_last=arguments.exact_last, seed=arguments.seed,
        )  # fmt: skip
    if arguments.json:
        show_json({
            "prompt": prompt,
            "next_words": [_word(trained, prompt, word) for word in found.words],
            "rest": None if found.rest is None else _word(trained, prompt, found.rest),
            "steps": None if steps is None or x is None else _steps(trained, prompt, x, steps),
            "warnings": [] if steps is None else list(dict.fromkeys(filter(None, steps.doubts))),
        })  # fmt: skip
        return 0
    _tell_words(trained, prompt, found, arguments.words)
    if steps is not None and x is not None:
        rows = [list(row.values()) for row in _steps(trained, prompt, x, steps)]
        show_table("each token, nats", ("token", "base", "joint", "joint − base"), rows)
        total = -float(steps.log_q.sum()), -float(steps.log_joint.sum())
        sys.stdout.write(f"together: base {total[0]:.3f}, joint {total[1]:.3f} nats\n")
        for reason in dict.fromkeys(filter(None, steps.doubts)):
            sys.stdout.write(f"⚠ {reason}\n")
    return 0


def _word(trained: Residual, prompt: str, word: NextWord) -> dict[str, Any]:
    return {"token": word.token, "text": _spelt(trained, prompt, word), "base": word.base, "joint": word.joint}


def _spelt(trained: Residual, prompt: str, word: NextWord) -> str:
    if word.token < 0:
        return "(all others)"
    return trained.base.spell(trained.base.encode(prompt), [word.token])


def _tell_words(trained: Residual, prompt: str, found: NextWords, most: int) -> None:
    """The likeliest of both side by side, each with what the other model gives it."""
    reasons: dict[str, None] = {}
    rows = []
    pairs = zip(found.under_base(most), found.under_joint(most), strict=True)
    left = found.others(found.under_base(most)), found.others(found.under_joint(most))
    rest = [(left[0], left[1])] if left[0] is not None and left[1] is not None else []
    for rank, (base, joint) in [*enumerate(pairs, 1), *(("", pair) for pair in rest)]:
        reasons |= {word.joint.warning: None for word in (base, joint) if word.joint.warning}
        rows.append([
            rank, repr(_spelt(trained, prompt, base)), base.base, f"{base.joint.value:.6f}",
            repr(_spelt(trained, prompt, joint)), joint.joint._replace(warning=None), joint.base,
        ])  # fmt: skip
    header = ("", "likeliest under the base", "base", "joint", "likeliest under the joint model", "joint", "base")
    show_table(f"after {prompt[-60:]!r}", header, rows)
    for reason in reasons:
        sys.stdout.write(f"⚠ {reason}\n")


def _steps(trained: Residual, prompt: str, x: Sequences, steps: Steps) -> list[dict[str, Any]]:
    before, tokens = trained.base.encode(prompt), x.prefix(0)
    return [
        {
            "token": repr(trained.base.spell([*before, *tokens[:place]], [token])),
            "base": -float(steps.log_q[0, place]),
            "joint": -float(steps.log_joint[0, place]),
            "difference": float(steps.log_q[0, place] - steps.log_joint[0, place]),
        }
        for place, token in enumerate(tokens)
    ]
