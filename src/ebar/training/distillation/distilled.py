"""What a distillation has drawn so far, as it is kept beside the text, and its summary."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.log_z import from_batches, log_mean
from ebar.estimators.moments import weighted_mean
from ebar.features.feature import Features
from ebar.maths.importance import all_warnings, diagnose, unseen_side
from ebar.maths.proportions import wilson
from ebar.samplers.trade_off import QUANTILE, trade_off
from ebar.store.stages import Header, damaged
from ebar.store.writing import from_plain, plain
from ebar.training.distillation.rounds import Ceiling, DistillationRound
from ebar.types import Estimate, Sequences

FEWEST_EFFECTIVE = 100  # effective draws of a resampled round at least: the bias of its lines is of order one in these
LARGEST_VARIATION = 0.05  # from p, without a warning


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


class Lines(NamedTuple):
    """A round as text, and what is kept of it."""

    text: bytes
    values: Float[Tensor, "lines sums"]  # the length of each line, then its features
    drawn: DistillationRound  # without its draws


def lines_of(
    drawn: DistillationRound, features: Features | None, *, has_end: bool, text: Callable[[Sequences], bytes]
) -> Lines:
    """Of a round that was just drawn."""
    columns = [(drawn.x.lengths - int(has_end)).double()[:, None]]
    if features is not None:
        columns.append(features(drawn.x).double())
    x, log_weights = drawn.x, drawn.log_weights[:POOL].cpu()
    none = Sequences(x.tokens[:0, :0].cpu(), x.lengths[:0].cpu())
    return Lines(text(x), torch.cat(columns, 1).detach().cpu(), drawn._replace(x=none, log_weights=log_weights))


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
    def rounds_in_all(self) -> int:
        return -(-self.n // self.full_round)

    @property
    def ceiling(self) -> Ceiling | None:
        """With the pilot's acceptance rate, by which each round sizes its first batch, knowing of no other round."""
        if self.log_beta is None:
            return None
        return Ceiling(self.log_beta, 1.0 if self.pilot_rate is None else max(self.pilot_rate, 1e-6))

    def plus(self, made: "Lines") -> "Record":
        """After another round."""
        values, drawn = made.values, made.drawn
        lines = len(values)
        known = self.effective is not None and drawn.effective is not None
        room = max(0, POOL - len(self.pool))
        return replace(
            self,
            sums=tuple(sums.plus(column) for sums, column in zip(self.sums, values.unbind(1), strict=True)),
            rounds=self.rounds + 1,
            lines=self.lines + lines,
            bytes=self.bytes + len(made.text),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled:
    """A file of draws, one a line, and how near they are to p. Intervals are of 95 %."""

    path: Path
    n: int  # lines in the file
    complete: bool  # False where it was interrupted: the same call goes on
    acceptance_rate: Estimate | None  # of proposals
    proposed: int | None
    effective_sample_size: float | None  # of the lines; None for chains, which cannot tell
    total_variation: Estimate | None  # TV(p_β, p) of quasi-rejection; 0 where draws are exact; None where unknown
    log_z: Estimate | None
    moments: dict[str, Estimate]  # of the features of a linear energy, over the lines
    mean_length: Estimate  # in tokens, the end left out
    warnings: tuple[str, ...]
    seconds: float  # of drawing and writing, over all starts

    @staticmethod
    def read(path: Path) -> "Distilled":
        """Of a file that `distil` wrote, whether or not it was finished."""
        header = Header.read(record_path(path))
        record = None if header is None else Record.of(header, path)
        if header is None or record is None:
            raise UserError(f"{path} is no distillation: there is no record of one beside it.")
        return summary(path, record, header.seconds)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: `Estimate`s as objects."""
        return plain(self)  # type: ignore[no-any-return]


def summary(path: Path, record: Record, seconds: float) -> Distilled:
    """All that a record tells."""
    length, *moments = [_mean(record, column) for column in range(len(record.sums))]
    names = [sums.name for sums in record.sums[1:]]
    pool = torch.tensor([record.pool], dtype=torch.float64)
    variation = _variation(record)
    warnings = [estimate.warning for estimate in moments]
    if record.pool:
        warnings += diagnose(pool)
    if variation is not None and variation.high > LARGEST_VARIATION:
        warnings.append(
            f"the draws are of p_β, which is up to {variation.high:.2g} from p in total variation: "
            "raise log_beta, or improve the proposal"
        )
    if record.smallest_effective < min(FEWEST_EFFECTIVE, record.full_round):
        warnings.append(
            f"the weighted draws of a round have an effective sample size of only {record.smallest_effective:.1f}: "
            "make rounds larger, or use a proposal that looks ahead"
        )
    return Distilled(
        path=path,
        n=record.lines,
        complete=record.lines == record.n,
        acceptance_rate=_acceptance(record),
        proposed=record.proposed or None,
        effective_sample_size=record.effective,
        total_variation=variation,
        log_z=_log_z(record),
        moments=dict(zip(names, moments, strict=True)),
        mean_length=length,
        warnings=tuple(dict.fromkeys(warning for warning in warnings if warning is not None)),
        seconds=seconds,
    )


def _mean(record: Record, column: int) -> Estimate:
    """Over i.i.d. lines from sums; else rounds are the units, each counting for its lines."""
    sums, lines = record.sums[column], record.lines
    if lines == 0:
        return Estimate(math.nan, sums.low, sums.high, 0.0, "nothing has been drawn yet")
    never = sums.forbidden and sums.largest == sums.low
    unseen = None if never else unseen_side(sums.name, sums.smallest, sums.largest, sums.low, sums.high)
    if not record.independent:
        sizes = _sizes(record)[None]
        values = torch.tensor([[means[column] for means in record.round_means]], dtype=torch.float64)
        [found] = weighted_mean(sizes.log(), values, low=sums.low, high=sums.high, name=sums.name, batches=True)
        size = lines if record.effective is None else record.effective
        return found._replace(effective_sample_size=float(size), warning=all_warnings(found.warning, unseen))
    mean = min(max(sums.total / lines, sums.smallest), sums.largest)  # rounding may step outside
    between = sums.high - sums.low
    if sums.binary:
        low, high = (sums.low + between * share for share in wilson((mean - sums.low) / between * lines, float(lines)))
    else:
        variance = max(0.0, sums.squares / lines - mean**2)
        width = QUANTILE * math.sqrt(variance / (lines - 1)) if lines > 1 else math.inf
        low, high = max(sums.low, mean - width), min(sums.high, mean + width)
    return Estimate(mean, low, high, float(lines), unseen)


def _acceptance(record: Record) -> Estimate | None:
    """k acceptances at the N-th proposal: k/N, whose logarithm has standard error √((1 − rate)/k)."""
    if not record.proposed:
        return None
    rate = record.accepted / record.proposed
    factor = math.exp(QUANTILE * math.sqrt((1 - rate) / record.accepted))
    return Estimate(rate, rate / factor, min(1.0, rate * factor), float(record.accepted))


def _variation(record: Record) -> Estimate | None:
    if record.log_beta is None:
        return Estimate.exact(0.0) if record.independent else None
    if len(record.pool) < 2:
        return None
    pool, log_beta = (torch.tensor(numbers, dtype=torch.float64) for numbers in (record.pool, [record.log_beta]))
    return trade_off(pool[None], log_beta)[0].total_variation


def _log_z(record: Record) -> Estimate | None:
    if record.log_bound is not None and record.proposed:
        rate = record.accepted / record.proposed
        width = QUANTILE * math.sqrt((1 - rate) / record.accepted)
        value = record.log_bound + math.log(rate)
        return Estimate(value, value - width, value + width, float(record.accepted))
    if record.log_z_rounds:
        return from_batches(torch.tensor([record.log_z_rounds], dtype=torch.float64), sizes=_sizes(record))[0].estimate
    return log_mean(torch.tensor([record.pool], dtype=torch.float64))[0].estimate if len(record.pool) > 1 else None


def _sizes(record: Record) -> Float[Tensor, " rounds"]:
    """Lines of each round: all but the last are full."""
    whole = record.full_round
    sizes = torch.full((record.rounds,), float(whole), dtype=torch.float64)
    sizes[-1] = record.lines - whole * (record.rounds - 1)
    return sizes


POOL = 10_000  # log-weights kept, the first ones: they tell the total variation, and log Z
