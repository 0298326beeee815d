"""Errors a user can cause: one sentence that says what to do, exit code 2, no traceback."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")
MANY = 20  # names that are too many to be listed, where some are near


class UserError(Exception):
    """Its message is one sentence a user can act on."""


class Interrupted(KeyboardInterrupt):
    """A stage was stopped by SIGINT or SIGTERM after it had saved its state: the same call continues from there."""


def choose(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry of a table by name; an unknown name is an error that lists the real ones."""
    if name in table:
        return table[name]
    names = sorted(table)
    near = difflib.get_close_matches(name, names, n=3) if len(names) > MANY else []
    if near:
        raise UserError(f"There is no {what} called {name!r}: did you mean {' or '.join(near)}?")
    raise UserError(f"There is no {what} called {name!r}: choose one of {', '.join(names)}.")


def no_file(path: object) -> UserError:
    """What to say of a file that is not there."""
    return UserError(f"There is no file {path}: check its name, and the folder you are in.")
