"""The names a user writes, `ebar.Tilted`, are there, and cost nothing until asked for."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ebar

ROOT = Path(__file__).parent.parent
REFERENCE = set(re.findall(r"^::: (\S+)", (ROOT / "docs/reference.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ebar._places())
def test_every_public_name_is_what_its_module_defines(name: str) -> None:
    found = getattr(ebar, name)
    assert found is getattr(importlib.import_module(ebar._places()[name]), name)
    assert name in dir(ebar)


@pytest.mark.parametrize("name", ebar._places())
def test_every_public_name_is_in_the_reference(name: str) -> None:
    module = getattr(ebar, name).__module__
    assert {module, f"{module}.{name}"} & REFERENCE, f"docs/reference.md lacks {module}.{name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Tiltde"):
        getattr(ebar, "Tiltde")  # noqa: B009


def test_importing_ebar_imports_nothing_heavy() -> None:
    code = "import ebar, sys; assert not {'torch', 'numpy', 'rich', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
