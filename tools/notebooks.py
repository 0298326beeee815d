"""`python tools/notebooks.py`: the tutorials of the documentation as notebooks in `examples`.

A page is its only source: what stands between blocks of Python becomes a cell of text, each block a cell of code. Links
are those of the page, seen from `examples`. A test compares the two.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTEBOOK = {
    "metadata": {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}


def notebook_path(page: Path) -> Path:
    """Where the notebook of a page is."""
    return ROOT / "examples" / f"{page.stem}.ipynb"


def notebook(page: Path) -> str:
    """The notebook of a page, as it is written to disk."""
    parts = BLOCK.split(page.read_text(encoding="utf-8"))  # text, code, text, code … text
    cells = [_cell(number, part) for number, part in enumerate(parts) if part.strip()]
    return json.dumps({"cells": cells, **NOTEBOOK}, indent=1, ensure_ascii=False) + "\n"


def code(written: str) -> list[str]:
    """The cells of code of a notebook."""
    cells = json.loads(written)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _cell(number: int, part: str) -> dict[str, Any]:
    is_code = number % 2 == 1
    text = part.strip() if is_code else _relinked(part.strip())
    own: dict[str, Any] = {"execution_count": None, "outputs": []} if is_code else {}
    kind = "code" if is_code else "markdown"
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True), **own}


def _relinked(text: str) -> str:
    """Other tutorials are notebooks beside this one; all else is in `docs`."""
    text = re.sub(r"\]\((\w+)\.md\)", r"](\1.ipynb)", text)
    return re.sub(r"\]\(\.\./", "](../docs/", text)


if __name__ == "__main__":
    for page in PAGES:
        notebook_path(page).write_text(notebook(page), encoding="utf-8")
