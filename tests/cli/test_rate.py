"""`ebar rate` and `ebar diversity`: texts judged by people, and by their n-grams."""

import json
import re
from pathlib import Path

import pytest

from ebar.evaluation.ratings import read_key
from tests.cli.test_commands import answer, complaint

OURS, THEIRS = ["a cat sat", "it rained", "the same"], ["cat the the", "rain it", "the same"]


@pytest.fixture
def page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for name, lines in {"prompts": ["one", "two", "three"], "ours": OURS, "theirs": THEIRS}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    files = [word for name in ("prompts", "ours", "theirs") for word in (f"--{name}", str(tmp_path / f"{name}.txt"))]
    found = answer(capsys, "rate", "make", *files, "--output", str(tmp_path / "pairs.html"))
    assert (found["pairs"], found["same"]) == (2, 1)
    return Path(found["page"])


def test_a_page_shows_the_pairs_and_its_key_says_whose_they_are(page: Path) -> None:
    shown = re.search(r"id=data>(.*?)</script>", page.read_text())
    assert shown is not None
    key = read_key(page.with_suffix(".key.json"))
    assert (key.ours, key.theirs) == ("ours", "theirs")
    for name, _, a, b in json.loads(shown.group(1))["pairs"]:
        assert (a if key.ours_is_a[name] else b) in OURS
        assert (b if key.ours_is_a[name] else a) in THEIRS


def test_ratings_are_read_with_the_key(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = page.with_suffix(".key.json")
    key = read_key(path)
    choices = [{"pair": name, "choice": "A" if ours else "B"} for name, ours in key.ours_is_a.items()]
    ratings = tmp_path / "ratings.json"
    ratings.write_text(json.dumps({"study": key.study, "rater": "Anna", "ratings": choices}))
    found = answer(capsys, "rate", "read", str(path), "--ratings", str(ratings))
    assert (found["wins"], found["losses"], found["share"]["value"], found["p_value"]) == (2, 0, 1.0, 0.5)
    assert "give --ratings" in complaint(capsys, "rate", "read", str(path))
    assert "give the file written beside the page" in complaint(
        capsys, "rate", "read", str(page), "--ratings", str(ratings)
    )


def test_equal_lines_are_as_alike_as_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "draws.txt"
    path.write_text("a b c d\n" * 4)
    found = answer(capsys, "diversity", str(path))
    assert found["self-BLEU"]["value"] == pytest.approx(100)
    assert found["distinct-1"] == 4 / 16
    assert found["references"] == 3
    path.write_text("a b c d\n")
    assert "give more texts" in complaint(capsys, "diversity", str(path))
