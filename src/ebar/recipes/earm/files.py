"""Where the data of a recipe lies."""

import os
from pathlib import Path

from ebar.errors import UserError


def file_of(name: str) -> Path:
    """A file below the folder that EBAR_DATA names."""
    folder = os.environ.get("EBAR_DATA")
    if not folder:
        raise UserError(f"This recipe needs the file {name}: put it in a folder and name that folder in EBAR_DATA.")
    path = Path(folder) / name
    if not path.exists():
        raise UserError(f"There is no {name} in the folder that EBAR_DATA names, {folder}: put it there.")
    return path
