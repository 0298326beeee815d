"""Laws of samplers, on targets so small that everything about them is known by enumeration."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from ebar.energies.linear import Linear
from ebar.features.feature import Features
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.testing.laws import require
from ebar.types import Context, Distribution, Sampler, Sequences, Space, Target, Weighted

SPACES = (Space(vocabulary=3, length=4, end=0), Space(vocabulary=2, length=4))  # 15 and 16 sequences
FUNCTIONS = 8  # of x, with values of ±1, whose weighted means are compared, besides the constant 1
REPEATS = 40  # independent runs
SIGMAS = 7.5  # with 39 degrees of freedom one of the 18 means exceeds this once in 10 million runs
RELATIVE = 0.05  # by how much a Markov chain may be off for not having run longer


class _Sum:
    """The number of tokens 1: bounded, and of the whole sequence."""

    name, low, high = "ones", 0.0, 4.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Tensor:
        return ((x.tokens == 1) & x.mask()).sum(1).double()


def small_target(space: Space) -> Tilted:
    """q drawn at random, E linear in how many tokens are 1."""
    base = Tabular.random(space, scale=0.7, generator=Generator().manual_seed(5))
    energy = Linear(Features([_Sum()]), torch.tensor([0.6], dtype=torch.float64))
    return Tilted(base, energy)


def check_sampler(
    sampler: Sampler,
    target: Callable[[Space], Target] | None = None,
    *,
    proposal: Callable[[Target], Distribution] | None = None,
    draws: int = 400,
) -> None:
    """Properly weighted: the mean of w·f(x) is Σₓ P(x)·f(x) for every f; for a chain, weighted means tend to E_p[f].

    On two spaces, one with an end and one without, for a constant f and eight random ones, over 40 independent runs.
    As many draws come as are asked for, in the space, without gradient, and the generator alone decides them.
    `target` makes a target for a space (by default a tilted table), `proposal` what to propose from, if anything.
    """
    for space in SPACES:
        made = (target or small_target)(space)
        given = None if proposal is None else proposal(made)
        _check_form(sampler, made, given, space)
        _check_weights(sampler, made, given, space, draws)


def _draw(sampler: Sampler, target: Target, proposal: Distribution | None, n: int, seed: int) -> Weighted:
    return draw(sampler, target, n, proposal=proposal, generator=Generator().manual_seed(seed))


def _check_form(sampler: Sampler, target: Target, proposal: Distribution | None, space: Space) -> None:
    before = torch.get_rng_state()
    drawn = _draw(sampler, target, proposal, 35, 1)
    require(torch.equal(torch.get_rng_state(), before), "a sampler leaves torch's own random state alone")
    require(drawn.log_weights.shape == (1, 35), "as many draws come as are asked for")
    require(len(drawn.x.lengths) == 35, "there are as many sequences as weights")
    require(not drawn.log_weights.requires_grad, "draws carry no gradient")
    require(drawn.estimates_z == sampler.weighted, "draws say whether their weights estimate Z")
    require((_numbers(drawn.x, space) >= 0).all(), "every draw lies in the space")
    again = _draw(sampler, target, proposal, 35, 1)
    same = torch.equal(again.log_weights, drawn.log_weights) and torch.equal(again.x.lengths, drawn.x.lengths)
    require(same and torch.equal(again.x.tokens, drawn.x.tokens), "the generator alone decides what is drawn")
    for labels in (drawn.groups, drawn.strata):
        require(labels is None or labels.shape == (35,), "groups and strata are one number for each draw")


@torch.no_grad()
def _check_weights(sampler: Sampler, target: Target, proposal: Distribution | None, space: Space, n: int) -> None:
    every = all_sequences(space)
    scored: Any = target
    scores = (scored.log_prob(every) if isinstance(target, Distribution) else scored.log_score(every)).double().exp()
    signs = torch.randint(0, 2, (FUNCTIONS, len(scores)), generator=Generator().manual_seed(3)).double() * 2 - 1
    functions = torch.cat([torch.ones(1, len(scores)).double(), signs])
    wanted = functions @ scores
    found = []
    for seed in range(REPEATS):
        drawn = _draw(sampler, target, proposal, n, 100 + seed)
        values = functions[:, _numbers(drawn.x, space)]
        weights = drawn.log_weights[0].double().exp()
        found.append((values * weights).mean(1) if sampler.weighted else (values * weights).sum(1) / weights.sum())
    means = torch.stack(found)
    mean, error = means.mean(0), means.std(0) / math.sqrt(REPEATS)
    if not sampler.weighted:
        wanted = wanted / wanted[0]
    slack = 1e-9 if sampler.weighted else RELATIVE
    excess = (mean - wanted).abs() - SIGMAS * error - slack
    worst = int(excess.argmax())
    what = "Z" if worst == 0 else f"the mean of random function {worst}"
    require(
        float(excess[worst]) <= 0,
        f"draws are properly weighted: {what} is {float(wanted[worst]):.6g} and {REPEATS} runs of {n} draws give "
        f"{float(mean[worst]):.6g} ± {float(error[worst]):.2g} (space of {len(scores)} sequences)",
    )


def _numbers(x: Sequences, space: Space) -> Tensor:
    """Which sequence of the space each row is; −1 for none."""
    every = all_sequences(space)
    width = max(x.tokens.shape[1], every.tokens.shape[1])
    rows, known = (
        pad(one.tokens.masked_fill(~one.mask(), -1), (0, width - one.tokens.shape[1]), value=-1) for one in (x, every)
    )
    same = (rows[:, None] == known).all(2) & (x.lengths[:, None] == every.lengths)
    return torch.where(same.any(1), same.long().argmax(1), -1)
