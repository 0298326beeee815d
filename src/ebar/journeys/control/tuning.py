"""π: a language model of its own that has learnt what is wanted, by policy gradient or by distillation.

Both make KL(p‖π) small. It goes on until the moments of π are what was asked, to within a tolerance, until the draws
fall in worth, or to the last of the steps.

tune/                 a run like any other: config.yaml, metrics.jsonl, checkpoints/ with the weights that learn
tune/start.json       figures before the first step
tune/rate.json        the learning rate that a pilot found, where none was given
tune/results.json     the same of the best π, and over the steps
tune/model/           π as transformers saves it, low-rank adapters merged
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from torch import Generator, nn

from ebar.bounds import Amount, Count, Natural, Share, at_least, check
from ebar.errors import Interrupted
from ebar.estimators.divergences import kl_to_model
from ebar.estimators.effective_samples import same_draws
from ebar.estimators.exact import device_of
from ebar.journeys.control import teaching
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.continuing import save_policy
from ebar.journeys.control.distilling import Distillation, FreshDraws, distillation
from ebar.journeys.control.pilot import searched_rate
from ebar.journeys.control.report import MODEL, TARGET, Tuned, write_tune_page
from ebar.journeys.train import player_of
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted
from ebar.objectives import PolicyGradient, Rounds
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored
from ebar.store.differences import as_yaml
from ebar.store.writing import from_plain, once, plain, to_json
from ebar.training.optimisers import Adam, Constant, Cosine
from ebar.training.players import Learning, Player
from ebar.training.randomness import seeded
from ebar.training.run import Run, open_run
from ebar.training.state import restore_weights
from ebar.training.train import History, Plan, Result, train_run
from ebar.types import Sequences

FLOOR = 0.02  # of the cosine schedule, as a share of the learning rate
SHOWN = 8  # texts of π
WAYS = ("distillation", "policy_gradient")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a model π of its own is made of the controlled one, by policy gradient or by distillation."""

    method: Literal["policy_gradient", "distillation", "both"] | None = None
    """What π learns from: how draws are weighed, or what draws that look ahead would choose in each place; both: one
    after the other, and the one that arrives, or the nearer. null: distillation where draws look ahead and KL(p‖π) is
    made small, else policy gradient."""
    steps: Count = 1000
    """Of the optimiser, at most."""
    tolerance: Amount | None = 0.02
    """It is over once the interval of every moment of π is as near as this to what was asked; null: after all steps."""
    draws: Count = 64
    """In each step."""
    learning_rate: Amount | None = None
    """Of Adam; null: what a pilot finds best among a few."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the steps, or unchanged."""
    warmup: Natural = 10
    """Steps over which the learning rate rises at first."""
    clip: Amount | None = 1.0
    """Largest Euclidean norm of a gradient."""
    lora_rank: Count | None = 16
    """Of the low-rank adapters that learn in a pretrained model, whose own weights stay as they are; null: all weights
    learn, as they always do in a model that `ebar train` made."""
    proposal: Literal["look_ahead", "model", "policy"] = "look_ahead"
    """Where draws come from: the model steered by the automata of the features, the model itself, or π as it is."""
    replace: bool = True
    """Of policy gradient: whether π takes the proposal's place once it is better."""
    own: Share = 0.5
    """Of distillation: the share of the draws that are π's own."""
    divergence: Literal["kl", "reverse_kl", "jensen_shannon", "total_variation"] = "kl"
    """What is made small: kl is KL(p‖π), the others are f-DPG's."""
    accumulate: Count = 1
    """Parts a step's draws are cut into, to save memory."""
    evaluate_every: Count = 100
    """Steps between evaluations of π."""
    evaluation_draws: Annotated[int, at_least(30)] = 1000
    """Of π for its moments and KL(π‖q), and as many of the proposal for KL(p‖π)."""
    final_draws: Annotated[int, at_least(30)] = 4000
    """Of the best π, for its moments and KL(π‖q)."""
    checkpoint_every: Count = 50
    """Steps between checkpoints."""
    seed: Natural = 0
    """Of adapters and draws."""

    def __post_init__(self) -> None:
        check(self)

    def chosen(self) -> "Tuning":
        """With a method, where none is said."""
        if self.method is not None:
            return self
        ahead = self.proposal == "look_ahead" and self.divergence == "kl"
        return replace(self, method="distillation" if ahead else "policy_gradient")


