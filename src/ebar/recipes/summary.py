"""One page on all tables and figures of the documents, from recorded results alone: nothing is run."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ebar.errors import UserError
from ebar.recipes import SCALES, find_recipe
from ebar.recipes.claims import NOT_MEASURED, overall
from ebar.recipes.documents import DOCUMENTS
from ebar.recipes.documents.entry import Entry
from ebar.recipes.recipe import Finding, Row
from ebar.recipes.render import findings, read_record
from ebar.recipes.reproduce import result_path
from ebar.recipes.rows import escaped, settings_of, text
from ebar.store.writing import replace, saving

NOT_RUN, SHOWN, NOTHING = "not run", "shown", "–"
NOT_RECORDED = "not recorded yet"
EARLIER = "earlier"  # below the results: records of other settings than the recipe has today, as they were
RUN_EARLIER = "run with earlier settings, not yet with today's"
FEW = 2  # figures that are shown one by one; of more, the least and the largest
HEADER = ("ours", "verdict", "scale", "seeds", "minutes", "page")
TOP = """# What is reproduced

Every table and figure of the documents that ebar implements, one line each: what the document says, what was measured
here with its 95 % interval, and the verdict. *Reproduced*: the intervals of all figures lie on the claimed side; *in
part*: some do; *not reproduced*: some lie on the other side and none on the claimed one; *undecided at this size*:
the intervals have both sides, and the page says what size would decide; *shown*: pictures, texts or figures of which
nothing is claimed as a number. Verdicts are of the claims named under *ours*, which say what is higher or lower and
seldom by how much; where our figures can be set beside the document's, the page does it. Minutes are elapsed on two
cores / added up over runs; a record that has only the latter is older, and tables that are read off the same runs
have the same time. Sizes differ from the documents': each page says how. This page is written by `ebar reproduce
--summary` from the recorded results.
"""


class Line(NamedTuple):
    """A line of the page."""

    document: str
    place: str
    says: str
    recipe: str | None
    ours: str
    verdict: str
    scale: str = ""
    seeds: str = ""
    elapsed_minutes: float | None = None
    summed_minutes: float | None = None
    page: Path | None = None


def write_summary(page: Path, results: Path) -> list[Line]:
    """The page, at this path."""
    lines = summary(results)
    with saving(str(page)):
        page.parent.mkdir(parents=True, exist_ok=True)
        replace(page, summary_page(lines, page).encode())
    return lines


def summary(results: Path) -> list[Line]:
    """All lines, from what is recorded in this folder."""
    return [line_of(document.title, entry, results) for document in DOCUMENTS for entry in document.entries]


def summary_page(lines: Sequence[Line], page: Path) -> str:
    """The lines as Markdown; links are relative to where the page is to be."""
    counts = Counter(line.verdict for line in lines)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common() if verdict != NOTHING)
    illustrations = f", {counts[NOTHING]} with nothing to measure" if counts[NOTHING] else ""
    parts = [TOP, f"{len(lines)} lines: {said}{illustrations}.", ""]
    for document in DOCUMENTS:
        own = [_cells(line, page) for line in lines if line.document == document.title]
        parts += [f"## {document.title}", "", *([document.note, ""] if document.note else [])]
        if own:
            header = ["", document.says, *HEADER]
            table = ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *own]]
            parts += [*table, ""]
    return "\n".join(parts)


def line_of(document: str, entry: Entry, results: Path) -> Line:
    """Of a table or figure: what its recipe has recorded at the largest scale, or why there is nothing."""
    own = (document, entry.place, entry.says, entry.recipe)
    if entry.recipe is None:
        return Line(*own, entry.why, NOT_RUN if entry.measurable else NOTHING)
    path = next(
        (path for scale in reversed(SCALES[1:]) if (path := result_path(entry.recipe, scale, results)).exists()), None
    )
    if path is None:
        before = result_path(entry.recipe, "cpu", results / EARLIER).with_suffix(".md")
        if before.exists():
            return Line(*own, RUN_EARLIER, NOT_RUN, page=before)
        return Line(*own, entry.why or NOT_RECORDED, NOT_RUN)
    recipe = find_recipe(entry.recipe)
    record, _, rows = read_record(path, recipe)
    found = chosen_findings(entry, findings(recipe, rows))
    verdict = overall([one.verdict for one in found]) if found else SHOWN
    elapsed = record.get("elapsed_seconds")
    return Line(
        *own,
        "; ".join(_measured(one) for one in found) or "see the page",
        NOT_RUN if verdict == NOT_MEASURED else verdict,
        record["scale"],
        str(len(record["seeds"])),
        None if elapsed is None else elapsed / 60,
        record["wall_seconds"] / 60,
        path.with_suffix(".md"),
    )


def chosen_findings(entry: Entry, found: Sequence[Finding]) -> list[Finding]:
    """Those of the claims that an entry names, or all that have a verdict."""
    known = {one.says: one for one in found if one.verdict}
    names = list(known) if entry.claims is None else entry.claims
    if missing := [name for name in names if name not in known]:
        raise UserError(f"The recipe {entry.recipe} has no claim {missing[0]!r}: choose one of {', '.join(known)}.")
    return [known[name] for name in names]


def _measured(found: Finding) -> str:
    rows = sorted((row for row in found.rows if row.value is not None), key=lambda row: float(row.value or 0.0))
    if not rows:
        return f"{found.says}: not measured by this record"
    if len(rows) <= FEW:
        whose = [f" [{settings_of(row)}]" if row.settings and len(rows) > 1 else "" for row in rows]
        return f"{found.says}: " + ", ".join(_figure(row) + own for row, own in zip(rows, whose, strict=True))
    return f"{found.says}: {len(rows)} figures, {_figure(rows[0])} to {_figure(rows[-1])}"


def _figure(row: Row) -> str:
    exact = row.low is None or row.high is None or row.low == row.high
    return text(row.value) + ("" if exact else f" ({text(row.low)} … {text(row.high)})")


def _cells(line: Line, page: Path) -> list[str]:
    times = [NOTHING if one is None else f"{one:,.0f}" for one in (line.elapsed_minutes, line.summed_minutes)]
    minutes = "" if line.summed_minutes is None else " / ".join(times)
    link = "" if line.page is None else f"[{line.recipe}]({os.path.relpath(line.page, page.parent)})"
    cells = [line.place, line.says, line.ours, line.verdict, line.scale, line.seeds, minutes, link or line.recipe or ""]
    return [escaped(cell) for cell in cells]


def as_json(lines: Sequence[Line]) -> list[Mapping[str, Any]]:
    """The lines as plain data."""
    return [{**line._asdict(), "page": None if line.page is None else line.page.as_posix()} for line in lines]
