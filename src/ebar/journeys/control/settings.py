"""How a model of its own is tuned towards the controlled one."""

import math
from dataclasses import dataclass
from typing import Literal

from ebar.errors import UserError


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
