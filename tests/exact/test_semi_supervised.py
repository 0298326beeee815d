"""The propositions on semi-supervised learning with a fake class, on finite spaces (Dai 2019 (thesis), C.3 and C.8).

What is free is enumerated or optimised, what is known in closed form stands beside it.
"""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.evaluation.finite_semi_supervised import (
    FeatureSpace,
    cover,
    error_rate,
    fake_class_maximum,
    fake_class_objective,
    supervised_maximum,
    supervised_objective,
    twin,
)

INFINITE = float("inf")
# Five points of three classes. Labels: the first point has 3 of class 0 and 1 of class 1, the third has 4 of class 2.
LABELLED = torch.tensor([[3, 1, 0], [0, 0, 0], [0, 0, 4], [0, 0, 0], [0, 0, 0]]).double() / 8
DATA = torch.tensor([4, 2, 2, 4, 4]).double() / 16
TRUE_LABELS = [0, 1, 2, 1, 0]
TRUTH = torch.nn.functional.one_hot(torch.tensor(TRUE_LABELS), 3).double() * DATA[:, None]


def supervised_optimum(labels: list[int]) -> Tensor:
    """A maximum of the supervised objective: what is labelled is certain, the rest has these labels."""
    logits = torch.nn.functional.one_hot(torch.tensor(labels), 3).double() * 5
    logits[0] = torch.tensor([math.log(3.0), 0.0, -INFINITE]) + 7.0  # a shift that no softmax sees
    logits[2] = torch.tensor([-INFINITE, -INFINITE, 2.0])
    return logits


# By hand -----------------------------------------------------------------------------------------------------------


def test_the_objective_of_one_point_by_hand() -> None:
    """Two classes at logit 0 and the fake one at 0: each has a third."""
    one = torch.ones(1).double()
    value = fake_class_objective(torch.zeros(1, 2).double(), torch.tensor([[1.0, 0.0]]).double(), one, one)
    assert float(value) == pytest.approx(math.log(1 / 2) + math.log(2 / 3) + math.log(1 / 3))


def test_the_maximum_of_two_points_by_hand() -> None:
    """p = (½, ½), p_G = (1, 0): fake with chance ⅔ at the first point and 0 at the second."""
    data, generated = torch.tensor([0.5, 0.5]).double(), torch.tensor([1.0, 0.0]).double()
    labelled = torch.tensor([[0.25, 0.75], [0.0, 0.0]]).double()
    entropy = 0.25 * math.log(0.25) + 0.75 * math.log(0.75)
    expected = entropy + 0.5 * math.log(1 / 3) + math.log(2 / 3)
    assert float(fake_class_maximum(labelled, data, generated)) == pytest.approx(expected)


def test_a_tie_is_an_error() -> None:
    assert float(error_rate(torch.tensor([[1.0, 1.0], [2.0, 1.0]]), torch.tensor([[0.5, 0.0], [0.3, 0.2]]))) == (
        pytest.approx(0.7)
    )


# Proposition 4 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "error"), [(TRUE_LABELS, 0.0), ([0, 2, 2, 0, 1], 10 / 16), ([0, 2, 2, 1, 0], 0.125)]
)
def test_with_a_perfect_generator_every_supervised_optimum_has_a_twin(labels: list[int], error: float) -> None:
    """However wrong it is on unlabelled points: the same error, and a maximum of the objective with the fake class."""
    supervised = supervised_optimum(labels)
    assert float(supervised_objective(supervised, LABELLED)) == pytest.approx(float(supervised_maximum(LABELLED)))
    found = twin(supervised)
    torch.testing.assert_close(found.softmax(1), supervised.softmax(1))
    torch.testing.assert_close(found.logsumexp(1), torch.zeros(5).double())  # P(K+1 | x) = ½
    value = fake_class_objective(found, LABELLED, DATA, DATA)
    torch.testing.assert_close(value, fake_class_maximum(LABELLED, DATA, DATA))
    torch.testing.assert_close(value, supervised_maximum(LABELLED) - 2 * math.log(2))
    assert float(error_rate(found, TRUTH)) == float(error_rate(supervised, TRUTH)) == error


