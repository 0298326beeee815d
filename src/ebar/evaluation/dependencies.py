"""Which dependencies an objective of pretraining covers (Yang et al. 2019; section 4.2.6 of Dai's thesis).

A loss term log p(x | V) covers the pair (x, U) of a target and a context where U ⊆ V. With targets T, other tokens N:
denoising has V = N for every target, an order V = N ∪ T₍<x₎, so that it covers all that denoising does and, beside it,
contexts that hold other targets; from left to right V is all that stands left of x. Counts are exact for what was
drawn, and means are over inputs of the real data. Special tokens are neither targets nor contexts here.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.data.pretraining_inputs import Predict, PretrainingBatch, PretrainingText, read_inputs
from ebar.evaluation.means import plain_mean
from ebar.types import Estimate

WAYS: tuple[Predict, ...] = ("permutation", "denoising", "left_to_right")


class Dependencies(NamedTuple):
    """Of one input each, means with intervals."""

    targets: Estimate
    pairs: Estimate  # (target, context of so many tokens)
    with_targets: Estimate  # of them, those whose context holds another target of the same input
    with_later: Estimate  # of them, those whose context holds a token that stands after the target in the text
    of_a_target: Estimate  # pairs for one target


def seen_by_targets(batch: PretrainingBatch, specials: Iterable[int] = ()) -> Bool[Tensor, "rows predicted length"]:
    """Which tokens each target is predicted from."""
    hidden = torch.take_along_dim(batch.hidden_from, batch.targets[:, :, None], 1)
    places = torch.arange(batch.tokens.shape[1])
    seen = ~hidden & (places != batch.targets[:, :, None])
    if bool(batch.corrupted.any()):  # other targets are hidden in the tokens
        seen &= ~(batch.corrupted[:, None] & _are_targets(batch))[:, None]
    return seen & ~torch.isin(batch.tokens, torch.tensor([*specials], dtype=torch.long))[:, None]


def count_pairs(seen: Bool[Tensor, "rows predicted length"], *, size: int = 1) -> Int[Tensor, "rows predicted"]:
    """For each target, how many contexts of `size` tokens it sees: |V| over size."""
    numbers = seen.sum(2)
    choices = torch.tensor([math.comb(number, size) for number in range(int(numbers.max()) + 1)])
    return choices[numbers]


def count_dependencies(
    batch: PretrainingBatch, specials: Iterable[int] = (), *, size: int = 1
) -> dict[str, Int[Tensor, " rows"]]:
    """Each figure of `Dependencies` but the last, for each input of a batch."""
    seen = seen_by_targets(batch, specials)
    places = torch.arange(seen.shape[2])
    later = (places > batch.targets[:, :, None]) ^ batch.backwards[:, None, None]
    pairs = count_pairs(seen, size=size)
    without_targets = count_pairs(seen & ~_are_targets(batch)[:, None], size=size)
    earlier_only = count_pairs(seen & ~later, size=size)
    return {
        "targets": torch.full_like(batch.column, batch.targets.shape[1]),
        "pairs": pairs.sum(1),
        "with_targets": (pairs - without_targets).sum(1),
        "with_later": (pairs - earlier_only).sum(1),
    }


def dependencies(
    text: PretrainingText, *, inputs: int = 1000, size: int = 1, seed: int = 0, level: float = 0.95
) -> dict[Predict, Dependencies]:
    """Of each way to predict, on the same places of a text and, but for left to right, with the same targets."""
    columns = min(32, len(text.tokens) // text.form.length)
    found: dict[Predict, Dependencies] = {}
    for way in WAYS:
        both = text.form.bidirectional and way != "left_to_right"
        own = replace(text, form=replace(text.form, predict=way, bidirectional=both))
        backwards, most = own.backwards(), own.inputs(columns)
        batches = (
            read_inputs(own, backwards, columns, number % most, seed=seed, epoch=number // most)
            for number in range(-(-inputs // columns))
        )
        counts = [count_dependencies(batch, text.specials, size=size) for batch in batches]
        figures = {name: torch.cat([each[name] for each in counts])[:inputs].double() for name in counts[0]}
        figures["of_a_target"] = figures["pairs"] / figures["targets"]
        found[way] = Dependencies(**{name: _mean(values, name, level) for name, values in figures.items()})
    return found


def covered(
    text: PretrainingText, predict: Predict, *, draws: int, number: int = 0, columns: int = 1, seed: int = 0
) -> Bool[Tensor, "length length"]:
    """[i, j]: whether any of so many draws for one input covers that its token i depends on token j.

    Of the first column, read forwards; A and B are drawn anew each time, so that only the reused part is comparable.
    """
    own = replace(text, form=replace(text.form, predict=predict, bidirectional=False))
    found = torch.zeros(own.form.length, own.form.length, dtype=torch.bool)
    for epoch in range(draws):
        batch = read_inputs(own, own, columns, number, seed=seed, epoch=epoch)
        found[batch.targets[0]] |= seen_by_targets(batch, text.specials)[0]
    return found


def _are_targets(batch: PretrainingBatch) -> Bool[Tensor, "rows length"]:
    return torch.zeros_like(batch.tokens, dtype=torch.bool).scatter(1, batch.targets, True)


def _mean(values: Float[Tensor, " inputs"], name: str, level: float) -> Estimate:
    if bool((values == values[0]).all()) and name == "targets":
        return Estimate.exact(float(values[0]))
    return plain_mean(values, low=0.0, name=name, level=level)
