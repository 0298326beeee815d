"""Shapes of what users bring, checked where it enters: torch would broadcast a wrong one into a wrong number."""

from torch import Tensor

from ebar.errors import UserError


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


def rows_of_shape(x: Tensor, wanted: tuple[int, ...], what: str) -> Tensor:
    """x, where each of its rows is a point or an image of the wanted shape; else one sentence says what came."""
    if x.shape[1:] != wanted or x.dim() == 0:
        came, needed = (" × ".join(map(str, shape)) or "no numbers" for shape in (x.shape[1:], wanted))
        raise UserError(
            f"{what} was made for rows of {needed}, not of {came}: give data of that size, or make another."
        )
    return x
