"""Next words under q and under the joint model, against enumeration."""

import math

import pytest
import torch

from ebar.errors import UserError
from ebar.evaluation.next_words import next_words
from ebar.types import Space
from tests.estimators.exact_per_step import exact_per_step
from tests.estimators.residual import ENDED, FIXED, Residual, conditions, residual

SPACES = {"fixed": FIXED, "ended": ENDED, "one token": Space(4, 1)}


def truth(small: Residual, row: int) -> torch.Tensor:
    context = conditions(torch.tensor([row]))
    x = small.everything.select(torch.tensor([0]))
    return exact_per_step(small.q, small.energy, x, context).next_log_probs[0, 0].exp()


@pytest.mark.parametrize("candidates", [2, 50])
@pytest.mark.parametrize("space", SPACES)
def test_words_tend_to_the_exact_marginal(space: str, candidates: int, generator):
    # 2,000 futures a word: relative errors of about 1.3/√2,000 = 0.03 at most of p·(1 − p).
    small = residual(SPACES[space])
    for row in range(3):
        context = conditions(torch.tensor([row]))
        found = next_words(small.q, small.energy, context, candidates=candidates, n=2000, generator=generator)
        exact, base = truth(small, row), small.q.start(1, context)[0][0].softmax(-1)
        for word in found.words:
            assert word.base == pytest.approx(float(base[word.token]))
            assert word.joint.value == pytest.approx(float(exact[word.token]), abs=0.03)
        total = sum(word.joint.value for word in found.words)
        if candidates == 2:
            assert found.rest is not None
            assert found.rest.token == -1
            named = [word.token for word in found.words]
            assert named == [word.token for word in found.under_joint()]
            assert found.rest.base == pytest.approx(1 - float(base[named].sum()))
            assert found.rest.joint.value == pytest.approx(1 - float(exact[named].sum()), abs=0.03)
            total += found.rest.joint.value
        else:
            assert found.rest is None
            assert len(found.words) == SPACES[space].vocabulary
        assert total == pytest.approx(1.0, abs=1e-9)
        assert [word.base for word in found.under_base()] == sorted((word.base for word in found.words), reverse=True)
        joint = [word.joint.value for word in found.under_joint()]
        assert joint == sorted(joint, reverse=True)


def test_intervals_cover_the_exact_probabilities(generator, monkeypatch):
    # 5 words and, with 3 candidates, 3 and the rest: 100 runs of each. The words of a run hang together; were they one,
    # a coverage of 0.95 would have a standard error of 0.022: 0.87 is nearly 4 below.
    monkeypatch.setattr("ebar.evaluation.next_words.diagnose", lambda log_weights: [None] * len(log_weights))
    small = residual(Space(5, 2))
    exact, context = truth(small, 1), conditions(torch.tensor([1]))
    for candidates in (3, 5):
        covered = words = 0
        for _ in range(100):
            found = next_words(small.q, small.energy, context, candidates=candidates, n=60, generator=generator)
            for word in found.words:
                covered += word.joint.low <= float(exact[word.token]) <= word.joint.high
                words += 1
            if found.rest is not None:
                left = 1 - float(exact[[word.token for word in found.words]].sum())
                covered += found.rest.joint.low <= left <= found.rest.joint.high
                words += 1
        assert 0.87 <= covered / words <= 0.995, (candidates, covered / words)


def test_a_word_that_the_energy_forbids(generator):
    small = residual(Space(3, 2), rows=1)
    everything = small.everything
    small.energy.table[0, small.energy.index(everything)[everything.tokens[:, 0] == 1]] = math.inf
    found = next_words(small.q, small.energy, n=50, generator=generator)
    forbidden = next(word for word in found.words if word.token == 1)
    assert forbidden.joint.value == 0
    assert forbidden.joint.high == 1
    assert forbidden.joint.warning is not None
    assert "weight zero" in forbidden.joint.warning
    assert sum(word.joint.value for word in found.words) == pytest.approx(1.0)


def test_what_cannot_be_asked_for(generator):
    small = residual(FIXED)
    with pytest.raises(UserError, match="those of one prefix: give one, not 3"):
        next_words(small.q, small.energy, small.context, generator=generator)
    with pytest.raises(UserError, match="two futures"):
        next_words(small.q, small.energy, n=1, generator=generator)


@pytest.mark.parametrize("candidates", [3, 50])
def test_what_is_not_shown_is_the_remainder(candidates: int, generator):
    small = residual(Space(5, 2))
    context = conditions(torch.tensor([1]))
    found = next_words(small.q, small.energy, context, candidates=candidates, n=4000, generator=generator)
    exact = truth(small, 1)
    for shown in (found.under_base(2), found.under_joint(2), found.words[:1]):
        others = found.others(shown)
        assert others is not None
        named = [word.token for word in shown]
        assert others.base == pytest.approx(1 - sum(word.base for word in shown))
        assert others.joint.value == pytest.approx(1 - sum(word.joint.value for word in shown))
        assert others.joint.value == pytest.approx(1 - float(exact[named].sum()), abs=0.03)
        assert others.joint.low < others.joint.value < others.joint.high
        assert others.joint.high - others.joint.low < 0.15
    everything = found.others([*found.words, *([found.rest] if found.rest else [])])
    assert everything is None
    if found.rest is not None:
        assert found.others(found.words) == found.rest


def test_an_energy_that_forbids_everything_is_refused(generator):
    small = residual(Space(3, 2))

    def forbidden(x, context=None):
        return torch.full((len(x.lengths),), math.inf, dtype=torch.float64)

    with pytest.raises(UserError, match="no next word can be told"):
        next_words(small.q, forbidden, conditions(torch.tensor([0])), n=5, generator=generator)
