"""The page of all reproductions: no table or figure is missing, and it says what is recorded today."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebar.cli import main
from ebar.errors import UserError
from ebar.recipes import RECIPES, find_recipe
from ebar.recipes.claims import IN_PART, Claim
from ebar.recipes.documents import DOCUMENTS, Entry
from ebar.recipes.recipe import Finding, Recipe, Row, several
from ebar.recipes.summary import NOT_RUN, RUN_EARLIER, chosen_findings, line_of, summary, summary_page

DOCS = Path(__file__).parents[2] / "docs"
ENTRIES = [entry for document in DOCUMENTS for entry in document.entries]
# What the documents' own lists of tables and figures hold, and captions where there is no list.
NUMBERED = {
    "Parshakova": "Table 1-4, Figure 1-7",
    "Wang": "Table 1-12, Figure 1-2",
    "Dai 2019 (thesis), chapters": (
        "Figure 3.1-3.2, Table 3.1-3.5, Figure 4.1-4.2, Table 4.1-4.6, Table 5.1-5.1, Figure 6.1-6.6, Table 6.1-6.4, "
        "Figure 7.1-7.1"
    ),
    "Dai 2019 (thesis), appendices": (
        "Figure A.1-A.1, Table A.1-A.14, Figure B.1-B.9, Table B.1-B.3, Figure C.1-C.6, Table C.1-C.2"
    ),
}
SLIDES = [  # of Deng et al. 2020 that have a table, a plot, a picture or a list of texts
    "Great Progress", "search for text", "Algorithm 1", "Estimated Perplexities", "Limitation of Perplexity",
    "Per-Step", "better generations", "Human Evaluation", "Energy Distribution", "Given a prefix", "Unique Ratio",
    "harder to discriminate",
]  # fmt: skip


def numbered(said: str) -> set[str]:
    """By hand: "Table 1-2, Figure A.1-A.1" is Table 1, Table 2 and Figure A.1."""
    found = set()
    for kind, chapter, first, last in re.findall(r"(Table|Figure) ((?:\w+\.)?)(\d+)-(?:\w+\.)?(\d+)", said):
        found |= {f"{kind} {chapter}{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_ranges_are_read_as_they_are_meant() -> None:
    assert numbered("Table 1-2, Figure A.1-A.1") == {"Table 1", "Table 2", "Figure A.1"}


@pytest.mark.parametrize("title", NUMBERED)
def test_every_table_and_figure_has_a_line(title: str) -> None:
    (document,) = (document for document in DOCUMENTS if document.title.startswith(title))
    known = [re.match(r"(?:Table|Figure) [\w.]+", entry.place) for entry in document.entries]
    assert {one[0] for one in known if one} == numbered(NUMBERED[title])


def test_every_slide_that_shows_something_has_a_line() -> None:
    (document,) = (document for document in DOCUMENTS if document.title.startswith("Deng"))
    places = [entry.place for entry in document.entries]
    assert all(sum(slide in place for place in places) == 1 for slide in SLIDES)


def test_no_line_stands_twice_and_none_is_without_a_recipe_or_a_reason() -> None:
    for document in DOCUMENTS:
        places = [entry.place for entry in document.entries]
        assert len(set(places)) == len(places)
    assert all(entry.says and (entry.recipe or entry.why) for entry in ENTRIES)


def test_every_recipe_has_a_line_and_every_line_names_a_recipe_that_exists() -> None:
    assert {entry.recipe for entry in ENTRIES if entry.recipe} == set(RECIPES)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.claims], ids=lambda entry: entry.place)
def test_claims_that_a_line_names_are_the_recipes(entry: Entry) -> None:
    said = {getattr(claim, "says", "") for claim in several(find_recipe(str(entry.recipe)).claims)}
    assert entry.claims is not None
    assert set(entry.claims) <= said


def test_the_page_is_what_would_be_written_today() -> None:
    page = DOCS / "reproductions.md"
    assert page.read_text() == summary_page(summary(DOCS / "results"), page), "ebar reproduce --summary"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with a record of 90 s, of which 60 s passed."""

    def no_rows(results: Sequence[object]) -> list[Row]:
        return []

    recipe = Recipe(
        title="Coins", source="a test", grid=lambda scale: [{"seed": seed} for seed in range(3)],
        run=lambda cell, folder: {}, figures=no_rows,
        claims=[
            Claim(says="it falls", figure="drop", below=0.0), Claim(says="it rises", figure="gain", above=0.0),
            lambda rows: "A sentence without a verdict.",
        ],
    )  # fmt: skip
    monkeypatch.setitem(RECIPES, "spine/coins", recipe)
    rows = [
        {"name": "drop", "settings": {}, "value": -1.0, "low": -2.0, "high": -0.5, "warning": None},
        {"name": "gain", "settings": {"n": 1}, "value": 0.25, "low": -1.0, "high": 1.5, "warning": None},
    ]
    record = {
        "format": 2, "recipe": "spine/coins", "scale": "cpu", "command": "ebar", "seeds": [0, 1, 2], "commit": None,
        "wall_seconds": 90.0, "elapsed_seconds": 60.0, "cells": recipe.grid("cpu"), "rows": rows,
    }  # fmt: skip
    (tmp_path / "spine").mkdir()
    (tmp_path / "spine" / "coins.cpu.json").write_text(json.dumps(record))
    return tmp_path


