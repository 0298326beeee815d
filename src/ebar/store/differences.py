"""Configurations as YAML, and in what one differs from another, by the names of options on the command line."""

import re
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from ebar.errors import UserError

# Options that had another name in configurations of earlier versions.
RENAMED = {"dtype": "precision", "fitting": "training"}
MOST = 8  # differences that a sentence names
# The metadata of a field that no description has: whatever it is, the result is the same, and a run may go on with
# another; and of one that earlier versions did not have: they did as its default says.
PASSING, LATER = {"passing": True}, {"later": True}


def changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names that differ, in order; options of a table's entry stand beside its kind."""
    found = []
    for name in sorted({*one, *other}):
        left, right = one.get(name), other.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            inside = changed(left, right)
            found += inside if name == "options" else [f"{name}.{part}" for part in inside]
        elif left != right:
            found.append(name)
    return found


def differences(before: str, now: str) -> list[str]:
    """The same of two configurations as they are kept, in YAML or JSON."""
    return changed(_read(before), _read(now))


def of_another_kind(before: str, now: str) -> bool:
    """Whether each has options that the other has not: runs of one kind have the same, but for what later versions add.

    A configuration that says nothing is of any kind.
    """
    one, other = set(_read(before)), set(_read(now))
    return bool(one) and bool(other) and not (one <= other or other <= one)


def renamed(config: str) -> str:
    """A configuration of an earlier version, under the present names of its options."""
    for before, now in RENAMED.items():
        config = re.sub(rf"^{before}:", f"{now}:", config, flags=re.MULTILINE)
    return config


def listed_names(names: list[str]) -> str:
    """For a sentence."""
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + rest


def another_configuration(folder: Path, config: str, advice: str) -> UserError:
    """What to say of a folder that holds a run of another configuration."""
    before = (folder / "config.yaml").read_text(encoding="utf-8")
    if of_another_kind(before, config):
        options = listed_names(sorted(set(_read(before)) - set(_read(config))))
        return UserError(
            f"{folder} holds a run of another kind, whose configuration has {options}: choose another name."
        )
    return UserError(
        f"{folder} holds a run of another configuration: {advice} "
        f"(what differs: {listed_names(differences(before, config))})."
    )


def refuse_earlier_version(folder: Path, command: str, usable: str) -> None:
    """Raises where a run of several stages is from before stages had headers: their times were in one file then."""
    if (folder / "seconds.json").exists():
        raise UserError(
            f"{folder} was made by an earlier version of ebar: {usable}, and `ebar {command} --config "
            f"{folder}/config.yaml --name ANOTHER` makes all of it again."
        )


def made_from_something_else(place: Path, names: list[str]) -> UserError:
    """What to say of a stage of another description."""
    return UserError(
        f"{place} was made from something else (what differs: {listed_names(names)}): "
        "choose another name, or delete it."
    )


def _read(config: str) -> dict[str, Any]:
    import yaml

    try:
        tree = yaml.safe_load(renamed(config))
    except yaml.YAMLError:
        return {}
    return {str(name): value for name, value in tree.items()} if isinstance(tree, dict) else {}


def lasting(config: Any, *, as_before: bool = False) -> dict[str, Any]:
    """The fields of a dataclass that decide what comes out, groups inside included; those of PASSING do not.

    `as_before`: those of LATER only where they are not as by default, so that a folder of an earlier version of ebar
    has the same.
    """
    tree = asdict(config)
    for own in fields(config):
        value = getattr(config, own.name)
        if own.metadata.get("passing") or (as_before and own.metadata.get("later") and value == own.default):
            del tree[own.name]
        elif is_dataclass(value):
            tree[own.name] = lasting(value, as_before=as_before)
    return tree


def as_yaml(tree: dict[str, Any]) -> str:
    """A configuration as YAML. The options of a table's entry are written beside its kind."""
    for key, value in tree.items():
        if isinstance(value, dict) and set(value) == {"kind", "options"}:
            tree[key] = {"kind": value["kind"], **value["options"]}
    return str(yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True))


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return [_plain(value) for value in node]
    if isinstance(node, Path):
        return str(node.resolve())  # absolute, so that the run can be evaluated from any folder
    # Restricted numbers are subclasses that YAML does not know.
    return next((kind(node) for kind in (bool, int, float, str) if isinstance(node, kind)), None)
