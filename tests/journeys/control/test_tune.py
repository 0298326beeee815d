"""π by policy gradient: towards p as enumeration knows it, saved for transformers, continued after being killed."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.errors import UserError
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.distilling import EMPHASIS, TOGETHER, Distillation, distillation, emphasis
from ebar.journeys.control.pilot import searched_rate
from ebar.journeys.control.report import MODEL, TARGET, Tuned
from ebar.journeys.control.teaching import (
    arrived,
    has_fallen,
    kept,
    policy_gradient,
    tuning_figures,
)
from ebar.journeys.control.tuning import Tuning
from ebar.maths.enumeration import all_sequences
from ebar.maths.rows import Place
from ebar.models.construction import from_pretrained
from ebar.models.pretrained import Pretrained
from ebar.objectives import PolicyGradient
from ebar.store.writing import to_json
from ebar.together import Parts, Share, sharing
from ebar.training.players import Learning
from ebar.training.run import open_run
from ebar.training.train import History
from ebar.types import Clock, Estimate, Loss, Sequences

TERMS = ("expression:abc=1", "expression: =0.5")
QUICK: dict[str, Any] = {
    "method": "policy_gradient", "steps": 8, "draws": 64, "learning_rate": 0.02, "warmup": 2, "evaluate_every": 4,
    "checkpoint_every": 2, "evaluation_draws": 200, "final_draws": 1000, "tolerance": None, "seed": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def controlled(controlled_by: Callable[..., Controlled], tmp_path_factory: pytest.TempPathFactory) -> Controlled:
    return controlled_by(*TERMS, checks=500, rows=500, folder=tmp_path_factory.mktemp("fit"))


def exact(controlled: Controlled, model: Any) -> tuple[float, float]:
    """KL(p‖model) and KL(model‖q), over every text."""
    x = all_sequences(controlled.q.space)
    with torch.no_grad():
        log_q, log_model = (each.log_prob(x).double() for each in (controlled.q, model))
        log_p = torch.log_softmax(log_q - controlled.p.energy(x).double(), 0)
    there = log_p > -math.inf
    towards = float((log_p.exp() * (log_p - log_model))[there].sum())
    return towards, float((log_model.exp() * (log_model - log_q)).sum())


def tune(controlled: Controlled, folder: Path, **options: Any) -> Tuned:
    return controlled.tune(folder, **{**QUICK, **options})


def saved(tuned: Tuned) -> Pretrained:
    assert tuned.folder is not None
    return from_pretrained(tuned.folder / "model", length=4, ends=True)


def test_pi_comes_near_p_and_transformers_reads_it(controlled: Controlled, tmp_path: Path) -> None:
    before = exact(controlled, controlled.q)
    tuned = tune(controlled, tmp_path, steps=40, evaluate_every=20, evaluation_draws=1000)
    policy = saved(tuned)
    after = exact(controlled, policy)
    assert before[1] == pytest.approx(0, abs=1e-6)
    assert after[0] < 0.3 * before[0]
    for figures, truth in ((tuned.start, before), (tuned.end, after)):
        for name, value in zip((TARGET, MODEL), truth, strict=True):
            one = figures[name]
            assert 2 * one.low - one.value - 1e-5 <= value <= 2 * one.high - one.value + 1e-5, name
    # Moments of π are those of the model that was saved.
    x = all_sequences(controlled.q.space)
    with torch.no_grad():
        shares = policy.log_prob(x).double().exp()
    for constraint in controlled.constraints:
        one = tuned.end[f"mean of {constraint.feature.name}"]
        assert 2 * one.low - one.value <= float(shares @ constraint.feature(x)) <= 2 * one.high - one.value
    assert tuned.end["mean of text abc"].low > tuned.start["mean of text abc"].high
    assert tuned.steps == [0, 20, 40]
    assert {len(curve) for curve in tuned.curves.values()} == {3}
    assert [tuned.curves[TARGET][0].value, tuned.curves[MODEL][0].value] == [
        tuned.start[TARGET].value, tuned.start[MODEL].value
    ]  # fmt: skip
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["end"][TARGET]["value"] == tuned.end[TARGET].value
    assert "distinct-2" in results["curves"]
    assert (tmp_path / "report.html").read_text().count("<svg") == 2
    # transformers alone: the same logits.
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    read = torch.tensor([[5, 2, 4]])
    with torch.no_grad():
        assert torch.allclose(network(read).logits, policy.network(read).logits, atol=1e-5)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "model").decode([2, 3, 4]) == "ab c"


@pytest.mark.parametrize("method", ["policy_gradient", "distillation", "likelihood"])
def test_the_gradient_is_that_of_kl_to_p(method: str, controlled: Controlled) -> None:
    """E over draws of the loss's gradient is ∇KL(p‖π), here with every draw of a large sample."""
    tuning = Tuning(**QUICK, lora_rank=None, own=0.0)
    policy = controlled.policy(tuning)
    with torch.no_grad():
        for number, weight in enumerate(policy.parameters()):  # π is neither q nor p
            weight += 0.1 * torch.randn(weight.shape, generator=Generator().manual_seed(number))
    learning = Learning(policy)
    ahead = None if method == "likelihood" else controlled.ahead
    drawn = controlled.scored(20_000, Generator().manual_seed(1), ahead=controlled.ahead)
    objective: Any
    batch: Any
    if method == "policy_gradient":
        objective = policy_gradient(controlled.p, policy, controlled.constraints, tuning, ahead)
        batch = torch.empty(20_000, 0)
    else:
        tuning = replace(tuning, draws=20_000)
        objective, batches = distillation(
            controlled.p, policy, controlled.constraints, tuning, ahead, drawn, rows=1, seed=0
        )
        (batch,) = batches.at(0, 0)
    (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator().manual_seed(0))
    found = torch.cat([g.flatten() for g in torch.autograd.grad(loss.value, list(learning.parameters()))])
    x = all_sequences(controlled.q.space)
    log_q = controlled.q.log_prob(x).detach().double()
    log_p = torch.log_softmax(log_q - controlled.p.energy(x).double(), 0)
    there = log_p > -math.inf
    exact = -(log_p[there].exp() * policy.log_prob(x.select(there)).double()).sum()
    wanted = torch.cat([g.flatten() for g in torch.autograd.grad(exact, list(learning.parameters()))])
    cosine = torch.nn.functional.cosine_similarity(found.double(), wanted.double(), 0)
    assert float(cosine) > 0.99
    assert float(found.norm() / wanted.norm()) == pytest.approx(1, abs=0.05)


