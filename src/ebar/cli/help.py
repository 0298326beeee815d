"""`ebar help`: what a command is for, its options and an example; without a command, all of them."""

import sys
from collections.abc import Sequence

from ebar.cli import COMMANDS, command_named, dispatch
from ebar.errors import UserError

USAGE = """usage: ebar help [COMMAND]

What a command is for, its options and an example: the same as `ebar COMMAND --help`. Without a command, all of them.

example:
  ebar help train
  ebar help residual generate
"""


def main(words: Sequence[str]) -> int:
    """Print it."""
    if set(words) & {"-h", "--help"}:
        sys.stdout.write(USAGE)
        raise SystemExit(0)
    name = " ".join(words)
    if name and name not in COMMANDS:
        command_named(words[0])  # where that is the mistake
        parts = [one for one in COMMANDS if one.startswith(f"{words[0]} ")]
        known = f"its parts are {', '.join(one.partition(' ')[2] for one in parts)}" if parts else "it has no parts"
        raise UserError(f"There is no command {name!r}: {known}.")
    return dispatch([*words, "--help"])
