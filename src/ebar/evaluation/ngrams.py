"""How much texts repeat: the share of their n-grams that are different ones.

Deng et al. 2020 show "unique ratio of n-grams" without a definition. Here it is distinct / total, over all texts
together (*pooled*: repeating one another counts) and the mean over texts of each one's own (*within*: only repeating
itself counts). The pooled ratio falls as texts are added, so systems are compared with the same number of texts only.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.importance import all_warnings
from ebar.maths.jackknife import half_width
from ebar.types import Estimate, Sequences

ORDERS = (1, 2, 3, 4)
FEWEST_TEXTS = 30  # below, the jackknife does not tell the spread
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
    warning = all_warnings(_few(contexts), _unequal(read, n))
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
    return Estimate(value, low, high, float(groups), all_warnings(_few(groups), warning), level)


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


def _few(groups: int) -> str | None:
    if groups >= FEWEST_TEXTS:
        return None
    return f"{groups} contexts are few for an interval: it needs {FEWEST_TEXTS} or more"
