"""How alike texts are: distinct-n and self-BLEU."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from ebar.errors import UserError
from ebar.evaluation.ngrams import FEWEST_TEXTS, ORDERS, Items, Texts, items_of, ngrams
from ebar.maths.jackknife import half_width
from ebar.types import Estimate

GROUPS = 30  # of texts, left out one at a time


def distinct(texts: Texts, *, orders: Sequence[int] = ORDERS, end: int | None = None) -> dict[int, float]:
    """distinct-n: different n-grams of all texts together, per *token*. Li et al. 2016 (arXiv:1510.03055).

    Tokens, not n-grams, are below the line: 1 is out of reach for n > 1. For shares of n-grams see `unique_ratios`,
    which also has intervals; like its pooled ratio, this falls with the number of texts.
    """
    read = items_of(texts, end=end)
    tokens = sum(map(len, read))
    if tokens == 0:
        raise UserError("There is no token among the texts: give texts that hold more than an end.")
    return {n: len({gram for text in read for gram in ngrams(text, n)}) / tokens for n in orders}


class SelfBleu(NamedTuple):
    """Mean BLEU of each text against others, 0 to 100: high is alike. It rises with the number of references."""

    score: Estimate
    references: int  # for each text
    left_out: int  # texts that had no place in a block


class _Grams(NamedTuple):
    """One row per text and different n-gram of it, sorted by block, then n-gram, then falling count."""

    gram: NDArray[np.int64]  # a number of its own in each block
    text: NDArray[np.int64]
    times: NDArray[np.int64]  # that the text has it


def self_bleu(
    texts: Texts, *, order: int = 4, references: int | None = None, seed: int = 0, end: int | None = None,
    level: float = 0.95,
) -> SelfBleu:  # fmt: skip
    """Zhu et al. 2018 (arXiv:1802.01886), with sacreBLEU's sentence score: exponential smoothing, effective order.

    References are all other texts; or `references` of them: texts, shuffled by the seed, are cut into blocks of one
    more than that, and each is compared with the rest of its block. Scores with the same number of references can be
    compared whatever the number of texts. The interval leaves out groups of consecutive texts, as hypotheses and as
    references; where there are 30 blocks or more, blocks.
    """
    read = items_of(texts, end=end)
    size = len(read) if references is None else references + 1
    if size < 2 or size > len(read):
        raise UserError(
            f"{len(read):,} texts cannot each be compared with {max(1, size - 1):,} others: give more texts, or "
            "compare with fewer."
        )
    blocks, given = len(read) // size, len(read)
    if references is not None:
        shuffled = torch.randperm(given, generator=Generator().manual_seed(seed))[: blocks * size]
        read = [read[row] for row in shuffled.tolist()]
    block = np.arange(len(read)) // size
    tables = [_table(read, block, n) for n in range(1, order + 1)]
    lengths = np.array([len(text) for text in read])
    scores = _scores(tables, lengths, block, order, np.ones(len(read), dtype=bool))
    value = float(scores.mean())
    if blocks >= GROUPS:
        means = torch.from_numpy(scores.reshape(blocks, size).mean(1))
        deviations, units = means / (blocks - 1), blocks
    else:
        # The score of each text depends on all others of its block: left out is left out on both sides.
        groups = np.arange(len(read)) * min(GROUPS, len(read)) // len(read)
        units = int(groups[-1]) + 1
        without = [_scores(tables, lengths, block, order, groups != group) for group in range(units)]
        # NaN, hence an infinite width, where nothing is left.
        deviations = torch.stack([torch.from_numpy(each).mean() - value for each in without])
    width = float(half_width(deviations, level))
    few = None if units >= FEWEST_TEXTS else f"{units} texts are few for an interval: it needs {FEWEST_TEXTS} or more"
    score = Estimate(value, max(0.0, value - width), min(100.0, value + width), float(units), few, level)
    return SelfBleu(score, size - 1, given - len(read))


def _table(texts: list[Items], block: NDArray[np.int64], n: int) -> _Grams:
    numbers: dict[tuple[int, tuple[object, ...]], int] = {}
    rows: list[tuple[int, int]] = []
    for text, items in enumerate(texts):
        rows += [(numbers.setdefault((int(block[text]), gram), len(numbers)), text) for gram in ngrams(items, n)]
    if not rows:
        empty = np.zeros(0, dtype=np.int64)
        return _Grams(empty, empty, empty)
    pairs, counts = np.unique(np.array(rows, dtype=np.int64), axis=0, return_counts=True)
    order = np.lexsort((-counts, pairs[:, 0]))
    return _Grams(pairs[order, 0], pairs[order, 1], counts[order])


def _scores(
    tables: list[_Grams], lengths: NDArray[np.int64], block: NDArray[np.int64], order: int, kept: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """BLEU of each kept text against the other kept ones of its block; a text that is alone has no score."""
    matches = np.stack([_matches(table, kept) for table in tables], 1)
    totals = np.maximum(0, lengths[:, None] - np.arange(order))
    nearest = _nearest(lengths, block, kept)
    rows = np.flatnonzero(kept & (nearest >= 0))
    return bleu_of(matches[rows], totals[rows], lengths[rows], nearest[rows])


def _matches(table: _Grams, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Of each text's n-grams, how many some other text has as well: Σ min(own count, largest count elsewhere).

    The largest elsewhere is the n-gram's largest count; for the text that holds it, its second largest.
    """
    there = kept[table.text]
    gram, text, count = table.gram[there], table.text[there], table.times[there]
    found = np.zeros(len(kept), dtype=np.int64)
    if len(gram) == 0:
        return found
    first = np.flatnonzero(np.r_[True, gram[1:] != gram[:-1]])  # the largest count of each n-gram
    sizes = np.diff(np.r_[first, len(gram)])
    second = np.where(sizes > 1, count[np.minimum(first + 1, len(gram) - 1)], 0)
    elsewhere = np.repeat(count[first], sizes)
    elsewhere[first] = second
    np.add.at(found, text, np.minimum(count, elsewhere))
    return found


def _nearest(lengths: NDArray[np.int64], block: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The length nearest to each text's own among the others of its block, the shorter of two; −1 where it is alone."""
    found = np.full(len(lengths), -1)
    for each in np.unique(block[kept]):
        rows = np.flatnonzero(kept & (block == each))
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        own = lengths[rows]
        if len(rows) > 1:
            below, above = np.r_[-(10**9), own[:-1]], np.r_[own[1:], 10**9]
            found[rows] = np.where(own - below <= above - own, below, above)
    return found


def bleu_of(
    matches: NDArray[np.int64], totals: NDArray[np.int64], lengths: NDArray[np.int64], references: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sentence BLEU from counts [texts, orders], as sacreBLEU smooths it: the n-th order in a row without a match
    counts as 2⁻ⁿ matches, and orders a text is too short for are left out. 0 where not one word matches.
    """
    used = totals > 0
    halvings = np.exp2(-np.cumsum((matches == 0) & used, axis=1))
    shares = np.where(matches > 0, matches, halvings) / np.maximum(totals, 1)
    logs = np.where(used, np.log(shares), 0.0).sum(1) / np.maximum(used.sum(1), 1)
    brevity = np.exp(np.minimum(0.0, 1 - references / np.maximum(lengths, 1)))
    found: NDArray[np.float64] = np.where((matches > 0).any(1), 100 * brevity * np.exp(logs), 0.0)
    return found
