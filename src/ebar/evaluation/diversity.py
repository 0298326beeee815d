"""How alike texts are: distinct-n, self-BLEU, and the share of their n-grams that are different ones.

Deng et al. 2020 show "unique ratio of n-grams" without a definition. Here it is distinct / total, over all texts
together (*pooled*: repeating one another counts) and the mean over texts of each one's own (*within*: only repeating
itself counts). The pooled ratio falls as texts are added, so systems are compared with the same number of texts only.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from ebar.energies.neural import joined
from ebar.errors import UserError
from ebar.evaluation.means import few
from ebar.maths.importance import all_warnings
from ebar.maths.jackknife import half_width
from ebar.types import Context, Estimate, Sequences

ORDERS = (1, 2, 3, 4)
UNEQUAL = 0.05  # by which totals may differ before a comparison of pooled ratios is warned of

Items = Sequence[Hashable]
"""A text as tokens or words."""

Texts = Sequences | Sequence[Items] | Sequence[str]
"""Tokens of a model, tokens of any kind, or texts whose words stand between blanks."""


class Unique(NamedTuple):
    """Distinct / total n-grams of one order."""

    pooled: Estimate
    within: Estimate
    distinct: int
    total: int
    too_short: int  # texts that have no n-gram of this order, and no part in `within`


class _Counted(NamedTuple):
    """Per group of texts, enough to leave it out."""

    distinct: int
    own: Float[Tensor, " groups"]  # n-grams that no other group has
    totals: Float[Tensor, " groups"]
    ratios: Float[Tensor, " groups"]  # sum of each text's own ratio
    texts: Float[Tensor, " groups"]  # with an n-gram


def items_of(texts: Texts, *, end: int | None = None) -> list[Items]:
    """Each text as a list of tokens or words; without `end`, which is a mark and no word."""
    if isinstance(texts, str):
        raise TypeError("a text alone would be read as texts of one character: give [text]")
    if isinstance(texts, Sequences):
        return [[token for token in texts.prefix(row) if token != end] for row in range(len(texts.lengths))]
    return [text.split() if isinstance(text, str) else [item for item in text if item != end] for text in texts]


def ngrams(items: Items, n: int) -> list[tuple[Hashable, ...]]:
    """Every run of n items, in order."""
    return [tuple(items[start : start + n]) for start in range(len(items) - n + 1)]


def unique_ratios(
    systems: Mapping[str, Texts], *, orders: Sequence[int] = ORDERS, per_context: int = 1, end: int | None = None,
    level: float = 0.95,
) -> dict[str, dict[int, Unique]]:  # fmt: skip
    """For each system and order n. Intervals leave out one context at a time, its `per_context` consecutive texts.

    The jackknife, not the bootstrap: texts drawn twice repeat themselves, which would pull every ratio down; and its
    variance errs on the large side for any statistic (Efron & Stein 1981).
    """
    read = _read(systems, per_context, end)
    return {
        name: {n: _unique(texts, n, per_context, level, _unequal(read, n)) for n in orders}
        for name, texts in read.items()
    }


def unique_difference(
    one: Texts, other: Texts, n: int, *, per_context: int = 1, end: int | None = None, level: float = 0.95
) -> Estimate:
    """Pooled ratio of the one minus that of the other, paired: both leave out the same contexts together."""
    read = _read({"the one": one, "the other": other}, per_context, end)
    values, deviations = zip(*(_pooled(_counted(texts, n, per_context)) for texts in read.values()), strict=True)
    value = values[0] - values[1]
    width = float(half_width(deviations[0] - deviations[1], level))
    contexts = len(deviations[0])
    warning = all_warnings(few(contexts, "contexts"), _unequal(read, n))
    return Estimate(value, max(-1.0, value - width), min(1.0, value + width), float(contexts), warning, level)


def _unique(texts: list[Items], n: int, per_context: int, level: float, unequal: str | None) -> Unique:
    counted = _counted(texts, n, per_context)
    groups = len(counted.totals)
    pooled, fall = _pooled(counted)
    sums, numbers = counted.ratios.sum(), counted.texts.sum()
    within = float(sums / numbers)
    left = (sums - counted.ratios) / (numbers - counted.texts)  # NaN, hence an infinite width, where nothing is left
    return Unique(
        _estimate(pooled, float(half_width(fall, level)), groups, level, unequal),
        _estimate(within, float(half_width(left - within, level)), groups, level, None),
        counted.distinct, int(counted.totals.sum()), len(texts) - int(numbers),
    )  # fmt: skip


def _estimate(value: float, width: float, groups: int, level: float, warning: str | None) -> Estimate:
    low, high = max(0.0, value - width), min(1.0, value + width)
    return Estimate(value, low, high, float(groups), all_warnings(few(groups, "contexts"), warning), level)


def _pooled(counted: _Counted) -> tuple[float, Float[Tensor, " groups"]]:
    """distinct / total, and how far it moves without each group."""
    total = counted.totals.sum()
    value = counted.distinct / float(total)
    return value, (counted.distinct - counted.own) / (total - counted.totals) - value


def _counted(texts: list[Items], n: int, per_context: int) -> _Counted:
    groups = len(texts) // per_context
    totals, ratios, numbers = (torch.zeros(groups, dtype=torch.float64) for _ in range(3))
    where: dict[tuple[Hashable, ...], int | None] = {}  # the one group that has it, None where several do
    for row, text in enumerate(texts):
        group, found = row // per_context, Counter(ngrams(text, n))
        if not found:
            continue
        totals[group] += found.total()
        ratios[group] += len(found) / found.total()
        numbers[group] += 1
        for gram in found:
            where[gram] = group if where.get(gram, group) == group else None
    if not where:
        raise UserError(f"None of the {len(texts):,} texts has {n} tokens: ask for shorter n-grams.")
    own = torch.zeros(groups, dtype=torch.float64)
    for group, count in Counter(group for group in where.values() if group is not None).items():
        own[group] = count
    return _Counted(len(where), own, totals, ratios, numbers)


def _read(systems: Mapping[str, Texts], per_context: int, end: int | None) -> dict[str, list[Items]]:
    read = {name: items_of(texts, end=end) for name, texts in systems.items()}
    sizes = {name: len(texts) for name, texts in read.items()}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise UserError(
            f"The ratio of unique n-grams falls with the number of texts: give each system as many ({said})."
        )
    for size in sizes.values():
        if size == 0 or size % per_context:
            raise UserError(f"{size:,} texts are not {per_context:,} for each of one or more contexts.")
    return read


def _unequal(read: Mapping[str, list[Items]], n: int) -> str | None:
    totals = [sum(max(0, len(text) - n + 1) for text in texts) for texts in read.values()]
    if max(totals) <= (1 + UNEQUAL) * min(totals):
        return None
    return (
        f"the systems have between {min(totals):,} and {max(totals):,} {n}-grams: pooled ratios fall with their number"
    )


def repeated_tokens(x: Sequences, context: Context | None = None) -> Bool[Tensor, "rows length"]:
    """Whether each token of x has been there before, in its context or earlier in x; False past a sequence's end.

    Frequent words come again in any text: set what a model repeats beside what the data do.
    """
    if context is not None and context.order is not None:
        raise UserError("Repeated tokens are counted from left to right: give a context without an order.")
    whole, own = joined(x, context)
    width = whole.tokens.shape[1]
    before = torch.ones(width, width, dtype=torch.bool, device=own.device).tril(-1)
    seen = ((whole.tokens[:, :, None] == whole.tokens[:, None, :]) & before).any(2)
    found = torch.zeros_like(x.tokens, dtype=torch.bool)
    found[x.mask()] = seen[own]
    return found


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
    low, high = max(0.0, value - width), min(100.0, value + width)
    score = Estimate(value, low, high, float(units), few(units, "texts"), level)
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
