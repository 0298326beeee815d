"""What `ebar control` is told: frozen dataclasses, read from YAML and flags."""

import math
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


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a model π of its own is made of the controlled one, by distributional policy gradient."""

    steps: int = 500
    """Of the optimiser."""
    draws: int = 128
    """In each step."""
    learning_rate: float = 5e-4
    """Of Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the steps, or unchanged."""
    warmup: int = 10
    """Steps over which the learning rate rises at first."""
    clip: float | None = 1.0
    """Largest Euclidean norm of a gradient."""
    lora_rank: int | None = 8
    """Of the low-rank adapters that learn, the model's own weights staying as they are; null: all weights learn."""
    proposal: Literal["look_ahead", "model", "policy"] = "look_ahead"
    """Where draws come from: the model steered by the automata of the features, the model itself, or π as it is."""
    replace: bool = False
    """Whether π takes the proposal's place once it is better."""
    divergence: Literal["kl", "reverse_kl", "jensen_shannon", "total_variation"] = "kl"
    """What is made small: kl is KL(p‖π), the others are f-DPG's."""
    accumulate: int = 1
    """Parts a step's draws are cut into, to save memory."""
    evaluate_every: int = 50
    """Steps between looks at how near π is."""
    evaluation_draws: int = 1000
    """Of π for its moments and KL(π‖q), and as many of the proposal for KL(p‖π)."""
    checkpoint_every: int = 50
    """Steps."""
    seed: int = 0
    """Of adapters and draws."""

    def __post_init__(self) -> None:
        for name in ("steps", "draws", "accumulate", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, not {getattr(self, name)}.")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")
        if self.warmup < 0:
            raise UserError(f"warmup must be 0 or more, not {self.warmup}.")
        if self.evaluation_draws < 30:
            raise UserError(f"evaluation_draws must be 30 or more, not {self.evaluation_draws}.")
        if self.lora_rank is not None and self.lora_rank < 1:
            raise UserError("lora_rank must be 1 or more; give null to let all weights learn.")
        if self.clip is not None and not self.clip > 0:
            raise UserError(f"clip must be above 0, not {self.clip}.")


def read_control(path: Path) -> Control:
    """The configuration that a run folder of `ebar control fit` keeps."""
    try:
        tree: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Control(**{**tree, "features": tuple(tree["features"])})
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        raise UserError(f"{path.parent} is no folder of `ebar control fit`: fit one first.") from None
