"""One suite over the table of samplers: a line added to `SAMPLERS` is tested here and in tests/statistical."""

import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.types import Context, Sequences, Target, Weighted, context_rows
from tests.samplers.worlds import ENDING, FIXED, World, linear_world

# What a sampler is given beyond its defaults; most need nothing.
SETTINGS: dict[str, dict[str, Any]] = {
    "resampling": {"proposals_per_draw": 4},
    "metropolis": {"chains": 8, "burn_in": 5, "thin": 2},
    "smc": {"particles": 8},
    "annealed": {"particles": 8},
    "quasi_rejection": {"log_beta": 1.0},
}
BATCH_SIZE = 192


class Case(NamedTuple):
    small: World
    context: Context | None

    def target(self, name: str) -> Target:
        """Only ancestral sampling wants a target it can draw from."""
        return self.small.other if name == "ancestral" else self.small.target


CASES = {
    "ending, unconditional": Case(linear_world(ENDING), None),
    "fixed, unconditional": Case(linear_world(FIXED), None),
    "ending, conditional": Case(linear_world(ENDING, conditions=3), linear_world(ENDING, conditions=3).context(1)),
    "fixed, conditional": Case(linear_world(FIXED, conditions=3), linear_world(FIXED, conditions=3).context(1)),
}

every_sampler = pytest.mark.parametrize("name", SAMPLERS)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def sampler_called(name: str, batch_size: int = BATCH_SIZE) -> Any:
    sampler: Any = SAMPLERS[name]
    return sampler(**SETTINGS.get(name, {}), batch_size=batch_size)


def draws(name: str, case: Case, n: int, seed: int) -> Weighted:
    return draw(
        sampler_called(name), case.target(name), n, context=case.context, generator=Generator().manual_seed(seed)
    )


@every_sampler
def test_a_sampler_is_a_frozen_set_of_hyperparameters_with_defaults(name):
    kind: Any = SAMPLERS[name]
    sampler = kind()
    assert hasattr(kind, "__dataclass_fields__")
    assert isinstance(sampler.weighted, bool)
    assert not hasattr(sampler, "__dict__")  # slots
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.batch_size = 3
    with pytest.raises(TypeError):
        kind(3)


@every_sampler
@every_case
@pytest.mark.parametrize("n", [1, 35])
def test_exactly_as_many_draws_as_asked_for_come_for_every_context_and_lie_in_the_space(name, case, n):
    drawn = draws(name, case, n, 0)
    rows = context_rows(case.context)
    assert len(drawn.x.lengths) == rows * n
    assert drawn.log_weights.shape == (rows, n)
    assert drawn.estimates_z == SAMPLERS[name].weighted
    assert drawn.target is case.target(name)
    for labels in (drawn.groups, drawn.strata):
        assert labels is None or labels.shape == (n,)
    repeated = None if case.context is None else case.context.repeat(n)
    assert bool(case.small.other.log_prob(drawn.x, repeated).isfinite().all())


@every_sampler
def test_two_hundred_draws_make_twenty_independent_groups_whatever_the_sampler(name):
    case = CASES["ending, unconditional"]
    drawn = draws(name, case, 200, 6)
    if drawn.groups is not None:
        assert len(drawn.groups.unique()) >= 20
    else:
        assert name in ("ancestral", "importance", "look_ahead")  # these share nothing between draws


@every_sampler
@every_case
def test_no_batch_is_larger_than_its_bound_inside_the_sampler_or_out(name, case):
    rows = context_rows(case.context)
    largest = 0

    class Watched(Linear):
        def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
            nonlocal largest
            largest = max(largest, len(x.lengths))
            return super().forward(x, context)

    target = case.target(name)
    if isinstance(target, Tilted):
        energy: Any = target.energy
        target = Tilted(target.base, Watched(energy.features, energy.coefficients.detach()))
    total = 0
    for batch in sampler_called(name).stream(target, 200, context=case.context, generator=Generator().manual_seed(1)):
        count = len(batch.x.lengths)
        assert count <= BATCH_SIZE
        assert batch.log_weights.shape == (rows, count // rows)
        total += count // rows
    assert total >= 200
    assert largest <= BATCH_SIZE


@every_sampler
@every_case
def test_the_generator_decides_everything_and_nothing_else_does(name, case):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    drawn = draws(name, case, 50, 3)
    x = drawn.x
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    again = draws(name, case, 50, 3)
    assert torch.equal(x.tokens, again.x.tokens)
    assert torch.equal(x.lengths, again.x.lengths)
    assert torch.equal(drawn.log_weights, again.log_weights)
    other = draws(name, case, 50, 4).x
    assert x.tokens.shape != other.tokens.shape or not torch.equal(x.tokens, other.tokens)


@every_sampler
def test_draws_carry_no_gradient_and_leave_the_callers_mode_alone(name):
    case = CASES["ending, conditional"]
    stream = sampler_called(name).stream(case.target(name), 40, context=case.context, generator=Generator())
    for batch in stream:
        assert torch.is_grad_enabled()
        assert not batch.log_weights.requires_grad


@every_sampler
def test_a_base_in_single_precision_may_carry_an_energy_in_double(name):
    case = CASES["ending, conditional"]
    double: Any = case.small.target.base
    base = Tabular(case.small.space, double.logits.detach().float())
    target: Target = base if name == "ancestral" else Tilted(base, case.small.target.energy)
    drawn = draw(sampler_called(name), target, 5, context=case.context, generator=Generator().manual_seed(2))
    assert bool(drawn.log_weights.isfinite().all())


@every_sampler
def test_draws_of_different_contexts_do_not_mix(name):
    """Condition c's sequences all start with c: the tilt forbids the others."""
    case = CASES["fixed, conditional"]
    energy: Any = case.small.target.energy
    sure = torch.tensor([0.1, 0.0, 40.0], dtype=torch.float64)
    case = Case(World(Tilted(case.small.target.base, Linear(energy.features, sure)), case.small.other, 2), None)
    context = case.small.context(3)
    if name == "ancestral":
        pytest.skip("draws from a target that is not tilted")
    special: dict[str, dict[str, Any]] = {
        "quasi_rejection": {"log_beta": 40.0},
        "metropolis": {"moves": ("independent",), "burn_in": 150},
    }
    kind: Any = SAMPLERS[name]
    sampler = kind(**{**SETTINGS.get(name, {}), **special.get(name, {})}, batch_size=960)
    drawn = draw(sampler, case.small.target, 20, context=context, generator=Generator().manual_seed(5))
    first = drawn.x.tokens[:, 0].view(6, 20)
    expected = context.given.tokens.expand(-1, 20)
    weights = torch.softmax(drawn.log_weights, 1)
    assert float((weights * (first == expected)).sum(1).min()) > 1 - 1e-9


@every_sampler
def test_a_batch_too_small_for_the_contexts_is_an_error_that_says_so(name):
    case = CASES["fixed, conditional"]
    with pytest.raises(UserError, match="batch_size of 2"):
        draw(sampler_called(name, 2), case.target(name), 5, context=case.context, generator=Generator().manual_seed(0))
