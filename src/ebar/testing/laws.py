"""How a broken law is reported."""

import torch
from torch import Tensor

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-1, torch.float32: 1e-5, torch.float64: 1e-9}


class LawError(AssertionError):
    """A law does not hold; the message says which one, and where."""


def require(holds: object, law: str) -> None:
    """Raise unless the law holds."""
    if not bool(holds):
        raise LawError(law)


def require_close(found: Tensor, wanted: Tensor, law: str, *, tolerance: float | None = None) -> None:
    """Raise unless two tensors agree to a tolerance, by default that of the less precise of their types."""
    require(found.shape == wanted.shape, f"{law}: shapes {tuple(found.shape)} and {tuple(wanted.shape)} differ")
    if tolerance is None:
        tolerance = max(TOLERANCE.get(tensor.dtype, 0.0) for tensor in (found, wanted))
    first, second = found.detach().double().cpu(), wanted.detach().double().cpu()
    same = (first == second) | ((first - second).abs() <= tolerance)  # the first is for infinities
    if not bool(same.all()):
        place = tuple(int(index) for index in (~same).nonzero()[0])
        raise LawError(f"{law}: {float(first[place]):.9g} and {float(second[place]):.9g} at {place}")
