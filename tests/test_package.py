"""The names a user writes, `ebar.Tilted`, are there, and cost nothing until asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ebar


@pytest.mark.parametrize("name", ebar._PLACES)
def test_every_public_name_is_what_its_module_defines(name: str) -> None:
    assert getattr(ebar, name).__module__.startswith(ebar._PLACES[name])


def test_type_checkers_and_the_running_program_see_the_same_names() -> None:
    tree = ast.parse(Path(ebar.__file__).read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("ebar.")  # type: ignore[union-attr]
        for alias in node.names
    }
    assert typed == ebar._PLACES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Tiltde"):
        _ = ebar.Tiltde


def test_importing_ebar_imports_nothing_heavy() -> None:
    code = "import ebar, sys; assert not {'torch', 'numpy', 'rich', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