def tune(
    target: Tilted,
    policy: Any,
    constraints: Constraints,
    tuning: Tuning,
    folder: Path | None,
    *,
    continues: Callable[[Any], Any],
    ahead: Guided | None,
    text: Callable[[Sequences], list[str]],
    rows: int,
) -> Tuned:
    """Brings π, a module that is stepwise, from q to p, and leaves it with its best weights; one of the two methods.

    In a folder it continues from the newest checkpoint, and π is saved. `continues` puts the prompt before a model,
    where there is one, `ahead` is the proposal that looks ahead, and `rows` draws are computed together.
    """
    saved, policy = policy, continues(policy)
    policy.eval()  # for good: with dropout π/q would be noise
    device, seed = device_of(target.base), folded(tuning.seed, "tune")
    # KL(p‖π) is measured on draws made once, so that all steps are compared on the same.
    drawn = draw_scored(
        target, tuning.evaluation_draws, ahead=ahead, features=constraints.features, rows=rows,
        generator=Generator(device=device).manual_seed(folded(seed, "target")),
    )  # fmt: skip
    advice = f"choose another --name, or delete {folder}"
    with open_run(folder, config=as_yaml(asdict(tuning)), seed=tuning.seed, take_over=True, advice=advice) as run:
        measure = partial(teaching.tuning_figures, policy, target, constraints, drawn, text, rows=rows, seed=seed)
        judge = Judge(measure, run)
        begun = once(run.folder / "start.json", lambda: plain(judge()[0]))  # π is q
        start: teaching.Figures = from_plain(teaching.Figures, begun)
        taught = partial(_taught, target, policy, constraints, tuning, ahead, drawn, rows=rows)
        if tuning.learning_rate is None:
            search = partial(
                searched_rate, policy, partial(taught, seed=folded(seed, "pilot")), drawn, rows=rows,
                seed=folded(seed, "rate"), clip=tuning.clip,
            )  # fmt: skip
            known = once(run.folder / "rate.json", lambda: {"learning_rate": search()})
            tuning = replace(tuning, learning_rate=float(known["learning_rate"]))
        objective, batches = taught(seed=folded(seed, "texts"))
        players = _players(policy, objective, tuning)
        module = players["model"].module
        first = {name: weight.detach().to("cpu", copy=True) for name, weight in module.state_dict().items()}

        def until(steps: int) -> Result:
            plan = Plan(
                steps=steps,
                accumulate=tuning.accumulate,
                log_every=1,
                validate_every=tuning.evaluate_every,
                checkpoint_every=tuning.checkpoint_every,
                monitor=TARGET,
            )
            result = train_run(
                run, objective, batches, players, plan, generator=seeded(seed, device=str(device)),
                validation=lambda: teaching.numbers_of(judge()[0]),
            )  # fmt: skip
            if result.status == "interrupted":
                raise Interrupted(run.folder)
            judge.stop()
            return result

        result, why = _until_arrived(until, run, start, constraints, tuning)
        figures = {0: start} | teaching.evaluations(History.read(run.folder), start)
        last = result.position.step
        if last not in figures:
            figures[last] = judge()[0]
        step = teaching.kept(figures, constraints, tuning.tolerance)  # what has arrived is the last, or q itself
        if step == 0:
            module.load_state_dict(first)
        elif step != last:
            best = run.checkpoints.best()
            assert best is not None
            restore_weights(replace(best, weights={"model": best.weights["model"]}), {"model": players["model"]})
        end, texts = judge(draws=tuning.final_draws)
        tuned = Tuned(
            model=saved,
            folder=folder,
            start=start,
            end=end,
            target={
                **{f"mean of {name}": one for name, one in constraints.moments(drawn).items()},
                MODEL: kl_to_model(drawn.log_weights, drawn.log_g, drawn.log_q),
            },
            best_step=step,
            steps=list(figures),
            curves={name: [one[name] for one in figures.values()] for name in start},
            texts=texts[:SHOWN],
            drawn=f"{len(set(same_draws(drawn.x).tolist())):,} distinct of {len(drawn.log_g):,}",
            method=tuning.method or "",
            learning_rate=tuning.learning_rate,
            stopped=why,
            seconds=judge.seconds,
        )
        run.write("results.json", to_json(tuned.to_dict(), indent=1))
        if folder is not None:
            write_tune_page(folder, tuned)
            save_policy(saved, folder / "model")
    return tuned


