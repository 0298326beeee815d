"""Distillation: draws of p ∝ P to a file, one a line, that can be stopped at any instant and taken up again."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Generator

from ebar.data.corpus import OPENERS
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.features.feature import Features
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted
from ebar.progress import bar, forecast
from ebar.samplers.draw import proposal_for
from ebar.samplers.look_ahead import LookAhead, check_look_ahead, guided
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.shards import Workers, run_shards, shard_seed
from ebar.shards.workers import on_threads
from ebar.store.stages import Header, Stage, damaged, entered
from ebar.store.writing import locked, plain, saving, write_all
from ebar.training.distillation.distilled import Distilled, Lines, Record, Sums, both, lines_of, record_path, summary
from ebar.training.distillation.rounds import (
    Ceiling,
    DistillationRound,
    draw_round,
    find_ceiling,
    has_independent_lines,
)
from ebar.training.stopping import interruptible
from ebar.types import Distribution, Sampler, Sequences, Space, Target

# Seeds of their own, folded with (seed, 0): those of rounds are folded with seed alone.
PROPOSAL, PILOT, FORECAST = 0, 1, 2
TRIAL, TRIAL_SHARE = 200, 20  # lines that tell how long the rest will take, and at most this part of them


def distil(
    target: Target,
    n: int,
    path: Path,
    *,
    decode: Callable[[list[int]], str],
    seed: int,
    sampler: Sampler = QuasiRejection(),  # noqa: B008 — immutable
    proposal: Distribution | None = None,
    look_ahead: bool = True,
    round_size: int = 2000,
    weighted_draws: int = 4,
    about: Mapping[str, str | int | float | None] = {},
    workers: Workers = Workers(),  # noqa: B008
) -> Distilled:
    """n draws of p ∝ P as lines of `path`, with a header in `path`.json. Training-2 of Parshakova et al. 2019, part 1.

    Rounds of `round_size` lines are drawn, each a shard with a seed of its own, and go to the disk in their order as
    they are done; so killed at any instant, the same call goes on to the same file, byte for byte, on any number of
    `workers` of one kind of machine. SIGINT and SIGTERM end it after a round. Memory holds a round at a time, and with
    several workers a few for each.

    Rejection draws from p; quasi-rejection from p_β, whose distance from p the summary tells. The draws of weighted
    samplers are resampled within a round, from `weighted_draws` times as many: biased O(1/round). Lines are then not
    independent, only rounds are. `look_ahead` proposes from `guided`, made for as many lines as are wanted.

    `about` is whatever else the draws depend on that cannot be seen from the target's weights.
    """
    for name, number in {"n": n, "round_size": round_size, "weighted_draws": weighted_draws}.items():
        if number < 1:
            raise UserError(f"A distillation needs {name} to be at least 1, not {number}.")
    if path.suffix in OPENERS:
        raise UserError(f"Lines are written as plain text: choose a name that does not end in {path.suffix}.")
    if look_ahead and proposal is not None:
        raise UserError("A proposal that looks ahead is made here: give one, or let look_ahead be true, not both.")
    if look_ahead:
        check_look_ahead(sampler)
    settings = {
        "n": n,
        "seed": seed,
        "round_size": round_size,
        "weighted_draws": weighted_draws,
        "sampler": sampler,
        "proposal": "look_ahead" if look_ahead else "base" if proposal is None else proposal,
        "target": target,
        **workers.description,
        **about,
    }

    def generator(number: int) -> Generator:
        return Generator(device=device_of(target)).manual_seed(folded(seed, 0, number))

    with _opened(path, settings, seed) as (descriptor, stage):
        record = _resumed(path, stage, descriptor)
        if record is None or record.lines < n:
            with bar("distilling", n, "lines") as progress, interruptible() as stop:
                with on_threads(workers.threads):
                    if look_ahead:
                        proposal = _guided(sampler, target, n, generator(PROPOSAL))
                    elif isinstance(sampler, QuasiRejection):
                        proposal = proposal_for(target, proposal)
                    if record is None:
                        sums = _sums(target, proposal)
                        free = has_independent_lines(sampler)
                        empty = Record(n=n, full_round=round_size, independent=free, sums=sums)
                        record = _begun(empty, sampler, target, proposal, generator(PILOT))
                with saving(str(path)):
                    os.ftruncate(descriptor, record.bytes)  # a round that the record does not have
                progress.advance(record.lines)
                left = n - record.lines
                drawing = _Drawing(sampler, target, proposal, record.ceiling, weighted_draws, decode, seed)
                trial = partial(drawing.draw, generator=generator(FORECAST))
                forecast("distilling", left, min(TRIAL, left // TRIAL_SHARE), trial)
                sizes = [(number, min(round_size, n - number * round_size)) for number in range(record.rounds_in_all)]
                rounds = run_shards(_round, drawing, sizes[record.rounds :], workers=workers, in_order=True)
                with closing(rounds):
                    for _, made in rounds:
                        with saving(str(path)):
                            write_all(descriptor, made.text)
                            os.fsync(descriptor)
                        record = record.plus(made)
                        stage.save(plain(record))
                        progress.advance(len(made.values))
                        if stop.requested:
                            break
        if record.lines < n:
            stage.postpone()
    return summary(path, record, stage.seconds)


class _Drawing(NamedTuple):
    """What all rounds have in common."""

    sampler: Sampler
    target: Target
    proposal: Distribution | None
    ceiling: Ceiling | None
    weighted_draws: int
    decode: Callable[[list[int]], str]
    seed: int

    def draw(self, size: int, generator: Generator) -> DistillationRound:
        return draw_round(
            self.sampler, self.target, size, proposal=self.proposal, ceiling=self.ceiling,
            weighted_draws=self.weighted_draws, generator=generator,
        )  # fmt: skip


def _round(common: _Drawing, job: tuple[int, int]) -> Lines:
    number, size = job
    target, space = common.target, _space(common.target, common.proposal)
    drawn = common.draw(size, Generator(device=device_of(target)).manual_seed(shard_seed(common.seed, number)))

    def text(x: Sequences) -> bytes:
        return _text(x, space, common.decode)

    return lines_of(drawn, _features(target), has_end=space.end is not None, text=text)


def _guided(sampler: Sampler, target: Target, n: int, generator: Generator) -> Distribution:
    """Fitted to a tenth as many draws as there will be lines, within reason: a better fit would not pay for itself."""
    if isinstance(sampler, LookAhead):
        return sampler.proposal(target, generator=generator)
    try:
        return guided(target, draws=min(max(n // 10, 100), 4000), generator=generator)
    except UserError as error:
        raise UserError(f"{str(error).rstrip('.')}, or propose from the base.") from None


def _sums(target: Target, proposal: Distribution | None) -> tuple[Sums, ...]:
    """Of the length, then of each feature."""
    sums = [Sums(name="length", low=0.0, high=float(_space(target, proposal).length), forbidden=False)]
    features = _features(target)
    if features is not None and isinstance(target, Tilted) and isinstance(target.energy, Linear):
        coefficients = target.energy.coefficients.tolist()
        sums += [
            Sums(name=f.name, low=float(f.low), high=float(f.high), forbidden=c == -math.inf)
            for f, c in zip(features.features, coefficients, strict=True)
        ]
    return tuple(sums)


def _begun(
    record: Record, sampler: Sampler, target: Target, proposal: Distribution | None, generator: Generator
) -> Record:
    """Before the first round. Where β is not given it is found once, so that all lines are of one p_β."""
    if isinstance(sampler, Rejection):
        return replace(record, log_bound=sampler.bound(target, proposal))
    if isinstance(sampler, QuasiRejection):
        if sampler.log_beta is not None:
            return replace(record, log_beta=sampler.log_beta)
        assert proposal is not None
        # TV(p_β, p) falls as one over the pilot, the sampling error of n lines as one over √n.
        pilot = min(max(record.n // 5, 100), 1000)
        log_beta, rate = find_ceiling(target, proposal, pilot, generator)
        return replace(record, log_beta=log_beta, pilot_rate=rate)
    return record


def _features(target: Target) -> Features | None:
    return target.energy.features if isinstance(target, Tilted) and isinstance(target.energy, Linear) else None


def _space(target: Target, proposal: Distribution | None) -> Space:
    space: Space = proposal_for(target, proposal).space
    return space


def _text(x: Sequences, space: Space, decode: Callable[[list[int]], str]) -> bytes:
    """One line for each sequence, the end left out."""
    kept = (x.lengths - int(space.end is not None)).tolist()
    lines = [decode(tokens[:length]) for tokens, length in zip(x.tokens.tolist(), kept, strict=True)]
    for line in lines:
        if "\n" in line or "\r" in line:
            raise UserError(f"The sequence {line!r} holds a line's end, so it cannot stand on a line of its own.")
    return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _opened(path: Path, settings: Mapping[str, object], seed: int) -> Iterator[tuple[int, Stage]]:
    """The text file, locked, and the stage that its header is of."""
    header = record_path(path)
    with saving(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a plain file, as a distillation must be: choose another name.")
    with locked(path) as descriptor:
        if os.fstat(descriptor).st_size > 0 and Header.read(header) is None:
            raise UserError(f"{path} exists and is no distillation: choose another name, or remove it.")
        try:
            with entered(header, settings, seed=seed) as stage:
                yield descriptor, stage
        except BaseException:
            known = Header.read(header) if os.fstat(descriptor).st_size == 0 else None
            if known is not None and not known.state:  # nothing came of it
                header.unlink()
                path.unlink(missing_ok=True)
            raise


def _resumed(path: Path, stage: Stage, descriptor: int) -> Record | None:
    """Where the file stands, if anything was drawn."""
    record, size = Record.of(stage.header, path), os.fstat(descriptor).st_size
    if record is None:
        return None
    if size < record.bytes or (record.bytes and os.pread(descriptor, 1, record.bytes - 1) != b"\n"):
        found = f"it is not as it was left, with {record.lines:,} lines in {record.bytes:,} bytes"
        raise damaged(path, found, delete=both(path))
    return record
