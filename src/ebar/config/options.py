"""What every command's options share: jsonargparse, with errors that are one sentence."""

import textwrap
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, Namespace, set_parsing_settings

from ebar.config.sentences import nearest, sentence_of
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


def parse_options(
    options: ArgumentParser,
    words: Sequence[str],
    *,
    command: str,
    files: Sequence[tuple[str, str]] = (),
    elsewhere: Callable[[str], str | None] = lambda name: None,
) -> Namespace:
    """Parsed and checked; what nobody declared is an error that names the nearest real options.

    `files` are names and texts of configurations, to say where a wrong option stands; `elsewhere` tells of an option
    that another kind of something has.
    """
    known = [name for action in options._actions for name in action.option_strings]
    for word in words:
        # Before the parser sees it: it would take an unknown option's value for something else, and complain of that.
        name = word.partition("=")[0].removesuffix("+")
        if name.startswith("--") and name not in known:
            raise UserError(f"There is no option {name!r}: {elsewhere(name) or nearest(name, known)}")
    try:
        return options.parse_args(_switched(options, words))
    except ArgumentError as error:
        raise UserError(sentence_of(str(error), command, known, files)) from None
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
