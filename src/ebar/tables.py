"""Tables of things that can be chosen by name: samplers, features, backbones, kinds of data.

An entry is a class or a function. Its options are the parameters of its signature, its help is the first line of its
docstring, so that a line in a table is the only place where the thing is named. Modules named in EBAR_PLUGINS add
entries of their own: the command line and the processes that run recipes import them first.
"""

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from ebar.errors import UserError, choose

Entry = TypeVar("Entry")


class Table(dict[str, Entry]):
    """Name → entry. `TABLE["mine"] = Mine` adds one from anywhere."""

    def __init__(self, what: str, entries: Mapping[str, Entry], *, given: tuple[str, ...] = ()):
        super().__init__(entries)
        self.what = what
        self.given = given  # arguments that other objects provide, such as a vocabulary: never a user's options

    def choose(self, name: str) -> Entry:
        """An entry; an unknown name is an error that lists the real ones."""
        return choose(self, name, self.what)

    def help(self, name: str) -> str:
        """The first line of an entry's docstring."""
        return (inspect.getdoc(self.choose(name)) or "").partition("\n")[0]

    def make(self, name: str, options: Mapping[str, Any], **provided: Any) -> Any:
        """An entry with its options and with what other objects provide; a value that it refuses is a user's error."""
        entry: Any = self.choose(name)
        try:
            return entry(**provided, **options)
        except (ValueError, RuntimeError, OverflowError) as error:
            if "allocate memory" in str(error):
                raise UserError(f"There is not enough memory for this {self.what}, {name}: make it smaller.") from None
            raise UserError(f"The {self.what} {name} cannot be made: {error}.") from None


def plug_ins() -> list[str]:
    """The modules named in EBAR_PLUGINS, separated by commas."""
    return [name.strip() for name in os.environ.get("EBAR_PLUGINS", "").split(",") if name.strip()]


def import_plug_ins() -> None:
    """Imports them, so that their entries are in the tables."""
    for name in plug_ins():
        try:
            importlib.import_module(name)
        except Exception as error:
            raise UserError(
                f"The module {name} that EBAR_PLUGINS names cannot be imported ({type(error).__name__}: {error}): "
                "put its folder on PYTHONPATH, or mend it."
            ) from error
