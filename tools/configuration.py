"""`python tools/configuration.py`: docs/configuration.md, every key of every command, from the dataclasses themselves.

A command is asked what it would read, as its own `main` reads it; a test compares the page with what comes out.
"""

import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from unittest.mock import patch

from ebar.bounds import Bound
from ebar.cli import COMMANDS, Command
from ebar.config import reader
from ebar.config.reader import Chosen, Manual
from ebar.tables import Table

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGINNING = """# Configuration keys

Every option of every command: `--training.epochs 20` on the command line, `training: {epochs: 20}` in the YAML file
that `--config` names. A key with a `.kind` picks an entry of a table, and the entry's own options come with it: those
are [below](#tables). The folder of a run keeps all of them in `config.yaml`. This page is made from the code by
`make pages`.

"""
PLAIN = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path", types.NoneType: "null"}


class Asked(Exception):  # noqa: N818 — an answer, not an error
    """What a command would read, thrown in place of reading it."""

    def __init__(self, manual: Manual, kinds: Sequence[type]):
        super().__init__(manual.command)
        self.manual = manual
        self.kinds = kinds


Tables = dict[str, dict[str, Table[Any]]]  # by what they hold: names of entries, and the table that has them


class Key(NamedTuple):
    """A line of the page."""

    name: str
    kind: str
    default: str
    help: str


def asked(command: str) -> Asked | None:
    """The dataclasses of a command; None for one that reads none."""
    entry = COMMANDS[command]
    if command == "help" or not isinstance(entry, Command) or any(name.startswith(f"{command} ") for name in COMMANDS):
        return None
    main = entry.load(command)

    def thrown(words: Any, files: Any, manual: Manual, kinds: Sequence[type], *texts: Any) -> Any:
        raise Asked(manual, kinds)

    with patch.object(reader, "_read", thrown):
        try:
            main([])
        except Asked as found:
            return found
    return None


def keys(kind: type, defaults: Mapping[str, Any], tables: Tables, prefix: str = "") -> Iterator[Key]:
    """The options of a dataclass, its groups one by one; tables that they pick from are put into `tables`."""
    hints, helps = get_type_hints(kind, include_extras=True), reader._helps(kind)
    for own in fields(kind):
        name = prefix + own.name
        default = defaults.get(name, reader._default(own))
        if "table" in own.metadata:
            table = own.metadata["table"]
            tables.setdefault(table.what, {}).update(dict.fromkeys(table, table))
            chosen = default.kind if isinstance(default, Chosen) else default
            yield Key(f"{name}.kind", f"an entry of [{table.what}](#{anchor(table.what)})", written(chosen), "")
            more = {key: value for key, value in defaults.items() if key.startswith(f"{name}.")}
            for key, value in more.items():
                yield Key(key, "", written(value), f"here, for `{written(chosen)}`")
        elif is_dataclass(default) or is_dataclass(hints[own.name]):
            group = type(default) if is_dataclass(default) else hints[own.name]
            yield from keys(group, _inside(default, name, defaults), tables, f"{name}.")
        else:
            help = own.metadata["help"]() if "help" in own.metadata else helps.get(own.name, "")
            place = f"{own.name.upper()}, by its place" if own.metadata.get("positional") else name
            yield Key(place, words(hints[own.name]), written(default), help)


def _inside(group: Any, name: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a group that is made with values of its own."""
    own = {f"{name}.{one.name}": getattr(group, one.name) for one in fields(group)} if is_dataclass(group) else {}
    return {**own, **defaults}


def entry_keys(entry: Any, table: Table[Any]) -> Iterator[Key]:
    """The options of an entry of a table: the parameters of its signature that no other object provides."""
    hints = get_type_hints(entry.__init__ if inspect.isclass(entry) else entry, include_extras=True)
    helps = reader._helps(entry) if is_dataclass(entry) and isinstance(entry, type) else {}
    for name, parameter in inspect.signature(entry).parameters.items():
        if name in table.given or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        factory = {one.name: one for one in fields(entry)}.get(name) if is_dataclass(entry) else None
        default = parameter.default if factory is None else reader._default(factory)
        default = MISSING if default is inspect.Parameter.empty else default
        yield Key(name, words(hints.get(name, Any)), written(default), helps.get(name, ""))


def words(hint: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [one.words for one in hint.__metadata__ if isinstance(one, Bound)]
        return ", ".join([words(arguments[0]), *bounds])
    if origin in (Union, types.UnionType):
        return " or ".join(words(one) for one in arguments)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in arguments)
    if origin in (tuple, list):
        return f"several: {words(arguments[0])}" if arguments else "several"
    return PLAIN.get(hint, "group of options" if is_dataclass(hint) or origin is not None else "value")


def written(value: Any) -> str:
    """A default as YAML has it, on one line."""
    if value is MISSING:
        return "to be given"
    if is_dataclass(value) and not isinstance(value, type):
        return ", ".join(f"{one.name}: {written(getattr(value, one.name))}" for one in fields(value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(one)}" for key, one in value.items()) + "}"
    return str(value)


def anchor(title: str) -> str:
    """As the documentation's site makes it."""
    return title.replace(" ", "-").lower()


def table_of(found: Sequence[Key]) -> str:
    """Lines of Markdown."""
    lines = [[f"`{key.name}`", key.kind, f"`{key.default}`" if key.default else "", key.help] for key in found]
    rows = ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join(["| key | value | default | what it is |", "|---|---|---|---|", *rows])


def page() -> str:
    """The whole page."""
    tables: Tables = {}
    parts = []
    for command in COMMANDS:
        if (found := asked(command)) is not None:
            own = [key for kind in found.kinds for key in keys(kind, found.manual.defaults, tables)]
            help = COMMANDS.help(command)
            parts.append(f"## ebar {command}\n{help[:1].upper()}{help[1:]}.\n\n{table_of(own)}\n")
    parts.append("## Tables\n")
    for what, entries in sorted(tables.items()):
        parts.append(f"### {what}\n")
        for name, table in sorted(entries.items()):
            own = list(entry_keys(table[name], table))
            parts.append(f"**`{name}`**: {table.help(name)}\n" + (f"\n{table_of(own)}\n" if own else ""))
    return BEGINNING + "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
