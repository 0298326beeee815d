"""One self-contained HTML page: it loads nothing, so it can be mailed, archived and opened offline."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ebar.types import Estimate

Span = tuple[int, int] | tuple[int, int, int]  # [start, stop), and the number of a colour
COLOURS = 6
STYLE = (files("ebar.report") / "page.css").read_text("utf-8")
WIDE = 4  # columns, above which intervals stand below their values


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    words: str

    def html(self) -> str:
        return f"<p>{html.escape(self.words)}</p>"


@dataclass(frozen=True, slots=True)
class Warnings:
    """What a reader must know before believing the numbers."""

    sentences: Sequence[str]

    def html(self) -> str:
        if not self.sentences:
            return "<p class=fine>No warnings.</p>"
        return "<ul class=warning>" + "".join(f"<li>{html.escape(line)}</li>" for line in self.sentences) + "</ul>"


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows of cells; an `Estimate` shows its interval, and its warning as a mark."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in self.rows)
        # A table wider than the page scrolls by itself.
        wide = " class=wide" if len(self.header) > WIDE else ""
        return f"<div class=scroll><table{wide}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A drawing in SVG."""

    svg: str
    caption: str = ""

    def html(self) -> str:
        drawing = self.svg[self.svg.index("<svg") :]
        return f"<figure>{drawing}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


@dataclass(frozen=True, slots=True)
class Samples:
    """Sequences as text, one per line, with the spans that matter marked."""

    lines: Sequence[str]
    marks: Sequence[Sequence[Span]] | None = None  # per line

    def html(self) -> str:
        marks = self.marks or [[] for _ in self.lines]
        return (
            "<pre>" + "\n".join(_marked(line, spans) for line, spans in zip(self.lines, marks, strict=True)) + "</pre>"
        )


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours of marks mean, in their order."""

    names: Sequence[str]

    def html(self) -> str:
        return "<p>" + " ".join(_mark(html.escape(name), colour) for colour, name in enumerate(self.names)) + "</p>"


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts with a heading each, side by side where there is room."""

    parts: "Sequence[tuple[str, Part]]"

    def html(self) -> str:
        cells = (
            f"<div>{f'<h3>{html.escape(title)}</h3>' if title else ''}{part.html()}</div>" for title, part in self.parts
        )
        return f"<div class=beside>{''.join(cells)}</div>"


@dataclass(frozen=True, slots=True)
class Folded:
    """What only some readers want: shown when asked for."""

    title: str
    parts: "Sequence[Part]"

    def html(self) -> str:
        body = "".join(part.html() for part in self.parts)
        return f"<details><summary>{html.escape(self.title)}</summary>{body}</details>"


Part = Text | Warnings | PageTable | PageFigure | Samples | Legend | Beside | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it."""

    title: str
    parts: Sequence[Part]


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole page as text."""
    body = "".join(
        f"<section><h2>{html.escape(section.title)}</h2>{''.join(part.html() for part in section.parts)}</section>"
        for section in sections
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>"
        f"<main><h1>{html.escape(title)}</h1>{body}</main></html>\n"
    )


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page."""
    path.write_text(page(title, sections), encoding="utf-8")


def _cell(cell: object) -> str:
    if isinstance(cell, Estimate):
        if cell.is_exact:
            return f"<td class=number>{cell.value:.6g} <small>exact</small></td>"
        flag = f" <abbr title='{html.escape(cell.warning, quote=True)}'>⚠</abbr>" if cell.warning else ""
        return f"<td class=number>{cell.value:.5g}{flag} <small>[{cell.low:.4g}, {cell.high:.4g}]</small></td>"
    if isinstance(cell, float):
        return f"<td class=number>{cell:.6g}</td>"
    return f"<td>{html.escape(str(cell))}</td>"


def _marked(line: str, spans: Sequence[Span]) -> str:
    out, reached = [], 0
    for start, stop, *colour in sorted(spans):
        start = max(start, reached)
        if start >= stop:
            continue
        out += [html.escape(line[reached:start]), _mark(html.escape(line[start:stop]), colour[0] if colour else 0)]
        reached = stop
    return "".join([*out, html.escape(line[reached:])])


def _mark(text: str, colour: int) -> str:
    return f"<mark{f' class=c{colour % COLOURS}' if colour else ''}>{text}</mark>"
