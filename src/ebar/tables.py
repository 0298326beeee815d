"""Tables of things that can be chosen by name: samplers, features, backbones, kinds of data.

An entry is a class or a function. Its options are the parameters of its signature, its help is the first line of its
docstring, so that a line in a table is the only place where the thing is named.
"""

import inspect
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
            raise UserError(f"The {self.what} {name} cannot be made: {error}.") from None
