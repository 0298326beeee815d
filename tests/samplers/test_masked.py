"""Masked draws and their weights, against enumeration: regular rules, and grammars as llguidance reads them."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from ebar.automata.lift import Reading
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.estimators.log_z import log_mean, log_z
from ebar.features.feature import Features, bind, negated
from ebar.features.regular import Expression, whole
from ebar.features.rules import Canonical, Grammar, RegularRule, Rule, json_schema, obeys
from ebar.journeys.texts import grammar
from ebar.maths.enumeration import all_sequences
from ebar.models.tabular import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.draw import draw
from ebar.samplers.masked import Masked
from ebar.samplers.smc import Smc
from ebar.testing import check_stepwise
from ebar.types import Estimate, Sequences, Space

SIGMAS = 4.5  # one false alarm in 150,000
SPELLINGS = [b"(", b")", b"x", b"((", b"x)", None]
SPACE = Space(6, 5, 5)
READING = Reading(end=5, longest=5, spellings=SPELLINGS, encode=lambda text: _longest_first(text.encode()))
NESTED = 'start: "(" start ")" | "x"'


def _longest_first(text: bytes) -> list[int]:
    found = []
    while text:
        fitting = [token for token, one in enumerate(SPELLINGS) if one and text.startswith(one)]
        found.append(max(fitting, key=lambda token: len(SPELLINGS[token] or b"")))
        text = text[len(SPELLINGS[found[-1]] or b"") :]
    return found


def is_nested(text: str) -> bool:
    depth = len(text) // 2
    return text == "(" * depth + "x" + ")" * depth


def model(seed: int = 1) -> Tabular:
    made = Tabular.random(SPACE, generator=Generator().manual_seed(seed))
    vars(made)["reading"] = READING
    return made


def nested() -> Rule:
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    return Grammar(NESTED).bind(READING).rule


TO_DEPTH_FOUR = whole(r"x|\(x\)|\(\(x\)\)|\(\(\(x\)\)\)|\(\(\(\(x\)\)\)\)")


def nested_to_depth_four() -> Rule:
    return RegularRule(TO_DEPTH_FOUR, READING)


def test_weights_worked_out_by_hand():
    """q: 0 or 1 with ¼ and ½, the end with ¼; the rule is 01|1, of three tokens at most with the end.

    x = 1: M = ¾, then ¼ (the end alone), so w = 3/16. x = 01: M = ¾, then ½ (1 alone), then 1 (the last place), so
    w = 3/8. P(1) = ½·¼, P(01) = ¼·½·1.
    """
    logits = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()
    space = Space(3, 3, 2)
    q = Tabular(space, logits.expand(1, 13, 3).clone())
    rule = RegularRule(whole("01|1"), Reading(alphabet="01", end=2))
    drawn = Masked(q, rule).walk(200, generator=Generator().manual_seed(0))
    weights = {tuple(row): weight for row, weight in zip(drawn.x.rows(), drawn.log_weights.exp().tolist(), strict=True)}
    assert weights == pytest.approx({(1, 2): 3 / 16, (0, 1, 2): 3 / 8})
    g = Masked(q, rule).log_prob(Sequences(torch.tensor([[1, 2, 0], [0, 1, 2], [0, 2, 0]]), torch.tensor([2, 3, 2])))
    assert g.exp().tolist() == pytest.approx([2 / 3, 1 / 3, 0])


@pytest.mark.parametrize("rule", [nested, nested_to_depth_four])
def test_masked_draws_are_weighed_so_that_they_are_of_the_model_given_the_rule(rule):
    q, made = model(), rule()
    g, x = Masked(q, made), all_sequences(SPACE)
    wanted = torch.tensor([float(is_nested(READING.text(row))) for row in x.rows()], dtype=torch.float64)
    assert 4 < wanted.sum() < 20
    assert torch.equal(obeys(made, x, 5), wanted)
    with torch.no_grad():
        log_q, log_g = q.log_prob(x), g.log_prob(x)
    assert float(log_g.exp().sum()) == pytest.approx(1)
    assert bool((log_g[wanted > 0] > -math.inf).all())
    drawn = g.walk(2000, generator=Generator().manual_seed(2))
    number = {tuple(row): index for index, row in enumerate(x.rows())}
    at = torch.tensor([number[tuple(row)] for row in drawn.x.rows()])
    torch.testing.assert_close(drawn.log_q, log_q[at])
    # P/g, or nothing for what is cut off.
    torch.testing.assert_close(drawn.log_weights, torch.where(wanted[at] > 0, (log_q - log_g)[at], -math.inf))
    assert 0.05 < float((drawn.log_weights == -math.inf).double().mean()) < 0.95
    # What particles go by: the masses of all steps, that of the end to come included.
    with torch.no_grad():
        state = g.advance(torch.tensor([[0, 4]]), g.start(1)[1])[1]
    torch.testing.assert_close(g.expected_log_weight(state)[0], (log_q - log_g)[number[0, 4, 5]])
    p = torch.where(wanted > 0, log_q.exp(), 0.0)
    estimate = log_mean(drawn.log_weights[None])[0].estimate
    assert abs(estimate.value - float(p.sum().log())) < SIGMAS / 1.96 * (estimate.high - estimate.low) / 2
    p = p / p.sum()
    shares = torch.zeros_like(p).index_add(0, at, drawn.log_weights.exp())
    masking = log_g.exp() * wanted
    distance = 0.5 * (shares / shares.sum() - p).abs().sum()
    assert float(distance) < 0.1 * float(0.5 * (masking / masking.sum() - p).abs().sum())


def test_a_masked_model_obeys_the_laws_of_stepwise_models():
    check_stepwise(Masked(model(), nested_to_depth_four()))


def test_particles_are_weighed_by_what_the_masks_let_through():
    """Sequential Monte Carlo with the masked proposal, which foresees the next mask, is unbiased for Z as well."""
    q, x, rule = model(), all_sequences(SPACE), nested_to_depth_four()
    absent = replace(TO_DEPTH_FOUR, absent=True).bind(READING)
    p = Tilted(q, Linear(Features([absent]), torch.tensor([-math.inf], dtype=torch.float64)))
    draws = draw(Smc(particles=20), p, 2000, proposal=Masked(q, rule), generator=Generator().manual_seed(0))
    estimate = log_z(draws)[0].estimate
    with torch.no_grad():
        wanted = float(torch.logsumexp(p.log_score(x), 0))
    assert abs(estimate.value - wanted) < SIGMAS / 1.96 * (estimate.high - estimate.low) / 2
    assert estimate.high - estimate.low < 1


def test_without_an_end_a_text_must_be_whole_in_the_last_place():
    space = Space(2, 3)
    q = Tabular.random(space, generator=Generator().manual_seed(0))
    rule = RegularRule(Expression("00|11"), Reading(alphabet="01"))
    drawn = Masked(q, rule).walk(300, generator=Generator().manual_seed(1))
    for row, weight in zip(drawn.x.rows(), drawn.log_weights.tolist(), strict=True):
        assert (weight > -math.inf) == (row not in ([0, 1, 0], [1, 0, 1]))


def test_any_tokens_that_spell_a_text_are_allowed_and_canonical_ones_can_be_asked_for():
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    q, x = model(), all_sequences(SPACE)
    with torch.no_grad():
        log_q = q.log_prob(x)
    inside = Grammar(NESTED).bind(READING)(x) > 0
    canonical = bind(Canonical(), READING)(x) > 0
    assert bool((inside & ~canonical).any())
    for only, kept in ((False, inside), (True, inside & canonical)):
        found = grammar(q, Grammar(NESTED), canonical=only)
        torch.testing.assert_close(found.p.log_score(x), torch.where(kept, log_q, -math.inf))
        drawn = found.draw(1000, generator=Generator().manual_seed(3))
        figures = found.check(drawn)
        estimate, share = figures["log_z"], figures["share of p in canonical tokens"]
        assert isinstance(estimate, Estimate)
        assert isinstance(share, Estimate)
        error = estimate.value - float(log_q[kept].exp().sum().log())
        assert abs(error) < SIGMAS / 1.96 * (estimate.high - estimate.low) / 2
        texts = found.texts(drawn, 50, generator=Generator().manual_seed(4))
        assert all(is_nested(text) for text in texts)
        exact = float(log_q[inside & canonical].exp().sum() / log_q[kept].exp().sum())
        assert share.value == pytest.approx(1) if only else abs(share.value - exact) < SIGMAS * 0.03


def test_forced_tokens_are_not_used():
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    rule = Grammar('start: "((x))"').bind(READING).rule
    assert rule.allowed(rule.start()).tolist() == [True, False, False, True, False, False]
    inside = rule.after(rule.start(), 3)
    assert rule.allowed(inside).tolist() == [False, False, True, False, True, False]
    assert rule.after(inside, 1) is None
    assert rule.allowed(rule.start()).tolist() == [True, False, False, True, False, False]  # states are left alone


def test_json_of_a_schema_is_valid():
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 11}, "minItems": 1, "maxItems": 2}
    spellings = [b"[", b"]", b"1", b"0", b", ", b"7]", None]
    space = Space(7, 6, 6)
    q = Tabular.random(space, generator=Generator().manual_seed(0))
    vars(q)["reading"] = Reading(end=6, longest=6, spellings=spellings)
    found = grammar(q, schema)
    drawn = found.draw(300, generator=Generator().manual_seed(0))
    for text, weight in zip(found.text(drawn.x), drawn.log_weights.tolist(), strict=True):
        if weight > -math.inf:
            jsonschema.validate(json.loads(text), schema)
    assert "share cut off" in found.check(drawn)
    opposite = negated(json_schema(schema))
    assert opposite is not None
    assert opposite.name == "no JSON schema"


def test_what_cannot_be_is_one_sentence():
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install 'ebar[grammar]'")
    q = model()
    with pytest.raises(UserError, match="whole within 5 tokens: allow longer ones, draw more, or give a grammar whose"):
        grammar(q, Grammar('start: "x" start')).draw(100)
    with pytest.raises(UserError, match="No text of this model's tokens satisfies the grammar"):
        grammar(q, Grammar('start: "y"'))
    with pytest.raises(UserError, match=r"no grammar that llguidance reads: at 1\(8\): unknown name"):
        grammar(q, Grammar("start: nothing"))
    with pytest.raises(UserError, match="Unsatisfiable schema"):
        grammar(q, {"type": "string", "minLength": 3, "maxLength": 1})
    with pytest.raises(UserError, match="must be JSON itself"):
        grammar(q, "{type: string}")
    with pytest.raises(UserError, match="whole within 5 tokens"):
        grammar(q, whole(r"\({9}x")).draw(100)
