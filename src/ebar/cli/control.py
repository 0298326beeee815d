"""`ebar control`: what is to be true of a pretrained model's text, draws that keep it, a model that has learnt it."""

from collections.abc import Sequence

from ebar.cli.parts import run_part

PARTS = {
    "fit": "find how much each feature must count, and check it on fresh draws",
    "sample": "draw text of the controlled model, with weights",
    "tune": "make a model of its own of it, by policy gradient with low-rank adapters",
}

USAGE = """usage: ebar control PART [OPTIONS]

P(x) = q(x)·exp⟨λ, φ(x)⟩: constraints φ on the text of any causal language model q, GDC's way.

parts:
{parts}

`ebar control PART --help` shows a part's options and an example.

example:
  ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
  ebar control sample runs/rabbits --n 5
  ebar control tune runs/rabbits --steps 300 --learning_rate 0.001
"""


def main(words: Sequence[str]) -> int:
    """Run a part."""
    return run_part("control", PARTS, USAGE, words)
