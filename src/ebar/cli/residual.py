"""`ebar residual`: a discriminator as part of the language model."""

from collections.abc import Sequence

from ebar.cli.parts import run_part

PARTS = {
    "train": "an energy on a base, by telling text from the base's own continuations",
    "evaluate": "perplexity interval beside the base, log Z of each prefix, energies, n-grams",
    "generate": "continue a prompt with the joint model: text, energies, weights, diagnostics",
    "explain": "the likeliest next words under the base and under the joint model",
}

USAGE = """usage: ebar residual PART [OPTIONS]

P(x|C) = q(x|C)·exp(−E(x, C)): a language model q that you have, any of Hugging Face's or one of ebar's, and an energy E
that has learnt to tell q's continuations x of prefixes C from those that people wrote.

parts:
{parts}

`ebar residual PART --help` shows a part's options and an example.

example:
  ebar residual train --name mine --base runs/text --energy.kind unit --data.prefix 60 --data.continuation 20
"""


def main(words: Sequence[str]) -> int:
    """Run a part."""
    return run_part("residual", PARTS, USAGE, words)
