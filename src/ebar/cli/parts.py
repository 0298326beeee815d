"""A command of several parts: its help is ready without anything heavy being imported."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from ebar.errors import UserError


def run_part(command: str, parts: Mapping[str, str], usage: str, words: Sequence[str]) -> int:
    """Run `cli/COMMAND_PART.py`, which has `main(words) -> int`; without a part, say which there are.

    `parts` tells what each is for, and `usage` has {parts} where they are to be listed.
    """
    if not words or words[0] in {"-h", "--help"}:
        width = max(map(len, parts))
        listing = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in parts.items())
        sys.stdout.write(usage.format(parts=listing))
        if words:
            raise SystemExit(0)  # as every parser's help does
        return 0
    if words[0] not in parts:
        raise UserError(f"There is no part {words[0]!r} of `ebar {command}`: choose one of {', '.join(parts)}.")
    return int(importlib.import_module(f"ebar.cli.{command}_{words[0]}").main(words[1:]))
