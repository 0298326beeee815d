"""The names a user writes, `ebar.Tilted`, are there, and cost nothing until asked for."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ebar
from ebar.cli.doctor import PURPOSES, _show

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


def test_extras_are_those_that_doctor_knows_and_all_is_all_of_them_but_the_cluster() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    known = set(PURPOSES) - {"core"}
    assert set(extras) == known | {"all", "dev"}
    (everything,) = extras["all"]
    assert set(everything.removeprefix("ebar[").removesuffix("]").split(",")) == known - {"cluster"}
    index = (ROOT / "docs" / "index.md").read_text()
    assert [name for name in extras if f"\n| `{name}` |" not in index] == []


def test_the_version_is_the_changelog_s_and_the_citation_s() -> None:
    assert f"\n## [{ebar.__version__}] - " in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {ebar.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_doctor_prints_names_of_extras_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    _show({"machine": {"wordnet": {"METEOR": "pip install 'ebar[metrics]'"}}, "extras": {}})
    assert "'ebar[metrics]'" in capsys.readouterr().out