def test_a_line_says_what_is_recorded(recorded: Path) -> None:
    line = line_of("A paper", Entry(place="Table 1", says="coins fall | rise", recipe="spine/coins"), recorded)
    assert (line.verdict, line.scale, line.seeds) == (IN_PART, "cpu", "3")
    assert line.ours == "it falls: -1 (-2 … -0.5); it rises: 0.25 (-1 … 1.5)"
    assert (line.elapsed_minutes, line.summed_minutes) == (1.0, 1.5)
    one = Entry(place="Figure 1", says="coins fall", recipe="spine/coins", claims=("it falls",))
    assert line_of("A paper", one, recorded).verdict == "reproduced"
    assert line_of("A paper", Entry(place="b", says="", recipe="spine/coins", claims=()), recorded).verdict == "shown"


def test_what_is_not_recorded_says_so_or_why(tmp_path: Path) -> None:
    missing = Entry(place="Table 2", says="", recipe="gam/table2")
    assert line_of("", missing, tmp_path)[4:6] == ("not recorded yet", NOT_RUN)
    gpu = Entry(place="Table 3", says="", recipe="gam/table3", why="needs a GPU")
    assert line_of("", gpu, tmp_path)[4:6] == ("needs a GPU", NOT_RUN)


def test_a_record_of_earlier_settings_is_linked_and_has_no_verdict(tmp_path: Path) -> None:
    entry = Entry(place="Table 3", says="", recipe="earm/table3")
    page = tmp_path / "earlier" / "earm" / "table3.cpu.md"
    page.parent.mkdir(parents=True)
    page.write_text("# as it was")
    line = line_of("a document", entry, tmp_path)
    assert (line.ours, line.verdict, line.page) == (RUN_EARLIER, NOT_RUN, page)


def test_a_claim_that_a_recipe_does_not_have_is_an_error_that_lists_those_it_has() -> None:
    entry = Entry(place="Table 1", says="", recipe="gam/table1", claims=("it is faster",))
    with pytest.raises(UserError, match="no claim 'it is faster': choose one of it is slower"):
        chosen_findings(entry, [Finding("reproduced", "", "it is slower"), Finding("", "without a verdict")])


def test_the_command_writes_the_page_and_its_lines_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "folder" / "page.md"
    words = ["reproduce", "--summary", "--output", str(tmp_path), "--page", str(page)]
    assert main([*words, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert len(lines) == len(ENTRIES)
    assert {line["verdict"] for line in lines} == {NOT_RUN, "–"}  # nothing is recorded there
    assert page.read_text().startswith("# What is reproduced")
    assert main(["reproduce", "gam/table1", "--summary"]) == 2
    assert "summary is of all recipes" in capsys.readouterr().err
