"""`ebar control`: what is to be true of a pretrained model's text, draws that keep it, a model that has learnt it."""

import importlib
import sys
from collections.abc import Sequence

from ebar.errors import UserError

# One file per action in this folder, with `main(words) -> int`.
ACTIONS = {
    "fit": "find how much each feature must count, and check it on fresh draws",
    "sample": "draw text of the controlled model, with weights",
    "tune": "make a model of its own of it, by policy gradient with low-rank adapters",
}

USAGE = """usage: ebar control ACTION [OPTIONS]

P(x) = q(x)·exp⟨λ, φ(x)⟩: constraints φ on the text of any causal language model q, GDC's way.

actions:
{actions}

`ebar control ACTION --help` shows an action's options.

example:
  ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
  ebar control sample runs/rabbits --n 5
  ebar control tune runs/rabbits --steps 300 --learning_rate 0.001
"""


def main(words: Sequence[str]) -> int:
    """Fit, sample or tune."""
    if not words or words[0] in {"-h", "--help"}:
        listing = "\n".join(f"  {name:<7} {purpose}" for name, purpose in ACTIONS.items())
        sys.stdout.write(USAGE.format(actions=listing))
        if words:
            raise SystemExit(0)  # as every parser's help does
        return 0
    if words[0] not in ACTIONS:
        raise UserError(f"There is no action {words[0]!r} of `ebar control`: choose one of {', '.join(ACTIONS)}.")
    action = importlib.import_module(f"ebar.cli.control_{words[0]}")
    return int(action.main(words[1:]))
