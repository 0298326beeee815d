"""π by distributional policy gradient: a language model of its own that has learnt what is wanted.

tune/                 a run like any other: config.yaml, metrics.jsonl, checkpoints/ with what learns
tune/start.json       figures before the first step
tune/results.json     the same of the best π, and over the steps
tune/model/           π as transformers saves it, low-rank adapters merged
"""

import copy
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from ebar.backbones.pretrained.lora import with_lora
from ebar.errors import Interrupted, UserError
from ebar.estimators.divergences import kl_from_model, kl_to_model
from ebar.estimators.effective_samples import same_draws
from ebar.estimators.moments import means_by_name
from ebar.evaluation.ngrams import unique_ratios
from ebar.journeys.control.fit import Controlled, after
from ebar.journeys.control.folder import another, take_over
from ebar.journeys.control.settings import Tuning
from ebar.journeys.control.subject import behind_prompt
from ebar.maths.randomness import folded
from ebar.models.loading import save_pretrained
from ebar.models.pretrained import Pretrained
from ebar.models.scoring import propose, score
from ebar.objectives import PolicyGradient, Rounds
from ebar.samplers.scored_draws import ScoredDraws, draw_scored
from ebar.store.differences import as_yaml
from ebar.store.writing import TEMPORARY, replace_folder, saving, to_json
from ebar.training import Plan, Player, open_run, seeded, train
from ebar.training.optimisers import Adam
from ebar.training.players import Learning
from ebar.training.schedules import Constant, Cosine
from ebar.training.state import restore_weights
from ebar.training.stopping import Best
from ebar.types import Distribution, Estimate, Sequences, Stepwise

FLOOR = 0.02  # of the cosine schedule, as a share of the learning rate
ORDERS = (1, 2)  # of n-grams
TARGET, MODEL = "KL(p‖π)", "KL(π‖q)"
JUDGING, ADAPTING, DRAWING = range(10, 13)  # what a stage's random numbers are folded with


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How near π is: on draws for p made once, so that steps are compared on the same, and on fresh ones of π."""

    controlled: Controlled
    policy: Any  # Stepwise, and a module
    drawn: ScoredDraws
    seed: int

    def figures(self) -> dict[str, Estimate]:
        """KL(p‖π), KL(π‖q), the moments of π, and how many of its n-grams are different ones."""
        return self._figures()[0]

    @torch.no_grad()
    def _figures(self) -> tuple[dict[str, Estimate], list[str]]:
        controlled, n = self.controlled, len(self.drawn.log_g)
        log_policy = _log_prob(self.policy, self.drawn.x, controlled.control.rows)
        generator = Generator(device=controlled.subject.device).manual_seed(folded(self.seed, JUDGING))
        rows = controlled.control.rows
        parts = [propose(self.policy, min(rows, n - start), None, generator) for start in range(0, n, rows)]
        log_q = torch.cat([score(controlled.subject.model, x).double().cpu() for x, _ in parts])
        log_own = torch.cat([log_prob.double().cpu() for _, log_prob in parts])
        x = Sequences.join([part for part, _ in parts])
        found = {
            TARGET: kl_to_model(self.drawn.log_weights, self.drawn.log_g, log_policy),
            MODEL: kl_from_model(log_own, log_q),
        }
        means = means_by_name(controlled.features(x).double().cpu(), controlled.features)
        found |= {f"mean of {name}": one for name, one in means.items()}
        texts = controlled.subject.text(x)
        return found | {f"distinct-{order}": _distinct(texts, order) for order in ORDERS}, texts

    def report(self, shown: int) -> tuple[dict[str, Estimate], list[str]]:
        """The figures, and a few texts of π."""
        found, texts = self._figures()
        return found, texts[:shown]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What tuning came to."""

    folder: Path
    start: dict[str, Estimate]  # of π before the first step, which is q
    end: dict[str, Estimate]  # of the best π
    target: dict[str, Estimate]  # of p, on the draws π is judged by
    steps: list[int]
    curves: dict[str, list[Estimate]]  # over the steps, the start among them
    best_step: int
    texts: list[str]
    drawn: str  # how many of the draws for p that π is judged by are different

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "start": _plain(self.start),
            "end": _plain(self.end),
            "target": _plain(self.target),
            "best_step": self.best_step,
            "steps": self.steps,
            "curves": {name: [one._asdict() for one in curve] for name, curve in self.curves.items()},
            "texts": self.texts,
            "draws for p": self.drawn,
            "model": str(self.folder / "model"),
        }


