"""What every command's options share: YAML and flags through jsonargparse, errors in one sentence."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_parsing_settings

from ebar.errors import UserError


def parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """An empty parser whose help ends in an example."""
    from argparse import RawDescriptionHelpFormatter

    # What stands below each field of a dataclass is its help. Reading it takes half a second: only when asked for.
    set_parsing_settings(docstring_parse_attribute_docstrings=not {"-h", "--help"}.isdisjoint(words))

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
    """Parsed and checked; what nobody declared is an error that names the nearest real options."""
    known = [name for action in options._actions for name in action.option_strings]
    for word in words:
        # Before the parser sees it: it would take an unknown option's value for something else, and complain of that.
        name = word.partition("=")[0].removesuffix("+")
        if name.startswith("--") and name not in known:
            raise UserError(f"There is no option {name!r}: {_nearest(name, known)}")
    try:
        return options.parse_args(list(words))
    except ArgumentError as error:
        raise UserError(_sentence(str(error), known)) from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"The configuration cannot be read: {error}.") from None


def _sentence(message: str, known: Sequence[str]) -> str:
    """jsonargparse's message as one sentence, with the nearest real options where a key of a file is unknown."""
    sentence = re.sub(r"\s+", " ", message).strip().rstrip(".")
    unknown = re.search(
        r"'(\S+)' does not accept option '([^']+)'|[Kk]ey [\"']?([\w.]+)[\"']? is not expected", sentence
    )
    if unknown is None:
        return f"{sentence}."
    group, option, key = unknown.groups()
    return f"{sentence}: {_nearest('--' + (key or f'{group}.{option}'), known)}"


def _nearest(wanted: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    siblings = [name for name in known if name.startswith(wanted.partition(".")[0] + ".")] if "." in wanted else []
    return f"the options are {', '.join(sorted(siblings or known))}."


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
    skip: Collection[str] = (),
) -> str:
    """`--key.kind` and the options of the class it picks; gives the kind."""
    kind = chosen_kind(words, key, default, table)
    options.add_argument(f"--{key}.kind", default=kind, choices=sorted(table), help=f"which {key}")
    options.add_class_arguments(table[kind], key, skip=set(skip), instantiate=False)
    return kind


def group(arguments: Namespace, key: str) -> dict[str, Any]:
    """The options under a key, checked for what no type says."""
    found = arguments.get(key)
    if not isinstance(found, Namespace):
        raise UserError(f"{key} must be a group of options in the configuration, not {found!r}.")
    options: dict[str, Any] = found.as_dict()
    check_positive(options, key)
    return options


# Options, of whatever key, that only mean something from 1 up, or above 0.
COUNTS = {
    "accumulate", "batch_size", "batch_tokens", "chains", "checkpoint_every", "epochs", "evaluate_every",
    "held_out_batch", "held_out_limit", "length", "limit", "max_proposals", "maximal_length", "particles", "patience",
    "proposals_per_draw", "size", "surrogate_draws", "test_size", "thin", "validation_size", "vocabulary",
}  # fmt: skip
AMOUNTS = {"clip"}


def check_positive(options: Mapping[str, Any], key: str) -> None:
    """Told before any work, by the name the user gave it."""
    for name, value in options.items():
        if name in COUNTS and value is not None and value < 1:
            raise UserError(f"{key}.{name} must be 1 or more, not {value}.")
        if name in AMOUNTS and value is not None and not value > 0:
            raise UserError(f"{key}.{name} must be above 0, not {value}.")
