"""While the tests run, wrong shapes, dtypes and types are errors, in arguments and in results."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from jaxtyping import Bool, Float, Int, Shaped, TypeCheckError, config
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo
from torch import Tensor

from ebar.maths.log_space import effective_sample_size
from ebar.types import Sequences, Space
from tests.quick_shapes import is_instance, original, plan_of
from tests.shape_checks import checked, checker

if TYPE_CHECKING:
    from ebar.recipes.recipe import Recipe as Unknown

Same = TypeVar("Same", bound=Float[Tensor, " n"])
wrong = pytest.raises(TypeCheckError)
check: Callable[[Any], Any] = checked(typechecker=checker)


@check
def scaled(x: Float[Tensor, "rows columns"], by: Float[Tensor, " rows"], *, columns: int = 1) -> Float[Tensor, " rows"]:
    return (x * by[:, None])[:, :columns].squeeze(1)


def test_axes_of_one_name_have_one_size_in_arguments_and_result() -> None:
    assert scaled(torch.ones(3, 2), torch.ones(3)).shape == (3,)
    assert scaled(torch.ones(4, 2), torch.ones(4)).shape == (4,)  # a new call, new sizes
    for x, by in [((3, 2), (1,)), ((3, 2, 1), (3,)), ((3,), (3,))]:
        with wrong:
            scaled(torch.ones(x), torch.ones(by))
    with wrong:
        scaled(torch.ones(3, 2), torch.ones(3).long())
    with wrong:
        scaled(torch.ones(3, 2), torch.ones(3), columns=2)  # [3, 2], not [3]
    with wrong:
        scaled(torch.ones(3, 2), torch.ones(3), columns=1.0)
    assert scaled(torch.ones(3, 2), torch.ones(3)).shape == (3,)  # nothing is left of the calls that failed


def test_a_call_inside_another_has_sizes_of_its_own() -> None:
    @check
    def outer(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "columns rows"]:
        scaled(x.T, torch.ones(x.shape[1]))
        return x.T if x.shape[0] < 5 else x

    assert outer(torch.ones(3, 2)).shape == (2, 3)
    with wrong:
        outer(torch.ones(5, 2))


def test_shapes_are_found_inside_other_types() -> None:
    @check
    def deep(pairs: list[tuple[int, Float[Tensor, " n"] | None]], like: Same) -> Same:
        return like

    assert deep([(1, torch.ones(3))], torch.ones(3)).shape == (3,)
    with wrong:
        deep([(1, torch.ones(2))], torch.ones(3))

    @check
    def from_size(rows: int, x: Float[Tensor, " {rows}"]) -> None: ...

    from_size(3, torch.ones(3))
    with wrong:
        from_size(2, torch.ones(3))


def test_a_star_stands_for_the_same_axes_everywhere() -> None:
    @check
    def over(x: Float[Tensor, "first *rows last"], y: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows last"]:
        return x[0] if len(x) < 5 else x[:2]

    @check
    def square(x: Float[Tensor, "n n"], y: Float[Tensor, "n 2"] | None = None) -> None: ...

    for _ in range(2):
        for rows in ((), (3,), (3, 4)):
            assert over(torch.ones(2, *rows, 4), torch.ones(rows)).shape == (*rows, 4)
        for x, y in [((2, 3, 4), (1,)), ((2, 3, 4), ()), ((2, 3, 4), (3, 4)), ((2,), (2,)), ((6, 3, 4), (3,))]:
            with wrong:
                over(torch.ones(x), torch.ones(y))
        with wrong:
            over(torch.ones(2, 3, 4).long(), torch.ones(3))
        with wrong:
            over(torch.ones(2, 3, 4), [1.0, 1.0, 1.0])
        square(torch.ones(3, 3), torch.ones(3, 2))
        for x, y in [((3, 2), (3, 2)), ((3, 3), (3, 3)), ((3, 3), (2, 2))]:
            with wrong:
                square(torch.ones(x), torch.ones(y))


def test_what_does_not_fit_leaves_no_sizes_behind() -> None:
    @check
    def either(x: Float[Tensor, "rows columns"] | Float[Tensor, "columns rows"], y: Float[Tensor, " rows"]) -> None: ...

    @check
    def both(
        y: Float[Tensor, " rows"], x: Float[Tensor, "new rows"] | Float[Tensor, "rows new"]
    ) -> Float[Tensor, " new"]:
        return torch.ones(x.shape[1])

    for _ in range(2):
        either(torch.ones(3, 2), torch.ones(3))
        both(torch.ones(3), torch.ones(3, 2))  # the first of the two would have made `new` 3


AXES = [
    "",
    "n",
    "n m",
    "m n",
    "n n",
    "n 2",
    "_ n",
    "*rows",
    "*rows n",
    "n *rows",
    "n *rows m",
    "...",
    "... n",
    "*#rows",
    "#n",
]
KINDS = (Float, Int, Bool, Shaped)
ANNOTATIONS = [kind[array, axes] for kind in KINDS for array in (Tensor, np.ndarray) for axes in AXES]
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
TENSORS = st.builds(torch.zeros, st.lists(st.integers(1, 2), max_size=3), dtype=DTYPES)
ARRAYS = TENSORS.filter(lambda x: x.dtype != torch.bfloat16).map(lambda x: x.numpy())  # which NumPy has not
THINGS = TENSORS | ARRAYS | st.just([1.0])


@given(st.lists(st.tuples(st.sampled_from(ANNOTATIONS), THINGS), max_size=6))
@example([(Int[Tensor, "*#rows"], torch.tensor([0])), (Shaped[np.ndarray, "n *rows m"], np.zeros((1, 1)))])
def test_the_quick_answer_is_jaxtypings_own_and_so_is_what_is_remembered(asked) -> None:
    answers = []
    for ask in (original, is_instance):
        push_shape_memo({})
        try:
            answers.append([(ask(kind, thing), [{**part} for part in get_shape_memo()]) for kind, thing in asked])
        finally:
            pop_shape_memo()
    assert answers[0] == answers[1]


def test_most_annotations_have_a_quick_answer() -> None:
    assert [axes for axes in AXES if plan_of(Float[Tensor, axes]) is None] == ["*#rows", "#n"]


def test_functions_made_anew_are_checked_and_remember_what_is_around_them() -> None:
    def made(kind: type, factor: float) -> Any:
        @check
        def inner(x: Float[Tensor, "rows columns"], by: Float[Tensor, " rows"], more: kind) -> Float[Tensor, " rows"]:  # type: ignore[valid-type]
            return (x * by[:, None])[:, 0] * factor

        @check
        def plain(x: int = 3) -> float:
            return x * factor

        return inner, plain

    for kind, factor, other in [(int, 2.0, "1"), (int, 3.0, "1"), (str, 4.0, 1)]:
        inner, plain = made(kind, factor)
        assert inner(torch.ones(3, 2), torch.ones(3), kind(1)).tolist() == [factor] * 3
        assert plain() == 3 * factor
        with wrong:
            inner(torch.ones(3, 2), torch.ones(2), kind(1))
        with wrong:
            inner(torch.ones(3, 2), torch.ones(3), other)
        with wrong:
            plain("1")


def test_dataclasses_methods_and_generators_are_checked() -> None:
    @check
    @dataclass(frozen=True)
    class Pair:
        tokens: Int[Tensor, "rows length"]
        lengths: Int[Tensor, " rows"]

        @classmethod
        @check
        def of(cls, rows: int) -> "Pair":
            return cls(torch.ones(rows, 2).long(), torch.ones(rows).long())

        @property
        @check
        def rows(self) -> int:
            return len(self.tokens) if len(self.tokens) < 4 else None  # type: ignore[return-value]

    assert Pair.of(3).rows == 3
    with wrong:
        Pair(torch.ones(3, 2).long(), torch.ones(2).long())
    with wrong:
        Pair.of("3")
    with wrong:
        assert Pair.of(4).rows

    @check
    def each(x: Float[Tensor, " rows"]) -> Iterator[float]:
        yield from x.tolist()

    assert list(each(torch.ones(2))) == [1, 1]
    with wrong:
        each(torch.ones(2, 2))


def test_a_name_that_only_types_know_may_be_anything_and_signatures_stay() -> None:
    @check
    def given(this: "Unknown", that: int = 2, *more: int, last: str = "z", **others: float) -> "int":
        """What it does."""
        return that if this else "no"  # type: ignore[return-value]

    assert given(object(), 4, 5, last="y", other=1.0) == 4
    assert given.__doc__ == "What it does."
    assert list(inspect.signature(given).parameters) == ["this", "that", "more", "last", "others"]
    calls: list[tuple[Any, ...]] = [(None,), (1, "2"), (1, 2, "3")]
    for arguments in calls:
        with wrong:
            given(*arguments)
    for options in ({"last": 1}, {"other": ""}):
        with wrong:
            given(1, **options)


def test_shapes_are_not_checked_where_jaxtyping_is_told_so() -> None:
    assert not config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        assert scaled(torch.ones(3, 2), torch.ones(1)).shape == (3,)
    finally:
        config.update("jaxtyping_disable", False)
    with wrong:
        scaled(torch.ones(3, 2), torch.ones(1))


def test_ebars_own_functions_and_dataclasses_are_checked() -> None:
    with wrong:
        effective_sample_size(torch.ones(3).long())
    with wrong:
        Space("3", 5)  # type: ignore[arg-type]
    with wrong:
        Sequences(torch.ones(3, 2).long(), torch.ones(3).long()).select(torch.ones(3))  # whole numbers, or bits
