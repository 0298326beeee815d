"""`ebar control fit`: which model, what is to be true of its text, and how λ is found.

P(x) = q(x)·exp⟨λ, φ(x)⟩, with λ such that each feature has the mean it is to have over all text, or is in every
single one (=1), or in none (=0). Run it again to read what it found.

Example:
    ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ebar.bounds import Count, Location, Natural, Seed, at_least, check
from ebar.build.terms import Term, kinds_help
from ebar.config.reader import Manual, argument, list_option, read_file

MANUAL = Manual.of(__doc__, defaults={"name": "control"})


@dataclass(frozen=True, kw_only=True)
class Constrained:
    """A language model, what is wanted of its text, and how much is drawn."""

    model: Location
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    features: tuple[Term, ...] = list_option(
        "KIND:ARGUMENT=MOMENT", lambda: f"what is wanted of the text; ! in front of KIND means absent. {kinds_help()}"
    )
    length: Count = 40
    """Tokens of a draw, its end included where it may end; of a run at most as many as it was trained to make."""
    ends: bool = False
    """Whether a draw may end before, with the model's end token; without it, all draws have `length` tokens."""
    draws: Annotated[int, at_least(4)] = 10_000
    """To find λ by."""
    surrogate_draws: Count = 4000
    """To fit what looks ahead to."""
    rows: Count = 1024
    """Draws made at a time: fewer take less memory."""
    seed: Seed = 0
    """Of the draws."""
    device: str | None = None
    """Where to compute: auto, cpu, cuda or mps; auto is cuda where there is one."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class Prompted(Constrained):
    """The same after one prompt."""

    prompt: str = ""
    """Text that every draw goes on from."""
    reads_prompt: bool = False
    """Whether features look at the prompt and what follows it together, not at what follows alone."""


@dataclass(frozen=True, kw_only=True)
class ControlConfig(Prompted):
    """Everything that decides the result."""

    checks: Annotated[int, at_least(4)] = 4000
    """Fresh draws, to see by what was reached, and as many of the model itself."""
    rounds: Natural = 0
    """In which what looks ahead learns from the model's own hidden states; 0: it does not. Each takes `round_draws`."""
    round_draws: Count = 1000
    """In a round, and as many again to see what the last one is worth."""
    precision: Literal["float32", "bfloat16", "float16", "8bit"] | None = None
    """Of the weights; by default float32."""
    trust_remote_code: bool = False
    """Whether to run code that comes with the model."""


@dataclass(frozen=True, kw_only=True)
class CheckConfig(Prompted):
    """Which model, and what would be wanted of its text."""

    model: Location = argument()
    """A folder or a hub name of a causal language model, a .gguf or llama2.c .bin file, or a run of `ebar train`."""
    draws: Annotated[int, at_least(4)] = 4000
    """For each row of the table, and as many to find a λ by where one is needed."""


def read_control(folder: Path) -> ControlConfig:
    """The configuration that a run of `ebar control fit` keeps."""
    return read_file(folder / "config.yaml", MANUAL, ControlConfig)
