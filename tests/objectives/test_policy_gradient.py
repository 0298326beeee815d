"""Policy gradient against the divergence's own gradient, with draws that are the expectation itself."""

import json
import math
import warnings
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.estimators import exact
from ebar.maths.divergences import DIVERGENCES
from ebar.maths.log_space import effective_sample_size
from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.models.tilted import Tilted
from ebar.objectives import PolicyGradient, Rounds
from ebar.objectives.policy_gradient import RunningMean, WeightedSums
from ebar.testing.enumeration import whole_space
from ebar.training.batches import Batches
from ebar.training.loop import fit
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.train import Plan, train_run
from ebar.types import Clock, Context, Loss, Objective, Sequences, Space

SPACE = Space(2, 3)
DRAWS = 64  # probabilities of the tokens are quarters, those of the sequences 64ths
CONTEXT = Context(Sequences(torch.tensor([[1], [0]]), torch.tensor([1, 1])))
KINDS = list(DIVERGENCES)


class Exhaustive(Tabular):
    """64 draws are every sequence as often as its probability says: their mean is the expectation."""

    def sample_with_log_prob(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> tuple[Sequences, Tensor]:
        assert n == DRAWS
        everything = whole_space(self.space, context)
        times = (self.log_prob(everything, context).detach().exp() * n).round().long()
        x = everything.select(torch.arange(len(times)).repeat_interleave(times))
        return x, self.log_prob(x, context).detach()


def exhaustive(seed: int) -> Exhaustive:
    generator = Generator().manual_seed(seed)
    quarters = torch.randint(1, 4, (2, number_of_prefixes(SPACE)), generator=generator).double()
    return Exhaustive(SPACE, torch.stack([quarters / 4, 1 - quarters / 4], -1).log())


class Costs:
    """An energy for each sequence in each context, drawn once; that of 000 infinite where asked."""

    def __init__(self, *, forbidding: bool = False):
        self.table = 1.5 * torch.randn(2, 8, dtype=torch.float64, generator=Generator().manual_seed(3))
        if forbidding:
            self.table[:, 0] = math.inf

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        code = x.tokens @ torch.tensor([4, 2, 1])
        if context is None:
            return self.table[0, code]
        return self.table[context.given.tokens[:, 0].repeat_interleave(len(code) // context.rows), code]


def target(*, forbidding: bool = False) -> Tilted:
    base = Tabular.random(SPACE, conditions=2, generator=Generator().manual_seed(1))
    return Tilted(base, Costs(forbidding=forbidding)).requires_grad_(False)


def random_policy(seed: int = 2) -> Tabular:
    return Tabular.random(SPACE, conditions=2, generator=Generator().manual_seed(seed))


def one_loss(objective: PolicyGradient, context: Context | None = None, step: int = 1) -> Loss:
    batch = torch.empty(DRAWS, 0) if context is None else context
    (loss,) = objective.losses(batch, Clock(step, 0), generator=Generator())
    return loss


def gradient(value: Tensor, model: Tabular) -> Tensor:
    (found,) = torch.autograd.grad(value, [model.logits])
    return found


def baselines(kind: str) -> list[str]:
    return ["automatic", "none", "running", *(["known"] if kind == "kl" else [])]


@pytest.mark.parametrize("context", [None, CONTEXT], ids=["unconditional", "conditional"])
@pytest.mark.parametrize("off_policy", [False, True], ids=["on", "off"])
@pytest.mark.parametrize(("kind", "baseline"), [(kind, name) for kind in KINDS for name in baselines(kind)])
def test_value_and_gradient_are_the_divergences_own(
    kind: Any, baseline: Any, off_policy: bool, context: Context | None
) -> None:
    policy = random_policy() if off_policy else exhaustive(5)
    proposal = exhaustive(6) if off_policy else None
    objective = PolicyGradient(
        target=target(), model=policy, proposal=proposal, divergence=kind, baseline=baseline, draws=DRAWS
    )
    objective.memory.baseline.add(torch.tensor([0.7], dtype=torch.float64))  # any constant leaves the gradient alone
    loss = one_loss(objective, context)
    truth = exact.divergence(kind, objective.target, policy, context).mean()
    assert loss.value.item() == pytest.approx(truth.item(), abs=1e-12)
    torch.testing.assert_close(gradient(loss.value, policy), gradient(truth, policy), atol=1e-9, rtol=0)
    assert loss.weight == DRAWS * (1 if context is None else 2)
    metrics = loss.metrics
    kl = exact.divergence("kl", objective.target, policy, context).mean().item()
    q = proposal or policy
    assert metrics["kl"] == pytest.approx(kl, abs=1e-12)
    assert metrics["kl_proposal"] == pytest.approx(exact.divergence("kl", objective.target, q, context).mean().item())
    assert metrics["log_z"] == pytest.approx(exact.log_z(objective.target, context).mean().item(), abs=1e-12)
    assert 1 < metrics["effective_sample_size"] < DRAWS
    assert (metrics["replaced"], metrics["unseen"]) == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["kl", "jensen_shannon", "total_variation"])
@pytest.mark.parametrize("context", [None, CONTEXT], ids=["unconditional", "conditional"])
def test_what_the_target_forbids_is_unlearnt_exactly(kind: Any, context: Context | None) -> None:
    policy, wanted = random_policy(), target(forbidding=True)
    objective = PolicyGradient(target=wanted, model=policy, proposal=exhaustive(6), divergence=kind, draws=DRAWS)
    truth = exact.divergence(kind, wanted, policy, context).mean()
    found = one_loss(objective, context).value
    torch.testing.assert_close(gradient(found, policy), gradient(truth, policy), atol=1e-9, rtol=0)


def test_the_base_as_proposal_is_weighed_by_the_energy_alone() -> None:
    base, policy = exhaustive(6), random_policy()
    wanted = Tilted(base, Costs()).requires_grad_(False)
    loss = one_loss(PolicyGradient(target=wanted, model=policy, proposal=base))
    truth = exact.divergence("kl", wanted, policy).mean()
    torch.testing.assert_close(gradient(loss.value, policy), gradient(truth, policy), atol=1e-9, rtol=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tilted, "log_score", None)  # a second pass over the base would be an error
        one_loss(PolicyGradient(target=wanted, model=policy, proposal=base))


def test_the_baseline_lowers_the_variance_and_is_the_mean_of_the_slopes() -> None:
    """At π = p the known baseline leaves no variance at all: every weight is (π/q)·(−1 + 1)."""
    policy = random_policy()  # whatever its draws
    objective = PolicyGradient(target=policy, model=policy)
    assert gradient(one_loss(objective).value, policy).abs().max() < 1e-12
    policy = exhaustive(5)
    objective = PolicyGradient(target=policy, model=policy, baseline="running")
    one_loss(objective)
    assert objective.memory.baseline.value.item() == pytest.approx(-1.0)


def test_a_baseline_waits_until_the_policy_is_the_proposal() -> None:
    """Before, the gradient is that without a baseline; afterwards, at π = p, there is no variance left."""
    policy, other = random_policy(), exhaustive(6)

    def found(baseline: Literal["none", "once_replaced"], replaced: int) -> Tensor:
        objective = PolicyGradient(target=policy, model=policy, proposal=other, replace=True, baseline=baseline)
        objective.memory.replaced.fill_(replaced)
        return gradient(one_loss(objective).value, policy)

    assert torch.equal(found("once_replaced", 0), found("none", 0))
    assert found("once_replaced", 1).abs().max() < 1e-12 < found("none", 1).abs().max()


def test_z_is_the_mean_over_all_draws_of_all_steps() -> None:
    """exp(−E) is 1 in step one and 3 in step two, 64 draws each: Z = 2."""
    base = exhaustive(6)
    energies = iter([0.0, -math.log(3)])
    wanted = Tilted(base, lambda x, context=None: torch.full((len(x.lengths),), next(energies), dtype=torch.float64))
    objective = PolicyGradient(target=wanted, model=random_policy(), proposal=base)
    assert one_loss(objective).metrics["log_z"] == pytest.approx(0.0)
    assert one_loss(objective).metrics["log_z"] == pytest.approx(math.log(2))


def test_contexts_without_a_draw_of_the_target_pull_nowhere() -> None:
    policy, wanted = random_policy(), target()
    assert isinstance(wanted.energy, Costs)
    wanted.energy.table[0] = math.inf
    objective = PolicyGradient(target=wanted, model=policy, proposal=exhaustive(6), draws=DRAWS)
    loss = one_loss(objective, CONTEXT)
    found = gradient(loss.value, policy)
    assert loss.metrics["unseen"] == 0.5
    assert not found[0].any()
    one = Context(CONTEXT.given.select(torch.tensor([0])))
    truth = exact.divergence("kl", wanted, policy, one).sum() / 2
    torch.testing.assert_close(found, gradient(truth, policy), atol=1e-9, rtol=0)
    wanted.energy.table[1] = math.inf
    nothing = PolicyGradient(target=wanted, model=policy, proposal=exhaustive(6), baseline="none")
    loss = one_loss(nothing)
    assert (loss.value.item(), loss.metrics["unseen"]) == (0.0, 1.0)
    assert not gradient(loss.value, policy).any()
    assert not {"log_z", "kl"} & set(loss.metrics)


def test_a_better_policy_becomes_the_proposal_and_a_worse_one_does_not() -> None:
    wanted, start, policy = exhaustive(7), exhaustive(9), exhaustive(6)
    before = start.logits.detach().clone()
    assert exact.divergence("kl", wanted, policy) > exact.divergence("kl", wanted, start)
    objective = PolicyGradient(target=wanted, model=policy, proposal=start, replace=True, check_every=3)
    seen = [one_loss(objective, step=step).metrics["replaced"] for step in range(7)]
    assert seen == [0.0] * 7
    assert objective._proposal() is start
    with torch.no_grad():
        policy.logits.copy_(wanted.logits)
    seen = [one_loss(objective, step=step).metrics["replaced"] for step in range(7, 12)]
    assert seen == [0.0, 0.0, 1.0, 1.0, 1.0]  # not before the next check
    copied = objective._proposal()
    assert isinstance(copied, Exhaustive)
    assert copied is objective.memory.policy
    torch.testing.assert_close(copied.logits, policy.logits.detach())
    assert not copied.logits.requires_grad
    # Now q = p: all weights are alike, and an equal policy replaces nothing.
    assert one_loss(objective, step=11).metrics["effective_sample_size"] == pytest.approx(DRAWS)
    assert one_loss(objective, step=12).metrics["replaced"] == 1.0
    with torch.no_grad():
        policy.logits.copy_(before)
    assert not torch.equal(copied.logits, policy.logits)  # a copy
    assert torch.equal(start.logits.detach(), before)  # what was given is not touched


def test_a_step_cut_into_parts_is_checked_once() -> None:
    objective = PolicyGradient(target=exhaustive(7), model=random_policy(), proposal=exhaustive(6), check_every=2)
    for _ in range(2):
        one_loss(objective, step=2)
    assert int(objective.memory.lately.count) == 2 * DRAWS
    one_loss(objective, step=4)
    assert int(objective.memory.lately.count) == DRAWS


def test_draws_worth_nothing_are_told_of_once() -> None:
    base = exhaustive(6)

    def one_in_64(x: Sequences, context: Context | None = None) -> Tensor:
        costs = torch.zeros(len(x.lengths), dtype=torch.float64)
        costs[0] = -50.0
        return costs

    objective = PolicyGradient(target=Tilted(base, one_in_64), model=random_policy(), proposal=base, check_every=1)
    one_loss(objective, step=0)
    with pytest.warns(RuntimeWarning, match=r"the last 64 draws have an effective sample size of only 1\.0"):
        one_loss(objective, step=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_loss(objective, step=2)


def test_a_proposal_that_lost_sight_of_the_target_is_told_of() -> None:
    base, shift = exhaustive(6), iter([0.0, 3.0, 3.0])
    wanted = Tilted(base, lambda x, context=None: torch.full((len(x.lengths),), next(shift), dtype=torch.float64))
    objective = PolicyGradient(target=wanted, model=random_policy(), proposal=base, check_every=1)
    one_loss(objective, step=0)
    one_loss(objective, step=1)
    with pytest.warns(RuntimeWarning, match="found 9% of the target's mass: the proposal has collapsed"):
        one_loss(objective, step=2)  # e⁻³ against (1 + e⁻³)/2


def test_an_infinite_divergence_is_a_sentence() -> None:
    forbidding = target(forbidding=True)
    objective = PolicyGradient(
        target=forbidding, model=random_policy(), proposal=exhaustive(6), divergence="reverse_kl", baseline="none"
    )
    with pytest.raises(UserError, match=r"The policy can make \[0, 0, 0\], which the target forbids"):
        one_loss(objective)
    policy = random_policy()
    with torch.no_grad():
        policy.logits[0, 0, 0] = -math.inf
    objective = PolicyGradient(target=target(), model=policy, proposal=exhaustive(6))
    with pytest.raises(UserError, match=r"The target wants \[0, 0, 0\] and the policy can never make it"):
        one_loss(objective)


def test_what_neither_can_make_costs_nothing() -> None:
    policy, wanted = random_policy(), target(forbidding=True)
    with torch.no_grad():
        policy.logits[0, 0, 0], policy.logits[0, 1, 0], policy.logits[0, 3, 0] = 0.0, 0.0, -math.inf  # 000
    objective = PolicyGradient(target=wanted, model=policy, proposal=exhaustive(6), baseline="none")
    loss = one_loss(objective)
    assert loss.value.item() == pytest.approx(exact.divergence("kl", wanted, policy).item())
    assert gradient(loss.value, policy).isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divergence": "hellinger"}, "There is no divergence called 'hellinger'"),
        ({"baseline": "best"}, "There is no baseline called 'best'"),
        ({"divergence": "reverse_kl", "baseline": "known"}, "not known: choose running or none"),
        ({"replace": True}, "On-policy the policy is its own proposal"),
        ({"check_every": 0}, "at least one step between checks"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, TypeError), match=message if "called" not in message else None):
        PolicyGradient(target=target(), model=random_policy(), **options)


def test_weighted_sums_in_parts_are_those_of_the_whole_at_any_scale(generator: Generator) -> None:
    sums = WeightedSums(2)
    log_weights = torch.cat([torch.randn(50, generator=generator).double() + shift for shift in (-900, 900, 890)])
    log_weights[::7] = -math.inf
    values = torch.randn(2, 150, generator=generator).double()
    values[:, 0] = math.inf  # of weight zero
    for part in range(0, 150, 30):
        sums.add(log_weights[part : part + 30], values[:, part : part + 30])
    shares = log_weights.softmax(0)
    assert sums.log_mean().item() == pytest.approx((log_weights.logsumexp(0) - math.log(150)).item())
    torch.testing.assert_close(sums.means(), (values[:, 1:] * shares[1:]).sum(1))
    assert sums.effective_sample_size().item() == pytest.approx(effective_sample_size(log_weights).item())
    sums.clear()
    sums.add(torch.full((3,), -math.inf, dtype=torch.float64))
    assert (sums.log_mean().item(), sums.effective_sample_size().item()) == (-math.inf, 0.0)


def test_a_running_mean_by_hand() -> None:
    """Window 4: the mean of 1, 2, 3 is 2; then (5, 5) at a weight of 2/4: 3.5."""
    mean = RunningMean(window=4)
    mean.add(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert mean.value.item() == pytest.approx(2.0)
    mean.add(torch.tensor([5.0, 5.0], dtype=torch.float64))
    assert mean.value.item() == pytest.approx(3.5)


def test_rounds_are_empty_rows_and_end_with_the_epoch() -> None:
    rounds = Rounds(draws=5, steps=3)
    assert [tuple(batch.shape) for batch in rounds.at(0, 1)] == [(5, 0)] * 2
    assert len(rounds) == 3


MODES: dict[str, dict[str, Any]] = {"on": {}, "off": {"replace": False}, "replaced": {"replace": True}}


def objective_for(mode: str, kind: Any = "kl") -> tuple[PolicyGradient, Tabular]:
    wanted, policy = target(), random_policy()
    proposal = None if mode == "on" else wanted.base
    options = MODES[mode]
    return PolicyGradient(target=wanted, model=policy, proposal=proposal, divergence=kind, **options), policy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_short_run_brings_the_policy_to_the_target(mode: str, kind: Any, generator: Generator) -> None:
    objective, policy = objective_for(mode, kind)
    assert isinstance(objective, Objective)
    players = {
        "model": Player(module=policy, optimiser=OPTIMISERS["adam"](learning_rate=0.1).build(policy.parameters())),
        "memory": Player(module=objective.memory),
    }
    before = exact.divergence(kind, objective.target, policy).item()
    steps = list(islice(fit(objective, Rounds(draws=100), players, generator=generator), 80))
    after = exact.divergence(kind, objective.target, policy).item()
    assert after < 0.2 * before, (before, after)
    assert (steps[-1].metrics["replaced"] > 0) == (mode == "replaced")


def test_each_contexts_policy_finds_its_own_target(generator: Generator) -> None:
    wanted, policy = target(), random_policy()
    objective = PolicyGradient(target=wanted, model=policy, proposal=wanted.base, draws=40)
    contexts = Context(Sequences(torch.arange(8)[:, None] % 2, torch.ones(8, dtype=torch.long)))
    player = Player(module=policy, optimiser=OPTIMISERS["adam"](learning_rate=0.1).build(policy.parameters()))
    players = {"model": player, "memory": Player(module=objective.memory)}
    before = exact.divergence("kl", wanted, policy, CONTEXT).detach()
    batches = Batches(data=contexts, batch_size=4)
    for _ in islice(fit(objective, batches, players, generator=generator, accumulate=2), 60):
        pass
    after = exact.divergence("kl", wanted, policy, CONTEXT).detach()
    assert (after < 0.2 * before).all()


def run(folder: Path, steps: int) -> Tabular:
    generator = seeded(4)
    objective, policy = objective_for("replaced", "jensen_shannon")
    players = {
        "model": Player(module=policy, optimiser=OPTIMISERS["adam"](learning_rate=0.15).build(policy.parameters())),
        "memory": Player(module=objective.memory),
    }
    with open_run(folder, config="kind: policy gradient\n", seed=4) as opened:
        plan = Plan(steps=steps, log_every=1, checkpoint_every=7)
        train_run(opened, objective, Rounds(draws=50), players, plan, generator=generator)
    return policy


def test_a_run_stopped_twice_is_the_run_that_never_was_to_the_last_bit(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 45)
    for steps in (13, 28, 45):  # 28 is in the middle between two checks, after q has been replaced
        parts = run(tmp_path / "parts", steps)
    assert torch.equal(whole.logits, parts.logits)
    lines = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts")]
    assert lines[0] == lines[1]
    replaced = [json.loads(line)["replaced"] for line in lines[0].splitlines()]
    assert 0 < replaced[27] < replaced[-1]
