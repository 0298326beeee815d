"""Tables of things that can be chosen by name."""

import pytest

from ebar.errors import UserError
from ebar.tables import Table


class Doubled:
    """Twice a number.

    More about it.
    """

    def __init__(self, number: int, *, times: int = 2):
        if times < 1:
            raise ValueError("times must be 1 or more")
        self.result = number * times


def test_an_entry_is_made_of_its_options_and_of_what_others_provide() -> None:
    table: Table[type[Doubled]] = Table("doubling", {}, given=("number",))
    table["doubled"] = Doubled
    assert table.make("doubled", {"times": 3}, number=5).result == 15
    assert table.help("doubled") == "Twice a number."


def test_an_unknown_entry_is_an_error_that_lists_the_real_ones() -> None:
    with pytest.raises(UserError, match=r"There is no doubling called 'trebled': choose one of doubled\."):
        Table("doubling", {"doubled": Doubled}).choose("trebled")


def test_a_value_that_an_entry_refuses_is_a_users_error() -> None:
    with pytest.raises(UserError, match=r"The doubling doubled cannot be made: times must be 1 or more\."):
        Table("doubling", {"doubled": Doubled}).make("doubled", {"times": 0}, number=1)
