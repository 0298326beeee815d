"""A language on the page: all of it exact."""

import numpy as np
import pytest

from ebar.errors import UserError
from ebar.serve import render
from ebar.serve.languages import describe
from ebar.serve.limits import Limits


def described(**asked):
    usual = {"motif": "11", "expression": "", "length": 3, "alphabet": "01", "presence": 1.0, "prefix": ""}
    return describe(**{**usual, **asked}, limits=Limits())


def test_three_strings_of_three_bits_have_two_ones_in_a_row():
    found = described()  # 011, 110, 111
    assert [(one.symbol, one.noise, one.language) for one in found.following] == [
        ("0", 0.5, pytest.approx(1 / 3)),
        ("1", 0.5, pytest.approx(2 / 3)),
    ]
    assert found.figures["strings"] == 3
    expected = np.array([[1, 0, 0], [1 / 3, 2 / 3, 0], [0, 1 / 3, 2 / 3], [0, 0, 1]])
    np.testing.assert_allclose(found.reached, expected, atol=1e-12)
    after = described(prefix="1")
    assert after.state == 1
    assert [(one.symbol, one.language) for one in after.following if one.language] == [("1", pytest.approx(1))]


def test_presence_is_the_share_that_ends_where_the_automaton_accepts():
    found = described(motif="101", length=9, presence=0.3)
    np.testing.assert_allclose(found.reached.sum(1), 1)
    assert found.reached[-1][found.automaton.accepting.numpy()].sum() == pytest.approx(0.3)


def test_the_page_shows_the_automaton_and_where_a_prefix_leads():
    page = render.language(described(prefix="1"))
    assert 'aria-label="automaton with 3 states"' in page
    assert page.count('<circle class="at"') == 1
    assert "<title>state 2 after 3: 1.000000</title>" in page
    large = render.language(described(motif="", expression="(0|1)*1(0|1){5}", length=8))
    assert "too many to draw" in large


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"expression": "0*"}, "one of the two"),
        ({"motif": ""}, "one of the two"),
        ({"prefix": "12"}, "no symbol of the alphabet"),
        ({"prefix": "00"}, "No string of this language begins with '00'"),
        ({"length": 10**6}, "a number from 1 to 100"),
        ({"alphabet": "abcdefghijklmnopqrstuvwxyz"}, "1 to 12 symbols"),
        ({"presence": None}, "a share from 0 to 1"),
        ({"motif": "1111"}, "does not fit"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(asked, said):
    with pytest.raises(UserError) as refused:
        described(**asked)
    assert said in str(refused.value)
