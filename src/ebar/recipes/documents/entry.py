"""A line of the page of all reproductions."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A table or figure of a document, and the recipe that asks whether what it says holds."""

    place: str  # as the document numbers it; a slide by its title
    recipe: str | None
    says: str  # its claim, in words
    claims: Sequence[str] | None = None  # those of the recipe's claims that are meant, by their words; None: all
    # Where there is no recipe: why not. Where there is one: why its runs are not for such a machine as ours, which is
    # said until a result is recorded.
    why: str = ""
    measurable: bool = True  # not so of illustrations and settings


def illustration(place: str, says: str) -> Entry:
    """A figure that shows nothing measured."""
    return Entry(place, None, says, why="illustration, nothing to measure", measurable=False)


def settings(place: str, says: str, family: str) -> Entry:
    """A table of settings: those of scale paper."""
    why = f"settings, nothing to measure: scale paper of {family}/* has them, which a test checks"
    return Entry(place, None, says, why=why, measurable=False)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document with all its tables and figures."""

    title: str
    entries: Sequence[Entry]
    note: str = ""
    says: str = "the document says"