def test_checkpoints_of_earlier_versions_had_numbers_for_names(controlled: Controlled) -> None:
    learning = Learning(controlled.policy(Tuning(**QUICK)))
    learnt = [weight for weight in learning.parameters() if weight.requires_grad]
    learning.load_state_dict({f"weights.{n}": torch.full_like(weight, n) for n, weight in enumerate(learnt)})
    assert all(bool((weight == n).all()) for n, weight in enumerate(learnt))
    with pytest.raises(RuntimeError, match="of another network"):
        learning.load_state_dict({f"weights.{n}": weight for n, weight in enumerate(learnt[1:])})


def test_only_adapters_learn_and_are_kept(controlled: Controlled, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in controlled.q.state_dict().items()}
    policy = controlled.policy(Tuning(**QUICK, lora_rank=2))
    names = {name for name, weight in policy.named_parameters() if weight.requires_grad}
    assert names
    assert all("lora" in name for name in names)
    tuned = tune(controlled, tmp_path, steps=2, evaluate_every=2, lora_rank=2)
    after = controlled.q.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())  # q is as it was
    (step,) = {path.name for path in (tmp_path / "checkpoints").glob("step-000000002")}
    size = (tmp_path / "checkpoints" / step / "model.safetensors").stat().st_size
    assert size < sum(weight.numel() * 4 for weight in before.values())
    assert tuned.best_step == 2


@pytest.mark.parametrize("options", [
    {"lora_rank": None, "proposal": "model"}, {"proposal": "policy"}, {"replace": True, "divergence": "jensen_shannon"},
    {"schedule": "constant", "accumulate": 2, "clip": None},
])  # fmt: skip
def test_every_way_of_tuning_runs(options: dict[str, Any], controlled: Controlled, tmp_path: Path) -> None:
    tuned = tune(controlled, tmp_path, steps=2, evaluate_every=2, **options)
    assert math.isfinite(tuned.end[TARGET].value)
    with torch.no_grad():
        x = all_sequences(controlled.q.space)
        assert float(saved(tuned).log_prob(x).double().exp().sum()) == pytest.approx(1, abs=1e-4)


