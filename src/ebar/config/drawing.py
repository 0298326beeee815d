"""Options that the commands on trained runs share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.bounds import Count, Seed
from ebar.build.terms import Term, kinds_help
from ebar.config.reader import Answer, Chosen, argument, choice, list_option
from ebar.models.truncated import Truncation
from ebar.samplers import SAMPLERS


def _tilt_help() -> str:
    start = "terms of the energy, each adding COEFFICIENT·feature to the log-score; ! in front means absent, "
    start += "so that '!KIND:ARGUMENT=-inf' demands it."
    return f"{start} {kinds_help()}"


@dataclass(frozen=True, kw_only=True)
class OfRun(Answer):
    """What a command reads."""

    run: Path = argument()
    """Folder of a trained run."""
    seed: Seed = 0
    """Of the draws."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How to draw."""

    sampler: Chosen = choice(SAMPLERS, "resampling")
    proposal: Literal["base", "look_ahead"] = "base"
    """What the sampler proposes from: the model, or the model steered by the automata of the tilt."""
    seed: Seed = 0
    """Of the draws."""


@dataclass(frozen=True, kw_only=True)
class TiltedDrawing(Drawing, Truncation, OfRun):
    """How to draw from the model of a run, truncated and tilted by an energy."""

    tilt: tuple[Term, ...] = list_option("KIND:ARGUMENT=COEFFICIENT", _tilt_help)
    maximal_length: Count | None = None
    """In tokens, the end included."""
