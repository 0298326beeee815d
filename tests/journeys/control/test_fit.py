"""λ, moments, weights and effective samples, against every text that a tiny model can make."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.build.control import fit_control, open_control, read_constraints
from ebar.config.control import ControlConfig
from ebar.config.reader import to_yaml
from ebar.errors import UserError
from ebar.estimators.divergences import kl_from_model, kl_to_model
from ebar.estimators.effective_samples import effective_samples, same_draws
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Features
from ebar.journeys.control.constraints import Constraints
from ebar.journeys.control.controlled import Controlled
from ebar.maths.enumeration import all_sequences
from ebar.models.pretrained import Pretrained
from ebar.models.truncated import Prompted
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import ScoredDraws, draw_scored, guided
from ebar.samplers.surrogate import Uniform
from ebar.training.moment_matching.newton import Newton
from ebar.types import Context, Sequences

MUST, HALF = "expression:abc=1", "expression: =0.5"
By = Callable[..., Controlled]


def everything(controlled: Controlled) -> tuple[Sequences, Tensor]:
    """Every text, and its log-probability under q."""
    x = all_sequences(controlled.q.space)
    with torch.no_grad():
        log_q = controlled.q.log_prob(x).double()
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-5)
    return x, log_q


def exactly(controlled: Controlled) -> tuple[Sequences, Tensor, Tensor]:
    """Every text, log q, and log p."""
    x, log_q = everything(controlled)
    log_p = log_q - controlled.p.energy(x).double()
    return x, log_q, log_p - torch.logsumexp(log_p, 0)


def test_texts_are_what_tokens_spell(controlled_by: By) -> None:
    controlled = controlled_by(MUST)
    x = Sequences(torch.tensor([[2, 3, 4, 5], [0, 1, 5, 0]]), torch.tensor([4, 3]))
    assert controlled.text(x) == ["ab c", "ab"]
    assert controlled.q.space.vocabulary == 6
    assert controlled.q.space.end == 5


def test_moments_by_hand(controlled_by: By) -> None:
    controlled = controlled_by("expression:abc=0.5")
    x, log_q = everything(controlled)
    found = dict(zip(controlled.text(x), log_q.exp().tolist(), strict=False))
    (has,) = controlled.constraints
    by_text = sum(p for text, p in zip(controlled.text(x), log_q.exp().tolist(), strict=True) if "abc" in text)
    assert len(found) < len(log_q)  # some texts have more than one spelling: their masses add up
    assert float(log_q.exp() @ has.feature(x)) == pytest.approx(by_text)


@pytest.mark.parametrize("terms", [(MUST,), (HALF,), (MUST, HALF), ("!word:a=0.7", "expression:c=0")])
def test_p_has_the_moments_wanted_and_intervals_cover_them(
    terms: tuple[str, ...], controlled_by: By, tmp_path: Path
) -> None:
    controlled = controlled_by(*terms)
    x, log_q, log_p = exactly(controlled)
    checked = controlled.check()
    # The exact λ, from all sequences; drawn ones have an interval of 95 %, doubled here.
    counted = Features([constraint.counted for constraint in controlled.constraints])
    for place, constraint in enumerate(controlled.constraints):
        name, values = constraint.feature.name, constraint.feature(x)
        truth, before = float(log_p.exp() @ values), float(log_q.exp() @ values)
        assert _doubled(checked.before[name], before)
        if constraint.pointwise:
            assert truth == pytest.approx(constraint.moment)
            assert controlled.fitted.coefficients[place] == -math.inf
            assert checked.after[name].is_exact
            assert checked.steered is not None
            assert checked.steered[name].value == constraint.moment  # every draw that looks ahead has it
        else:
            assert truth == pytest.approx(constraint.moment, abs=0.03)
            assert _doubled(checked.after[name], truth)
    if not all(constraint.pointwise for constraint in controlled.constraints):
        wanted = torch.tensor([c.counted_moment for c in controlled.constraints], dtype=torch.float64)
        exact = Newton(proposal="exact", hard=True).fit(
            controlled.q, counted, moments=wanted, generator=Generator().manual_seed(0)
        )
        for value, interval in zip(exact.coefficients.tolist(), controlled.fitted.intervals, strict=True):
            assert value == interval.value == -math.inf or _doubled(interval, value)
    log_z = float(torch.logsumexp(log_q - controlled.p.energy(x).double(), 0))
    assert _doubled(checked.log_z, log_z)
    assert _doubled(checked.kl_of_p_from_model, float((log_p.exp() * (log_p - log_q)).nan_to_num(0).sum()))


@pytest.mark.parametrize(
    "terms",
    [
        ("expression:  c=0.5",),  # of probability 1.0e-4
        ("expression:  b=0.5",),  # 1.3e-5
        ("!expression:c b=0.3",),  # all but 8.0e-5: every draw has it
        ("expression: c =0.5", "expression:b b=0.4"),  # 1.7e-4 and 2.3e-4, and no text has both
        ("expression:c=1", "expression:c b=0.5"),
    ],
)
def test_what_no_draw_of_q_shows_is_looked_ahead_to(terms: tuple[str, ...], controlled_by: By, tmp_path: Path) -> None:
    controlled = controlled_by(*terms, rows=100)
    x, _, log_p = exactly(controlled)
    checked = controlled.check()
    for constraint in controlled.constraints:
        truth = float(log_p.exp() @ constraint.feature(x))
        assert truth == pytest.approx(constraint.moment, abs=0.05)
        assert _doubled(checked.after[constraint.feature.name], truth)
    exact = Newton(proposal="exact", hard=True).fit(
        controlled.q,
        Features([constraint.counted for constraint in controlled.constraints]),
        moments=torch.tensor([constraint.counted_moment for constraint in controlled.constraints]),
        generator=Generator().manual_seed(0),
    )
    for value, interval in zip(exact.coefficients.tolist(), controlled.fitted.intervals, strict=True):
        assert value == interval.value == -math.inf or _doubled(interval, value)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (
            ("expression:aaaa=0.5",),
            "None of the 200 draws has 'text aaaa': give more --draws, or a commoner word.",
        ),
        (
            ("!expression:aaaa=0.5",),
            "Every one of the 200 draws has 'no text aaaa': give more --draws, or a rarer word.",
        ),
        (
            ("predicate:{file}:never=0.5",),
            "None of the 200 draws has 'never': give more --draws, or something commoner.",
        ),
        (
            ("predicate:{file}:never=1",),
            "None of the 200 draws has what must be in every text ('never'), and no automaton can look ahead to it: "
            "give more --draws, or a share between 0 and 1.",
        ),
        (
            ("predicate:{file}:never=1", "score:{file}:half=0.5"),
            "None of the 200 draws has what must be in every text ('never'), and no automaton can look ahead to it: "
            "give more --draws, or a share between 0 and 1.",
        ),
        (
            ("predicate:{file}:never=1", "expression:b=0"),
            "None of the 200 draws has what must be in every text ('never') and lacks what must be in none "
            "('text b'): give more --draws, or a share between 0 and 1.",
        ),
    ],
)
def test_what_is_never_seen_is_an_error_and_nothing_is_kept(
    terms: tuple[str, ...], sentence: str, controlled_by: By, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def never(text):\n    return False\n\ndef half(texts):\n    return [0.5 for _ in texts]\n")
    with pytest.raises(UserError) as raised:
        controlled_by(*(term.replace("{file}", str(path)) for term in terms), draws=200, folder=tmp_path)
    assert str(raised.value) == sentence
    assert not (tmp_path / "lambda.json").exists()


def test_fresh_draws_that_show_nothing_are_an_error(controlled_by: By, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def short(text):\n    return len(text) < 3\n")
    term = f"predicate:{path}:short=1"
    controlled_by(term, folder=tmp_path / "run", description="as before")
    path.write_text("def short(text):\n    return False\n")
    controlled = controlled_by(term, folder=tmp_path / "run", description="as before")
    with pytest.raises(UserError, match=r"None of the 2,000 draws has .* give more --checks"):
        controlled.check()


def _doubled(estimate: object, truth: float) -> bool:
    value, low, high = (getattr(estimate, end) for end in ("value", "low", "high"))
    return bool(2 * low - value - 1e-9 <= truth <= 2 * high - value + 1e-9)


def test_looking_ahead_weighs_exactly(controlled_by: By, tmp_path: Path) -> None:
    controlled = controlled_by(MUST, HALF)
    x, log_q, log_p = exactly(controlled)
    # One that foresees badly, so that the weights differ; of each batch of 125 draws 12 come from its defence.
    ahead = guided(controlled.p, surrogate=Uniform(), draws=100, generator=Generator().manual_seed(0))
    assert ahead.allowed is not None
    defence = Guided(ahead.base, ahead.states, *ahead.allowed)
    with torch.no_grad():
        laws = ((ahead, 113 / 125), (defence, 12 / 125))
        shares = [law.log_prob(x).double() + math.log(share) for law, share in laws]
        log_g = torch.logsumexp(torch.stack(shares), 0)
    log_weights = log_q - controlled.p.energy(x).double() - log_g
    reached = log_g > -math.inf
    assert float(log_g.exp().sum()) == pytest.approx(1, abs=1e-5)
    assert not bool((log_p[~reached] > -math.inf).any())  # nothing of p is out of its reach
    # Σ g·w = Z: properly weighted; and its draws have just these weights.
    log_z = torch.logsumexp(log_q - controlled.p.energy(x).double(), 0)
    assert float(torch.logsumexp((log_g + log_weights)[reached], 0)) == pytest.approx(float(log_z), abs=1e-5)
    drawn = draw_scored(
        controlled.p, 1000, ahead=ahead, features=controlled.features, rows=128,
        generator=Generator().manual_seed(1),
    )  # fmt: skip
    known = {tuple(x.prefix(row)): float(log_weights[row]) for row in range(len(log_weights))}
    for row, weight in enumerate(drawn.log_weights.tolist()):
        assert weight == pytest.approx(known[tuple(drawn.x.prefix(row))], abs=1e-4)
    # What the draws are worth is what enumeration says: (Σ g·w)² / Σ g·w².
    exact = float(torch.exp(2 * log_z - torch.logsumexp((log_g + 2 * log_weights)[reached], 0)))
    assert _doubled(effective_samples(drawn.log_weights, same_draws(drawn.x)).per_draw, exact)
    assert exact < 0.99
    plain = float(torch.exp(2 * log_z - torch.logsumexp(log_q - 2 * controlled.p.energy(x).double(), 0)))
    found = controlled.check().effective_samples_per_draw
    assert _doubled(found["the model"].per_draw, plain)
    assert found["looking ahead"].per_draw.low > 2 * plain
    assert found["the model"].distinct < found["the model"].draws == 2000  # of some hundred texts


def test_where_q_shows_nothing_of_what_is_wanted_looking_ahead_tells_what_its_draws_are_worth(
    controlled_by: By, tmp_path: Path
) -> None:
    controlled = controlled_by(HALF)
    x, log_q, _ = exactly(controlled)
    log_w = -controlled.p.energy(x).double()
    exact = float(torch.exp(2 * torch.logsumexp(log_q + log_w, 0) - torch.logsumexp(log_q + 2 * log_w, 0)))
    plain, ahead = (
        draw_scored(controlled.p, 1000, ahead=one, features=controlled.features, rows=500,
             generator=Generator().manual_seed(5))
        for one in (None, controlled.ahead)
    )  # fmt: skip
    without = (plain.values[:, 0] == 0).nonzero()[:, 0]
    few = ScoredDraws(plain.x.select(without), *(part[without] for part in plain[1:]))
    unknown = controlled.effective_samples(few)
    assert math.isnan(unknown.per_draw.value)
    assert (unknown.per_draw.low, unknown.per_draw.high) == (0, 1)
    assert "no draw has the feature" in str(unknown.per_draw.warning)
    told = controlled.effective_samples(few, beside=ahead, which="draws that look ahead")
    assert _doubled(told.per_draw, exact)
    assert "from draws that look ahead" in str(told.per_draw.warning)
    assert controlled.effective_samples(plain, beside=ahead).per_draw.warning is None


def test_divergences_agree_with_enumeration(controlled_by: By, tmp_path: Path) -> None:
    controlled = controlled_by(MUST, HALF)
    _, log_q, log_p = exactly(controlled)
    drawn = draw_scored(
        controlled.p, 2000, ahead=controlled.ahead, features=controlled.features, rows=2000,
        generator=Generator().manual_seed(2),
    )  # fmt: skip
    uniform = torch.full_like(drawn.log_g, -math.log(len(log_q)))
    there = log_p > -math.inf
    exact = float((log_p.exp() * (log_p + math.log(len(log_q))))[there].sum())
    assert _doubled(kl_to_model(drawn.log_weights, drawn.log_g, uniform), exact)
    plain = draw_scored(
        controlled.p, 2000, ahead=None, features=controlled.features, rows=2000,
        generator=Generator().manual_seed(3),
    )  # fmt: skip
    exact = float((log_q.exp() * (log_q + math.log(len(log_q)))).sum())
    assert _doubled(kl_from_model(plain.log_q, torch.full_like(plain.log_q, -math.log(len(log_q)))), exact)


def test_moments_weigh_or_not(reading: Reading) -> None:
    (has,) = Constraints.of(read_constraints([MUST]), reading)
    weights, values = torch.tensor([math.log(3.0), 0.0]).double(), torch.tensor([[1.0], [0.0]]).double()
    features = Features([has.feature])
    assert means_by_name(values, features, weights)[has.feature.name].value == pytest.approx(0.75)
    assert means_by_name(values, features)[has.feature.name].value == pytest.approx(0.5)


def test_a_prompt_is_a_context_that_is_always_there(controlled_by: By, model: Pretrained) -> None:
    controlled = controlled_by("word:c=1", prompt="ab", reads_prompt=True)
    assert controlled.fitted.coefficients.tolist() == [-math.inf]
    assert isinstance(controlled.q, Prompted)
    x, log_q = everything(controlled)
    context = Context(Sequences(torch.tensor([[2]]), torch.tensor([1])))
    with torch.no_grad():
        assert torch.allclose(log_q, model.log_prob(x, context).double(), atol=1e-5)
        drawn, log_prob = controlled.q.sample_with_log_prob(50, generator=Generator().manual_seed(0))
        assert torch.allclose(log_prob, model.log_prob(drawn, context), atol=1e-5)
    begun = read_constraints(["whole:ab.*=0.9"])
    (constraint,) = Constraints.of(begun, controlled.reading)
    assert bool((constraint.feature(x) == 1).all())  # the prompt has it already
    (constraint,) = Constraints.of(begun, controlled_by("word:c=1", prompt="ab").reading)
    assert float(constraint.feature(x).mean()) < 1
    with pytest.raises(UserError, match="already has its prompt"):
        controlled.q.start(1, context)
    assert controlled_by("word:c=1").q is model


def test_what_was_fitted_is_read_back(folder: Path, tmp_path: Path) -> None:
    asked = ControlConfig(
        model=str(folder), features=(HALF,), length=4, ends=True, draws=200, checks=100, surrogate_draws=50, rows=200
    )
    first = fit_control(asked, tmp_path)
    again = open_control(tmp_path)
    assert again.description == to_yaml(asked)
    assert torch.equal(again.fitted.coefficients, first.fitted.coefficients)
    checked = first.check(within=0.01)
    results = (tmp_path / "results.json").read_text()
    assert again.check(within=0.01) == checked
    assert (tmp_path / "results.json").read_text() == results
    assert again.check().budgets is None  # something else was asked for
    (tmp_path / "lambda.json").unlink()
    with pytest.raises(UserError, match="has no λ yet"):
        open_control(tmp_path)
    with pytest.raises(UserError, match="no folder of `ebar control fit`"):
        open_control(tmp_path / "nowhere")


PREDICATES = """
def short(text):
    return len(text) < 3

