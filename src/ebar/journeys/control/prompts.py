"""A model controlled after any number of prompts, and means over what was found for them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Generator

from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.journeys.control.constraints import Constraints, Wanted, pairs_of
from ebar.journeys.control.continuing import encoded, of_length, reading_for
from ebar.journeys.control.controlled_prompts import ControlledPrompts
from ebar.maths.randomness import folded
from ebar.types import Estimate

NAMED = 10  # prompts
NORMAL = 1.959964  # of 95 %


def control_prompts(
    model: Any, constraints: Wanted, prompts: Iterable[str], *, data: Corpus | None = None, per_prompt: bool = False,
    suffix: str = "", length: int | None = None, draws: int = 200, sample: int = 64, surrogate_draws: int = 4000,
    rounds: int = 0, round_draws: int = 1000, rows: int = 4096, seed: int = 0,
) -> ControlledPrompts:  # fmt: skip
    """A model whose texts go on from any prompt and have what is wanted over all of them, or after each (`per_prompt`).

    λ is found on `sample` of the prompts, drawn evenly from all, each with `draws`; `stream` then goes over prompts
    with as many draws each. Features look at what follows the prompt alone. A `suffix` is text that comes after the
    `length` tokens of a draw. What looks ahead is fitted to `surrogate_draws`, and learns in `rounds`.
    """
    reading = reading_for(model, data)
    if draws < 4 or sample < 1:
        raise UserError("Each prompt needs at least 4 draws, and λ one prompt or more to be found by.")
    model = of_length(model, length or model.space.length)
    reading = replace(reading, longest=model.space.length, drops_blank=False)  # what follows a prompt keeps its blank
    after = encoded(reading, suffix, "a suffix") if suffix else []
    pairs = pairs_of(constraints)
    if not pairs and not suffix:
        raise UserError("There is nothing to control: give one feature or more, each with its moment, or a suffix.")
    made = ControlledPrompts(
        model=model,
        constraints=Constraints.of(pairs, reading) if pairs else Constraints(),
        reading=reading,
        suffix=after,
        sample=reservoir(prompts, sample, Generator().manual_seed(folded(seed, "sample"))),
        per_prompt=per_prompt,
        draws=draws,
        surrogate_draws=surrogate_draws,
        rounds=rounds,
        round_draws=round_draws,
        rows=rows,
        seed=seed,
    )
    made.fitted  # noqa: B018 — found now
    return made


def reservoir(prompts: Iterable[str], size: int, generator: Generator) -> list[str]:
    """`size` of the prompts, each as likely to be among them as any other, in one pass: Vitter 1985, algorithm R."""
    kept: list[str] = []
    for number, prompt in enumerate(prompts):
        if number < size:
            kept.append(prompt)
        elif (place := int(torch.randint(number + 1, (1,), generator=generator))) < size:
            kept[place] = prompt
    if not kept:
        raise UserError("There are no prompts: give one or more.")
    return kept


class Summary:
    """Means over prompts, added up one by one.

    The mean of a moment is over the prompts where anything was found; its interval is over draws, of the given prompts.
    """

    def __init__(self) -> None:
        self.prompts = 0
        self.unfound: list[str] = []  # the first few
        self.missing = 0
        self.sums: dict[str, tuple[float, float, int]] = {}  # of values, of squared standard errors, and how many

    def add(self, prompt: str, figures: Mapping[str, Estimate]) -> None:
        """One more prompt: log Z and moments, by name."""
        self.prompts += 1
        if figures["log Z"].value == -math.inf:
            self.missing += 1
            if len(self.unfound) < NAMED:
                self.unfound.append(prompt)
            return
        for name, one in figures.items():
            total, square, count = self.sums.get(name, (0.0, 0.0, 0))
            error = (one.high - one.low) / 2 / NORMAL
            self.sums[name] = total + one.value, square + error**2, count + 1

    def means(self) -> dict[str, Estimate]:
        """Of log Z and of each moment."""
        found = {}
        for name, (total, square, count) in self.sums.items():
            middle, width = total / count, NORMAL * math.sqrt(square) / count
            found[name] = Estimate(middle, middle - width, middle + width, float(count), self.warning)
        return found

    @property
    def warning(self) -> str | None:
        """The prompts where nothing was found."""
        if not self.missing:
            return None
        named = ", ".join(repr(prompt) for prompt in self.unfound)
        more = f" and {self.missing - len(self.unfound):,} more" if self.missing > len(self.unfound) else ""
        return f"nothing was found for {self.missing:,} of {self.prompts:,} prompts: {named}{more}"