def tune(controlled: Controlled, tuning: Tuning, folder: Path) -> Tuned:
    """π from q by policy gradient, in a folder of its own, from where that stands."""
    if controlled.loaded is None:
        raise UserError("Only a model that was loaded can be tuned: give a pretrained one.")
    policy_network = _adapted(controlled.loaded.model.network, tuning)
    loaded = controlled.loaded
    q = loaded.model
    policy = q.with_network(policy_network)
    tuned = learn(controlled, behind_prompt(controlled.control, loaded, policy), tuning, folder)
    _save(policy, folder / "model")
    return tuned


def learn(controlled: Controlled, policy: Any, tuning: Tuning, folder: Path) -> Tuned:
    """The same for any policy, which is left with its best weights."""
    if tuning.proposal == "look_ahead" and controlled.ahead is None:
        raise UserError("No automaton follows what is wanted, so nothing looks ahead: use --proposal model or policy.")
    policy.eval()  # for good: with dropout π/q would be noise
    judge = _judge(controlled, policy, tuning)
    objective = _objective(controlled, policy, tuning)
    players = _players(policy, objective, tuning)
    plan = Plan(
        steps=tuning.steps,
        accumulate=tuning.accumulate,
        log_every=1,
        validate_every=tuning.evaluate_every,
        checkpoint_every=tuning.checkpoint_every,
        monitor=TARGET,
    )
    generator = seeded(folded(tuning.seed, DRAWING), device=str(controlled.subject.device))
    config = as_yaml(asdict(tuning))
    other = another(folder, config)
    with open_run(folder, config=config, seed=tuning.seed, replace_config=other) as run:
        if other:
            take_over(run, tuning.seed)
        path = folder / "start.json"
        if not path.exists():  # before any checkpoint: π is q
            run.write(path.name, to_json(_plain(judge.figures()), indent=1))
        start = _read(json.loads(path.read_text(encoding="utf-8")))
        untaught = _weights(players["model"].module)
        batches = Rounds(draws=tuning.draws, steps=tuning.steps)
        result = train(
            run, objective, batches, players, plan, generator=generator, validation=lambda: _flat(judge.figures())
        )
        if result.status == "interrupted":
            raise Interrupted(folder)
        measured = _measured(folder, start)
        last = result.position.step
        if last not in measured:
            measured[last] = judge.figures()
        step = _nearest(measured)
        if step == 0:
            players["model"].module.load_state_dict(untaught)
        elif step != last:
            best = run.checkpoints.best()
            assert best is not None
            restore_weights(replace(best, weights={"model": best.weights["model"]}), {"model": players["model"]})
        tuned = _tuned(controlled, judge, folder, measured, step)
        run.write("results.json", to_json(tuned.to_dict(), indent=1))
    return tuned


def _adapted(network: nn.Module, tuning: Tuning) -> nn.Module:
    """A copy of q's network in which adapters or all weights learn; adapters are drawn from the seed."""
    twin = copy.deepcopy(network)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(folded(tuning.seed, ADAPTING))
        if tuning.lora_rank is None:
            return twin.requires_grad_(True)
        return with_lora(twin.requires_grad_(False), rank=tuning.lora_rank)


def _objective(controlled: Controlled, policy: Any, tuning: Tuning) -> PolicyGradient:
    """A baseline is free of bias only where draws can be all that π can make: what looks ahead never goes where it is
    forbidden.
    """
    forbids = any(constraint.pointwise for constraint in controlled.constraints)
    model: Stepwise = controlled.subject.model
    ahead = controlled.ahead if tuning.proposal == "look_ahead" else None
    proposals: dict[str, Distribution | None] = {"look_ahead": ahead, "model": model, "policy": None}
    return PolicyGradient(
        target=controlled.target,
        model=policy,
        proposal=proposals[tuning.proposal],
        divergence=tuning.divergence,
        baseline="none" if forbids and tuning.proposal == "look_ahead" else "automatic",
        replace=tuning.replace,
    )


def _players(policy: nn.Module, objective: PolicyGradient, tuning: Tuning) -> dict[str, Player]:
    learning = Learning(policy, keep_mode=True)
    schedule = (
        Constant(warmup=tuning.warmup)
        if tuning.schedule == "constant"
        else Cosine(steps=tuning.steps, floor=FLOOR, warmup=min(tuning.warmup, tuning.steps - 1))
    )
    parameters = (weight for weight in policy.parameters() if weight.requires_grad)
    optimiser = Adam(learning_rate=tuning.learning_rate).build(parameters)
    player = Player(module=learning, optimiser=optimiser, schedule=schedule, clip_norm=tuning.clip)
    return {"model": player, "memory": Player(module=objective.memory)}


