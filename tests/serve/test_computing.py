"""What the playground computes, held against numbers that are known: no page, no browser."""

import math
from typing import Any

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.exact import log_z as exact_log_z
from ebar.features.regular import Motif
from ebar.journeys.control.constraints import Constraints
from ebar.models.tilted import Tilted
from ebar.serve import render, tilting
from ebar.serve.allowance import Allowance, StoppedError
from ebar.serve.found import Asked, Found, Part, Progress
from ebar.serve.limits import Limits
from ebar.serve.playground import Playground
from ebar.serve.tilting import constrained, energised, parts_joint
from ebar.types import Space
from tests.serve.models import InMemory, Slow, coin, opened, residual

HOUR = 3600.0
PATIENT = Limits(seconds=HOUR)


def answer(asked: Asked, model=None, limits: Limits = PATIENT) -> Found:
    *_, found = constrained(opened(model or coin(3)), asked, limits, Allowance(HOUR))
    assert isinstance(found, Found)
    return found


def by_text(found: Found) -> dict[str, Any]:
    return {word.text: (word.q, word.p.value) for word in found.words}


def test_three_of_eight_strings_have_two_a_in_a_row():
    # aaa, aab, baa: Z = 3/8, and two of the three begin with a.
    found = answer(Asked(name="coin", constraints="motif:aa=1", length=3))
    assert found.log_z.is_exact
    assert found.log_z.value == pytest.approx(math.log(3 / 8))
    assert by_text(found) == {"a": (0.5, pytest.approx(2 / 3)), "b": (0.5, pytest.approx(1 / 3))}
    assert found.effective is None
    assert found.moments[0].q.value == pytest.approx(3 / 8)
    assert found.moments[0].p.value == 1
    assert found.knobs == []
    assert {one.energy for one in found.candidates} == {0.0, math.inf}


def test_half_of_the_strings_takes_a_coefficient_of_log_5_3():
    found = answer(Asked(name="coin", constraints="motif:aa=0.5", length=3))
    (knob,) = found.knobs
    assert knob.at == pytest.approx(math.log(5 / 3), abs=1e-4)  # 3·e^λ = 5, but for a weak prior
    for coefficient in (0.0, 1.0, -2.0):
        odds = 3 * math.exp(coefficient) / 5
        assert found.cloud.moment(knob, coefficient).value == pytest.approx(odds / (1 + odds))
    assert "0.375" in render.curve(found, 0, 0.0)


def test_drawn_figures_agree_with_the_exact_ones(monkeypatch):
    monkeypatch.setattr(tilting, "ENUMERATED", 0)
    found = answer(Asked(name="coin", constraints="motif:aa=1\nmotif:bb=0.5", length=5, draws=400), coin(5))
    assert found.effective is not None
    assert not found.log_z.is_exact
    constraints = Constraints.of([(Motif("aa"), 1), (Motif("bb"), 0.5)], opened(coin(5)).reading)
    energy = Linear(constraints.counted, torch.tensor([-math.inf, found.knobs[0].at], dtype=torch.float64))
    truth = exact_log_z(Tilted(coin(5), energy)).item()
    # Half-widths of 95 % times 2.3 are 4.5 standard errors: one false alarm in 150,000 seeds.
    assert abs(found.log_z.value - truth) < 2.3 * (found.log_z.high - found.log_z.low) / 2
    texts = [text for text, share in zip(found.cloud.texts, found.cloud.shares.tolist(), strict=True) if share > 0]
    assert all("aa" in text for text in texts)
    assert sum(word.p.value for word in found.words) == pytest.approx(1)


def test_a_longer_text_may_be_asked_for_than_can_be_summed_over():
    found = answer(Asked(name="coin", length=12, draws=50), coin(12))
    assert found.log_z.is_exact  # p is q
    assert len(found.cloud.texts) == 50
    assert by_text(found) == {"a": (0.5, 0.5), "b": (0.5, 0.5)}


@pytest.mark.parametrize("space", [Space(2, 4), Space(3, 5, 2)])
def test_what_tokens_add_telescopes_to_the_energy(space):
    model = coin(4, space)
    found = answer(Asked(name="coin", constraints="motif:ab=0.4\nmotif:bb=0.7", length=5), model)
    sums = [math.fsum(part.value for part in one.parts) + one.energy for one in found.candidates]
    assert sums == pytest.approx([sums[0]] * len(sums))  # −log h₀, whatever the text
    longest = max(found.candidates, key=lambda one: one.share)
    assert "".join(part.text for part in longest.parts).removesuffix("[end]") in found.cloud.texts


def test_a_token_after_which_nothing_wanted_can_come_is_minus_infinity():
    found = answer(Asked(name="coin", constraints="starts_with:ab=1", length=3))
    assert found.parts is not None
    values = [part.value for part in found.parts("aab", Allowance(HOUR))]
    assert values == [pytest.approx(math.log(2)), -math.inf, 0.0]
    assert "−∞" in render.text(found.parts("aab", Allowance(HOUR)), found)


def test_an_energy_of_the_first_token():
    # q is even, E(b…) = log 2: p(a) = 2/3, Z = 3/4.
    *_, found = energised(residual(2), Asked(name="energy", draws=400), PATIENT, Allowance(HOUR))
    assert isinstance(found, Found)
    assert abs(found.log_z.value - math.log(0.75)) < 2.3 * (found.log_z.high - found.log_z.low) / 2
    assert by_text(found) == {"a": (0.5, pytest.approx(2 / 3)), "b": (0.5, pytest.approx(1 / 3))}
    (knob,) = found.knobs
    assert knob.at == 1
    assert found.cloud.moment(knob, 0.0).value == pytest.approx(found.moments[0].q.value)
    assert found.cloud.moment(knob, 1.0).value == pytest.approx(found.moments[0].p.value)


