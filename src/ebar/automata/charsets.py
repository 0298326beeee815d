"""Sets of characters as sorted, disjoint, inclusive intervals of code points: all of Unicode is two of them."""

from bisect import bisect_left
from collections.abc import Iterable

Charset = tuple[tuple[int, int], ...]

UNICODE: Charset = ((0, 0xD7FF), (0xE000, 0x10FFFF))  # surrogates are no characters


def charset(intervals: Iterable[tuple[int, int]]) -> Charset:
    """Intervals in any order, merged where they touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Charset, right: Charset) -> Charset:
    """The characters of both."""
    common = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return charset((low, high) for low, high in common if low <= high)


def difference(left: Charset, right: Charset) -> Charset:
    """The characters of `left` that are not in `right`."""
    gaps, low = [], 0
    for first, last in right:
        gaps.append((low, first - 1))
        low = last + 1
    gaps.append((low, 0x10FFFF))
    return intersection(left, tuple((a, b) for a, b in gaps if a <= b))


def partition(sets: Iterable[Charset], universe: Charset) -> tuple[dict[Charset, int], list[Charset]]:
    """The universe cut into classes no set tells apart: for each set the bit mask of its classes, and the classes."""
    distinct = list(dict.fromkeys([universe, *sets]))
    cuts = sorted({cut for chars in distinct for low, high in chars for cut in (low, high + 1)})
    membership = [0] * len(cuts)  # of the piece that starts at each cut, one bit per set
    for bit, chars in enumerate(distinct):
        for low, high in chars:
            for piece in range(bisect_left(cuts, low), bisect_left(cuts, high + 1)):
                membership[piece] |= 1 << bit
    pieces: dict[int, list[tuple[int, int]]] = {}
    for piece, member in enumerate(membership):
        if member & 1:
            pieces.setdefault(member, []).append((cuts[piece], cuts[piece + 1] - 1))
    masks = {
        chars: sum(1 << index for index, member in enumerate(pieces) if member >> bit & 1)
        for bit, chars in enumerate(distinct)
    }
    return masks, [charset(intervals) for intervals in pieces.values()]