def test_killed_and_started_again_it_goes_on(
    controlled: Controlled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(controlled, tmp_path / "whole", replace=True)
    losses = PolicyGradient.losses
    died: list[bool] = []

    def dying(self: PolicyGradient, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        if clock.step == 5 and not died:
            died.append(True)
            raise RuntimeError("killed")
        return losses(self, batch, clock, generator=generator)

    monkeypatch.setattr(PolicyGradient, "losses", dying)
    with pytest.raises(RuntimeError, match="killed"):
        tune(controlled, tmp_path / "parts", replace=True)
    resumed = tune(controlled, tmp_path / "parts", replace=True)
    assert to_json(resumed.curves) == to_json(whole.curves)  # as text, in which NaN equals itself
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other
    assert not list((tmp_path / "parts").glob(".saving-*"))
    with pytest.raises(UserError, match="another configuration"):
        tune(controlled, tmp_path / "parts", replace=True, steps=9)


def test_without_an_automaton_nothing_looks_ahead(controlled_by: Callable[..., Controlled], tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def short(text):\n    return len(text) < 4\n")
    plain = controlled_by(f"predicate:{path}:short=1", checks=500, rows=500, folder=tmp_path / "fit")
    with pytest.raises(UserError, match="use --proposal model or policy"):
        tune(plain, tmp_path / "tune")
    tuned = tune(plain, tmp_path / "tune", steps=2, evaluate_every=2, proposal="model")
    assert tuned.target["mean of short"] == Estimate.exact(1.0)  # as `fit` says of what must be in every text
    assert tuned.drawn.endswith(f"distinct of {QUICK['evaluation_draws']}")


def test_judged_on_the_same_draws_at_every_step(controlled: Controlled) -> None:
    drawn = controlled.scored(100, Generator().manual_seed(0), ahead=controlled.ahead)
    one, other = (
        tuning_figures(controlled.q, controlled.p, controlled.constraints, drawn, controlled.text, rows=30, seed=1)
        for _ in range(2)
    )
    assert one == other
    assert len(one[1]) == 100
    assert one[0][MODEL].value == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"draws": 0},
        {"evaluation_draws": 2},
        {"lora_rank": 0},
        {"clip": 0.0},
        {"warmup": -1},
        {"learning_rate": -1.0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
    ],
)
def test_options_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Tuning(**wrong)


def test_the_best_is_kept_not_the_last(controlled: Controlled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = PolicyGradient.losses

    def turning(self: PolicyGradient, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        for loss in losses(self, batch, clock, generator=generator):
            yield loss if clock.step < 7 else loss._replace(value=-loss.value)  # away from p

    monkeypatch.setattr(PolicyGradient, "losses", turning)
    tuned = tune(controlled, tmp_path, steps=12, evaluate_every=2, schedule="constant")
    place = tuned.steps.index(tuned.best_step)
    towards = [one.value for one in tuned.curves[TARGET]]
    assert 0 < tuned.best_step < 12
    assert towards[place] == min(towards)
    assert tuned.end[TARGET].value == pytest.approx(towards[place], abs=1e-6)
    drawn = json.loads((tmp_path / "results.json").read_text())
    assert drawn["best_step"] == tuned.best_step


def test_the_last_step_is_looked_at_too(controlled: Controlled, tmp_path: Path) -> None:
    tuning: dict[str, Any] = {"steps": 7, "evaluate_every": 5, "schedule": "constant"}
    tuned = tune(controlled, tmp_path, **tuning)
    assert tuned.steps == [0, 5, 7]
    towards = [one.value for one in tuned.curves[TARGET]]
    assert tuned.best_step == 7
    assert tuned.end[TARGET].value == pytest.approx(min(towards), abs=1e-6)
    again = tune(controlled, tmp_path, **tuning)  # read back
    assert to_json((again.curves, again.end)) == to_json((tuned.curves, tuned.end))  # as text: NaN equals itself


@pytest.mark.parametrize("lora_rank", [8, None])
def test_q_itself_is_the_best_where_no_step_comes_nearer(
    controlled: Controlled, tmp_path: Path, lora_rank: int | None
) -> None:
    tuned = tune(
        controlled, tmp_path, steps=3, learning_rate=3.0, schedule="constant", warmup=0, clip=None, lora_rank=lora_rank
    )
    assert tuned.steps == [0, 3]
    assert tuned.best_step == 0
    assert tuned.end[TARGET].value == pytest.approx(tuned.start[TARGET].value, abs=1e-6)
    assert exact(controlled, saved(tuned))[1] == pytest.approx(0, abs=1e-6)
    assert "q itself" in (tmp_path / "report.html").read_text()


def test_without_a_method_it_is_distillation_where_something_looks_ahead() -> None:
    assert Tuning().chosen().method == "distillation"
    assert Tuning(proposal="model").chosen().method == "policy_gradient"
    assert Tuning(divergence="reverse_kl").chosen().method == "policy_gradient"
    assert Tuning(method="both").chosen().method == "both"


def test_a_folder_that_was_only_begun_is_free_for_another_configuration(controlled: Controlled, tmp_path: Path) -> None:
    with open_run(tmp_path, config="steps: 9\n", seed=5):
        pass
    tune(controlled, tmp_path, steps=1)
    assert json.loads((tmp_path / "environment.json").read_text())["seed"] == QUICK["seed"]
    with pytest.raises(UserError, match="choose another --name, or delete"):
        tune(controlled, tmp_path, steps=2)


def test_distillation_comes_near_p_and_goes_on_where_it_was(controlled: Controlled, tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": "distillation", "steps": 24, "evaluate_every": 12}
    tuned = tune(controlled, tmp_path, **options)
    assert exact(controlled, saved(tuned))[0] < 0.5 * exact(controlled, controlled.q)[0]
    assert tuned.method == "distillation"
    assert tuned.seconds > 0
    again = tune(controlled, tmp_path, **options)
    assert to_json((again.curves, again.end)) == to_json((tuned.curves, tuned.end))
    assert again.seconds == pytest.approx(tuned.seconds, abs=5)


def test_distillation_of_what_looks_ahead_is_at_rest(controlled: Controlled) -> None:
    """Where π is the proposal that looks ahead, nothing is left to learn from it, on its own draws or π's."""
    ahead = controlled.ahead
    assert ahead is not None
    drawn = controlled.scored(200, Generator().manual_seed(1), ahead=ahead)
    for policy, least, most in ((ahead, -1e-5, 1e-5), (controlled.q, 0.1, math.inf)):
        objective, batches = distillation(
            controlled.p, policy, controlled.constraints, Tuning(**QUICK, own=0.75), ahead, drawn, rows=64, seed=0
        )
        (loss,) = objective.losses(next(batches.at(0, 3)), Clock(0, 0), generator=Generator().manual_seed(0))
        assert least < float(loss.value) < most


def test_draws_are_fresh_and_the_same_when_asked_again(controlled: Controlled) -> None:
    tuning = Tuning(**QUICK)
    drawn = controlled.scored(200, Generator().manual_seed(1), ahead=controlled.ahead)
    _, batches = distillation(
        controlled.p, controlled.q, controlled.constraints, tuning, controlled.ahead, drawn, rows=100, seed=0
    )
    assert len(batches) == 3  # half of the 64 draws of a step are π's own
    first = list(batches.at(0, 0))
    assert [len(one.log_weights) for one in first] == [32] * 3
    (last,) = batches.at(0, 2)
    assert torch.equal(last.x.tokens, first[2].x.tokens)
    assert not torch.equal(next(batches.at(1, 0)).x.tokens, first[0].x.tokens)


@pytest.mark.parametrize(("proposal", "said"), [("model", "None of 40 draws"), ("policy", "look_ahead or model")])
def test_a_distillation_that_finds_nothing_of_p_says_so(proposal: Any, said: str, controlled: Controlled) -> None:
    drawn = controlled.scored(40, Generator().manual_seed(1))
    nothing = drawn._replace(log_weights=torch.full_like(drawn.log_weights, -math.inf))
    tuning = Tuning(**QUICK, proposal=proposal)
    with pytest.raises(UserError, match=said):
        distillation(controlled.p, controlled.q, controlled.constraints, tuning, None, nothing, rows=64, seed=0)


def test_both_ways_are_compared_and_the_nearer_is_kept(controlled: Controlled, tmp_path: Path) -> None:
    tuned = tune(controlled, tmp_path, method="both", steps=3, evaluate_every=3)
    assert tuned.ways is not None
    assert set(tuned.ways) == {"policy_gradient", "distillation"}
    assert tuned.end[TARGET].value == min(way.distance.value for way in tuned.ways.values())
    told = json.loads((tmp_path / "results.json").read_text())
    assert told["method"] == tuned.method
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_it_is_over_when_the_moments_are_there(controlled: Controlled, tmp_path: Path) -> None:
    tuned = tune(controlled, tmp_path, steps=30, evaluate_every=3, tolerance=0.9, schedule="constant")
    assert tuned.steps == [0, 3]
    assert "within 0.9" in tuned.stopped


def test_arrival_and_fall_by_hand(controlled: Controlled) -> None:
    def figures(must: float, half: float) -> dict[str, Estimate]:
        names = [f"mean of {one.feature.name}" for one in controlled.constraints]
        return {
            name: Estimate(value, value - 0.01, value + 0.01, 100.0)
            for name, value in zip(names, (must, half), strict=True)
        }

    assert arrived(figures(0.975, 0.47), controlled.constraints, 0.02)
    assert not arrived(figures(0.965, 0.47), controlled.constraints, 0.02)
    assert not arrived(figures(0.975, 0.53 + 1e-9 + 0.01), controlled.constraints, 0.02)
    assert not arrived(figures(math.nan, 0.5), controlled.constraints, 0.02)
    # Kept is what has arrived, however near others are; the nearest where none has, or where all steps are made.
    steps = {0: (0.4, 2.0), 1: (0.9, 0.3), 2: (1.0, 1.0)}
    distant = {n: {**figures(must, 0.5), TARGET: Estimate.exact(far)} for n, (must, far) in steps.items()}
    assert kept(distant, controlled.constraints, 0.02) == 2
    assert kept(distant, controlled.constraints, None) == 1
    assert kept({n: distant[n] for n in (0, 1)}, controlled.constraints, 0.02) == 1
    sizes = History({"step": n, "effective_sample_size": size} for n, size in enumerate([4.0, 4.0, 8.0, 6.0, 3.0, 3.0]))
    assert has_fallen(sizes, 2)
    assert not has_fallen(History(sizes[:4]), 2)
    assert not has_fallen(History(sizes[:1]), 2)


def test_a_pilot_finds_a_rate_and_leaves_pi_as_it_was(controlled: Controlled) -> None:
    tuning = Tuning(**{**QUICK, "draws": 64}, lora_rank=None)
    policy = controlled.policy(tuning)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    drawn = controlled.scored(400, Generator().manual_seed(2), ahead=controlled.ahead)
    made: list[Distillation] = []

    def make() -> Any:
        objective, source = distillation(
            controlled.p, policy, controlled.constraints, tuning, controlled.ahead, drawn, rows=64, seed=3
        )
        made.append(objective)
        return objective, source

    def searched(*rates: float) -> float:
        return searched_rate(policy, make, drawn, rows=100, seed=0, clip=1.0, rates=rates, steps=6)

    # Of these one moves nothing, one a little and one throws π far off.
    assert searched(1e-9, 1e-2, 30.0) == 1e-2
    assert len(made) == 3
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())
    # What is worse than the best before it is the last that is tried.
    made.clear()
    assert searched(100.0, 1e-2, 30.0) == 1e-2
    assert len(made) == 2


def test_own_texts_serve_several_steps_and_are_all_learnt_from(controlled: Controlled) -> None:
    """A part of a batch learns from its share of them; the shares are all there are, whatever the number of parts."""
    ahead = controlled.ahead
    assert ahead is not None
    drawn = controlled.scored(200, Generator().manual_seed(1), ahead=ahead)
    policy = controlled.policy(Tuning(**QUICK))
    objective, batches = distillation(
        controlled.p, policy, controlled.constraints, Tuning(**QUICK, own=0.75), ahead, drawn, rows=64, seed=0
    )
    assert (objective.own, batches.batch_size) == (48, 16)
    generator, seen = Generator().manual_seed(0), []
    for step in range(TOGETHER + 1):
        parts = Parts(2)
        for number in range(2):
            with sharing(Share(Place(8 * number, 8, 16), number, parts)):
                seen.append(objective._own(8, step, generator)[0])
        assert int(objective.memory.made) == step - step % TOGETHER
        if step == TOGETHER - 1:
            first = Sequences.join(seen)
            assert torch.equal(first.tokens, objective.memory.tokens)
            assert torch.equal(first.lengths, objective.memory.lengths)
    assert {len(one.lengths) for one in seen} == {24}
    assert not torch.equal(first.tokens, objective.memory.tokens)


def test_moments_pull_on_texts_until_they_are_there(controlled: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: a blank in 1 of 4 texts, where half are to have it; what all must have does not pull.

    wanted − mean is ¼ and the spread about ½ is ¼: a text counts for 2·(φ − ¼) more. Where all have it, −½ and ¼ give
    2·−2·(φ − 1).
    """
    monkeypatch.setattr("ebar.journeys.control.distilling.PULL", 2.0)
    ahead = controlled.ahead
    assert ahead is not None
    drawn = controlled.scored(200, Generator().manual_seed(1), ahead=ahead)
    tuning = Tuning(**QUICK, lora_rank=None)
    policy = controlled.policy(tuning)
    objective, batches = distillation(
        controlled.p, policy, controlled.constraints, tuning, ahead, drawn, rows=64, seed=0
    )
    assert [one.moment for one in controlled.constraints] == [1.0, 0.5]
    values = torch.tensor([[1.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    own = objective._own(8, 0, Generator().manual_seed(0))._replace(values=values)
    for known, pulls in ((values, [1.5, -0.5, -0.5, -0.5]), (torch.ones_like(values), [0.0, 4.0, 4.0, 4.0])):
        objective.memory.moments.copy_(torch.stack([known.mean(0), known.square().mean(0)]))
        assert objective._pulls(own).tolist() == pytest.approx(pulls)
    # The loss's gradient makes those texts likelier that are pulled up.
    batch = next(batches.at(0, 0))
    learning, gradients = Learning(policy), []
    for pull in (0.0, 2.0):
        monkeypatch.setattr("ebar.journeys.control.distilling.PULL", pull)
        (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator().manual_seed(0))
        learnt = list(learning.parameters())
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss.value, learnt)]))
    own = objective._own(32, 0, Generator().manual_seed(0))
    pulled = -(objective._pulls(own) * policy.log_prob(own.x)).sum() / 64
    wanted = torch.cat([g.flatten() for g in torch.autograd.grad(pulled, learnt)])
    assert torch.allclose(gradients[1] - gradients[0], wanted, atol=1e-5)
    assert float(wanted.abs().max()) > 1e-3


def test_what_few_have_left_open_counts_for_as_many() -> None:
    """By hand: in the places of 4 texts all, 2, 1 and none are open; of 3 that reach the second, 2."""
    open = torch.arange(4) < torch.tensor([3, 2, 1, 1])[:, None]
    reached = torch.ones(4, 4, dtype=torch.bool)
    counts = [[1.0, 2.0, 4.0, 1.0], [1.0, 2.0, 1.0, 1.0], [1.0] * 4, [1.0] * 4]
    assert emphasis(reached, open).tolist() == counts
    reached[3, 1] = False
    assert emphasis(reached, open)[0].tolist() == [1.0, 1.5, 4.0, 1.0]
    many = torch.ones(1000, 1, dtype=torch.bool)
    assert float(emphasis(many, torch.arange(1000)[:, None] == 0).max()) == EMPHASIS


def test_open_is_where_texts_differ_in_what_is_wanted(controlled_by: Callable[..., Controlled]) -> None:
    ruled = controlled_by("expression:ab=1")
    ahead = ruled.ahead
    assert ahead is not None
    drawn = ruled.scored(200, Generator().manual_seed(1), ahead=ahead)
    objective, _ = distillation(ruled.p, ruled.q, ruled.constraints, Tuning(**QUICK), ahead, drawn, rows=64, seed=0)
    # Tokens: a, b, ab, blank, c, end. The first has ab at once, the second at its end, the third can have it no more.
    x = Sequences(torch.tensor([[2, 4, 4, 5], [4, 0, 1, 5], [4, 4, 4, 5]]), torch.tensor([4, 4, 4]))
    assert objective._open(x).tolist() == [
        [True, False, False, False], [True, True, True, False], [True, True, True, False]
    ]  # fmt: skip


def test_distillation_killed_amid_its_own_texts_goes_on_to_the_same_pi(
    controlled: Controlled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"method": "distillation", "steps": 12, "evaluate_every": 6}
    whole = tune(controlled, tmp_path / "whole", **options)
    losses = Distillation.losses
    died: list[bool] = []

    def dying(self: Distillation, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        if clock.step == 5 and not died:
            died.append(True)
            raise RuntimeError("killed")
        return losses(self, batch, clock, generator=generator)

    monkeypatch.setattr(Distillation, "losses", dying)
    with pytest.raises(RuntimeError, match="killed"):
        tune(controlled, tmp_path / "parts", **options)
    resumed = tune(controlled, tmp_path / "parts", **options)
    assert died
    assert to_json(resumed.curves) == to_json(whole.curves)
