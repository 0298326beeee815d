"""From words to configurations and back: frozen dataclasses, read from flags and YAML, written as YAML.

A configuration is a frozen dataclass. A field whose type is a dataclass is a group of options (`--training.epochs`), a
field made by `choice` picks an entry of a table (`--backbone.kind lstm`) whose options are the parameters of its
signature, and every other field is an option. Types carry bounds (`ebar.bounds`); the string below a field is its help.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints, overload

from jsonargparse import ArgumentParser, Namespace

from ebar.bounds import checked, checked_options
from ebar.config.given import given_kind, present, with_files
from ebar.config.options import parse_options, parser, wants_help
from ebar.errors import UserError
from ebar.store.differences import as_yaml, lasting
from ebar.tables import Table

One = TypeVar("One")
Other = TypeVar("Other")
MOST_PARSERS = 50  # that are kept
_parsers: dict[Any, ArgumentParser] = {}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An entry of a table and its options."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, table: Table[Any], **provided: Any) -> Any:
        """The entry, with these options and with what other objects provide."""
        return table.make(self.kind, self.options, **provided)


def choice(table: Table[Any], default: str, *, suits: str | None = None) -> Any:
    """A field that picks an entry of a table.

    `suits` names another such field, whose chosen entry may say in an attribute of this field's name what suits it.
    """
    return field(default_factory=lambda: Chosen(kind=default), metadata={"table": table, "suits": suits})


def list_option(metavar: str, help: Callable[[], str], *, default: tuple[str, ...] = ()) -> Any:
    """A field that takes any number of words, whose help is composed when it is asked for."""
    return field(default=default, metadata={"metavar": metavar, "help": help})


def option(default: Any = None, *, metavar: str) -> Any:
    """A field whose value has a name of its own in the help."""
    return field(default=default, metadata={"metavar": metavar})


def argument(default: Any = MISSING) -> Any:
    """A field that is given by its place on the command line, not by a flag."""
    return field(default=default, metadata={"positional": True})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a command answers."""

    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True, kw_only=True)
class Manual:
    """What a command's help says besides its options."""

    command: str
    purpose: str = ""
    example: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)  # where they differ from those of the dataclasses
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of options, such as words of Python

    @staticmethod
    def of(doc: str | None, **more: Any) -> "Manual":
        """From the docstring of the command's file: "`ebar COMMAND`: …", what it does, and after "Example:" examples.

        Lines of a paragraph are joined, unless they are indented.
        """
        title, _, rest = inspect.cleandoc(doc or "").partition("\n")
        purpose, _, example = rest.partition("Example:\n")
        paragraphs = purpose.strip().split("\n\n")
        return Manual(
            command=title.split("`")[1].removeprefix("ebar "),
            purpose="\n\n".join(one if "\n  " in one else " ".join(one.split()) for one in paragraphs),
            example="\n  ".join(line.strip() for line in example.splitlines()),
            **more,
        )


@overload
def read(words: Sequence[str], manual: Manual, one: type[One], /) -> One: ...
@overload
def read(words: Sequence[str], manual: Manual, one: type[One], other: type[Other], /) -> tuple[One, Other]: ...
def read(words: Sequence[str], manual: Manual, /, *kinds: type) -> Any:
    """One instance of each dataclass, from flags and from the YAML files given by --config; later ones win."""
    words, files, names = with_files([present(word, manual.aliases) for word in words])
    return _read(words, files, manual, kinds, [(names[word], word.partition("=")[2]) for word in names])


def read_tree(tree: Mapping[str, Any], manual: Manual, kind: type[One]) -> One:
    """A configuration as a mapping, as --config would read it from a file."""
    word = f"--config={as_yaml(dict(tree))}"
    found: One = _read([word], {word: tree}, manual, (kind,))
    return found


def _read(
    words: list[str], files: Mapping[str, Any], manual: Manual, kinds: tuple[type, ...],
    texts: Sequence[tuple[str, str]] = (),
) -> Any:  # fmt: skip
    arguments = parse_options(
        _options(words, files, manual, kinds), words, command=manual.command, files=texts,
        elsewhere=lambda name: _of_another_kind(name, kinds),
    )  # fmt: skip
    found: list[Any] = [_instance(kind, arguments, manual) for kind in kinds]
    return found[0] if len(found) == 1 else tuple(found)


def _options(words: list[str], files: Mapping[str, Any], manual: Manual, kinds: tuple[type, ...]) -> ArgumentParser:
    """A parser of all options; one that was made for the same entries of tables, which takes longer than to parse."""
    chosen = [_chosen(kind, words, files, manual) for kind in kinds]
    entries = tuple((name, *one) for each in chosen for name, one in each.items())
    made_for = None if wants_help(words) else (repr(manual), kinds, entries)
    if made_for is not None and made_for in _parsers:
        return _parsers[made_for]
    options = parser(words, manual.command, manual.purpose, manual.example)
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    for kind, each in zip(kinds, chosen, strict=True):
        _declare(options, kind, each, manual, with_help=wants_help(words))
    known = {action.dest for action in options._actions}  # another entry of a table may lack an option
    options.set_defaults({name: value for name, value in manual.defaults.items() if "." in name and name in known})
    if made_for is not None:
        if len(_parsers) == MOST_PARSERS:
            del _parsers[next(iter(_parsers))]  # the oldest
        _parsers[made_for] = options
    return options


def read_file(path: Path, manual: Manual, kind: type[One]) -> One:
    """The configuration that a run folder keeps."""
    from ebar.build.kinds import something_else  # which knows every kind of run, and so reads this file

    if not path.exists():
        raise something_else(path.parent, manual.command)
    try:
        return read(["--config", str(path)], manual, kind)
    except UserError as error:
        raise something_else(path.parent, manual.command, error) from None


