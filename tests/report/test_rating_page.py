"""The rating page loads nothing, cannot be broken by what it shows, tells nothing, and its files are read back."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ebar.evaluation.ratings import blind, read_ratings, sign_test
from ebar.report.rating_page import rating_page, write_rating_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\u2028\"'"
PAIRS = [("1", EVIL, EVIL + "a", EVIL + "b"), ("2", "p", "x", "y")]


def test_what_is_shown_cannot_break_out() -> None:
    shown = rating_page(PAIRS, study="s", title=EVIL, question=EVIL)
    assert shown.count("<script") == shown.count("</script>") == 2
    assert "<img" not in shown
    found = re.search(r"<script type=application/json id=data>(.*?)</script>", shown, re.DOTALL)
    assert found is not None
    assert json.loads(found[1]) == {"study": "s", "pairs": [list(pair) for pair in PAIRS]}
    with pytest.raises(ValueError, match="at least one pair"):
        rating_page([], study="s")


def test_it_loads_nothing_and_runs_only_its_own_script() -> None:
    shown = rating_page(PAIRS[1:], study="s")
    assert not re.findall(r"(?:src|href|action)=|url\(|@import|https?:|fetch\(|XMLHttp|innerHTML|eval\(", shown)
    policy = re.search(r'Content-Security-Policy content="([^"]*)"', shown)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", shown, re.DOTALL)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_the_page_does_not_tell_which_is_which() -> None:
    pairs, key = blind(["p", "q", "r"], ["a", "b", "c"], ["x", "y", "z"], seed=1, names=("Secret", "Hidden"))
    shown = rating_page(pairs, study=key.study)
    assert not re.findall("secret|hidden-|ours|theirs|joint|seed", shown, re.IGNORECASE)
    # The other way round but for the texts, it is the same page.
    swapped = [pair._replace(a=pair.b, b=pair.a) for pair in pairs]
    assert sorted(rating_page(swapped, study=key.study)) == sorted(shown)


def test_everything_that_can_be_used_has_a_name_and_its_elements_exist() -> None:
    shown = rating_page(PAIRS, study="s")
    for button in re.findall(r"<button[^>]*>(.*?)</button>", shown):
        assert re.sub("<.*", "", button).strip()
    assert re.search(r"<label>[^<]*<input id=rater", shown)
    ids = set(re.findall(r"\bid=([\w-]+)", shown))
    assert set(re.findall(r'at\("([\w-]+)"\)', shown)) <= ids
    assert set(re.findall(r"aria-labelledby=([\w-]+)", shown)) <= ids


# Just enough of a browser: elements that remember, a shelf, and files that are printed instead of saved.
BROWSER = r"""
const { readFileSync } = require("fs");
const page = readFileSync(process.argv[2], "utf8");
const script = page.match(/<script>([^]*?)<\/script>/)[1];
const data = page.match(/id=data>([^]*?)<\/script>/)[1];
const make = (id) => ({ id, dataset: {}, value: "", textContent: "", on: {}, set: {}, disabled: false,
  addEventListener(what, does) { this.on[what] = does; }, setAttribute(name, value) { this.set[name] = value; },
  focus() { focused = id; },
  click() { if (this.download) files.push([this.download, this.href]); else this.on.click(); } });
let focused = null, files = [], shelf = JSON.parse(process.argv[3]), elements = { data: make("data") };
elements.data.textContent = data;
const buttons = ["A", "tie", "B"].map((choice) => Object.assign(make(choice), { dataset: { choice } }));
let keydown;
globalThis.document = { getElementById: (id) => elements[id] ??= make(id), querySelectorAll: () => buttons,
  createElement: make, addEventListener: (what, does) => { keydown = does; } };
globalThis.localStorage = { getItem: (key) => shelf[key] ?? null,
  setItem: (key, text) => { if (shelf.full) throw new Error("full"); shelf[key] = text; } };