@pytest.mark.parametrize("generated", [DATA, DATA.flip(0)])
def test_no_search_finds_more_than_the_twin_has(generated: Tensor) -> None:
    """Also where p_G ≠ p: the fake class alone never tells the classes of unlabelled points."""
    best = fake_class_objective(twin(supervised_optimum([0, 2, 2, 0, 1]), DATA, generated), LABELLED, DATA, generated)
    torch.testing.assert_close(best, fake_class_maximum(LABELLED, DATA, generated))
    logits = torch.randn(5, 3, generator=Generator().manual_seed(0)).double().requires_grad_()
    optimiser = torch.optim.LBFGS([logits], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = -fake_class_objective(logits, LABELLED, DATA, generated)
        value.backward()
        return value

    optimiser.step(loss)
    reached = fake_class_objective(logits.detach(), LABELLED, DATA, generated)
    assert float(best) - 1e-6 < float(reached) <= float(best) + 1e-12


def test_a_twin_of_another_generator_does_not_serve_this_one() -> None:
    value = fake_class_objective(twin(supervised_optimum(TRUE_LABELS)), LABELLED, DATA, DATA.flip(0))
    assert float(value) < float(fake_class_maximum(LABELLED, DATA, DATA.flip(0))) - 0.01


def test_a_point_without_data_has_no_twin() -> None:
    with pytest.raises(ValueError, match="infinity"):
        twin(torch.zeros(2, 2), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))


# Lemma 2 and Corollary 2 -------------------------------------------------------------------------------------------


def test_the_bound_of_lemma_2_is_reached_by_no_more_than_the_generated_logit() -> None:
    """w = (3, 4), C = 5. Next to a generated point of logit −0 lies, 2 further along w, one of logit 10 = C·ε."""
    weights = torch.tensor([[3.0, 4.0], [-1.0, 0.0]]).double()
    generated = torch.tensor([[-3e-12, -4e-12]]).double()
    support = torch.cat([generated, torch.tensor([[1.2, 1.6]]).double()])
    found = cover(weights, support, generated)
    assert found.norm == 5.0
    assert found.bound == pytest.approx(10.0)
    assert 10.0 - 1e-9 < found.largest < found.bound


def test_with_ever_more_generated_points_no_class_is_believed_in() -> None:
    """Of all directions of w that are negative on the generated points, the largest logit on the support falls to 0."""
    angles = torch.arange(3600).double() / 3600 * 2 * math.pi
    directions = 2.0 * torch.stack([angles.cos(), angles.sin()], 1)
    lattice = torch.linspace(-1, 1, 1001).double()
    support = torch.stack([lattice, torch.ones_like(lattice)], 1)
    largest = []
    for number in (2, 4, 8, 16, 1000):
        places = (torch.arange(number).double() + 0.5) / number * 2 - 1
        generated = torch.stack([places, torch.ones_like(places)], 1)
        negative = directions[(directions @ generated.T < 0).all(1)]
        found = cover(negative, support, generated)
        assert found.radius == pytest.approx(1 / number, rel=1e-2)
        assert found.largest < found.bound
        largest.append(found.largest)
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > 0.5  # with few points it is positive: the bound is needed
    assert largest[-1] < 4e-3


# Proposition 5 -----------------------------------------------------------------------------------------------------


def line(*places: float) -> Tensor:
    """Points of a line, with a constant coordinate."""
    return torch.tensor([[place, 1.0] for place in places]).double().view(-1, 2)


# F₁ = {−3, −2}, F₂ = {1, 2, 3}; what lies between is generated, and one point of each class is labelled.
LINE = FeatureSpace([line(-3, -2), line(1, 2, 3)], [line(-3), line(3)], line(-1, -0.5, 0, 0.5))
INTEGERS = torch.cartesian_prod(torch.arange(-4, 5), torch.arange(-4, 5)).double()

# A triangle with a class in each corner. The generator has what lies between, on a lattice of half the width.
CORNERS = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]).double()


def lattice(width: float) -> tuple[list[Tensor], Tensor]:
    """The points of a triangle, by class, and those of none, each with a constant coordinate."""
    axis = torch.arange(0, 4 + width, width)
    points = torch.cartesian_prod(axis, axis, torch.ones(1)).double()
    x, y = points[:, 0], points[:, 1]
    points = points[x + y <= 4]
    x, y = points[:, 0], points[:, 1]
    inside = [x + y <= 1, x >= 3, y >= 3]
    return [points[rows] for rows in inside], points[~torch.stack(inside).any(0)]


