"""Sequence models that carry an energy: P(x|C) = q(x|C)·exp(−E(x, C)).

The names users write, `ebar.Tilted`, are listed in `__init__.pyi` and imported on first use: `import ebar` is instant.
"""

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


@cache
def _places() -> dict[str, str]:
    """Public name → the module that defines it."""
    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in lines for alias in node.names}


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name not in _places():
        raise AttributeError(f"module 'ebar' has no attribute {name!r}")
    return getattr(importlib.import_module(_places()[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_places()]
