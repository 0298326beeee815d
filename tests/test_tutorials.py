"""The tutorials run as they stand, from their notebooks, which say what their pages say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.test_documentation import ARROW, ROOT, run
from tools.notebooks import PAGES, code, notebook, notebook_path

FOLDER = ROOT / "examples"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_says_what_its_page_says(page: Path) -> None:
    written = notebook_path(page).read_text(encoding="utf-8")
    assert written == notebook(page), "run `make pages`"
    cells = json.loads(written)["cells"]
    assert cells[0]["cell_type"] == "markdown"
    for link in re.findall(r"\]\(([^)#:]+)[)#]", "".join(line for cell in cells for line in cell["source"])):
        assert (FOLDER / link).exists(), link


def test_every_notebook_has_a_page() -> None:
    assert sorted(FOLDER.glob("*.ipynb")) == sorted(map(notebook_path, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_cell_runs_and_gives_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = code(notebook_path(page).read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": page.stem}
    assert sum(run(cell, namespace) for cell in cells) == sum(cell.count(ARROW) for cell in cells) > 0


def test_a_notebook_is_one_that_jupyter_reads() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    for page in PAGES:
        nbformat.validate(nbformat.reads(notebook_path(page).read_text(encoding="utf-8"), as_version=4))
