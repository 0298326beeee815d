"""A whole run: steps, held-out figures, checkpoints, how it ends; and runs that end with their best weights."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, nn

from ebar import progress
from ebar.errors import Interrupted, UserError, choose
from ebar.maths.rows import named_tensors
from ebar.store.writing import to_json
from ebar.training import distributed, state
from ebar.training.batches import Source
from ebar.training.loop import NonFiniteError, Position, Step, evaluate_objective, fit
from ebar.training.metrics import Sink, opened_lines
from ebar.training.optimisers import AdamW, Constant, OptimiserConfig, Schedule
from ebar.training.players import Player, Players, evaluating, room_for
from ebar.training.randomness import seeded
from ebar.training.run import Checkpoints, Run, open_run, packed
from ebar.training.state import restore_weights
from ebar.training.stopping import Best, Patience, interruptible
from ebar.training.triggered import Watches
from ebar.types import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, and how often what."""

    steps: int | None = None  # at most, since the very start
    epochs: int | None = None
    accumulate: int = 1  # parts a batch is cut into, to save memory
    log_every: int = 10  # steps
    validate_every: int | None = None  # steps; None at the end of epochs
    validate_epochs: int = 1  # there, of every so many of them
    validate_last: bool = False  # also after the last of the steps
    checkpoint_every: int = 1000  # steps; also at every new best, and at the end
    patience: Patience | None = None
    monitor: str = "loss"  # the held-out figure whose lowest value is the best
    deterministic: bool = True  # torch's deterministic algorithms only
    minutes: float | None = None  # after which it stops as if it were interrupted
    autocast: str | None = None  # the device on which losses are computed in bfloat16

    def finished(self, position: Position, best: Best) -> str | None:
        """Why training is over, if it is."""
        if self.steps is not None and position.step >= self.steps:
            return "steps"
        if self.epochs is not None and position.epoch >= self.epochs:
            return "epochs"
        return "patience" if self.patience is not None and self.patience.exhausted(best) else None

    def validates(self, step: Step) -> bool:
        if self.validate_last and step.number == self.steps:
            return True
        if self.validate_every is not None:
            return step.number % self.validate_every == 0
        return step.ends_epoch and step.position.epoch % self.validate_epochs == 0


class Result(NamedTuple):
    """How a run ended. Interrupted, it goes on when it is run again. A game that halted has its reason."""

    status: Literal["finished", "interrupted", "halted"]
    reason: str  # steps, epochs, patience; or signal, time; or why a game asked to stop
    position: Position
    best: Best


