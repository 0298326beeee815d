"""What a request asks for, what it is told meanwhile, and what it gets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ebar.estimators.effective_samples import EffectiveSamples
from ebar.serve.allowance import Allowance
from ebar.serve.cloud import Cloud, Knob, NextWord
from ebar.types import Estimate


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request about one model, as it was typed."""

    name: str
    prompt: str = ""
    constraints: str = ""  # one a line
    reads_prompt: bool = False
    length: float | int | None = 40  # a box of the page may hold any number, or none
    draws: float | int | None = 500
    seed: float | int | None = 0

    @property
    def terms(self) -> list[str]:
        return [line.strip() for line in self.constraints.splitlines() if line.strip()]


class Progress(NamedTuple):
    """Where a request stands."""

    words: str
    done: int = 0
    total: int = 0


class Moment(NamedTuple):
    """A feature's mean, wanted and found."""

    name: str
    wanted: float | None
    coefficient: Estimate | None  # λ; None where every text must have it, or none
    q: Estimate
    p: Estimate


class Part(NamedTuple):
    """A token of a text, and what it adds to −E as far as that can be foreseen, in nats."""

    text: str
    value: float


class Candidate(NamedTuple):
    """A text with its numbers."""

    parts: list[Part]  # its tokens where these are known without draws, else all of it as one
    log_q: float
    energy: float
    share: float  # of the weight of all


def heaviest(cloud: Cloud, parts: Callable[[list[int]], list[Part]] | None = None, most: int = 10) -> list[Candidate]:
    """The different texts of largest weight."""
    rows: dict[str, int] = {}
    for row in cloud.shares.argsort(descending=True, stable=True).tolist():
        rows.setdefault(cloud.texts[row], row)
    return [
        Candidate(
            [Part(text, 0.0)] if parts is None else parts(cloud.x.prefix(row)),
            *(float(column[row]) for column in (cloud.log_q, cloud.energy, cloud.shares)),
        )
        for text, row in list(rows.items())[:most]
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The answer."""

    asked: Asked
    what: str  # P, in one sentence
    words: list[NextWord]
    words_from: str  # how p's are known
    log_z: Estimate
    effective: EffectiveSamples | None
    moments: list[Moment]
    knobs: list[Knob]
    cloud: Cloud
    parts: Callable[[str, Allowance], list[Part]] | None  # a text's tokens; None where nothing is foreseen of them
    parts_mean: str  # what the numbers of a text's tokens are
    candidates: list[Candidate]
    notes: list[str] = field(default_factory=list)