def to_yaml(config: Any) -> str:
    """A complete configuration, every default in it; `read_file` reads it back."""
    return as_yaml(lasting(config))


def described(folder: Path, manual: Manual, config: Any) -> str:
    """The text a run folder keeps of a configuration: what is there already, if it means the same.

    An earlier version may have written it, before options were renamed or added.
    """
    path, now = folder / "config.yaml", to_yaml(config)
    try:
        before = read_file(path, manual, type(config))
    except UserError:
        return now
    return path.read_text(encoding="utf-8") if to_yaml(before) == now else now


class _Entry(NamedTuple):
    """What a field picks from its table."""

    kind: str
    entry: Any
    choices: tuple[str, ...]


def _chosen(kind: type, words: Sequence[str], files: Mapping[str, Any], manual: Manual) -> dict[str, _Entry]:
    """By the names of the fields; the entries must be known before their options can be declared."""
    found: dict[str, _Entry] = {}
    for own in _fields(kind):
        if "table" in own.metadata:
            table, default = own.metadata["table"], manual.defaults.get(own.name, _default(own))
            suitable = None if own.name in manual.defaults else found.get(own.metadata["suits"])
            given = given_kind(own.name, words, files)
            name = str(getattr(suitable and suitable.entry, own.name, default.kind) if given is None else given)
            found[own.name] = _Entry(name, table.choose(name), tuple(sorted(table)))
    return found


def _declare(
    options: ArgumentParser, kind: type, chosen: Mapping[str, _Entry], manual: Manual, *, with_help: bool
) -> None:
    hints = get_type_hints(kind, include_extras=True)
    helps = _helps(kind) if with_help else None
    for own in _fields(kind):
        default = manual.defaults.get(own.name, _default(own))
        if own.name in chosen:
            name, entry, choices = chosen[own.name]
            options.add_argument(f"--{own.name}.kind", default=name, choices=list(choices), help=f"which {own.name}")
            options.add_class_arguments(entry, own.name, skip=set(own.metadata["table"].given), instantiate=False)
        elif is_dataclass(default) or is_dataclass(hints[own.name]):
            group = type(default) if is_dataclass(default) else hints[own.name]
            options.add_class_arguments(group, own.name, instantiate=False)
        else:
            help = None
            if helps is not None:
                help = own.metadata["help"]() if "help" in own.metadata else helps.get(own.name)
            _declare_option(options, own, hints[own.name], default, help)


def _declare_option(options: ArgumentParser, own: Field[Any], hint: Any, default: Any, help: str | None) -> None:
    settings: dict[str, Any] = {"type": hint, "help": help}
    if default is MISSING and not own.metadata.get("positional"):
        settings["type"] = hint | None  # asked for in `_instance`, in a sentence of our own
        default = None
    if hint == str | None:
        settings["type"] = str  # as it stands: read as YAML, '# one' would be a comment and 'null' nothing
    if get_origin(hint) is tuple and get_args(hint)[-1:] == (...,):
        settings |= {"type": get_args(hint)[0], "nargs": "*"}
        default = list(default)
    if own.metadata.get("metavar"):
        settings["metavar"] = own.metadata["metavar"]
    if own.metadata.get("positional"):
        optional = {} if own.default is MISSING else {"nargs": "?", "default": default}
        options.add_argument(own.name, **settings, **optional)
    else:
        options.add_argument(f"--{own.name}", default=default, **settings)


def _of_another_kind(name: str, kinds: tuple[type, ...]) -> str | None:
    """What to say of an option that the entry chosen here has not, and others of its table have."""
    key, _, option = name.removeprefix("--").partition(".")
    for table in (own.metadata["table"] for kind in kinds for own in _fields(kind) if own.name == key and own.metadata):
        having = sorted(entry for entry in table if option in inspect.signature(table[entry]).parameters)
        if option and having:
            return f"{key} of kind {' or '.join(having)} has it, so give --{key}.kind as well."
    return None


def _instance(kind: type[One], arguments: Namespace, manual: Manual) -> One:
    hints, found = get_type_hints(kind, include_extras=True), {}
    for own in _fields(kind):
        value, default = arguments[own.name], _default(own)
        if "table" in own.metadata:
            chosen = _group(value, own.name)
            name = chosen.pop("kind")
            options = checked_options(own.metadata["table"][name], chosen, own.name)
            found[own.name] = Chosen(kind=name, options=options)
            continue
        hint = hints[own.name]
        if is_dataclass(default) or is_dataclass(hint):
            value, hint = _group(value, own.name), type(default) if is_dataclass(default) else hint
        if value is None and default is MISSING:
            help = _helps(kind).get(own.name, "").rstrip(".")
            a = "an" if own.name[0] in "aeiou" else "a"
            wanted = f"{a} {own.name}: give --{own.name}, {help[:1].lower() + help[1:]}"
            raise UserError(f"`ebar {manual.command}` needs {wanted}.")
        found[own.name] = checked(value, hint, own.name)
    return kind(**found)


def _group(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, Namespace):
        raise UserError(f"{key} must be a group of options in the configuration, not {value!r}.")
    return dict(value.as_dict())


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


def _default(own: Field[Any]) -> Any:
    return own.default if own.default_factory is MISSING else own.default_factory()


def _helps(kind: type) -> dict[str, str]:
    """The string below each field."""
    from docstring_parser import parse_from_object

    classes = reversed([base for base in kind.__mro__ if is_dataclass(base)])
    found = [one for own in classes for one in parse_from_object(own).params]
    return {one.arg_name: " ".join((one.description or "").split()) for one in found}
