"""The runs of a recipe: every combination of its axes, at each scale."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ebar.recipes import SCALES
from ebar.recipes.recipe import Cell


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Settings that all runs have, and axes of which every combination is a run; the seed varies fastest.

    Any setting, and any axis, may be given once or for each scale, as `{"demo": …, "cpu": …, "paper": …}`. A value of
    an axis that is itself a mapping stands for several settings that go together.
    """

    common: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | Mapping[str, int] = 1
    # From these settings to the cell: for what depends on several of them.
    make: Callable[[dict[str, Any]], Cell] = lambda settings: settings

    def __call__(self, scale: str) -> list[Cell]:
        common = {key: at(scale, value) for key, value in self.common.items()} | dict(self.scales.get(scale, {}))
        axes: dict[str, Sequence[Any]] = {key: at(scale, values) for key, values in self.axes.items()}
        joint = [one for values in axes.values() for one in values if isinstance(one, Mapping)]
        if "seed" not in axes and not any("seed" in one for one in joint):
            axes["seed"] = range(at(scale, self.seeds))
        cells = []
        for values in product(*axes.values()):
            settings = dict(common)
            for key, value in zip(axes, values, strict=True):
                settings |= value if isinstance(value, Mapping) else {key: value}
            cells.append(self.make(settings))
        return cells


def at(scale: str, value: Any) -> Any:
    """A value that is given for each scale, at this one."""
    return value[scale] if isinstance(value, Mapping) and set(value) == set(SCALES) else value
