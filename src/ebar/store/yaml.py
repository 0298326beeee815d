"""Configurations and descriptions of runs as YAML."""

from pathlib import Path
from typing import Any

import yaml


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
