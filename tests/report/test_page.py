"""A report is one file, loads nothing, and cannot be broken by what it shows."""

import math
import re
from pathlib import Path

from ebar.report.page import (
    Beside,
    Folded,
    Legend,
    PageFigure,
    PageTable,
    Samples,
    Section,
    Text,
    Warnings,
    page,
    write_page,
)
from ebar.report.plots import Dots, Line, Panel, plot_panels
from ebar.types import Estimate

PANEL = Panel(
    title="t", x_label="x", y_label="y", levels={"H": 0.5}, log_x=True,
    lines=[Line(name="a", x=[1.0, 10.0], y=[1.0, 0.5], low=[0.9, 0.4], high=[1.1, 0.6])],
)  # fmt: skip


def test_what_is_shown_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    shown = page(evil, [Section(evil, [Text(evil), Warnings([evil]), PageTable([evil], [[evil]]), Samples([evil])])])
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 8


def test_an_estimate_shows_its_interval_and_its_warning() -> None:
    rows = [["sampled", Estimate(1.5, 1.25, 1.75, 10, "too few")], ["known", Estimate.exact(2.0)]]
    shown = PageTable(["figure", "value"], rows).html()
    assert "1.5 <abbr title='too few'>⚠</abbr> <small>[1.25, 1.75]</small>" in shown
    assert "2 <small>exact</small>" in shown


def test_marks_stand_around_their_spans_even_where_these_overlap() -> None:
    assert Samples(["0110"], [[(1, 3)]]).html() == "<pre>0<mark>11</mark>0</pre>"
    assert Samples(["aaaa"], [[(0, 2), (1, 3)]]).html() == "<pre><mark>aa</mark><mark>a</mark>a</pre>"


def test_a_drawing_is_the_same_file_every_time_and_is_part_of_the_page(tmp_path: Path) -> None:
    first, second = plot_panels([PANEL], tmp_path / "plot.svg"), plot_panels([PANEL])
    assert first == second == (tmp_path / "plot.svg").read_text()
    write_page(tmp_path / "page.html", "t", [Section("s", [PageFigure(first, "caption")])])
    written = (tmp_path / "page.html").read_text()
    assert written.count("<svg") == 1
    assert not re.findall(r"(?:src|href)=[\"'](?!#)", written)


def test_parts_side_by_side_folded_and_in_colours() -> None:
    assert Samples(["0110"], [[(0, 1, 1), (1, 3, 0)]]).html() == "<pre><mark class=c1>0</mark><mark>11</mark>0</pre>"
    assert Legend(["a<", "b"]).html() == "<p><mark>a&lt;</mark> <mark class=c1>b</mark></p>"
    assert Beside([("<t>", Text("x")), ("", Text("y"))]).html() == (
        "<div class=beside><div><h3>&lt;t&gt;</h3><p>x</p></div><div><p>y</p></div></div>"
    )
    assert Folded("<t>", [Text("x")]).html() == "<details><summary>&lt;t&gt;</summary><p>x</p></details>"


def test_only_wide_tables_have_intervals_below_values() -> None:
    assert "class=wide" not in PageTable(["a"] * 4, []).html()
    assert "class=wide" in PageTable(["a"] * 5, []).html()


def test_intervals_as_dots_bear_infinite_ends_and_names_with_dollars() -> None:
    rows = {"$a$": Estimate(1.0, 0.5, 1.5, 10), "b": Estimate(-9.0, -math.inf, -5.0, 10), "c": Estimate.exact(0.0)}
    shown = plot_panels([Dots(title="λ", x_label="λ", rows=rows), PANEL])
    assert shown.count("axes_") >= 2
    assert plot_panels([Dots(title="λ", x_label="λ", rows={"d": Estimate(-math.inf, -math.inf, math.inf, 1)})])
