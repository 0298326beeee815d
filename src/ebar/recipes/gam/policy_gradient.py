"""Policy gradient against distillation at equal numbers of draws, where every probability of the target is known."""

import copy
import math
import time
import warnings
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator

import ebar
from ebar.estimators import exact
from ebar.maths import divergences
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive, assemble
from ebar.objectives import MaximumLikelihood, PolicyGradient, Rounds
from ebar.recipes.gam.cells import learn
from ebar.recipes.pieces import Caption, Cell, Curves, Figure, Figures, Grid, Layout, Recipe, Result, Row
from ebar.samplers.importance import Importance, systematic
from ebar.samplers.surrogate import NGram
from ebar.training.optimisers import Adam, Constant, Cosine
from ebar.types import Distribution, Sequences, Weighted

LANGUAGE = ebar.Language(motif="1011100", length=10)
HIDDEN = 32
COEFFICIENT = 5.0  # of the motif in P = r·exp(λφ): finite, so that the reverse KL is too
BUDGETS = {"demo": [512], "cpu": [2048, 8192], "paper": [2048, 8192, 32_768, 131_072]}
SEEDS = {"demo": range(1, 3), "cpu": range(1, 6), "paper": range(1, 11)}


class Arm(NamedTuple):
    """One way to spend the draws; `divergence` is None for distillation."""

    divergence: Any = None
    proposal: str = "base"  # where draws come from at first: base, ahead, or policy
    replace: bool = False
    fresh: bool = False  # π begins with random weights, as in the paper, not as a copy of r


REFERENCE = "distillation"
ARMS = {
    REFERENCE: Arm(),
    "distillation, fresh": Arm(fresh=True),
    "distillation, ahead": Arm(proposal="ahead"),
    "DPG, off": Arm("kl"),
    "DPG, replaced": Arm("kl", replace=True),
    "DPG, on": Arm("kl", "policy"),
    "DPG, ahead": Arm("kl", "ahead"),
    "reverse KL, on": Arm("reverse_kl", "policy"),
    "JS, on": Arm("jensen_shannon", "policy"),
    "TV, on": Arm("total_variation", "policy"),
}
DEMO = [REFERENCE, "distillation, ahead", "DPG, off", "DPG, replaced", "JS, on"]

# All that was tuned: a little, on seeds 0 and 1000, which the recipe does not use.
SURROGATE_SHARE = 0.25  # of the budget, to look ahead with: they are draws from r too
HELD_OUT = 0.2  # of the draws that distillation has, to stop by
PATIENCE, LONGEST = 6, 1500  # epochs without a better held-out loss; steps, at most
BATCHES, SMALLEST, LARGEST = 32, 64, 512  # of distillation: how many in an epoch, within bounds of their size
DISTILLATION_RATE = 3e-3
CLIP = 1.0
STEPS, FEWEST, MOST = 128, 16, 128  # of policy gradient: how many, within bounds of the draws in each
RATES = {"kl": 1e-2, "reverse_kl": 1e-2, "jensen_shannon": 1e-2, "total_variation": 1e-2}
CHECK_EVERY = 10