def train_run(
    run: Run,
    objective: Objective,
    batches: Source,
    players: Players,
    plan: Plan,
    *,
    generator: Generator,
    validation: Callable[[], Mapping[str, float]] | None = None,
    sinks: Sequence[Sink] = (),
) -> Result:
    """Trains from where the run folder stands, its start or its newest checkpoint, until the plan is fulfilled.

    On CPU the result is the same to the last bit however often it was killed or interrupted on the way.
    `validation` is called with modules in evaluation mode, averaged parameters and no gradients. Afterwards
    the players hold the last weights; `run.checkpoints.best()` has the best. Where a game halts, no checkpoint is
    written of what made it halt: the newest is one of before.
    """
    if plan.steps is None and plan.epochs is None and plan.patience is None:
        raise UserError("Nothing says when training ends: give steps, epochs or patience.")
    if plan.patience is not None and validation is None:
        raise UserError("Patience needs held-out data: give some, or give steps or epochs instead.")
    writes = distributed.rank() == 0
    distributed.same_everywhere(player.module for player in players.values())
    position, best, logged = _resume(run, players, generator)
    with ExitStack() as stack:
        stack.enter_context(_deterministic(plan.deterministic))
        stop = stack.enter_context(interruptible())
        metrics = stack.enter_context(opened_lines(run.folder / "metrics.jsonl", keep=logged or 0)) if writes else None
        timing = stack.enter_context(opened_lines(run.folder / "timing.jsonl")) if writes else None
        if not writes:
            stack.enter_context(progress.shown(False))
        bar = stack.enter_context(progress.bar("training", _steps_left(plan, batches, position), "steps"))

        def log(values: Mapping[str, float]) -> None:
            if metrics is not None:
                metrics.write({"step": position.step, "epoch": position.epoch, **values})
                for sink in sinks:
                    sink.write(position.step, values)

        def checkpoint() -> None:
            logged = 0 if metrics is None else metrics.sync()
            captured = state.capture(players, position, best, generator, metrics_bytes=logged)
            if writes or any(player.sharded is not None for player in players.values()):
                run.checkpoints.save(captured)
            distributed.barrier()

        if logged is None:
            checkpoint()  # so that there is one, whatever the first step brings
        reason = plan.finished(position, best)
        began, first = time.monotonic(), position.step
        steps = fit(
            objective, batches, players, generator=generator, start=position, accumulate=plan.accumulate,
            autocast=plan.autocast,
        )  # fmt: skip
        while reason is None:
            try:
                step = next(steps)
            except NonFiniteError as error:
                raise _kept(run, error, writes) from error
            position = step.position
            bar.advance(1)
            if step.halt is not None:
                log(step.metrics)
                return _ended(run, Result("halted", step.halt, position, best), writes)
            if step.number % plan.log_every == 0:
                log(step.metrics)
                if timing is not None:
                    seconds = time.monotonic() - began
                    timing.write({"step": step.number, "seconds": seconds, "rate": (step.number - first) / seconds})
            improved = False
            if validation is not None and plan.validates(step):
                with evaluating(*players.values()):
                    figures = validation()
                log({f"validation.{name}": value for name, value in figures.items()})
                value = choose(figures, plan.monitor, "held-out figure")
                patience = plan.patience or Patience()
                best = best.update(value, step.number, margin=patience.margin, remember=patience.excluding is not None)
                improved = best.step == step.number
                if _tell(players, value):
                    log({"averages": 1.0})
            reason = plan.finished(position, best)
            late = plan.minutes is not None and time.monotonic() - began >= 60 * plan.minutes
            interrupted = distributed.any_of(stop.requested or late) and reason is None
            if reason or interrupted or improved or step.number % plan.checkpoint_every == 0:
                checkpoint()
            if interrupted:
                return Result("interrupted", "signal" if stop.requested else "time", position, best)
        return _ended(run, Result("finished", reason, position, best), writes)


def _ended(run: Run, result: Result, writes: bool) -> Result:
    if writes:
        run.write("results.json", to_json(result, indent=1))
    return result


def _resume(run: Run, players: Players, generator: Generator) -> tuple[Position, Best, int | None]:
    """Where the run stands, and how many bytes of metrics there were; None for those at the very start."""
    first, room = distributed.rank() == 0, room_for(players)
    checkpoint = run.checkpoints.resume(room) if first else None  # puts damaged ones aside, before the others look
    distributed.barrier()
    checkpoint = checkpoint if first else run.checkpoints.newest(room)
    if checkpoint is None:
        return Position(), Best(), None
    return *state.restore(checkpoint, players, generator), checkpoint.state["metrics_bytes"]


def _tell(players: Players, value: float) -> bool:
    """Tells each optimiser that wants to know; whether one of them begins to average its weights."""
    begins = False
    for player in players.values():
        watcher: object = player.optimiser
        begins = (isinstance(watcher, Watches) and watcher.validated(value)) or begins
    return begins


def _kept(run: Run, error: NonFiniteError, writes: bool) -> UserError:
    """The error that names the file with the batch."""
    name = f"non-finite-step-{error.step}.safetensors"
    if writes:
        run.write(name, packed(named_tensors(error.batch)))
    return UserError(f"{str(error).rstrip('.')}, kept in {run.folder / name}.")


def _steps_left(plan: Plan, batches: Source, position: Position) -> int | None:
    ends = [] if plan.steps is None else [plan.steps]
    if plan.epochs is not None and isinstance(batches, Sized):
        ends.append(plan.epochs * len(batches))
    return max(0, min(ends) - position.step) if ends else None


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        # Some sums have no such kernel on CUDA (cumsum is one): there they warn, and runs agree to rounding.
        torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


LAST = 10  # logged losses that are the end
ROSE, FAR = 1.5, 4.0  # how many times the first one, or that of a guess, tells of divergence