def _until_arrived(
    until: Callable[[int], Result], run: Run, start: teaching.Figures, constraints: Constraints, tuning: Tuning
) -> tuple[Result, str]:
    """Trains from one evaluation to the next, and says why it ended."""
    if tuning.tolerance is None:
        return until(tuning.steps), "all steps were made"
    every = tuning.evaluate_every
    for steps in [*range(every, tuning.steps, every), tuning.steps]:
        result = until(steps)
        history = History.read(run.folder)
        figures = teaching.evaluations(history, start)
        if steps in figures and teaching.arrived(figures[steps], constraints, tuning.tolerance):
            return result, f"the moments of π are within {tuning.tolerance:g} of what was asked"
        if teaching.has_fallen(history, every):
            return result, "the effective size of the draws has fallen by half: π may have left out part of p"
    return result, "all steps were made before π arrived: more steps, under another name, go further"


class Judge:
    """Figures of π; and the seconds of tuning, over all starts, without those that judging takes: in seconds.json."""

    def __init__(self, figures: Callable[..., tuple[teaching.Figures, list[str]]], run: Run):
        self.figures, self.run, self.since = figures, run, time.monotonic()
        path = run.folder / "seconds.json"
        self.seconds = float(json.loads(path.read_bytes())["seconds"]) if path.exists() else 0.0

    def __call__(self, **options: Any) -> tuple[teaching.Figures, list[str]]:
        began = time.monotonic()
        found = self.figures(**options)
        self.since += time.monotonic() - began
        return found

    def stop(self) -> None:
        """What has passed since the last time is added."""
        now = time.monotonic()
        self.seconds, self.since = self.seconds + now - self.since, now
        self.run.write("seconds.json", to_json({"seconds": self.seconds}))


Learned = PolicyGradient | Distillation  # what π learns from


def _taught(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Tuning, ahead: Guided | None, drawn: ScoredDraws,
    *, rows: int, seed: int,
) -> tuple[Learned, Rounds | FreshDraws]:  # fmt: skip
    """What π learns from, and in which batches; nothing of it has begun."""
    if tuning.method == "distillation":
        return distillation(target, policy, constraints, tuning, ahead, drawn, rows=rows, seed=seed)
    objective = teaching.policy_gradient(target, policy, constraints, tuning, ahead)
    return objective, Rounds(draws=tuning.draws, steps=tuning.steps)


def _players(policy: nn.Module, objective: Learned, tuning: Tuning) -> dict[str, Player]:
    schedule = (
        Constant(warmup=tuning.warmup)
        if tuning.schedule == "constant"
        else Cosine(steps=tuning.steps, floor=FLOOR, warmup=min(tuning.warmup, tuning.steps - 1))
    )
    assert tuning.learning_rate is not None
    learner = Learning(policy, keep_mode=True)
    player = player_of(learner, Adam(learning_rate=tuning.learning_rate), schedule, clip=tuning.clip)
    return {"model": player, "memory": Player(module=objective.memory)}
