"""Text in sentences, and WikiText's spellings undone."""

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
