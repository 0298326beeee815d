"""Which tokens of a text are predicted, in which order, and what each of them may see.

Arrays have a row for each text. `functional` are the special tokens (SEP, CLS), which are never predicted.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

LONGEST = 5  # tokens in a span


def draw_targets(
    starts: Bool[np.ndarray, "rows places"],
    functional: Bool[np.ndarray, "rows places"],
    number: int,
    *,
    context: int | None,
    generator: Generator,
) -> Bool[np.ndarray, "rows places"]:
    """`number` tokens of each row: spans that begin where a word `starts`, then single tokens where spans are too few.

    A span has n = 1 … 5 tokens with chances ∝ 1/n and n·`context` tokens round it (Yang et al. 2019): how many of these
    stand left of it is drawn evenly, and it is moved right to where a word starts. No context: single tokens only.
    n counts tokens, not words, as the paper writes it and as its authors' code computes it (where a loop was
    meant to count words, but looks at one and the same token).
    """
    rows, places = starts.shape
    chosen = np.zeros((rows, places), bool)
    if context is not None:
        _add_spans(chosen, starts & ~functional, functional, number, context, generator)
    keys = np.where(chosen | functional, np.inf, generator.random((rows, places)))
    missing = number - chosen.sum(1)
    chosen |= _ranks(keys) < missing[:, None]
    return chosen


def _add_spans(
    chosen: Bool[np.ndarray, "rows places"],
    starts: Bool[np.ndarray, "rows places"],
    functional: Bool[np.ndarray, "rows places"],
    number: int,
    context: int,
    generator: Generator,
) -> None:
    """In place. All rows draw their next span together, until each has enough or has come to its end."""
    rows, places = chosen.shape
    chances = np.cumsum(1 / np.arange(1, LONGEST + 1))
    chances /= chances[-1]
    next_start, next_functional = _next(starts), _next(functional)
    every, at, left = np.arange(rows), np.zeros(rows, int), np.full(rows, number)
    while (left > 0).any():
        length, shift = generator.random((2, rows))
        tokens = np.minimum(1 + np.searchsorted(chances, length, side="right"), np.maximum(left, 1))
        before = (shift * tokens * context).astype(int)
        begin = next_start[every, np.minimum(at + before, places)]
        end = np.minimum(begin + tokens, next_functional[every, begin])
        found = (left > 0) & (begin < places)
        inside = (np.arange(places) >= begin[:, None]) & (np.arange(places) < end[:, None])
        chosen |= inside & found[:, None]
        at = end + tokens * context - before
        left = np.where(found, left - (end - begin), 0)


def _next(flags: Bool[np.ndarray, "rows places"]) -> Int[np.ndarray, "rows more"]:
    """For each place, and for the end, the first flagged one from there on; where there is none, the end."""
    places = flags.shape[1]
    found = np.where(flags, np.arange(places), places)
    found = np.minimum.accumulate(found[:, ::-1], 1)[:, ::-1]
    return np.pad(found, ((0, 0), (0, 1)), constant_values=places)


def draw_ranks(rows: int, places: int, block: int | None, generator: Generator) -> Int[np.ndarray, "rows places"]:
    """An order of the places of each row: blocks from left to right, and in each of them one and the same shuffle."""
    size = places if block is None else min(block, places)
    shuffled = _ranks(generator.random((rows, size)))
    place = np.arange(places)
    ranks: Int[np.ndarray, "rows places"] = place // max(size, 1) * size + shuffled[:, place % max(size, 1)]
    return ranks


def hidden_by_order(
    ranks: Int[np.ndarray, "rows places"],
    targets: Bool[np.ndarray, "rows places"],
    functional: Bool[np.ndarray, "rows places"],
) -> Bool[np.ndarray, "rows places seen"]:
    """[r, i, j]: whether place i may not see place j.

    A token that is neither predicted nor functional stands before all in the order: every place sees it. Of the others,
    a target sees those of lower ranks; a functional token these and itself; all other places none, so that nothing of a
    target reaches what comes before it.
    """
    rank = np.where(targets | functional, ranks, -1)
    own = np.where(targets, rank, rank + 1)
    return own[:, :, None] <= rank[:, None, :]


def corrupt(
    tokens: Int[np.ndarray, "rows places"],
    targets: Bool[np.ndarray, "rows places"],
    *,
    mask: int,
    size: int,
    generator: Generator,
) -> Int[np.ndarray, "rows places"]:
    """Of the targets 80 % are replaced by `mask`, 10 % by a token drawn evenly, 10 % stay (Devlin et al. 2019)."""
    coins: Float[np.ndarray, "rows places"] = generator.random(tokens.shape)
    drawn = (generator.random(tokens.shape) * size).astype(tokens.dtype)
    other = np.where(coins < 0.8, mask, np.where(coins < 0.9, drawn, tokens))
    return np.where(targets, other, tokens)


def share_targets(length: int, reuse: int, partial: int) -> tuple[int, int]:
    """How many targets the reused part and the pair have: one token in `partial`, but no special one."""
    total = max(1, length // partial)
    first = min(reuse, math.ceil(total * reuse / length))
    return first, min(total - first, length - reuse - 3)


def _ranks(keys: Float[np.ndarray, "rows places"]) -> Int[np.ndarray, "rows places"]:
    """The rank of each key in its row."""
    order = np.argsort(keys, 1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(keys.shape[1]), keys.shape), 1)
    return ranks
