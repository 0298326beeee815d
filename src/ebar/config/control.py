"""What `ebar control` is told: frozen dataclasses, read from YAML and flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from ebar.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Control:
    """Which model, what is to be true of its text, and how λ is found. All of it decides the result."""

    model: str
    """A folder or a name on the hub of a causal language model, a .gguf file or a llama2.c .bin file."""
    features: tuple[str, ...] = ()  # terms KIND:ARGUMENT=MOMENT
    prompt: str = ""
    """Text that every draw goes on from."""
    reads_prompt: bool = False
    """Whether features look at the prompt and what follows it together, not at what follows alone."""
    length: int = 40
    """Tokens of a draw, its end included where it may end."""
    ends: bool = False
    """Whether a draw may end before, with the model's end token; without it, all draws have `length` tokens."""
    draws: int = 10_000
    """To find λ by."""
    checks: int = 4000
    """Fresh draws, to see by what was reached, and as many of the model itself."""
    surrogate_draws: int = 4000
    """To fit what looks ahead to."""
    rows: int = 1024
    """Draws made at a time: fewer take less memory."""
    seed: int = 0
    """Of the draws."""
    device: str | None = None
    """Where to compute, such as cpu or cuda."""
    dtype: Literal["float32", "bfloat16", "float16", "8bit"] | None = None
    """Of the weights; by default float32."""
    trust_remote_code: bool = False
    """Whether to run code that comes with the model."""

    def __post_init__(self) -> None:
        for name in ("length", "surrogate_draws", "rows"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(self, name)}.")
        for name in ("draws", "checks"):
            if getattr(self, name) < 4:
                raise UserError(f"{name} must be 4 or more, not {getattr(self, name)}.")


def read_control(path: Path) -> Control:
    """The configuration that a run folder of `ebar control fit` keeps."""
    try:
        tree: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Control(**{**tree, "features": tuple(tree["features"])})
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        raise UserError(f"{path.parent} is no folder of `ebar control fit`: fit one first.") from None
