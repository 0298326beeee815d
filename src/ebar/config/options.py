"""What every command's options share: jsonargparse, with errors that are one sentence."""

import difflib
import re
import textwrap
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, Namespace, set_parsing_settings

from ebar.errors import UserError


def wants_help(words: Sequence[str]) -> bool:
    """Whether the options are to be described."""
    return not {"-h", "--help"}.isdisjoint(words)


def parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """An empty parser whose help ends in an example."""
    # What stands below each field of a dataclass is its help. Reading it takes half a second: only when asked for.
    set_parsing_settings(docstring_parse_attribute_docstrings=wants_help(words))
    return ArgumentParser(
        prog=f"ebar {command}",
        description="\n".join(textwrap.fill(line, 118) for line in purpose.splitlines()),
        epilog=f"example:\n  {example}",
        exit_on_error=False,
        formatter_class=type("Formatter", (RawDescriptionHelpFormatter, DefaultHelpFormatter), {}),
    )


def parse_options(options: ArgumentParser, words: Sequence[str]) -> Namespace:
    """Parsed and checked; what nobody declared is an error that names the nearest real options."""
    known = [name for action in options._actions for name in action.option_strings]
    for word in words:
        # Before the parser sees it: it would take an unknown option's value for something else, and complain of that.
        name = word.partition("=")[0].removesuffix("+")
        if name.startswith("--") and name not in known:
            raise UserError(f"There is no option {name!r}: {_nearest(name, known)}")
    try:
        return options.parse_args(_switched(options, words))
    except ArgumentError as error:
        raise UserError(_sentence(str(error), known)) from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"The configuration cannot be read: {error}.") from None


def _switched(options: ArgumentParser, words: Sequence[str]) -> list[str]:
    """`--json` alone is `--json=true`: an option that is true or false needs no value to be true."""
    switches = {
        name for action in options._actions if getattr(action, "_typehint", None) is bool
        for name in action.option_strings
    }  # fmt: skip
    following = [*words[1:], ""]
    return [
        f"{word}=true" if word in switches and after.lower() not in ("true", "false", "yes", "no") else word
        for word, after in zip(words, following, strict=False)
    ]


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
