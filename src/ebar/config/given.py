"""What a command is given: its words, and the YAML files among them that --config names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ebar.config.sentences import yaml_sentence
from ebar.errors import UserError
from ebar.store.differences import RENAMED, renamed


def present(word: str, aliases: Mapping[str, str]) -> str:
    """A flag of an earlier version, or by another name, under its present name."""
    names = {**RENAMED, **aliases}
    name, equals, value = word.removeprefix("--").partition("=")
    name, dot, rest = name.partition(".")
    return f"--{names[name]}{dot}{rest}{equals}{value}" if word.startswith("--") and name in names else word


def with_files(words: Sequence[str]) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    """The words, each file's name replaced by what is in it, under the present names of options; trees and names."""
    found: list[str] = []
    files: dict[str, Any] = {}
    names: dict[str, str] = {}
    place = 0
    while place < len(words):
        word, place = words[place], place + 1
        if word == "--config" and place < len(words):
            word, place = f"--config={words[place]}", place + 1
        if word.startswith("--config="):
            name = word.partition("=")[2]
            text, tree = _read_yaml(name)
            word = f"--config={text}"
            files[word], names[word] = tree, name
        found.append(word)
    return found, files, names


def _read_yaml(name: str) -> tuple[str, dict[str, Any]]:
    try:
        text = renamed(Path(name).read_text(encoding="utf-8"))
        tree = yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(yaml_sentence(name, error)) from None
    if tree is not None and not isinstance(tree, dict):
        raise UserError(f"The configuration {name} must be a group of options, not {str(tree)[:40]!r}.")
    return ("{}", {}) if tree is None else (text, tree)


def given_options(words: Sequence[str]) -> set[str]:
    """The names of options that flags or files give, `group.option` those inside a group."""
    words, files, _ = with_files(words)
    flags = {word.partition("=")[0].removeprefix("--").removesuffix("+") for word in words if word.startswith("--")}
    return flags | {name for tree in files.values() for name in _names(tree)}


def _names(tree: Mapping[str, Any], before: str = "") -> list[str]:
    return [
        name
        for key, value in tree.items()
        for name in (_names(value, f"{before}{key}.") if isinstance(value, dict) and value else [f"{before}{key}"])
    ]


def kind_is_given(key: str, words: Sequence[str]) -> bool:
    """Whether flags or files say which entry of a table a field picks."""
    found, files, _ = with_files(words)
    return given_kind(key, found, files) is not None


def given_kind(key: str, words: Sequence[str], files: Mapping[str, Any]) -> Any:
    """The last of those that flags and files give."""
    kind = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word == f"--{key}.kind":
            kind = after
        elif word.startswith(f"--{key}.kind="):
            kind = word.partition("=")[2]
        elif word in files:
            group = files[word].get(key)
            kind = group.get("kind", kind) if isinstance(group, dict) else kind
    return kind