def _judge(controlled: Controlled, policy: Any, tuning: Tuning) -> Judge:
    generator = Generator(device=controlled.subject.device).manual_seed(folded(tuning.seed, JUDGING, 1))
    # Looking ahead where that is possible, wherever π's own draws come from.
    drawn = draw_scored(
        controlled.target, tuning.evaluation_draws, ahead=controlled.ahead, features=controlled.features,
        rows=controlled.control.rows, generator=generator,
    )  # fmt: skip
    return Judge(controlled=controlled, policy=policy, drawn=drawn, seed=tuning.seed)


def _weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """A copy, where it is in nobody's way."""
    return {name: weight.detach().to("cpu", copy=True) for name, weight in module.state_dict().items()}


def _measured(folder: Path, start: dict[str, Estimate]) -> dict[int, dict[str, Estimate]]:
    """The figures by step, the start among them."""
    found = {0: start}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if f"validation.{TARGET}" in record:
            found[int(record["step"])] = {name: _unflat(record, f"validation.{name}") for name in start}
    return found


def _nearest(measured: Mapping[int, Mapping[str, Estimate]]) -> int:
    """The step at which π was nearest to p, the first of several: q itself is a candidate, NaN is none."""
    best = Best()
    for step, figures in measured.items():
        best = best.update(figures[TARGET].value, step)
    return max(measured) if best.step is None else best.step


def _tuned(
    controlled: Controlled, judge: Judge, folder: Path, measured: Mapping[int, dict[str, Estimate]], best_step: int
) -> Tuned:
    start = measured[0]
    curves = {name: [figures[name] for figures in measured.values()] for name in start}
    end, texts = judge.report(8)
    target = {f"mean of {name}": one for name, one in after(controlled, judge.drawn).items()}
    target[MODEL] = kl_to_model(judge.drawn.log_weights, judge.drawn.log_g, judge.drawn.log_q)
    return Tuned(
        folder=folder, start=start, end=end, target=target, steps=list(measured), curves=curves, best_step=best_step,
        texts=texts, drawn=f"{len(set(same_draws(judge.drawn.x).tolist())):,} distinct of {len(judge.drawn.log_g):,}",
    )  # fmt: skip


def _distinct(texts: list[str], order: int) -> Estimate:
    """Different n-grams of words, as a share of all."""
    if all(len(text.split()) < order for text in texts):
        return Estimate(math.nan, 0.0, 1.0, 0.0, f"no text has {order} words")
    return unique_ratios({"π": texts}, orders=[order])["π"][order].pooled


def _log_prob(model: Any, x: Sequences, rows: int) -> torch.Tensor:
    parts = [
        model.log_prob(Sequences(x.tokens[start : start + rows], x.lengths[start : start + rows])).double().cpu()
        for start in range(0, len(x.lengths), rows)
    ]
    return torch.cat(parts)


def _save(policy: Pretrained, folder: Path) -> None:
    """Complete or not at all."""
    temporary = folder.with_name(TEMPORARY + folder.name)
    with saving(str(folder)):
        shutil.rmtree(temporary, ignore_errors=True)
        save_pretrained(policy, temporary)
        files = {path.name: path.read_bytes() for path in temporary.iterdir() if path.is_file()}
        shutil.rmtree(temporary)
        replace_folder(folder, files)


def _flat(figures: Mapping[str, Estimate]) -> dict[str, float]:
    """What a line of metrics holds: numbers only, an interval's ends beside its middle."""
    ends = ("value", "low", "high", "effective_sample_size")
    return {
        name if end == "value" else f"{name} {end}": float(getattr(one, end))
        for name, one in figures.items()
        for end in ends
    }


def _unflat(record: Mapping[str, Any], name: str) -> Estimate:
    low, high, size = (float(record[f"{name} {end}"]) for end in ("low", "high", "effective_sample_size"))
    return Estimate(float(record[name]), low, high, size)


def _plain(figures: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: one._asdict() for name, one in figures.items()}


def _read(tree: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    numbers: dict[str, dict[str, Any]] = {
        name: {key: value if key == "warning" else float(value) for key, value in one.items()}
        for name, one in tree.items()
    }
    return {name: Estimate(**one) for name, one in numbers.items()}
