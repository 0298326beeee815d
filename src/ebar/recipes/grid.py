"""The runs of a recipe: every combination of its axes, at each scale.

Where the data of a recipe lies; and small made-up data for scale demo: number words, short sentences, bars.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Generator, Tensor

from ebar.errors import UserError
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


PARTS = {"train": "train", "validation": "valid", "test": "test"}  # of data → the name of its file
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
SUBJECTS = ("the cat", "a dog", "the old man", "my sister", "nobody")
VERBS = ("sees", "likes", "follows", "does not see", "hears")
OBJECTS = ("the house", "a bird", "the river", "us", "the small dog")


def file_of(name: str) -> Path:
    """A file below the folder that EBAR_DATA names; one that a run has made itself is named by its whole path."""
    if (own := Path(name)).is_absolute() and own.exists():
        return own
    folder = os.environ.get("EBAR_DATA")
    if not folder:
        raise UserError(f"This recipe needs the file {name}: put it in a folder and name that folder in EBAR_DATA.")
    path = Path(folder) / name
    if not path.exists():
        raise UserError(f"There is no {name} in the folder that EBAR_DATA names, {folder}: put it there.")
    return path


def toy_file(name: str, folder: Path) -> Path:
    """Made-up data in a file below a folder, written if it is not there yet: train, valid or test, .tsv, .txt, .npz."""
    path = folder / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = list(PARTS.values()).index(path.stem)
        if path.suffix == ".npz":
            images = toy_bars(80, min(seed, 1))
            np.savez(path, images=(images[:20] if seed else images).numpy())
        elif path.suffix == ".tsv":
            path.write_text(
                "".join(f"{german}\t{english}\n" for german, english in toy_pairs(40 if seed else 150, seed))
            )
        else:
            path.write_text(toy_text(200, seed))
    return path


def cell_file(name: str, folder: Path) -> str:
    """A file that a cell names, as a path: made up in the folder where its name begins with toy/."""
    return str(toy_file(name, folder) if name.startswith("toy/") else file_of(name))


def toy_pairs(n: int, seed: int) -> list[tuple[str, str]]:
    """German and English: one to four numbers; "und" turns the order round, so that order has to be learnt."""
    generator = Generator().manual_seed(seed)
    found = []
    for _ in range(n):
        count = int(torch.randint(1, 5, (), generator=generator))
        numbers = torch.randint(len(GERMAN), (count,), generator=generator).tolist()
        turned = count > 1 and bool(torch.rand((), generator=generator) < 0.5)
        german = " ".join(GERMAN[number] for number in numbers)
        english = " ".join(ENGLISH[number] for number in (reversed(numbers) if turned else numbers))
        found.append((f"und {german}" if turned else german, english))
    return found


def toy_text(sentences: int, seed: int) -> str:
    """Sentences of three parts, one a line."""
    generator = Generator().manual_seed(seed)
    parts = (SUBJECTS, VERBS, OBJECTS)
    lines = [
        " ".join(part[int(torch.randint(len(part), (), generator=generator))] for part in parts)
        for _ in range(sentences)
    ]
    return "\n".join(lines) + "\n"


def toy_bars(n: int, seed: int, size: int = 6) -> UInt8[Tensor, "images height width"]:
    """Images of 0 and 255: each column dark or bright, or each row."""
    generator = Generator().manual_seed(seed)
    lines = torch.randint(2, (n, 1, size), generator=generator).expand(n, size, size)
    upright = torch.rand(n, 1, 1, generator=generator) < 0.5
    return (torch.where(upright, lines, lines.transpose(1, 2)) * 255).to(torch.uint8)