def fresh(seed: int) -> Autoregressive:
    """A small model with weights of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return assemble(LANGUAGE.space, "lstm", {"layers": 1, "hidden": HIDDEN, "dropout": 0.0})


@cache
@torch.enable_grad()  # whoever asks first may do so where gradients are off, and r is trained here
def target() -> ebar.Tilted:
    """P = r·exp(λ·motif), r a model that has not learnt the motif from its 500 strings, so that p is far from r."""
    generator = Generator().manual_seed(20190915)
    base = fresh(0)
    data = LANGUAGE.distribution().sample(500, generator=generator)
    player = ebar.Player(module=base, optimiser=Adam(learning_rate=1e-2).build(base.parameters()))
    batches = ebar.Batches(data=data, batch_size=50)
    for _ in islice(ebar.fit(MaximumLikelihood(model=base), batches, {"model": player}, generator=generator), 60):
        pass
    assert LANGUAGE.motif is not None
    features = ebar.Features([ebar.Motif(motif=LANGUAGE.motif, alphabet=LANGUAGE.alphabet, end=LANGUAGE.space.end)])
    return ebar.Tilted(base.eval(), ebar.Linear(features, torch.tensor([COEFFICIENT]))).requires_grad_(False)


def distil_by_resampling(arm: Arm, policy: Autoregressive, budget: int, seed: int, generator: Generator) -> int:
    """Resample weighted draws of r, or of a look-ahead, and fit π to them until held-out ones say stop."""
    if arm.proposal == "ahead":
        ahead = _ahead(budget, generator)
        rest = budget - int(SURROGATE_SHARE * budget)
        drawn = ebar.draw(ebar.LookAhead(), target(), rest, proposal=ahead, generator=generator)
    else:
        drawn = ebar.draw(Importance(), target(), budget, generator=generator)
    # Cut before resampling: no draw is in both.
    cut = int((1 - HELD_OUT) * len(drawn.x.lengths))
    train, held_out = _resampled(drawn, slice(0, cut), generator), _resampled(drawn, slice(cut, None), generator)
    size = min(LARGEST, max(SMALLEST, len(train.lengths) // BATCHES))
    return learn(
        policy, train, held_out, batch_size=size, epochs=math.ceil(LONGEST / math.ceil(len(train.lengths) / size)),
        patience=PATIENCE, held_out_batch=2048, learning_rate=DISTILLATION_RATE, seed=seed,
    )  # fmt: skip


def _resampled(drawn: Weighted, rows: slice, generator: Generator) -> Sequences:
    """Twice the effective sample size of the draws: with fewer the resampling itself would add to the noise."""
    log_weights = drawn.log_weights[:, rows]
    x = Sequences(drawn.x.tokens[rows], drawn.x.lengths[rows])
    worth = float(log_weights.softmax(1).square().sum().reciprocal())
    chosen = systematic(log_weights, min(log_weights.shape[1], max(16, math.ceil(2 * worth))), generator)
    return x.select(chosen[0])


def train_policy(arm: Arm, policy: Autoregressive, budget: int, generator: Generator) -> tuple[int, int]:
    """Policy gradient, each draw used once; the number of steps, and how often q was replaced."""
    proposal: Distribution | None = None if arm.proposal == "policy" else target().base
    if arm.proposal == "ahead":
        proposal = _ahead(budget, generator)
        budget -= int(SURROGATE_SHARE * budget)
    draws = min(MOST, max(FEWEST, budget // STEPS))
    steps = budget // draws
    objective = PolicyGradient(
        target=target(), model=policy, proposal=proposal, divergence=arm.divergence, replace=arm.replace,
        check_every=CHECK_EVERY,
    )  # fmt: skip
    optimiser = Adam(learning_rate=RATES[arm.divergence]).build(policy.parameters())
    schedule = Cosine(steps=steps) if steps > 1 else Constant()
    players = {
        "model": ebar.Player(module=policy, optimiser=optimiser, schedule=schedule, clip_norm=CLIP),
        "memory": ebar.Player(module=objective.memory),
    }
    for _ in islice(ebar.fit(objective, Rounds(draws=draws), players, generator=generator), steps):
        pass
    return steps, int(objective.memory.replaced)


def _ahead(budget: int, generator: Generator) -> Distribution:
    return ebar.guided(target(), surrogate=NGram(order=4), draws=int(SURROGATE_SHARE * budget), generator=generator)


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """One way to spend the draws: how far π is from p in the end."""
    arm, seed = ARMS[cell["arm"]], cell["seed"]
    target()
    generator = Generator().manual_seed(folded(seed, cell["draws"]))
    policy = fresh(folded(seed, 1)) if arm.fresh else _copy_of_base()
    began, replaced = time.perf_counter(), 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if arm.divergence is None:
            steps = distil_by_resampling(arm, policy, cell["draws"], seed, generator)
        else:
            steps, replaced = train_policy(arm, policy, cell["draws"], generator)
    seconds = time.perf_counter() - began
    policy.eval()
    with torch.no_grad():
        log_p, log_policy = (exact.log_probabilities(model)[0].double() for model in (target(), policy))
    return {
        "total_variation": float(divergences.total_variation(log_p, log_policy)),
        "kl": float(divergences.kl(log_p, log_policy)),
        "steps": steps,
        "replaced": replaced,
        "seconds": seconds,
        "warnings": sorted({str(warning.message) for warning in caught}),
    }


def start(results: Sequence[Result]) -> list[Row]:
    """How far r is from p."""
    with torch.no_grad():
        log_p, log_r = (exact.log_probabilities(model)[0].double() for model in (target(), target().base))
    found = {"total_variation": divergences.total_variation, "kl": divergences.kl}
    values = {f"{name}_of_r": float(figure(log_p, log_r)) for name, figure in found.items()}
    return [Row(name=name, settings={}, value=value, low=value, high=value) for name, value in values.items()]


def _copy_of_base() -> Autoregressive:
    base = target().base
    assert isinstance(base, Autoregressive)
    return copy.deepcopy(base).requires_grad_(True)


def warned(result: dict[str, Any]) -> str | None:
    """The first warning of a run."""
    return str(result["warnings"][0]) if result["warnings"] else None


AMOUNT = (0.0, math.inf)
LABELS = {"total_variation": "total variation to p", "kl": "KL(p‖π)"}
RECIPE = Recipe(
    title="Policy gradient against distillation: total variation to p at equal numbers of draws",
    source="ebar's own",
    grid=Grid(
        axes={"draws": BUDGETS, "arm": {"demo": DEMO, "cpu": list(ARMS), "paper": list(ARMS)}, "seed": SEEDS},
    ),
    run=run_cell,
    figures=[
        start,
        Figures(
            Figure(name="total_variation", at="total_variation", warns=warned, range=(0.0, 1.0)),
            *(Figure(name=name, at=name, warns=warned, range=AMOUNT) for name in ("kl", "steps", "seconds")),
            *(Figure(name=f"{name}_minus_distillation", at=name, minus={"arm": REFERENCE}, warns=warned)
              for name in LABELS),
            by=("arm", "draws"),
        ),
    ],
    tables=[
        Layout(rows=("arm",), columns=("draws",), figures=(name,), caption=f"{label[0].upper()}{label[1:]}:")
        for name, label in [*LABELS.items(), ("total_variation_minus_distillation", "total variation − distillation's")]
    ],
    plots=[
        Curves(of={name: "{arm}"}, by=("arm",), x="draws", title=label, levels={"r": f"{name}_of_r"}, bands=False,
               dashed=[arm for arm, way in ARMS.items() if way.divergence is None], log_x=True, log_y=True)
        for name, label in LABELS.items()
    ],
    reading=Caption(
        shared="All seeds have the same target, whose probabilities are known: an interval is valid for other "
        "trainings on this target.",
    ),
)  # fmt: skip
