"""π by distributional policy gradient: a language model of its own that has learnt what is wanted.

tune/                 a run like any other: config.yaml, metrics.jsonl, checkpoints/ with the weights that learn
tune/start.json       figures before the first step
tune/results.json     the same of the best π, and over the steps
tune/model/           π as transformers saves it, low-rank adapters merged
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Generator, nn

from ebar.bounds import Amount, Count, Natural, at_least, check
from ebar.errors import Interrupted
from ebar.estimators.divergences import kl_from_model, kl_to_model
from ebar.estimators.effective_samples import same_draws
from ebar.estimators.exact import device_of
from ebar.estimators.moments import means_by_name
from ebar.evaluation.diversity import unique_ratios
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.report import MODEL, TARGET, Tuned, write_tune_page
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, propose, score
from ebar.objectives import PolicyGradient, Rounds
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored
from ebar.store.differences import as_yaml
from ebar.store.writing import from_plain, once, plain, to_json
from ebar.training.optimisers import Adam, Constant, Cosine
from ebar.training.players import Learning, Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.state import restore_weights
from ebar.training.stopping import Best
from ebar.training.train import History, Plan, train_run
from ebar.types import Distribution, Estimate, Sequences

FLOOR = 0.02  # of the cosine schedule, as a share of the learning rate
ORDERS = (1, 2)  # of n-grams
SHOWN = 8  # texts of π
# Fields of an estimate, and what stands behind its name in a line of metrics.
ENDS = {"value": "", "low": " low", "high": " high", "effective_sample_size": " effective_sample_size"}
Figures = dict[str, Estimate]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a model π of its own is made of the controlled one, by distributional policy gradient."""

    steps: Count = 500
    """Of the optimiser."""
    draws: Count = 128
    """In each step."""
    learning_rate: Amount = 5e-4
    """Of Adam."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: down to a fiftieth over the steps, or unchanged."""
    warmup: Natural = 10
    """Steps over which the learning rate rises at first."""
    clip: Amount | None = 1.0
    """Largest Euclidean norm of a gradient."""
    lora_rank: Count | None = 8
    """Of the low-rank adapters that learn in a pretrained model, whose own weights stay as they are; null: all weights
    learn, as they always do in a model that `ebar train` made."""
    proposal: Literal["look_ahead", "model", "policy"] = "look_ahead"
    """Where draws come from: the model steered by the automata of the features, the model itself, or π as it is."""
    replace: bool = False
    """Whether π takes the proposal's place once it is better."""
    divergence: Literal["kl", "reverse_kl", "jensen_shannon", "total_variation"] = "kl"
    """What is made small: kl is KL(p‖π), the others are f-DPG's."""
    accumulate: Count = 1
    """Parts a step's draws are cut into, to save memory."""
    evaluate_every: Count = 50
    """Steps between evaluations of π."""
    evaluation_draws: Annotated[int, at_least(30)] = 1000
    """Of π for its moments and KL(π‖q), and as many of the proposal for KL(p‖π)."""
    checkpoint_every: Count = 50
    """Steps between checkpoints."""
    seed: Natural = 0
    """Of adapters and draws."""

    def __post_init__(self) -> None:
        check(self)


def tune(
    target: Tilted,
    policy: Any,
    constraints: Constraints,
    tuning: Tuning,
    folder: Path | None,
    *,
    ahead: Guided | None,
    text: Callable[[Sequences], list[str]],
    rows: int,
) -> Tuned:
    """Brings π, a module that is stepwise, from q to p, and leaves it with its best weights.

    In a folder it continues from the newest checkpoint. `ahead` is the proposal that looks ahead, and `rows` draws are
    computed together.
    """
    policy.eval()  # for good: with dropout π/q would be noise
    device, seed = device_of(target.base), folded(tuning.seed, "tune")
    # KL(p‖π) is measured on draws made once, so that all steps are compared on the same.
    drawn = draw_scored(
        target, tuning.evaluation_draws, ahead=ahead, features=constraints.features, rows=rows,
        generator=Generator(device=device).manual_seed(folded(seed, "target")),
    )  # fmt: skip
    measure = partial(tuning_figures, policy, target, constraints, drawn, text, rows=rows, seed=seed)
    objective = policy_gradient(target, policy, constraints, tuning, ahead)
    players = _players(policy, objective, tuning)
    plan = Plan(
        steps=tuning.steps,
        accumulate=tuning.accumulate,
        log_every=1,
        validate_every=tuning.evaluate_every,
        checkpoint_every=tuning.checkpoint_every,
        monitor=TARGET,
    )
    generator = seeded(seed, device=str(device))
    advice = f"choose another --name, or delete {folder}"
    with open_run(folder, config=as_yaml(asdict(tuning)), seed=tuning.seed, take_over=True, advice=advice) as run:
        path = run.folder / "start.json"  # before any checkpoint: π is q
        start: Figures = from_plain(Figures, once(path, lambda: plain(measure()[0])))
        module = players["model"].module
        first = {name: weight.detach().to("cpu", copy=True) for name, weight in module.state_dict().items()}
        result = train_run(
            run, objective, Rounds(draws=tuning.draws, steps=tuning.steps), players, plan, generator=generator,
            validation=lambda: _numbers(measure()[0]),
        )  # fmt: skip
        if result.status == "interrupted":
            raise Interrupted(run.folder)
        figures = {0: start} | _evaluations(History.read(run.folder), start)
        last = result.position.step
        if last not in figures:
            figures[last] = measure()[0]
        step = _nearest(figures)
        if step == 0:
            module.load_state_dict(first)
        elif step != last:
            best = run.checkpoints.best()
            assert best is not None
            restore_weights(replace(best, weights={"model": best.weights["model"]}), {"model": players["model"]})
        end, texts = measure()
        tuned = Tuned(
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
        )
        run.write("results.json", to_json(tuned.to_dict(), indent=1))
        if folder is not None:
            write_tune_page(folder, tuned)
    return tuned


