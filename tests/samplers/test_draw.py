import pytest
import torch
from torch import Generator, Tensor

from ebar.errors import UserError
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted, propose
from ebar.progress import shown
from ebar.samplers.draw import draw, log_weights, proposal_for, shares
from ebar.samplers.importance import Importance, Resampling
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.rejection import Rejection
from ebar.types import Context, Sequences, Space, Weighted
from tests.samplers.worlds import ENDING, World, world


class Counted(Tabular):
    """Counts how often it is evaluated, other than by drawing from it."""

    evaluations = 0

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        self.evaluations += 1
        return super().log_prob(x, context)


class OnlySamples:
    """A distribution that does not know the probability of its draws from having drawn them."""

    def __init__(self, model: Counted):
        self.model = model
        self.space: Space = model.space

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        return self.model.sample(n, context, generator=generator)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        return self.model.log_prob(x, context)


def counted_world() -> tuple[Tilted, Counted, Counted]:
    plain = world(ENDING)
    assert isinstance(plain.target.base, Tabular)
    base = Counted(ENDING, plain.target.base.logits.detach())
    return Tilted(base, plain.target.energy), base, Counted(ENDING, plain.other.logits.detach())


@pytest.mark.parametrize("sampler", [Importance(), Rejection(log_bound=4.0), Resampling(), Metropolis(burn_in=3)])
def test_a_base_that_is_the_proposal_is_never_evaluated(sampler, generator):
    target, base, _ = counted_world()
    draw(sampler, target, 20, generator=generator)
    draw(sampler, target, 20, proposal=base, generator=generator)
    assert base.evaluations == 0


def test_a_base_that_is_not_the_proposal_is_evaluated_once_and_the_proposal_never(generator):
    target, base, other = counted_world()
    draw(Importance(), target, 20, proposal=other, generator=generator)
    assert (base.evaluations, other.evaluations) == (1, 0)


def test_a_proposal_that_cannot_tell_while_drawing_is_evaluated_once(generator):
    target, base, other = counted_world()
    draw(Importance(), target, 20, proposal=OnlySamples(other), generator=generator)
    assert (base.evaluations, other.evaluations) == (1, 1)
    wrapped = OnlySamples(base)
    draw(Importance(), Tilted(wrapped, target.energy), 20, generator=generator)
    assert base.evaluations == 2


@pytest.mark.parametrize("proposal", ["base", "other", "target"])
def test_log_weights_are_log_score_minus_log_proposal(proposal, generator):
    small = world(ENDING, conditions=3)
    context = small.context(1)
    q = small.target.base if proposal == "base" else small.other
    target = q if proposal == "target" else small.target
    x, log_q = propose(q, 50, context, generator)
    with torch.no_grad():
        torch.testing.assert_close(log_q, q.log_prob(x, context))
        score = q.log_prob(x, context) if proposal == "target" else small.target.log_score(x, context)
        torch.testing.assert_close(log_weights(target, q, x, log_q, context), score - q.log_prob(x, context))


def test_a_score_without_a_base_can_be_a_target_once_there_is_a_proposal(generator):
    class Score:
        def log_score(self, x: Sequences, context: Context | None = None) -> Tensor:
            return x.lengths.double()

    with pytest.raises(UserError, match="give a proposal"):
        proposal_for(Score(), None)
    other = world(ENDING).other
    batch = draw(Importance(), Score(), 10, proposal=other, generator=generator)
    expected = batch.x.lengths.double() - other.log_prob(batch.x).detach()
    torch.testing.assert_close(batch.log_weights[0], expected)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_weight_that_is_no_number_is_an_error_that_names_the_sequence(bad, generator):
    base = world(ENDING).other

    def energy(x: Sequences, context: Context | None = None) -> Tensor:
        return torch.where(x.lengths == 1, bad, 0.0).double()

    with pytest.raises(UserError, match=r"sequence \[0\]"):
        draw(Importance(), Tilted(base, energy), 200, generator=generator)


