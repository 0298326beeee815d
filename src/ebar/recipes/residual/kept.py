"""Parts of a long run, kept as they are finished."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebar.store.writing import replace, to_json


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was made before, or what is made now: killed and run anew, a run goes on after its last finished part."""
    if not path.exists():
        replace(path, to_json(make()))
    return json.loads(path.read_text())  # type: ignore[no-any-return]
