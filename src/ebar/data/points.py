"""Points: drawn from a mixture whose density is known, or read from a file of numbers (.npz, .csv, .txt)."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from ebar.bounds import Count, check
from ebar.data.corpus import read_npz
from ebar.errors import UserError, no_file
from ebar.maths.mixtures import MIXTURES, draw_mixture
from ebar.maths.randomness import folded
from ebar.store.differences import LATER
from ebar.types import PointSpace


@dataclass(frozen=True, kw_only=True)
class Points:
    """What a game on points is trained on, held out from, and tested on: three parts that share no point."""

    train: Float[Tensor, "train dimensions"]
    validation: Float[Tensor, "validation dimensions"]
    test: Float[Tensor, "test dimensions"]
    mixture: str | None = None  # by name, where the truth is known: `ebar.models.points.mixture` has its density
    source: "PointsData | None" = None

    @property
    def space(self) -> PointSpace:
        return PointSpace(tuple(self.train.shape[1:]))


@dataclass(frozen=True, kw_only=True)
class PointsData:
    """Points of a space: drawn from a known mixture, or one per row of a file."""

    mixture: str | None = None
    """four_gaussians, biased_gaussians or spirals (Dai 2019, thesis, Figure B.1); leave it out for a file."""
    size: Count = 100_000
    """Training points drawn from the mixture; a tenth as many, but 1,000 at least, to validate and to test with."""
    draw_seed: int = 0
    """Of those draws."""
    train: Path | None = None
    """A file of points: .npz (its array called points, or the only one), .csv or .txt with numbers in columns."""
    validation: Path | None = None
    """By default a tenth of the training points."""
    test: Path | None = None
    """By default another tenth of the training points."""
    limit: Count | None = field(default=None, metadata=LATER)
    """Most training points of a file, drawn by the run's seed; by default all."""

    kind = "points"

    def __post_init__(self) -> None:
        check(self)

    def read(self, *, seed: int = 0) -> Points:
        """In float32; `seed` chooses which points of a file are held out."""
        if (self.mixture is None) == (self.train is None):
            raise UserError(
                f"Points come from a mixture ({', '.join(MIXTURES)}) or from a train file: give one of them."
            )
        if self.mixture is not None and (self.validation or self.test):
            raise UserError("Points of a mixture are drawn for all parts: leave the validation and test files out.")
        if self.mixture is not None and self.limit is not None:
            raise UserError("Points of a mixture are as many as data.size says: leave out data.limit.")
        return self._from_mixture(self.mixture) if self.mixture is not None else self._from_files(seed)

    def _from_mixture(self, name: str) -> Points:
        found, fewer = MIXTURES.choose(name)(), max(1000, self.size // 10)
        train, validation, test = (
            draw_mixture(found, count, Generator().manual_seed(folded(self.draw_seed, part))).float()
            for part, count in (("train", self.size), ("validation", fewer), ("test", fewer))
        )
        return Points(train=train, validation=validation, test=test, mixture=name, source=self)

    def _from_files(self, seed: int) -> Points:
        assert self.train is not None
        train = read_points_file(self.train)
        given = {name: path for name in ("validation", "test") if (path := getattr(self, name)) is not None}
        parts = {name: read_points_file(path) for name, path in given.items()}
        for name, part in parts.items():
            if part.shape[1] != train.shape[1]:
                raise UserError(
                    f"{given[name]} has points of {part.shape[1]} numbers, the training points have {train.shape[1]}."
                )
        order = torch.randperm(len(train), generator=Generator().manual_seed(folded(seed, "points held out")))
        tenth = max(1, len(train) // 10)
        for name in ("validation", "test"):
            if name not in parts:
                parts[name], order = train[order[:tenth]], order[tenth:]
        if len(order) == 0:
            raise UserError(f"{self.train} has only {len(train)} points: give more, or validation and test files.")
        order = order[: self.limit]  # in an order that was drawn
        return Points(train=train[order], validation=parts["validation"], test=parts["test"], source=self)


def read_points_file(path: Path) -> Float[Tensor, "points dimensions"]:
    """The points of a file, one per row, in float32."""
    if not path.is_file():
        raise no_file(path)
    array = read_npz(path, "points") if path.suffix == ".npz" else _from_text(path)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise UserError(f"{path} holds {array.dtype} of shape {array.shape}: points are numbers, one point per row.")
    points = torch.from_numpy(array.astype(np.float32))
    bad = ~points.isfinite().all(1)
    if bool(bad.any()):
        raise UserError(f"Point {int(bad.nonzero()[0]) + 1} of {path} is not finite: leave it out.")
    return points


def _from_text(path: Path) -> NDArray[np.generic]:
    """Numbers separated by commas, semicolons or spaces, with or without a line of names above them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path} cannot be read as text: give a .npz, .csv or .txt file of points.") from None
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").replace(";", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            row = [float(word) for word in words]
        except ValueError:
            if rows or number > 1:
                raise UserError(f"Line {number} of {path} is no row of numbers: {line.strip()[:40]!r}.") from None
            continue  # the names of the columns
        if rows and len(row) != len(rows[0]):
            raise UserError(f"Line {number} of {path} has {len(row)} numbers, the lines before it {len(rows[0])}.")
        rows.append(row)
    return np.array(rows, dtype=np.float64)
