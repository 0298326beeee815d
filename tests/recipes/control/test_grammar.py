"""The recipe of grammars at its smallest scale, and by another reader of schemas."""

from pathlib import Path

import pytest

from ebar.recipes.control import grammar
from ebar.recipes.control.grammar import DISTANCE, ERROR, IDEAL, MASKING, PERSON, SHOWN, VALID, WEIGHTED, is_valid
from ebar.recipes.rows import chosen

pytest.importorskip("transformers", reason="needs the extra ebar[hf]")
pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
pytest.importorskip("jsonschema", reason="jsonschema is not installed")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"name": "Ada", "age": 36}', True),
        ('{"age": 36, "name": "Ada"}', True),
        ('{"name": "Ada", "age": 121}', False),
        ('{"name": "Ada"}', False),
        ('{"name": "Ada", "age": 36', False),
    ],
)
def test_what_is_valid(text: str, valid: bool) -> None:
    assert is_valid(text, PERSON) is valid


def test_figures_of_the_smallest_scale(tmp_path: Path) -> None:
    """2,000 draws of two random models: weighted ones are near p, masking is not; log Z is within 5 of its errors."""
    results = [(cell, grammar.RECIPE.run(cell, tmp_path)) for cell in grammar.RECIPE.grid("demo")]
    rows = grammar.RECIPE.rows(results)
    assert chosen(rows, VALID, {})[0].value == 1
    assert all(row.value == 1 and 0 <= int(row.settings["text"]) <= 30 for row in chosen(rows, SHOWN, {}))
    weighted, ideal, masking = (chosen(rows, DISTANCE, {"of": of})[0].value or 0 for of in (WEIGHTED, IDEAL, MASKING))
    assert 0 < weighted < 3 * ideal
    assert weighted < 0.2 * masking
    assert abs(chosen(rows, ERROR, {})[0].value or 0) < 0.1
    assert len({cell["seed"] for cell, _ in results}) == 2
