"""Points and images as a game is given them: floating-point rows, of images a batch at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.data.images import Images, ImagesData
from ebar.data.points import Points, PointsData
from ebar.errors import UserError
from ebar.store.differences import lasting
from ebar.tables import Table

# A line here puts a kind of data in the configuration of games and on their command line.
GAME_DATA: Table[Any] = Table("data", {"points": PointsData, "images": ImagesData})

Rows = Any  # Float[Tensor, "rows ..."], or `Pictures`


@dataclass(frozen=True, slots=True)
class Pictures:
    """Images kept as bytes, which become numbers in [0, 1] when they are asked for, channels first."""

    images: Images
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, rows: Int[Tensor, " selected"] | slice) -> Float[Tensor, "selected channels height width"]:
        pixels = self.images.pixels[rows].permute(0, 3, 1, 2)
        return pixels.to(self.dtype) / (self.images.levels - 1)


@dataclass(frozen=True, kw_only=True)
class GameData:
    """Rows to learn from, and rows held out."""

    parts: Mapping[str, Rows]  # train, and what else there is
    origin: Mapping[str, Any] | None = None  # how they were read, if they were
    mixture: str | None = None  # by name, where the truth is known

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return tuple(rows_at(self.parts["train"], slice(0, 1)).shape[1:])

    def rows(self, part: str = "train", most: int | None = None) -> Float[Tensor, "rows ..."]:
        """The first rows of a part, as numbers."""
        return rows_at(self.parts[part], slice(0, most))

    @property
    def held_out(self) -> str:
        """The name of the part that was not learnt from; the training part where there is no other."""
        return next((name for name in ("test", "validation") if name in self.parts), "train")


def rows_at(part: Rows, rows: slice) -> Float[Tensor, "rows ..."]:
    """Some rows as numbers."""
    return part.fetch(rows) if isinstance(part, Pictures) else part[rows]


def game_data(data: Any, *, dtype: torch.dtype | None = None) -> GameData:
    """From a tensor, from tensors by the name of their part, or from what was read: points or images."""
    dtype = dtype or torch.get_default_dtype()
    if isinstance(data, GameData):
        return data
    if isinstance(data, Points):
        points = {name: getattr(data, name).to(dtype) for name in ("train", "validation", "test")}
        source = None if data.source is None else {"kind": data.source.kind, **lasting(data.source, as_before=True)}
        return GameData(parts=points, origin=source, mixture=data.mixture)
    if isinstance(data, Tensor):
        data = {"train": data}
    origin, parts = getattr(data, "origin", None), data if isinstance(data, Mapping) else getattr(data, "parts", {})
    if isinstance(parts.get("train"), Images):
        return GameData(parts={name: Pictures(part, dtype) for name, part in parts.items()}, origin=origin)
    if isinstance(parts.get("train"), Tensor):
        return GameData(parts={name: _checked(rows).to(dtype) for name, rows in parts.items()}, origin=origin)
    raise UserError("A game is played on points or images: give a tensor of rows, or data that was read.")


def _checked(rows: Tensor) -> Tensor:
    if rows.dim() not in (2, 4) or not rows.is_floating_point():
        raise UserError(
            "Points are floating-point numbers of shape [rows, dimensions], images of shape [rows, channels, height, "
            f"width] in [0, 1], not {str(rows.dtype).removeprefix('torch.')} of shape {list(rows.shape)}."
        )
    if not bool(rows.isfinite().all()):
        raise UserError("The data have a number that is infinite or not a number: leave those rows out.")
    return rows
