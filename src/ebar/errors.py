"""Errors a user can cause: one sentence that says what to do, exit code 2, no traceback."""

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


class UserError(Exception):
    """Its message is one sentence a user can act on."""


class Interrupted(KeyboardInterrupt):
    """A stage was stopped by SIGINT or SIGTERM after it had saved its state: the same call continues from there."""


def choose(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry of a table by name; an unknown name is an error that lists the real ones."""
    if name not in table:
        raise UserError(f"There is no {what} called {name!r}: choose one of {', '.join(sorted(table))}.")
    return table[name]
