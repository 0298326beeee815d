"""A page on which people choose the better of two continuations.

One file that loads nothing and sends nothing: choices are kept in the browser and leave it as a file that the rater
saves. It shows the pairs in the order given and knows nothing else about them, so reading its source tells no one
which system wrote which.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ebar.report.page import STYLE

QUESTION = "Which is the more reasonable continuation? Never mind where one stops in the middle."


def rating_page(
    pairs: Sequence[tuple[str, str, str, str]],
    *,
    study: str,
    title: str = "Which continuation is better?",
    question: str = QUESTION,
) -> str:
    """The page as text; pairs are (name, prefix, A, B), as `evaluation.ratings.blind` makes them."""
    if not pairs:
        raise ValueError("a page needs at least one pair to rate")
    data = {"study": study, "pairs": [list(pair) for pair in pairs]}
    body, own_style, script = (
        (files("ebar.report") / f"rating_page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    style = STYLE + own_style
    # Only what is written here may run, and nothing may be fetched, whatever the texts hold.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'"
    return (
        f'<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=Content-Security-Policy content="{policy}">'
        f"<title>{html.escape(title)}</title><meta name=viewport content='width=device-width'><style>{style}</style>"
        f"<main><h1>{html.escape(title)}</h1><p>{html.escape(question)}</p>{body}</main>"
        f"<script type=application/json id=data>{_inert(data)}</script><script>{script}</script></html>\n"
    )


def write_rating_page(path: Path, pairs: Sequence[tuple[str, str, str, str]], *, study: str) -> None:
    """Write the page."""
    path.write_text(rating_page(pairs, study=study), encoding="utf-8")


def _inert(data: object) -> str:
    """JSON that no text in it can end: what opens a tag or an entity is spelt by its number."""
    text = json.dumps(data)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
