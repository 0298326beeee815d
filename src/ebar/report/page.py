"""One self-contained HTML page: it loads nothing, so it can be mailed, archived and opened offline."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.types import Estimate


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
class Table:
    """Rows of cells; an `Estimate` shows its interval, and its warning as a mark."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True)
class Figure:
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
    marks: Sequence[Sequence[tuple[int, int]]] | None = None  # per line, spans [start, stop)

    def html(self) -> str:
        marks = self.marks or [[] for _ in self.lines]
        return (
            "<pre>" + "\n".join(_marked(line, spans) for line, spans in zip(self.lines, marks, strict=True)) + "</pre>"
        )


Part = Text | Warnings | Table | Figure | Samples


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
        return f"<td class=number>{cell.value:.5g} <small>[{cell.low:.5g}, {cell.high:.5g}]</small>{flag}</td>"
    if isinstance(cell, float):
        return f"<td class=number>{cell:.6g}</td>"
    return f"<td>{html.escape(str(cell))}</td>"


def _marked(line: str, spans: Sequence[tuple[int, int]]) -> str:
    out, reached = [], 0
    for start, stop in sorted(spans):
        start = max(start, reached)
        if start >= stop:
            continue
        out += [html.escape(line[reached:start]), "<mark>", html.escape(line[start:stop]), "</mark>"]
        reached = stop
    return "".join([*out, html.escape(line[reached:])])


STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
main { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #8884 }
table { border-collapse: collapse; margin: .8rem 0 }
th, td { padding: .25rem .8rem; text-align: left; border-bottom: 1px solid #8883 }
td.number { font-variant-numeric: tabular-nums } small { opacity: .75 }
pre { background: #8881; padding: .8rem; overflow-x: auto } mark { background: #ffd54a; color: #000 }
figure { margin: 1rem 0 } figure svg { max-width: 100%; height: auto; background: #fff }
.warning li { color: #b25000 } .fine { opacity: .75 }
"""
