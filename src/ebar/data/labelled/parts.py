"""Which labelled examples are held out, and which of the others are used: drawn once, by class and by unit."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Generator

from ebar.data.labelled.examples import Example, Task
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.maths.rows import evenly

Units = dict[str, list[list[int]]]  # class → units of it, each the numbers of its examples


def hold_out(
    examples: Sequence[Example], task: Task, shares: Mapping[str, float], seed: int, name: str
) -> dict[str, list[Example]]:
    """The examples cut into "train" and a part for each of the shares, each class in proportion.

    Examples of one unit (documents of a query, questions about a passage) stay together. The cut depends on the
    examples and on this seed, which is the data's own: runs of different seeds are tested on the same examples.
    """
    strata = _units(examples, task, stratified=True)
    total = sum(map(len, strata.values()))
    counts = {part: max(1, round(share * total)) for part, share in shares.items()}
    if sum(counts.values()) >= total:
        raise UserError(
            f"{name} has too few examples ({total:,} that can be held out one by one) to hold out "
            f"{' and '.join(shares)}: give more, or files for them."
        )
    left = {label: _shuffled(units, folded(seed, "held out", label)) for label, units in strata.items()}
    found: dict[str, list[Example]] = {}
    for part, count in counts.items():
        sizes = {label: len(units) for label, units in left.items()}
        taken = _in_proportion(count, sizes)
        found[part] = _gathered(examples, [unit for label in left for unit in left[label][: taken[label]]])
        left = {label: units[taken[label] :] for label, units in left.items()}
    return {"train": _gathered(examples, [unit for units in left.values() for unit in units]), **found}


def limit(examples: Sequence[Example], task: Task, most: int | None, seed: int) -> list[Example]:
    """So many of the examples (of ranking: queries), as many of each class as there are, drawn by a seed.

    With the same seed, fewer of them are some of the more.
    """
    strata = _units(examples, task, stratified=True, together=task == "ranking")
    if most is None or most >= sum(map(len, strata.values())):
        return list(examples)
    taken = _evenly({label: len(units) for label, units in strata.items()}, most)
    drawn = {label: _shuffled(units, folded(seed, "limit", label)) for label, units in strata.items()}
    return _gathered(examples, [unit for label in drawn for unit in drawn[label][: taken[label]]])


def held_out_limit(examples: Sequence[Example], task: Task, most: int | None) -> list[Example]:
    """At most so many examples (of ranking: queries), evenly spread."""
    units = _units(examples, task, stratified=False, together=task == "ranking")[""]
    if most is None or most >= len(units):
        return list(examples)
    return _gathered(examples, [units[place] for place in evenly(len(units), most).tolist()])


def _units(examples: Sequence[Example], task: Task, *, stratified: bool, together: bool = True) -> Units:
    units: dict[str, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        units[example.unit if together else str(number)].append(number)
    strata: Units = defaultdict(list)
    for unit in units.values():
        label = str(examples[unit[0]].label) if stratified and task == "classification" else ""
        strata[label].append(unit)
    return {label: strata[label] for label in sorted(strata)}


def _shuffled(units: list[list[int]], seed: int) -> list[list[int]]:
    order = torch.randperm(len(units), generator=Generator().manual_seed(seed)).tolist()
    return [units[place] for place in order]


def _gathered(examples: Sequence[Example], units: list[list[int]]) -> list[Example]:
    return [examples[number] for number in sorted(number for unit in units for number in unit)]


def _in_proportion(count: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """`count` shared by largest remainders."""
    total = sum(sizes.values())
    wanted = {label: count * size / total for label, size in sizes.items()}
    found = {label: int(share) for label, share in wanted.items()}
    order = _by(sizes, lambda label: found[label] - wanted[label])
    for label in order[: count - sum(found.values())]:
        found[label] += 1
    return found


def _evenly(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """As equal as the sizes allow."""
    found, left = dict.fromkeys(sizes, 0), count
    for place, label in enumerate(order := _by(sizes, lambda label: sizes[label])):
        share, more = divmod(left, len(order) - place)
        found[label] = min(sizes[label], share + (more > 0))
        left -= found[label]
    return found


def _by(sizes: Mapping[str, int], key: Callable[[str], float]) -> list[str]:
    return sorted(sizes, key=lambda label: (key(label), label))