def test_shares_are_even_add_up_and_fit():
    three = Context(Sequences(torch.zeros(3, 1, dtype=torch.long), torch.ones(3, dtype=torch.long)))
    assert shares(10, None, 4) == [4, 3, 3]
    assert shares(10, three, 12) == [4, 3, 3]
    assert shares(10, three, 12, proposals_per_draw=2) == [2, 2, 2, 2, 2]
    assert shares(1, None, 4096) == [1]
    with pytest.raises(UserError, match="at least 3"):
        shares(10, three, 2)
    with pytest.raises(UserError, match="At least one"):
        shares(0, None, 10)


def batch_of(rows: list[list[int]], groups: list[int] | None = None) -> Weighted:
    """For two rows of a context."""
    x = Sequences(torch.tensor(rows), torch.full((len(rows),), len(rows[0])))
    weights = torch.tensor(rows)[:, 0].view(2, -1).double()
    return Weighted(x, weights, None if groups is None else torch.tensor(groups))


def test_joined_draws_are_context_major_whatever_their_widths():
    joined = Weighted.join([batch_of([[1], [2], [5], [6]]), batch_of([[3, 4], [7, 8]])])
    assert joined.x.tokens.tolist() == [[1, 0], [2, 0], [3, 4], [5, 0], [6, 0], [7, 8]]
    assert joined.x.lengths.tolist() == [1, 1, 2, 1, 1, 2]
    assert joined.log_weights.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert joined.groups is None


def test_joined_draws_know_which_depend_on_one_another():
    grouped, plain = batch_of([[1], [2], [5], [6]], [0, 0]), batch_of([[3], [4], [7], [8]])
    assert Weighted.join([grouped, plain, grouped]).groups.tolist() == [0, 0, 1, 2, 3, 3]  # type: ignore[union-attr]
    # The batches of one stream have their numbers in common: a chain goes on from one to the next.
    stream = Weighted.join([grouped, grouped], one_stream=True)
    assert stream.groups.tolist() == [0, 0, 0, 0]  # type: ignore[union-attr]


def test_selected_draws_keep_their_rows_weights_groups_and_strata():
    drawn = batch_of([[1], [2], [3], [5], [6], [7]], [4, 4, 9])._replace(strata=torch.tensor([1, 0, 0]))
    chosen = drawn.select(torch.tensor([2, 0]))
    assert chosen.x.tokens[:, 0].tolist() == [3, 1, 7, 5]
    assert chosen.log_weights.tolist() == [[3, 1], [7, 5]]
    assert chosen.groups.tolist() == [9, 4]  # type: ignore[union-attr]
    assert chosen.strata.tolist() == [0, 1]  # type: ignore[union-attr]
    assert drawn.select(slice(2)).log_weights.tolist() == [[1, 2], [5, 6]]


def test_without_a_generator_torchs_own_seed_repeats_the_draws():
    target = world(ENDING).target
    torch.manual_seed(5)
    first = draw(Importance(), target, 50)
    torch.manual_seed(5)
    second = draw(Importance(), target, 50)
    third = draw(Importance(), target, 50)
    assert torch.equal(first.x.tokens, second.x.tokens)
    assert not torch.equal(first.log_weights, third.log_weights)


def by_condition(small: World) -> Tilted:
    """Every token of a draw in condition c is c: a draw shows which row it belongs to."""
    logits = torch.full_like(small.other.logits.detach(), -30.0)
    for condition in range(small.conditions):
        logits[condition, :, condition] = 30.0
    return Tilted(Tabular(small.space, logits), small.target.energy)


def test_many_batches_keep_every_draw_and_weight_with_its_context(generator):
    small = world(Space(vocabulary=3, length=2), conditions=3)
    target = by_condition(small)
    batch = draw(Importance(batch_size=15), target, 17, context=small.context(1), generator=generator)
    assert batch.x.tokens[:, 0].tolist() == [0] * 17 + [1] * 17 + [2] * 17
    expected = -target.energy(batch.x, small.context(1))
    torch.testing.assert_close(batch.log_weights.flatten(), expected)


def test_progress_is_reported_where_it_is_asked_for(generator, capfd):
    with shown():
        draw(Importance(batch_size=10), world(ENDING).target, 100, generator=generator)
    assert "100/100" in capfd.readouterr().err
