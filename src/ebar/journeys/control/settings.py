"""How a model of its own is tuned towards the controlled one."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ebar.bounds import Amount, Count, Natural, at_least, check


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a model π of its own is made of the controlled one, by distributional policy gradient."""

    steps: Count = 500
    """Of the optimiser."""
    draws: Count = 128
    """In each step."""
    learning_rate: Amount = 5e-4
    """Of Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the steps, or unchanged."""
    warmup: Natural = 10
    """Steps over which the learning rate rises at first."""
    clip: Amount | None = 1.0
    """Largest Euclidean norm of a gradient."""
    lora_rank: Count | None = 8
    """Of the low-rank adapters that learn, the model's own weights staying as they are; null: all weights learn."""
    proposal: Literal["look_ahead", "model", "policy"] = "look_ahead"
    """Where draws come from: the model steered by the automata of the features, the model itself, or π as it is."""
    replace: bool = False
    """Whether π takes the proposal's place once it is better."""
    divergence: Literal["kl", "reverse_kl", "jensen_shannon", "total_variation"] = "kl"
    """What is made small: kl is KL(p‖π), the others are f-DPG's."""
    accumulate: Count = 1
    """Parts a step's draws are cut into, to save memory."""
    evaluate_every: Count = 50
    """Steps between looks at how near π is."""
    evaluation_draws: Annotated[int, at_least(30)] = 1000
    """Of π for its moments and KL(π‖q), and as many of the proposal for KL(p‖π)."""
    checkpoint_every: Count = 50
    """Steps."""
    seed: Natural = 0
    """Of adapters and draws."""

    def __post_init__(self) -> None:
        check(self)