@torch.no_grad()
def tuning_figures(
    policy: Any, target: Tilted, constraints: Constraints, drawn: ScoredDraws,
    text: Callable[[Sequences], list[str]], *, rows: int, seed: int,
) -> tuple[Figures, list[str]]:  # fmt: skip
    """KL(p‖π) on given draws, KL(π‖q), moments and distinct n-grams on fresh ones of π; and these as text."""
    n, features = len(drawn.log_g), constraints.features
    places = [torch.arange(start, min(start + rows, n)) for start in range(0, n, rows)]
    log_policy = torch.cat([policy.log_prob(drawn.x.select(place)).double().cpu() for place in places])
    generator = Generator(device=device_of(target.base)).manual_seed(folded(seed, "judge"))
    parts = [propose(policy, len(place), None, generator) for place in places]
    log_q = torch.cat([score(target.base, x).double().cpu() for x, _ in parts])
    log_own = torch.cat([log_prob.double().cpu() for _, log_prob in parts])
    x = Sequences.join([part for part, _ in parts])
    texts = text(x)
    found = {TARGET: kl_to_model(drawn.log_weights, drawn.log_g, log_policy), MODEL: kl_from_model(log_own, log_q)}
    means = means_by_name(features(x).double().cpu(), features)
    found |= {f"mean of {name}": one for name, one in means.items()}
    return found | {f"distinct-{order}": _distinct(texts, order) for order in ORDERS}, texts


def policy_gradient(
    target: Tilted, policy: Any, constraints: Constraints, tuning: Tuning, ahead: Guided | None
) -> PolicyGradient:
    """A baseline is unbiased only where draws can be anything that π can make: a proposal that looks ahead never goes
    where it is forbidden.
    """
    forbids = any(one.pointwise for one in constraints)
    proposals: dict[str, Distribution | None] = {"look_ahead": ahead, "model": target.base, "policy": None}
    return PolicyGradient(
        target=target,
        model=policy,
        proposal=proposals[tuning.proposal],
        divergence=tuning.divergence,
        baseline="none" if forbids and tuning.proposal == "look_ahead" else "automatic",
        replace=tuning.replace,
    )


def _players(policy: nn.Module, objective: PolicyGradient, tuning: Tuning) -> dict[str, Player]:
    schedule = (
        Constant(warmup=tuning.warmup)
        if tuning.schedule == "constant"
        else Cosine(steps=tuning.steps, floor=FLOOR, warmup=min(tuning.warmup, tuning.steps - 1))
    )
    optimiser = Adam(learning_rate=tuning.learning_rate).build(
        weight for weight in policy.parameters() if weight.requires_grad
    )
    learner = Learning(policy, keep_mode=True)
    player = Player(module=learner, optimiser=optimiser, schedule=schedule, clip_norm=tuning.clip)
    return {"model": player, "memory": Player(module=objective.memory)}


def _nearest(figures: Mapping[int, Figures]) -> int:
    """The step at which π was nearest to p, the first of several: q itself is a candidate, NaN is none."""
    best = Best()
    for step, one in figures.items():
        best = best.update(one[TARGET].value, step)
    return max(figures) if best.step is None else best.step


def _distinct(texts: list[str], order: int) -> Estimate:
    """Different n-grams of words, as a share of all."""
    if all(len(text.split()) < order for text in texts):
        return Estimate(math.nan, 0.0, 1.0, 0.0, f"no text has {order} words")
    return unique_ratios({"π": texts}, orders=[order])["π"][order].pooled


def _numbers(figures: Figures) -> dict[str, float]:
    """A line of metrics holds numbers only: the ends of an interval beside its middle."""
    return {f"{name}{words}": float(getattr(one, end)) for name, one in figures.items() for end, words in ENDS.items()}


def _evaluations(history: History, names: Figures) -> dict[int, Figures]:
    """The figures that `_numbers` wrote, by step."""
    return {
        int(line["step"]): {
            name: from_plain(Estimate, {end: line[f"validation.{name}{words}"] for end, words in ENDS.items()})
            for name in names
        }
        for line in history
        if f"validation.{TARGET}" in line
    }
