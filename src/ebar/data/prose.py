"""Text in sentences, and WikiText's spellings undone.

Text as text8 has it: words of a–z with single spaces between them, digits spelt out.

text8 is what the filter of Matt Mahoney (2006, "About the Test Data") makes of a dump of Wikipedia. `letters_only` is
its last step, for text of any kind; `without_markup` are the steps before, for a dump's lines.
"""

import re
from collections.abc import Iterable, Iterator

# A full stop, not after Mr, Mrs, Ms, Dr, St or an initial; then what closes a quotation, and a capital after blanks.
END = re.compile(
    r"(?:(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<!\b[A-Z])\.|[!?])"
    r"[\"'”’)\]]*(?=\s+[\"'“‘(\[]*[A-Z0-9])"
)
HEADING = re.compile(r"\s*(=(?: =)*) (.*) \1\s*")
JOINED = re.compile(r" @([-,.])@ ")
UNKNOWN = re.compile(r" ?<unk>")


def sentences(line: str) -> list[str]:
    """The sentences of a line, a blank between two belonging to the second: together they are the line.

    They are found by their punctuation and a capital after it, so that some are missed and some cut too early. It is
    enough for places to cut a text at.
    """
    ends = [match.end() for match in END.finditer(line)]
    return [line[begin:end] for begin, end in zip([0, *ends], [*ends, len(line)], strict=True) if begin < end]


def plain_wikitext(line: str) -> str:
    """A line of WikiText (Merity et al. 2017) as people write: `a @-@ b` is a-b, `1 @,@ 000` is 1,000, `1 @.@ 5` 1.5.

    A heading loses its equals signs, and a word that WikiText has replaced by <unk> is left out. Blanks before
    punctuation stay, as WikiText does not say which of them were there.
    """
    if heading := HEADING.fullmatch(line):
        line = heading[2]
    return JOINED.sub(r"\1", UNKNOWN.sub("", line)).strip()


def is_title(line: str) -> bool:
    """Whether a line of WikiText is the title of an article: ` = Title = `, not ` = = Section = = `."""
    heading = HEADING.fullmatch(line)
    return heading is not None and heading[1] == "="


def documents(lines: Iterable[str], *, wikitext: bool = False) -> Iterator[tuple[str, bool]]:
    """Each line that holds text, without blanks round it, and whether a document begins with it.

    A document ends at an empty line. In WikiText, where empty lines stand round headings as well, and in other texts of
    its form, it begins with its title; its lines come as `plain_wikitext` writes them.
    """
    begins = True
    for line in lines:
        begins = begins or (is_title(line) if wikitext else not line.strip())
        text = plain_wikitext(line) if wikitext else line.strip()
        if text:
            yield text, begins
            begins = False


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
