"""Text as text8 has it: words of a–z with single spaces between them, digits spelt out.

text8 is what the filter of Matt Mahoney (2006, "About the Test Data") makes of a dump of Wikipedia. `letters_only` is
its last step, for text of any kind; `without_markup` are the steps before, for a dump's lines.
"""

import re
from collections.abc import Iterable, Iterator

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPELT = {str(digit): f" {word} " for digit, word in enumerate(DIGITS)}
OTHER = re.compile("[^a-z]+")
UPPER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # A–Z alone: an É is a gap, not an e

# What a line of a dump loses, in this order; the comments say what is left of it.
MARKUP: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE if free else 0), left)
    for pattern, left, free in (
        (r"<.*>", "", False),  # tags of the dump itself
        (r"&amp;", "&", False),
        (r"&lt;", "<", False),
        (r"&gt;", ">", False),
        (r"<ref[^<]*</ref>", "", False),
        (r"<[^>]*>", "", False),  # tags of the text
        (r"\[http:[^] ]*", "[", False),  # of a link its words
        (r"\|thumb|\|left|\|right|\|\d+px", "", True),
        (r"\[\[image:[^\[\]]*\|", "", True),  # of an image its caption
        (r"\[\[category:([^|\]]*)[^]]*\]\]", r"[[\1]]", True),  # of a category its name
        (r"\[\[[a-z\-]*:[^\]]*\]\]", "", False),  # nothing of a link to another language
        (r"\[\[[^|\]]*\|", "[[", False),  # of a link to a page its words
        (r"\{\{[^}]*\}\}", "", False),
        (r"\{[^}]*\}", "", False),
        (r"[\[\]]", "", False),
        (r"&[^;]*;", " ", False),
    )
)
TAGS = MARKUP[0][0]


def letters_only(line: str) -> str:
    """The words of a line, each with a space before it; nothing where it has none.

    Lines then follow one another with single spaces between all words.
    """
    text = line.translate(UPPER)
    for digit, word in SPELT.items():
        text = text.replace(digit, word)
    words = OTHER.sub(" ", text).strip()
    return f" {words}" if words else ""


def without_markup(lines: Iterable[str]) -> Iterator[str]:
    """Of a dump of Wikipedia as XML, the lines of its articles as a reader sees them; redirections are left out."""
    inside = False
    for line in lines:
        inside = inside or "<text " in line
        if "#redirect" in line.lower():
            inside = False
        if not inside:
            continue
        inside = "</text>" not in line
        seen = TAGS.sub("", line, count=1)
        for pattern, left in MARKUP[1:]:
            seen = pattern.sub(left, seen)
        yield seen