globalThis.Blob = class { constructor(parts) { this.text = parts.join(""); } };
globalThis.URL = { createObjectURL: (blob) => blob.text, revokeObjectURL: () => {} };
globalThis.setTimeout = () => {};
globalThis.confirm = () => true;
new Function(script)();
const press = (key, more) => keydown({ key, target: null, preventDefault() {}, ...more });
const told = [];
for (const act of JSON.parse(process.argv[4])) {
  if (act.press) press(act.press, { ctrlKey: !!act.control, target: act.within ? elements[act.within] : null });
  else if (act.choose) buttons.find((button) => button.dataset.choice === act.choose).click();
  else if (act.type !== undefined) { elements.rater.value = act.type; elements.rater.on.input(); }
  else elements[act.click].click();
  const text = (id) => (elements[id] ??= make(id)).textContent;
  const pressed = buttons.map((button) => button.set["aria-pressed"] === "true");
  told.push([text("heading"), text("count"), text("a"), pressed]);
}
process.stdout.write(JSON.stringify({ told, files, shelf, focused, notice: elements.notice?.textContent ?? "",
  said: elements.said?.textContent ?? "" }));
"""


class Played:
    """What a visit to the page left behind."""

    def __init__(self, folder: Path, acts: list[dict[str, object]], shelf: Mapping[str, object] | None = None):
        node = shutil.which("node")
        if node is None:
            pytest.skip("needs node, to run the page's script")
        (folder / "browser.js").write_text(BROWSER)
        command = [
            node,
            str(folder / "browser.js"),
            str(folder / "page.html"),
            json.dumps(shelf or {}),
            json.dumps(acts),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.left = json.loads(done.stdout)


def test_a_visit_from_first_to_last_pair(tmp_path: Path) -> None:
    pairs, key = blind(["p", "q", "r"], ["a", "b", "c"], ["x", "y", "z"], seed=1)
    write_rating_page(tmp_path / "page.html", pairs, study=key.study)
    ours = {pair.name: "A" if key.ours_is_a[pair.name] else "B" for pair in pairs}
    acts: list[dict[str, object]] = [
        {"type": 'Ann "1", O\'Neil'},
        {"press": "a", "within": "rater"},  # a letter of the name, not a choice
        {"press": "a", "control": True},
        {"press": ours["1"].lower()},
        {"press": "ArrowLeft"},  # back to the first
        {"press": "ArrowRight"},
        {"choose": ours["2"]},
        {"press": "T"},
        {"click": "json"},
        {"click": "csv"},
    ]
    left = Played(tmp_path, acts).left
    headings = [heading for heading, *_ in left["told"]]
    assert headings == [f"Pair {place} of 3" for place in (1, 1, 1, 2, 1, 2, 3, 3, 3, 3)]
    assert [count for _, count, *_ in left["told"]] == [f"{done} of 3 rated" for done in (0, 0, 0, 1, 1, 1, 2, 3, 3, 3)]
    assert [shown for _, _, shown, _ in left["told"]][3] == pairs[1].a
    assert left["told"][4][3] == [ours["1"] == "A", False, ours["1"] == "B"]
    assert left["focused"] == "heading"
    assert "All pairs are rated" in left["said"]
    for name, text in left["files"]:
        assert name.startswith(f"ratings-{key.study}-Ann_1_O_Neil.")
        (tmp_path / name).write_bytes(text.encode())
        ratings = read_ratings(tmp_path / name)
        assert ratings.rater == 'Ann "1", O\'Neil'
        assert ratings.choices == {"1": ours["1"], "2": ours["2"], "3": "tie"}
        found = sign_test(ratings, key)
        assert (found.wins, found.losses, found.ties) == (2, 0, 1)
    # Come back another day: at the first pair without a choice, the name still there; then forget everything.
    shelf = {f"ebar-ratings-{key.study}": json.dumps({"rater": "Ann", "choices": {"1": "B", "9": "A", "2": "C"}})}
    left = Played(tmp_path, [{"click": "json"}, {"click": "clear"}], shelf).left
    assert left["told"] == [["Pair 2 of 3", "1 of 3 rated", pairs[1].a, [False] * 3],
                            ["Pair 1 of 3", "0 of 3 rated", pairs[0].a, [False] * 3]]  # fmt: skip
    assert json.loads(left["files"][0][1])["ratings"] == [{"pair": "1", "choice": "B"}]


def test_a_browser_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    write_rating_page(tmp_path / "page.html", PAIRS, study="s")
    left = Played(tmp_path, [{"press": "b"}, {"click": "json"}], {"full": True}).left
    assert "save your ratings before you close" in left["notice"]
    assert json.loads(left["files"][0][1])["ratings"] == [{"pair": "1", "choice": "B"}]
    left = Played(tmp_path, [{"press": "b"}], {"ebar-ratings-s": "{"}).left
    assert "could not be read" in left["notice"]