def test_tokens_under_an_energy_sum_to_what_the_whole_text_gains():
    parts = parts_joint(residual(3), "", "abb", 64, 0, Allowance(HOUR))
    assert [part.text for part in parts] == ["a", "b", "b"]
    assert [part.value for part in parts[1:]] == pytest.approx([0.0, 0.0])  # the first token has decided it
    assert parts[0].value == pytest.approx(math.log(4 / 3), abs=0.3)  # from 16 futures


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(name="coin", prompt="a" * 3000), "The prompt has 3,000 characters"),
        (Asked(name="coin", constraints="motif:a=1\n" * 300), "The constraints has 3,000 characters"),
        (Asked(name="coin", draws=10**9), "Draws: a number from 50 to 2,000"),
        (Asked(name="coin", draws=None), "Draws: a number from 50 to 2,000 is needed here, not nothing"),
        (Asked(name="coin", length=float("nan")), "Tokens of a text: a number"),
        (
            Asked(name="coin", constraints="\n".join(f"motif:{'a' * n}=1" for n in range(1, 9))),
            "There are 8 constraints",
        ),
        (Asked(name="coin", constraints="predicate:/etc/passwd.py:f=1"), "is none of word, expression"),
        (Asked(name="coin", constraints="classifier:/tmp:1=0.5"), "is none of word, expression"),
        (Asked(name="coin", constraints="motif:a"), "must end in =MOMENT"),
        (Asked(name="coin", constraints="motif:a=7"), "must end in =MOMENT"),
        (Asked(name="coin", constraints="expression:(a=1"), "never closed"),
        (Asked(name="coin", constraints="motif:xyz=1"), "x"),
        (Asked(name="nowhere"), "There is no model called 'nowhere'"),
        (Asked(name="energy", constraints="motif:a=1"), "an energy of its own"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(asked, said):
    energy = opened(coin(2))
    shelf = InMemory(
        coin=opened(coin(3)), energy=type(energy)(model=energy.model, reading=energy.reading, residual=residual(2))
    )
    playground = Playground(shelf, PATIENT)
    with pytest.raises(UserError) as refused:
        list(playground.compute("me", asked))
    assert said in str(refused.value)
    assert playground.busy == 0


def test_constraints_that_would_fill_the_memory_are_refused_before_they_are_made():
    asked = Asked(name="coin", constraints="expression:a(a|b){9}a=1\nexpression:b(a|b){9}b=1", length=14)
    with pytest.raises(UserError, match="more than a request may have"):
        answer(asked, coin(14), Limits(seconds=HOUR, memory=4.0))


def test_the_time_is_up_for_whoever_asks_too_late():
    now = [0.0]
    allowance = Allowance(5.0, clock=lambda: now[0])
    allowance.check()
    now[0] = 5.1
    with pytest.raises(UserError, match="more than 5 seconds"):
        allowance.check()
    allowance.renew()
    allowance.check()
    allowance.stop()
    with pytest.raises(StoppedError):
        allowance.check()


def test_a_request_past_its_time_is_ended():
    steps = constrained(opened(coin(12)), Asked(name="coin", length=12), PATIENT, allowance := Allowance(HOUR))
    assert isinstance(next(steps), Progress)
    allowance.clock = lambda: math.inf
    with pytest.raises(UserError, match="fewer draws"):
        list(steps)


def test_a_stopped_request_takes_no_further_step_of_the_model():
    model = Slow(12)
    model.gate.set()
    playground = Playground(InMemory(slow=opened(model)), PATIENT)
    steps = playground.compute("me", Asked(name="slow", length=12, draws=500))
    next(step for step in steps if isinstance(step, Progress) and step.done)
    before = model.steps
    assert before > 0
    playground.stop("me")
    with pytest.raises(StoppedError):
        list(steps)
    assert model.steps == before
    assert playground.busy == 0


def test_a_request_that_nobody_waits_for_is_given_up():
    playground = Playground(InMemory(coin=opened(coin(12))), PATIENT)
    steps = playground.compute("me", Asked(name="coin", length=12))
    next(steps)
    assert playground.busy == 1
    steps.close()
    assert playground.busy == 0


def test_only_so_many_results_and_models_are_kept():
    shelf = InMemory(**{str(size): opened(coin(size)) for size in (2, 3, 4)})
    playground = Playground(shelf, Limits(seconds=HOUR, users=2, models=2))
    for user, size in enumerate((2, 3, 4)):
        list(playground.compute(f"user {user}", Asked(name=str(size), length=size, draws=50)))
    with pytest.raises(UserError, match="press Compute first"):
        playground.result("user 0")
    assert playground.result("user 1").asked.name == "3"  # each has their own
    assert playground.result("user 2").asked.name == "4"
    with pytest.raises(UserError, match="give a constraint first"):
        playground.parts("user 2", "ab")


def test_words_of_users_and_models_are_escaped():
    shown = render.coloured([Part("<script>alert(1)</script>", 1.0), Part("&", -1.0)])
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert render.sentence("<b>") == '<p class="note" role="status">&lt;b&gt;</p>'


def test_nothing_has_no_sign():
    assert [render.number(value, 2) for value in (-0.001, 0.0, -0.0, -0.011, 1.5)] == ["0.00"] * 3 + ["−0.01", "1.50"]