def share_of_a(texts):
    return [text.count("a") / max(1, len(text)) for text in texts]
"""


def test_predicates_and_scores_need_no_automaton(controlled_by: By, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PREDICATES)
    terms = (f"predicate:{path}:short=1", f"score:{path}:share_of_a=0.4")
    controlled = controlled_by(*terms)
    assert not controlled.foresees
    assert controlled.ahead is None
    x, _, log_p = exactly(controlled)
    texts = controlled.text(x)
    assert all(len(text) < 3 for text, p in zip(texts, log_p.exp().tolist(), strict=True) if p > 0)
    share = sum(p * text.count("a") / max(1, len(text)) for text, p in zip(texts, log_p.exp().tolist(), strict=True))
    assert share == pytest.approx(0.4, abs=0.1)  # a pool of 2,000, of which a third is short and few have an a
    checked = controlled.check()
    assert checked.steered is None
    assert list(checked.effective_samples_per_draw) == ["the model"]


@pytest.mark.parametrize(
    ("term", "sentence"),
    [
        ("word:ab", "must end in =MOMENT"),
        ("word:ab=2", "must end in =MOMENT"),
        ("word:ab=half", "must end in =MOMENT"),
        ("motto:ab=1", "motif"),
        ("word:=1", "needs an argument"),
        ("expression:(=1", "'('"),
        ("score:{mine}:share_of_a=1", "give a moment between 0 and 1"),
        ("!score:{mine}:share_of_a=0.5", "can be absent"),
        ("predicate:nowhere.py:f=1", "There is no Python file nowhere.py"),
        ("classifier:{empty}:x=0.5", "has no config.json"),
    ],
)
def test_a_wrong_term_is_one_sentence(term: str, sentence: str, reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PREDICATES)
    term = term.replace("{mine}", str(tmp_path / "mine.py"))
    with pytest.raises(UserError) as raised:
        Constraints.of(read_constraints([term.replace("{empty}", str(tmp_path))]), reading)
    assert sentence in str(raised.value)


def test_nothing_or_the_same_twice_is_refused(reading: Reading) -> None:
    with pytest.raises(UserError, match="nothing to control"):
        Constraints.of(read_constraints([]), reading)
    with pytest.raises(UserError, match="given twice: word ab"):
        Constraints.of(read_constraints(["word:ab=0.5", "word:ab=0.6"]), reading)


@pytest.mark.parametrize("terms", [(MUST,), (MUST, HALF)])
def test_what_a_look_ahead_has_learnt_is_kept_and_changes_no_figure_but_its_worth(
    terms: tuple[str, ...], controlled_by: By, tmp_path: Path
) -> None:
    """Intervals of 95 %, doubled: the exact log Z lies outside one time in 10⁴."""
    controlled = controlled_by(*terms, rounds=2, round_draws=400, folder=tmp_path / "run")
    x, log_q = everything(controlled)
    log_z = float(torch.logsumexp(log_q - controlled.p.energy(x).double(), 0))
    assert _doubled(controlled.check().log_z, log_z)
    assert controlled.ahead is not None
    again = controlled_by(*terms, rounds=2, round_draws=400, folder=tmp_path / "run")
    assert again.ahead is not None
    torch.testing.assert_close(again.ahead.log_prob(x), controlled.ahead.log_prob(x))
    assert len(json.loads((tmp_path / "run" / "look_ahead" / "rounds.json").read_bytes())) == 3
    assert len(again.sample(5)) == 5
