"""`ebar control prompts`: constraints on what follows each prompt of a file.

A prompt is a line of a text file, or of a file .jsonl the field "prompt" of each line. λ is found on a sample of them,
drawn evenly from all; the rest is one pass, of which memory holds a few prompts at a time.

Example:
    ebar control prompts --name openings --model FOLDER --prompts openings.txt --features 'word:rabbit|bunny=0.5'
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ebar.bounds import Count, Location, Natural, Seed, at_least, check
from ebar.build.terms import Term, kinds_help
from ebar.config.reader import Manual, list_option

MANUAL = Manual.of(__doc__, defaults={"name": "prompts"})


@dataclass(frozen=True, kw_only=True)
class PromptsConfig:
    """Everything that decides the result."""

    model: Location
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    prompts: Path
    """A file of prompts: one on each line or, of a file .jsonl, the field "prompt" of each."""
    features: tuple[Term, ...] = list_option("KIND:ARGUMENT=MOMENT", lambda: f"what is wanted. {kinds_help()}")
    suffix: str = ""
    """Text that comes after the `length` tokens that follow a prompt."""
    per_prompt: bool = False
    """Whether each prompt has a λ of its own, and the moment itself, not all of them together."""
    length: Count = 40
    """Tokens that follow a prompt."""
    ends: bool = False
    """Whether they may end before, with the model's end token."""
    draws: Annotated[int, at_least(4)] = 200
    """For each prompt."""
    sample: Count = 64
    """Prompts that λ, and what looks ahead, are found by."""
    surrogate_draws: Count = 4000
    """To fit what looks ahead to."""
    rounds: Natural = 0
    """In which what looks ahead learns from the model's own hidden states."""
    round_draws: Count = 1000
    """In a round."""
    texts: Natural = 3
    """Kept for each prompt, chosen among its draws by their weights."""
    weights: bool = False
    """Whether all draws of each prompt are kept, with their log-weights."""
    rows: Count = 1024
    """Draws made at a time: fewer take less memory."""
    seed: Seed = 0
    """Of the draws."""
    device: str | None = None
    """Where to compute: auto, cpu, cuda or mps; auto is cuda where there is one."""

    def __post_init__(self) -> None:
        check(self)