def triangle() -> FeatureSpace:
    labelled = [torch.cat([corner, torch.ones(1).double()])[None] for corner in CORNERS]
    return FeatureSpace(lattice(1.0)[0], labelled, lattice(0.5)[1])


THIRDS = torch.cartesian_prod(torch.tensor([-3, 0, 3]), torch.tensor([-3, 0, 3]), torch.arange(-8, 9, 4)).double()


@pytest.mark.parametrize(("space", "candidates"), [(LINE, INTEGERS), (triangle(), THIRDS)], ids=["line", "triangle"])
def test_a_complement_generator_puts_every_boundary_where_there_is_no_data(
    space: FeatureSpace, candidates: Tensor
) -> None:
    """Of all weights on a lattice, each that meets Assumption 1 is right everywhere, and some do."""
    assert space.separated()
    found = space.discriminators(candidates)
    assert len(found) > 0
    assert bool(space.correct(found).all())


def test_the_boundary_of_the_line_by_hand() -> None:
    """Logits −f − 1.75 and f − 0.75: both negative from −1.75 to 0.75, where no data are, and equal at −½."""
    weights = torch.tensor([[[-1.0, -1.75], [1.0, -0.75]]]).double()
    assert [bool(holds) for holds in LINE.conditions(weights)] == [True, True, True]
    assert bool(LINE.correct(weights))


def test_equal_logits_are_not_correct() -> None:
    assert not bool(LINE.correct(torch.ones(1, 2, 2).double()))


def test_what_is_generated_beyond_the_classes_does_not_separate_them() -> None:
    assert not FeatureSpace(LINE.classes, LINE.labelled, line(-10, 10)).separated()


@pytest.mark.parametrize("dropped", ["generated", "unlabelled"])
def test_without_a_condition_some_discriminators_are_wrong(dropped: str) -> None:
    """(2) and (3) are each needed. On this line (2) and (3) imply (1) up to exchanging classes."""
    found = LINE.discriminators(INTEGERS, drop=dropped)
    assert not bool(LINE.correct(found).all())
    assert bool(LINE.conditions(found).labelled.all())


def test_a_generator_that_misses_a_gap_leaves_a_boundary_inside_a_class() -> None:
    """Collapsed near the first corner, it says nothing of what lies between the other two."""
    space = triangle()
    near = space.generated[:, :2].sum(1) <= 2
    collapsed = FeatureSpace(space.classes, space.labelled, space.generated[near])
    assert not collapsed.separated()
    candidates = torch.cartesian_prod(torch.arange(-3, 4), torch.arange(-3, 4), torch.arange(-8, 9, 4)).double()
    right = collapsed.correct(collapsed.discriminators(candidates))
    assert bool(right.any())
    assert not bool(right.all())


def test_classes_without_labels_may_be_taken_for_each_other() -> None:
    space = triangle()
    one_labelled = FeatureSpace(
        space.classes, [space.labelled[0], space.labelled[1][:0], space.labelled[2][:0]], space.generated
    )
    assert not one_labelled.separated()
    found = one_labelled.discriminators(THIRDS)
    exchanged = found[:, [0, 2, 1]]
    assert int(space.correct(found).sum()) == int(space.correct(exchanged).sum()) == len(found) / 2


def test_classes_that_touch_have_no_discriminator_forced_to_be_right() -> None:
    """F₁ = {−2, −1, 0}, F₂ = {1, 2}, nothing between them: without a margin a boundary may run through F₁."""
    touching = FeatureSpace([line(-2, -1, 0), line(1, 2)], [line(-2), line(2)], line())
    assert not touching.separated()
    assert not bool(touching.correct(touching.discriminators(INTEGERS)).all())


def test_what_is_believed_to_be_fake_is_convex() -> None:
    """Lemma 3: a class between two others would need negative logits on both its sides and a positive one within."""
    between = FeatureSpace([line(-4), line(0), line(4)], [line(-4), line(0), line(4)], line(-2, 2))
    assert between.separated()
    assert len(between.discriminators(INTEGERS)) == 0


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(ValueError, match="labelled, generated, unlabelled"):
        LINE.discriminators(INTEGERS, drop="margin")
