"""The table of mutants follows the code: `make mutants` runs every entry."""

import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "benchmarks" / "mutants.toml"


@pytest.fixture
def mutants_draw(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("mutants_draw")


def test_every_chosen_mutant_finds_its_text_once_in_its_file(mutants_draw) -> None:
    found, stale = mutants_draw.chosen(ROOT, TABLE)
    assert stale == []
    assert len(found) == len(tomllib.loads(TABLE.read_text())["chosen"])


def test_a_mutant_whose_text_is_gone_or_is_there_twice_is_reported(mutants_draw, tmp_path: Path) -> None:
    (tmp_path / "src" / "ebar").mkdir(parents=True)
    (tmp_path / "src" / "ebar" / "sums.py").write_text("a = 1 + 1\nb = 1 + 1\nc = 2 - 1\n")
    entry = '[[chosen]]\nfile = "sums.py"\nbefore = "{}"\nafter = "2"\nwhy = "wrong"\n'
    (tmp_path / "table.toml").write_text("".join(map(entry.format, ("1 + 1", "2 - 1", "3 * 1"))))
    found, stale = mutants_draw.chosen(tmp_path, tmp_path / "table.toml")
    assert [(mutant.before, mutant.after) for mutant in found] == [("c = 2 - 1", "c = 2")]
    assert [complaint.split("'")[1] for complaint in stale] == ["1 + 1", "3 * 1"]


@pytest.mark.parametrize("entry", tomllib.loads(TABLE.read_text())["equivalent"], ids=lambda entry: entry["before"])
def test_every_equivalent_mutant_is_of_lines_that_are_there(entry: dict[str, str]) -> None:
    lines = [line.strip() for line in (ROOT / "src" / "ebar" / entry["file"]).read_text().splitlines()]
    assert set(entry["before"].split(" ⏎ ")) <= set(lines)
