"""What every command's options share: YAML and flags through jsonargparse, errors in one sentence."""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from ebar.errors import UserError

set_parsing_settings(docstring_parse_attribute_docstrings=True)


def parser(command: str, purpose: str, example: str) -> ArgumentParser:
    """An empty parser whose help ends in an example."""
    from argparse import RawDescriptionHelpFormatter

    class Formatter(RawDescriptionHelpFormatter, _default_formatter()):  # type: ignore[misc]
        pass

    return ArgumentParser(
        prog=f"ebar {command}",
        description=purpose,
        epilog=f"example:\n  {example}",
        exit_on_error=False,
        formatter_class=Formatter,
    )


def _default_formatter() -> type:
    from jsonargparse import DefaultHelpFormatter

    return DefaultHelpFormatter


def parse(options: ArgumentParser, words: Sequence[str]) -> Namespace:
    """Parsed and checked; what nobody declared is an error that lists the real options."""
    try:
        return options.parse_args(list(words))
    except ArgumentError as error:
        raise UserError(explain(str(error), options)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The configuration cannot be read: {error}.") from None


def explain(message: str, options: ArgumentParser) -> str:
    """jsonargparse's message as one sentence, with the nearest real options where one was unknown."""
    known = [name for action in options._actions for name in action.option_strings if name.startswith("--")]
    sentence = re.sub(r"\s+", " ", message).strip().rstrip(".")
    unknown = re.search(
        r"unrecognized arguments: (\S+)|does not accept option '([^']+)'|[Kk]ey \"?'?([\w.]+)'?\"? is not expected",
        sentence,
    )
    if unknown is None:
        return f"{sentence}."
    wrong = next(part for part in unknown.groups() if part)
    wanted = "--" + wrong.lstrip("-").split("=")[0]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [name for name in known if name.endswith("." + wanted.lstrip("-")) and name not in near]
    hint = f"did you mean {' or '.join(near)}?" if near else f"the options are {', '.join(sorted(known))}."
    return f"{sentence}: {hint}"


def chosen_kind(words: Sequence[str], key: str, default: str, table: Mapping[str, Any]) -> str:
    """Which entry of a table the flags or the configuration file pick, before its options can be declared."""
    found = default
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word == "--config" or word.startswith("--config="):
            path = word.partition("=")[2] or following
            found = _in_file(path, key) or found
        elif word == f"--{key}.kind":
            found = following
        elif word.startswith(f"--{key}.kind="):
            found = word.partition("=")[2]
    if found not in table:
        raise UserError(f"There is no {key} called {found!r}: choose one of {', '.join(sorted(table))}.")
    return found


def _in_file(path: str, key: str) -> str | None:
    import yaml

    try:
        value = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError):
        return None  # the parser itself will say what is wrong with the file
    for part in [*key.split("."), "kind"]:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def add_kind(
    options: ArgumentParser,
    words: Sequence[str],
    key: str,
    table: Mapping[str, Any],
    default: str,
    skip: set[str | int] | None = None,
) -> str:
    """`--key.kind` and the options of the class it picks; gives the kind."""
    kind = chosen_kind(words, key, default, table)
    options.add_argument(f"--{key}.kind", default=kind, choices=sorted(table), help=f"which {key}")
    options.add_class_arguments(table[kind], key, skip=skip or set(), instantiate=False)
    return kind
