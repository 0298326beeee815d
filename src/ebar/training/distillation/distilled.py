"""The summary of a distillation."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.log_z import from_batches, log_mean
from ebar.estimators.moments import weighted_mean
from ebar.maths.importance import all_warnings, diagnose, unseen_side
from ebar.maths.proportions import wilson
from ebar.samplers.trade_off import QUANTILE, trade_off
from ebar.store.stages import Header
from ebar.store.writing import plain
from ebar.training.distillation.record import Record, record_path
from ebar.types import Estimate

FEWEST_EFFECTIVE = 100  # draws that a resampled round must be worth: the bias of its lines is of order one in these
LARGEST_VARIATION = 0.05  # from p, without a warning


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
            f"the weighted draws of a round are worth only {record.smallest_effective:.1f}: "
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
