"""How far a distillation is, beside its file: enough to go on from the last round, and to sum up at the end."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.features.feature import Features
from ebar.store.stages import Header, damaged
from ebar.store.writing import from_plain
from ebar.training.distillation.rounds import Ceiling, Round

POOL = 10_000  # log-weights kept, the first ones: they tell the total variation, and log Z


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Of one feature over the lines."""

    name: str
    low: float  # of its range
    high: float
    forbidden: bool  # by a coefficient of −∞: that it is never seen is no news
    total: float = 0.0
    squares: float = 0.0
    smallest: float = math.inf
    largest: float = -math.inf
    binary: bool = True  # only values at either end of the range were seen

    def plus(self, values: Float[Tensor, " lines"]) -> "Sums":
        return replace(
            self,
            total=self.total + float(values.sum()),
            squares=self.squares + float(values.square().sum()),
            smallest=min(self.smallest, float(values.min())),
            largest=max(self.largest, float(values.max())),
            binary=self.binary and self.low < self.high and bool(((values == self.low) | (values == self.high)).all()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The state of a distillation after some rounds."""

    n: int  # lines wanted
    full_round: int  # lines of all rounds but the last
    independent: bool  # lines are; else only rounds are
    sums: tuple[Sums, ...]  # of the length in tokens, the end left out, then of each feature
    log_bound: float | None = None  # of rejection
    log_beta: float | None = None  # of quasi-rejection
    pilot_rate: float | None = None
    rounds: int = 0
    lines: int = 0
    bytes: int = 0
    accepted: int = 0
    proposed: int = 0
    effective: float | None = 0.0
    smallest_effective: float = math.inf  # of a whole round
    round_means: tuple[tuple[float, ...], ...] = ()  # where only rounds are independent
    log_z_rounds: tuple[float, ...] = ()
    pool: tuple[float, ...] = ()

    @property
    def round_size(self) -> int:
        """Of the round to come."""
        return min(self.full_round, self.n - self.lines)

    @property
    def ceiling(self) -> Ceiling | None:
        """With the acceptance rate so far, which sizes the batches of the round to come."""
        if self.log_beta is None:
            return None
        rate = self.accepted / self.proposed if self.proposed else self.pilot_rate
        return Ceiling(self.log_beta, 1.0 if rate is None else max(rate, 1e-6))

    def with_bound(self, log_bound: float) -> "Record":
        return replace(self, log_bound=log_bound)

    def with_ceiling(self, log_beta: float, pilot_rate: float | None) -> "Record":
        return replace(self, log_beta=log_beta, pilot_rate=pilot_rate)

    def plus(self, drawn: Round, features: Features | None, *, size: int, has_end: bool) -> "Record":
        """After another round, whose text takes `size` bytes."""
        columns = [(drawn.x.lengths - int(has_end)).double()[:, None]]
        if features is not None:
            columns.append(features(drawn.x).double())
        values = torch.cat(columns, 1).detach()
        lines = len(values)
        known = self.effective is not None and drawn.effective is not None
        room = max(0, POOL - len(self.pool))
        return replace(
            self,
            sums=tuple(sums.plus(column) for sums, column in zip(self.sums, values.unbind(1), strict=True)),
            rounds=self.rounds + 1,
            lines=self.lines + lines,
            bytes=self.bytes + size,
            accepted=self.accepted + drawn.accepted,
            proposed=self.proposed + drawn.proposed,
            effective=(self.effective or 0.0) + (drawn.effective or 0.0) if known else None,
            smallest_effective=self.smallest_effective
            if drawn.effective is None or (lines < self.full_round and self.rounds)
            else min(self.smallest_effective, drawn.effective),
            round_means=() if self.independent else (*self.round_means, tuple(values.mean(0).tolist())),
            log_z_rounds=self.log_z_rounds if drawn.log_z is None else (*self.log_z_rounds, drawn.log_z),
            pool=(*self.pool, *drawn.log_weights[:room].tolist()),
        )

    @staticmethod
    def of(header: Header, path: Path) -> "Record | None":
        """That of the text file at a path; None where nothing was drawn yet."""
        try:
            return _checked(header.state) if header.state else None
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(record_path(path), error, delete=both(path)) from None


def record_path(path: Path) -> Path:
    """Where the header of a text file is, and the record in it."""
    return path.with_name(path.name + ".json")


def both(path: Path) -> str:
    """What has to be deleted for a distillation to start anew."""
    return f"{path} and {record_path(path).name}"


def _checked(found: Mapping[str, Any]) -> Record:
    """The record of a JSON object; what cannot be one is a ValueError, KeyError or TypeError."""
    if set(found) != {field.name for field in fields(Record)}:
        raise ValueError("something is missing")
    record: Record = from_plain(Record, found)
    counts = (record.n, record.full_round, record.rounds, record.lines, record.bytes, record.accepted, record.proposed)
    if min(counts) < 0 or record.lines > record.n or not record.sums:
        raise ValueError("a count is negative, more lines than wanted, or no sums")
    return record
