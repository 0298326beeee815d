"""What is searched over, what to try next, and which trials to give up: optuna's, on a study made anew each time.

A study is nothing but the trials that there are: it is composed in memory from what the folder holds, so that there is
no second record that could differ from it. What is tried next is drawn from a seed of the trial's own number.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebar.errors import UserError
from ebar.journeys.sweep.trials import Trial, Value
from ebar.maths.randomness import folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A number from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False  # on a logarithmic scale
    whole: bool = False  # whole numbers only

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UserError(f"A range goes from a smaller number to a larger one, not from {self.low} to {self.high}.")
        if self.log and self.low <= 0:
            raise UserError(f"A logarithmic scale begins above 0, not at {self.low}.")

    @property
    def examples(self) -> tuple[Value, ...]:
        """Both ends."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def distribution(self, optuna: Any) -> Any:
        if self.whole:
            return optuna.distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return optuna.distributions.FloatDistribution(self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several values."""

    examples: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.examples)) < max(2, len(self.examples)):
            raise UserError(
                f"There is nothing to choose among {', '.join(map(str, self.examples))}: give other values."
            )

    def distribution(self, optuna: Any) -> Any:
        return optuna.distributions.CategoricalDistribution(self.examples)


Dimension = Between | OneOf


@dataclass(frozen=True, kw_only=True)
class Halving:
    """Successive halving (Li et al. 2020, ASHA): after `least`, `least`·`factor`, … evaluations a trial goes on only if
    its held-out figure then is among the best of every `factor` that have come so far."""

    factor: int = 4  # 1: every trial is run to its end
    least: int = 1

    def rungs(self, evaluations: int) -> list[int]:
        """Those numbers of evaluations, up to the given one, after which it is decided."""
        found, rung = [], self.least
        while self.factor > 1 and rung <= evaluations:
            found.append(rung)
            rung *= self.factor
        return found

    def gives_up(self, own: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
        """Whether a trial stops here; `own` are its held-out figures so far, `others` those of the other trials."""
        if not (rungs := self.rungs(len(own))) or rungs[-1] != len(own):
            return False
        optuna = import_optuna()
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=self.least, reduction_factor=self.factor)
        study = optuna.create_study(pruner=pruner)
        decision = False
        for figures in (*others, own):
            trial = study.ask()
            for rung in self.rungs(len(figures)):
                trial.report(figures[rung - 1], rung)
                decision = trial.should_prune()  # also notes that it came so far
        return bool(decision)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where trials are looked for, and how."""

    over: Mapping[str, Dimension]
    seed: int = 0
    startup: int = 10  # trials drawn at random, before earlier ones decide
    halving: Halving = field(default_factory=Halving)

    def suggest(self, number: int, trials: Sequence[Trial]) -> dict[str, Value]:
        """The values of a trial: by tree-structured Parzen estimators (Bergstra et al. 2011) from those before it."""
        optuna = import_optuna()
        sampler = optuna.samplers.TPESampler(seed=folded(self.seed, number) % 2**32, n_startup_trials=self.startup)
        study = optuna.create_study(sampler=sampler)
        distributions = {name: dimension.distribution(optuna) for name, dimension in self.over.items()}
        states = optuna.trial.TrialState
        for trial in sorted(trials, key=lambda one: one.number):
            known = trial.figure is not None and math.isfinite(trial.figure)
            if trial.state == "failed" or (trial.state is not None and not known):
                continue
            told: dict[str, Any] = {"state": states.RUNNING}
            if trial.state == "complete":
                told = {"state": states.COMPLETE, "value": trial.figure}
            elif trial.state == "pruned":
                told = {"state": states.PRUNED, "intermediate_values": {trial.step or 0: trial.figure}}
            study.add_trial(
                optuna.trial.create_trial(params=dict(trial.values), distributions=distributions, **told)
            )  # fmt: skip
        found: dict[str, Value] = study.ask(distributions).params
        return found


def import_optuna() -> Any:
    """The package, silent; or a sentence that says how to get it."""
    try:
        import optuna
    except ImportError:
        raise UserError("A sweep needs optuna: pip install 'ebar[sweep]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
