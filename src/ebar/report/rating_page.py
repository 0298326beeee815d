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
    style = STYLE + OWN_STYLE
    # Only what is written here may run, and nothing may be fetched, whatever the texts hold.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(SCRIPT)}'; base-uri 'none'"
    return (
        f'<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=Content-Security-Policy content="{policy}">'
        f"<title>{html.escape(title)}</title><meta name=viewport content='width=device-width'><style>{style}</style>"
        f"<main><h1>{html.escape(title)}</h1><p>{html.escape(question)}</p>{BODY}</main>"
        f"<script type=application/json id=data>{_inert(data)}</script><script>{SCRIPT}</script></html>\n"
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


BODY = """
<noscript><p class=notice>This page needs JavaScript to note your choices.</p></noscript>
<p id=notice class=notice role=alert hidden></p>
<div class=bar><label>Your name or initials <input id=rater autocomplete=off maxlength=60></label>
<label class=done><span id=count></span> <progress id=progress aria-label="pairs rated"></progress></label></div>
<section id=pair aria-labelledby=heading>
<h2 id=heading tabindex=-1></h2>
<h3 id=prefix-label>Beginning</h3><blockquote id=prefix aria-labelledby=prefix-label></blockquote>
<div class=beside>
<div><h3 id=a-label>A</h3><blockquote id=a aria-labelledby=a-label></blockquote></div>
<div><h3 id=b-label>B</h3><blockquote id=b aria-labelledby=b-label></blockquote></div>
</div>
<div class=choices role=group aria-label="Your choice">
<button type=button data-choice=A aria-keyshortcuts=a>A is better <kbd>A</kbd></button>
<button type=button data-choice=tie aria-keyshortcuts=t>No difference <kbd>T</kbd></button>
<button type=button data-choice=B aria-keyshortcuts=b>B is better <kbd>B</kbd></button>
</div>
</section>
<nav class=bar aria-label=Pairs>
<button type=button id=back aria-keyshortcuts=ArrowLeft>Back <kbd>←</kbd></button>
<button type=button id=on aria-keyshortcuts=ArrowRight>Next <kbd>→</kbd></button>
</nav>
<p id=said class=fine role=status></p>
<div class=bar><button type=button id=json>Save ratings (JSON)</button>
<button type=button id=csv>Save ratings (CSV)</button>
<button type=button id=clear>Forget my choices</button></div>
"""

OWN_STYLE = """
blockquote { margin: .3rem 0; padding: .8rem; background: #8881; border-radius: 4px; white-space: pre-wrap }
.bar { display: flex; flex-wrap: wrap; gap: .8rem; align-items: center; margin: 1rem 0 }
.done { margin-left: auto } .choices { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: .8rem; margin: 1rem 0 }
button, input { font: inherit; padding: .45rem .9rem; border: 1px solid #8889; border-radius: 4px }
.choices button { padding: .8rem } button[aria-pressed=true] { outline: 3px solid #2b7de9; font-weight: 600 }
button:focus-visible, input:focus-visible { outline: 3px solid #e08a00; outline-offset: 2px }
button:disabled { opacity: .5 } kbd { opacity: .7; font-size: .85em } h2:focus { outline: none }
.notice { color: #b25000 } [hidden] { display: none }
@media (prefers-color-scheme: dark) { .notice { color: #ffb066 } }
@media (max-width: 36rem) { .choices { grid-template-columns: 1fr } .done { margin-left: 0 } }
"""

SCRIPT = r"""
"use strict";
(() => {
  const { study, pairs } = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const shelf = "ebar-ratings-" + study;
  const buttons = [...document.querySelectorAll("[data-choice]")];
  let choices = {};
  let place = 0;

  const complain = (text) => { at("notice").textContent = text; at("notice").hidden = false; };

  const load = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(shelf) || "{}");
      at("rater").value = typeof kept.rater === "string" ? kept.rater : "";
      for (const [name] of pairs) {
        const choice = (kept.choices || {})[name];
        if (["A", "B", "tie"].includes(choice)) choices[name] = choice;
      }
    } catch (error) {
      complain("Earlier choices could not be read in this browser.");
    }
  };

  const keep = () => {
    try {
      localStorage.setItem(shelf, JSON.stringify({ rater: at("rater").value, choices }));
    } catch (error) {
      complain("This browser keeps nothing for this page: save your ratings before you close it.");
    }
  };

  const show = (focus) => {
    const [name, prefix, a, b] = pairs[place];
    at("heading").textContent = "Pair " + (place + 1) + " of " + pairs.length;
    at("prefix").textContent = prefix;
    at("a").textContent = a;
    at("b").textContent = b;
    for (const button of buttons) button.setAttribute("aria-pressed", String(choices[name] === button.dataset.choice));
    const done = Object.keys(choices).length;
    at("count").textContent = done + " of " + pairs.length + " rated";
    at("progress").max = pairs.length;
    at("progress").value = done;
    at("back").disabled = place === 0;
    at("on").disabled = place === pairs.length - 1;
    if (focus) at("heading").focus();
  };

  const move = (by) => {
    const there = place + by;
    if (there < 0 || there >= pairs.length) return;
    place = there;
    show(true);
  };

  const unrated = (from) => {
    for (let step = 1; step <= pairs.length; step += 1) {
      const there = (from + step) % pairs.length;
      if (!(pairs[there][0] in choices)) return there;
    }
    return -1;
  };

  const choose = (choice) => {
    choices[pairs[place][0]] = choice;
    keep();
    const shown = place + 1;
    const next = unrated(place);
    if (next >= 0) place = next;
    at("said").textContent = "Pair " + shown + ": " + (choice === "tie" ? "no difference" : choice + " is better") +
      (next < 0 ? ". All pairs are rated: please save the file and send it back." : ".");
    show(next >= 0);
  };

  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  const rated = () => pairs.map(([name]) => name).filter((name) => name in choices);
  const cell = (text) => '"' + String(text).replaceAll('"', '""') + '"';

  const asJson = () => JSON.stringify({
    study, rater: at("rater").value.trim(), ratings: rated().map((name) => ({ pair: name, choice: choices[name] })),
  }, null, 1) + "\n";

  const asCsv = () => ["study,rater,pair,choice", ...rated().map((name) =>
    [study, at("rater").value.trim(), name, choices[name]].map(cell).join(","))].join("\r\n") + "\r\n";

  const stem = () => "ratings-" + study + "-" + (at("rater").value.trim().replace(/[^\p{L}\p{N}]+/gu, "_") || "rater");

  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.choice));
  at("back").addEventListener("click", () => move(-1));
  at("on").addEventListener("click", () => move(1));
  at("rater").addEventListener("input", keep);
  at("json").addEventListener("click", () => save(stem() + ".json", "application/json", asJson()));
  at("csv").addEventListener("click", () => save(stem() + ".csv", "text/csv", asCsv()));
  at("clear").addEventListener("click", () => {
    if (!confirm("Forget all choices made on this page?")) return;
    choices = {};
    place = 0;
    keep();
    at("said").textContent = "All choices are forgotten.";
    show(true);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target === at("rater")) return;
    const key = event.key.toLowerCase();
    const meant = { a: "A", b: "B", t: "tie" }[key];
    if (meant) choose(meant);
    else if (key === "arrowleft") move(-1);
    else if (key === "arrowright") move(1);
    else return;
    event.preventDefault();
  });

  load();
  const first = unrated(pairs.length - 1);
  if (first >= 0) place = first;
  show(false);
})();
"""
