"""Pages in docs/results: each is what its JSON renders to, and says nothing that its figures do not bear out."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ebar.cli import main
from ebar.errors import UserError
from ebar.recipes import RECIPES, SCALES, find_recipe
from ebar.recipes.recipe import Row
from ebar.recipes.render import rendered, row_from
from ebar.recipes.reproduce import render

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORDS = sorted(RESULTS.glob("*/*.json"))
# Figures that can be no more than 1 and no less than 0, and such as can be no less than 0; differences are neither.
SHARES = re.compile(r"frequency|\bshare|accuracy|positive rate|probability|total_variation|effective samples per draw")
AMOUNTS = re.compile(r"ℓ1|KL|^kl|seconds|length|perplexity|entropy|nats of|bits per|distinct")
DIFFERENCES = re.compile(r" − |_minus_|minus one half|minus that of|difference")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.split('.')[0]}"


@cache
def page_of(path: Path) -> tuple[str, list[Row]]:
    return rendered(path, find_recipe(name_of(path)))


def rows_of(path: Path) -> list[Row]:
    return page_of(path)[1]


def recorded_of(*names: str) -> list[str]:
    """Those of these recipes that have a record."""
    return [name for name in names if RESULTS / f"{name}.cpu.json" in RECORDS]


def note_of(name: str, start: str) -> str:
    text = (RESULTS / f"{name}.cpu.md").read_text()
    return next(line for line in text.splitlines() if line.startswith(f"- {start}"))


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_a_committed_page_is_what_its_record_renders_to(path: Path) -> None:
    text, _ = page_of(path)
    assert path.with_suffix(".md").read_text() == text, f"ebar reproduce {name_of(path)} --scale … --render"
    assert path.with_suffix(".svg").exists()


def test_no_page_is_without_its_record() -> None:
    assert {path.with_suffix("") for path in RESULTS.glob("*/*.md")} == {path.with_suffix("") for path in RECORDS}
    assert all(name_of(path) in RECIPES and path.suffixes[0][1:] in SCALES for path in RECORDS)


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_every_interval_says_what_it_is_over(path: Path) -> None:
    for row in rows_of(path):
        assert (row.low is None) == (row.high is None)
        assert row.low is None or row.over, row


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_no_interval_reaches_past_what_its_figure_can_be(path: Path) -> None:
    for row in rows_of(path):
        if row.low is None or row.high is None or DIFFERENCES.search(row.name):
            continue
        if SHARES.search(row.name):
            assert 0 <= row.low <= row.high <= 1, row
        if AMOUNTS.search(row.name):
            assert row.low >= 0, row


def test_the_figures_shown_are_those_of_the_record() -> None:
    """What a page adds is words: no value of ours is changed."""
    for path in RECORDS:
        recorded = [row_from(row) for row in json.loads(path.read_text())["rows"]]
        assert [(row.value, row.settings) for row in recorded] == [(row.value, row.settings) for row in rows_of(path)]


def test_a_record_of_another_format_is_refused(tmp_path: Path) -> None:
    record = json.loads((RESULTS / "earm/motif.cpu.json").read_text())
    path = tmp_path / "motif.cpu.json"
    path.write_text(json.dumps({key: value for key, value in record.items() if key != "format"}))
    with pytest.raises(UserError, match="another version of ebar: run the recipe again"):
        rendered(path, find_recipe("earm/motif"))


def test_the_documents_figures_stand_beside_figures_of_the_same_kind_alone() -> None:
    for name in recorded_of("earm/table3", "earm/table4"):
        assert all(row.document is None for row in rows_of(RESULTS / f"{name}.cpu.json")), name
        assert "| paper" not in (RESULTS / f"{name}.cpu.md").read_text()
    for name in recorded_of("earm/table3"):
        assert "are of WikiText-103 and its own tokens" in note_of(name, "The paper's perplexities")
    for name in recorded_of("earm/table5"):
        rows = [row for row in rows_of(RESULTS / f"{name}.cpu.json") if row.settings["model"] == "PixelCNN"]
        images = {row.name: row.document for row in rows if row.document is not None}
        assert images["test bits per dimension"] == 0.17
        assert images["training bits per dimension"] == 0.13
    for name in recorded_of("earm/table1", "earm/tatoeba", "earm/table9", "earm/table10"):
        assert "| paper (IWSLT14) |" in (RESULTS / f"{name}.cpu.md").read_text(), name


def test_stopping_earlier_than_the_authors_is_said() -> None:
    said = note_of("gam/data_efficiency", "r by the authors' settings")
    assert said.endswith("is stopped after 40 epochs at the latest where |D| = 5,000, not after 130 as theirs.")


def test_rendering_reads_the_record_and_leaves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = RESULTS / "earm" / "motif.cpu.json"
    record: dict[str, Any] = json.loads(source.read_text())
    record["rows"][0]["value"] = 59.5
    path = tmp_path / "earm" / "motif.cpu.json"
    path.parent.mkdir()
    path.write_text(json.dumps(record))
    before = path.read_bytes()
    assert main(["reproduce", "earm/motif", "--scale", "cpu", "--render", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(path.with_suffix(".md"))
    assert "| 500 | 59.5 |" in path.with_suffix(".md").read_text()
    assert path.with_suffix(".svg").read_text().startswith("<?xml")
    assert path.read_bytes() == before
    path.with_suffix(".md").unlink()
    assert main(["reproduce", "--render", "--output", str(tmp_path)]) == 0
    assert path.with_suffix(".md").exists()
    with pytest.raises(UserError, match="leave out --render"):
        render("earm/motif", scale="demo", output=tmp_path)