class History(list[dict[str, Any]]):
    """The lines of metrics.jsonl: one record for each logged step and each evaluation."""

    @classmethod
    def read(cls, folder: Path) -> "History":
        """Of a run folder."""
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return cls(json.loads(line) for line in lines)

    def diverged(self, guessing: float = math.inf) -> str | None:
        """Says so where the training loss ended far above where it began: overfitting does not do that.

        Or far above `guessing`, what a model that knows nothing would have: it may have risen before the first record.
        """
        losses = [value for _, value in self.curve("loss") or self.curve("validation.loss")]
        if not losses or losses[0] <= 0:
            return None
        last = sum(losses[-LAST:]) / len(losses[-LAST:])
        if last > ROSE * losses[0]:
            rose = f"rising from {losses[0]:.4g} to {last:.4g}"
        elif last > FAR * guessing:
            rose = f"being {last:.4g} at the end, far above the {guessing:.4g} of a guess"
        else:
            return None
        rates = [value for _, value in self.curve("learning_rate")]
        rate = f" of {max(rates):g}" if rates else ""
        return f"training diverged, the loss {rose}: the learning rate{rate} is too high, try a tenth of it"

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one metric."""
        return [(line["step"], line[name]) for line in self if name in line]


def train_to_best(
    run: Run, objective: Objective, batches: Source, players: Players, plan: Plan, **options: Any
) -> Result:
    """`train_run` with its options, after which the players have their best weights and are in evaluation mode.

    Where nothing is held out these are those of the newest checkpoint: the last, or where a game halted the last good.
    Stopped by a signal or a time limit it raises `Interrupted`, with the result of the training so far as its argument.
    """
    result = train_run(run, objective, batches, players, plan, **options)
    if result.status == "interrupted":
        raise Interrupted(result)
    checkpoint = run.checkpoints.best(room_for(players))
    assert checkpoint is not None  # the first is written before the first step
    restore_weights(checkpoint, {name: Player(module=player.module) for name, player in players.items()})
    for player in players.values():
        player.module.eval()
    return result


def load_best(module: nn.Module, folder: Path, *, player: str = "model") -> None:
    """Gives a module the best weights of a run folder."""
    load_players({player: module}, folder)


def load_players(modules: Mapping[str, nn.Module], folder: Path) -> None:
    """Gives the modules of some players the best weights of a run folder."""
    checkpoint = Checkpoints(folder / "checkpoints").best()
    if checkpoint is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    # The state of an objective is saved as a player of its own: it is no part of the modules.
    own = {name: weights for name, weights in checkpoint.weights.items() if name in modules}
    restore_weights(replace(checkpoint, weights=own), {name: Player(module=one) for name, one in modules.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one module is trained by `train_best`."""

    epochs: int
    seed: int = 0
    optimiser: OptimiserConfig = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = 1.0
    checkpoint_every: int = 1000
    log_every: int = 10


def train_best(
    folder: Path,
    course: Course,
    module: nn.Module,
    objective: Objective,
    batches: Source,
    held_out: tuple[Objective, Source],
    *,
    generator: Generator | None = None,
    player: str = "model",
) -> History:
    """Trains any module in a folder of its own and leaves it with its best weights, in evaluation mode.

    Without a generator, all random sources are seeded from `course.seed`. A caller that draws the first weights from
    the same seed calls `seeded` before it builds the module, and passes the generator that this returned.
    """
    generator = generator or seeded(course.seed)
    learner = Player(
        module=module,
        optimiser=course.optimiser.build(parameter for parameter in module.parameters() if parameter.requires_grad),
        schedule=course.schedule,
        clip_norm=course.clip,
    )
    judge, data = held_out
    plan = Plan(
        epochs=course.epochs,
        checkpoint_every=course.checkpoint_every,
        log_every=course.log_every,
        monitor="loss" if player == "model" else f"{player}.loss",
    )
    with open_run(folder, config="", seed=course.seed) as run:
        train_to_best(
            run,
            objective,
            batches,
            {player: learner},
            plan,
            generator=generator,
            validation=lambda: evaluate_objective(judge, data, generator=generator),
        )
    return History.read(folder)
