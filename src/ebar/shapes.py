"""Shapes of what users bring, checked where it enters: torch would broadcast a wrong one into a wrong number."""

from torch import Tensor

from ebar.errors import UserError
from ebar.maths.rows import count_rows
from ebar.types import PointSpace, Sequences


def of_shape(values: object, wanted: tuple[int, ...], what: str) -> Tensor:
    """The values, where they are a tensor of the wanted shape; else one sentence says what came and what was needed.

    The classical trap is [n, 1], as `nn.Linear(h, 1)` gives it: added to n scores it makes n × n of them.
    """
    if not isinstance(values, Tensor):
        raise UserError(f"{what} must be a tensor of shape {list(wanted)}, not {_named(values)}.")
    if values.shape != wanted:
        last_is_one = values.shape == (*wanted, 1)
        advice = ": return it with .squeeze(-1)" if last_is_one else ""
        raise UserError(f"{what} must have shape {list(wanted)}, not {list(values.shape)}{advice}.")
    return values


def _named(values: object) -> str:
    name = type(values).__name__
    return "nothing: does it return its result?" if values is None else f"a {name}"


def counted(x: object) -> str:
    """How many there are of x, in words: "3 sequences"."""
    return f"{count_rows(x)} {'sequences' if isinstance(x, Sequences) else 'points'}"


FEW = 8  # numbers of a point that a sentence can hold


def shown(x: object, row: int) -> str:
    """One row of x in an error's sentence: a sequence by its tokens, a point by its numbers, an image by its row."""
    if isinstance(x, Sequences):
        return f"the sequence {x.prefix(row)}"
    if isinstance(x, Tensor) and x[row].numel() <= FEW:
        return f"the point {x[row].tolist()}"
    return f"the point in row {row}"


def of_points(x: object, space: PointSpace) -> Tensor:
    """x, where it is a float tensor of points of this space, rows first."""
    wanted = f"[rows, {', '.join(map(str, space.shape))}]"
    if not isinstance(x, Tensor):
        raise UserError(f"Points are a float tensor of shape {wanted}, not a {type(x).__name__}.")
    if x.ndim == 0 or tuple(x.shape[1:]) != space.shape:
        raise UserError(f"Points must have shape {wanted}, not {list(x.shape)}.")
    if not x.is_floating_point():
        raise UserError(f"Points are numbers of a float type, not {x.dtype}: convert them with .float().")
    return x
