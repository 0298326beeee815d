import math

import pytest
import torch
from torch import Generator

from ebar.automata.construction import capped, stopping_noise, white_noise
from ebar.automata.measures import count_strings, entropy, kl
from ebar.backbones.lstm import Lstm
from ebar.data.languages import Language
from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.exact_cross_entropy import count_prefixes, exact_cross_entropy, per_token, tilted_cross_entropy
from ebar.features.counts import Length
from ebar.features.feature import Features
from ebar.features.functions import Predicate
from ebar.features.regular import Motif, StartsWith
from ebar.heads.softmax import Softmax
from ebar.maths.enumeration import all_sequences
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.modes import evaluation_mode
from ebar.types import Context, Estimate, Sequences, Space
from tests.automata.strings import batch

LANGUAGES = {
    "motif": Language(motif="101", length=7),
    "no end": Language(motif="101", length=7, end=False),
    "mixture": Language(motif="11", length=6, presence=0.9),
    "variable length": Language(motif="01", length=6, stop=0.2),
    "three symbols": Language(expression="a(b|c)*a", length=5, stop=0.3, alphabet="abc"),
    "one string": Language(motif="0110", length=4),
}


def small_lstm(space: Space, *, dtype: torch.dtype = torch.float64) -> Autoregressive:
    torch.manual_seed(0)
    backbone = Lstm(space.vocabulary, hidden=8, dropout=0.5)
    model = Autoregressive(backbone, Softmax(8, space.vocabulary), space).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # far from the flat start, so that every prefix matters
            parameter.mul_(4.0)
    return model


def enumerated(truth, model) -> float:
    x = all_sequences(truth.space)
    log_p, log_q = truth.log_prob(x), model.log_prob(x).double()
    held = log_p > -math.inf
    return float(-(log_p[held].exp() * log_q[held]).sum())


def test_three_strings_worked_out_by_hand():
    # Strings "", "0" and "00" with stop ½, capped at three tokens: ½, ¼ and ⅛ of 7/8. The model stops with ¼.
    truth = capped(stopping_noise(2, 1, stop=0.5), 3)
    logits = torch.tensor([0.75, 0.25], dtype=torch.float64).log().expand(1, 7, 2)
    found = exact_cross_entropy(truth, Tabular(Space(2, 3, end=1), logits.clone()))
    costs = (math.log(4), math.log(4) + math.log(4 / 3), 2 * math.log(4 / 3))  # the third token can only be the end
    by_hand = (4 * costs[0] + 2 * costs[1] + 1 * costs[2]) / 7
    assert found.per_sequence.value == pytest.approx(by_hand, rel=1e-14)
    assert found.per_token.value == pytest.approx(by_hand / ((4 * 1 + 2 * 2 + 1 * 3) / 7), rel=1e-14)
    assert (found.strings, found.prefixes) == (3, 3)  # the prefixes "", "0" and "00"
    assert found.per_sequence.is_exact
    assert found.per_token.is_exact


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", LANGUAGES)
def test_it_is_the_sum_over_all_strings(name, size):
    truth = LANGUAGES[name].distribution()
    model = small_lstm(truth.space)
    found = exact_cross_entropy(truth, model, batch=size)
    with evaluation_mode(model), torch.no_grad():
        assert found.per_sequence.value == pytest.approx(enumerated(truth, model), abs=1e-10)
    assert found.strings == count_strings(truth)
    assert model.training  # the caller's mode comes back; inside there was no dropout


def test_every_prefix_is_evaluated_once():
    truth = LANGUAGES["variable length"].distribution()
    words = [[*word] for word in distinct_strings(truth)]
    prefixes = {tuple(word[:place]) for word in words for place in range(len(word))}
    seen = []

    class Watched(Tabular):
        def advance(self, tokens, state):
            seen.extend(state.prefix.tolist())
            return super().advance(tokens, state)

    model = Watched.random(truth.space, generator=Generator().manual_seed(1))
    assert exact_cross_entropy(truth, model, batch=4).prefixes == len(prefixes) == count_prefixes(truth.graph)
    # Neither the empty prefix, which `start` has read, nor those after which only the end can come.
    assert len(seen) == sum(0 < len(prefix) < truth.space.length - 1 for prefix in prefixes)


def distinct_strings(truth) -> list[list[int]]:
    x = all_sequences(truth.space)
    held = x.select(truth.log_prob(x) > -math.inf)
    return [held.prefix(row) for row in range(len(held.lengths))]


def test_against_itself_it_is_the_entropy_and_against_another_language_the_divergence_more():
    truth, noise = Language(motif="1011", length=12).distribution(), white_noise(Space(3, 13, end=2))
    assert exact_cross_entropy(truth, truth).per_sequence.value == pytest.approx(entropy(truth), rel=1e-13)
    expected = entropy(truth) + kl(truth, noise)
    assert exact_cross_entropy(truth, noise, batch=100).per_sequence.value == pytest.approx(expected, rel=1e-13)


def test_a_model_of_longer_strings_is_asked_for_the_end_too():
    truth = Language(motif="10", length=4).distribution()
    model = small_lstm(Space(3, 9, end=2))
    x = batch([word[:-1] for word in distinct_strings(truth)], end=2)
    with evaluation_mode(model), torch.no_grad():
        expected = -float((truth.log_prob(x).exp() * model.log_prob(x)).sum())
    assert exact_cross_entropy(truth, model).per_sequence.value == pytest.approx(expected, abs=1e-10)


def test_what_the_model_cannot_make_costs_infinitely_much():
    truth = Language(motif="10", length=4).distribution()
    without = Language(expression="(0|1)*0", length=4).distribution()
    assert exact_cross_entropy(truth, without).per_sequence.value == math.inf
    assert exact_cross_entropy(truth, small_lstm(Space(3, 4, end=2))).per_token.value == math.inf
    fixed = Language(motif="10", length=4, end=False).distribution()
    assert exact_cross_entropy(fixed, small_lstm(Space(2, 5))).per_sequence.value == math.inf


def test_a_condition_may_be_given():
    truth = capped(stopping_noise(2, 1, stop=0.5), 3)
    model = Tabular.random(truth.space, conditions=2, generator=Generator().manual_seed(2))
    second = Tabular(model.space, model.logits.detach()[1:])
    context = Context(Sequences(torch.tensor([[1]]), torch.tensor([1])))
    assert exact_cross_entropy(truth, model, context=context) == exact_cross_entropy(truth, second)
    both = Context(Sequences(torch.tensor([[0], [1]]), torch.tensor([1, 1])))
    with pytest.raises(ValueError, match="one condition"):
        exact_cross_entropy(truth, model, context=both)


def test_languages_that_cannot_be_walked_are_refused():
    model = small_lstm(Space(3, 31, end=2))
    with pytest.raises(UserError, match=r"infinitely many prefixes.*sample"):
        exact_cross_entropy(stopping_noise(3, 2, stop=0.1), model)
    with pytest.raises(UserError, match=r"2\.15e\+09 prefixes"):
        exact_cross_entropy(white_noise(model.space), model)
    with pytest.raises(UserError, match="prefixes"):  # more than a float can hold
        exact_cross_entropy(white_noise(Space(3, 2001, end=2)), model)
    with pytest.raises(ValueError, match="tokens differ"):
        exact_cross_entropy(white_noise(Space(2, 4)), model)


def test_a_sample_of_the_language_agrees():
    # 5,000 draws at 99.9 %; the seed is fixed.
    truth = Language(motif="10001011", length=16).distribution()
    model = small_lstm(truth.space, dtype=torch.float32)
    exact = exact_cross_entropy(truth, model)
    data = truth.sample(5000, generator=Generator().manual_seed(3))
    with evaluation_mode(model):
        sampled = cross_entropy(model, data)
    for value, estimate in zip(exact[:2], (sampled.per_sequence, sampled.per_token), strict=True):
        widened = (estimate.high - estimate.low) / 2 * 3.29 / 1.96
        assert abs(value.value - estimate.value) < widened
        assert widened < 0.05 * value.value


def tilted(space: Space, coefficients: list[float]) -> Tilted:
    features = Features(
        [
            Motif(motif="11", alphabet="01", end=space.end, absent=True),
            StartsWith(prefix="0", alphabet="01", end=space.end),
            Length(longest=space.length, end=space.end),
        ]
    )
    base = Tabular.random(space, generator=Generator().manual_seed(4))
    return Tilted(base, Linear(features, torch.tensor(coefficients, dtype=torch.float64)))


def base_cost(truth, model: Tilted) -> Estimate:
    assert isinstance(model.base, Tabular)
    return exact_cross_entropy(truth, model.base).per_sequence


def test_a_tilted_model_costs_what_enumeration_says():
    truth = Language(motif="01", length=6, stop=0.2).distribution()
    model = tilted(truth.space, [-2.0, 0.7, 0.1])
    x = all_sequences(truth.space)
    with torch.no_grad():
        log_z = float(model.log_score(x).logsumexp(0))
        log_p = truth.log_prob(x)
        expected = -float(torch.where(log_p > -math.inf, log_p.exp() * (model.log_score(x) - log_z), 0.0).sum())
    base = base_cost(truth, model)
    found = tilted_cross_entropy(truth, model, Estimate.exact(log_z), base)
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.is_exact
    rough = tilted_cross_entropy(truth, model, Estimate(log_z, log_z - 0.1, log_z + 0.3, 50.0, "few"), base)
    assert (rough.low, rough.high) == pytest.approx((expected - 0.1, expected + 0.3), abs=1e-12)
    assert rough.warning == "few"
    shorter = per_token(truth, rough)
    length = float((truth.log_prob(x).exp() * x.lengths).sum())
    assert (shorter.value, shorter.high) == pytest.approx((expected / length, (expected + 0.3) / length))


def test_a_hard_constraint_costs_nothing_or_everything():
    truth = Language(motif="11", length=5).distribution()
    model = tilted(truth.space, [-math.inf, 0.0, 0.0])  # without 11 nothing: all of the language has it
    base = base_cost(truth, model)
    assert tilted_cross_entropy(truth, model, Estimate.exact(-1.0), base).value == pytest.approx(base.value - 1)
    other = Language(motif="00", length=5).distribution()
    found = tilted_cross_entropy(other, model, Estimate(-1.0, -1.1, -0.9, 50.0), base)
    assert found.value == found.low == found.high == math.inf


def test_energies_that_no_automaton_follows_are_refused():
    truth = Language(motif="11", length=5).distribution()
    base = Tabular.random(truth.space, generator=Generator().manual_seed(4))
    secret = Features([Predicate(name="secret", function=lambda tokens: True, end=2)])
    model = Tilted(base, Linear(secret, torch.ones(1, dtype=torch.float64)))
    with pytest.raises(UserError, match=r"No automaton follows the feature 'secret'.*sample"):
        tilted_cross_entropy(truth, model, Estimate.exact(0.0), Estimate.exact(1.0))
    with pytest.raises(UserError, match="linear in features"):
        tilted_cross_entropy(
            truth, Tilted(base, lambda x, context=None: x.lengths.double()), Estimate.exact(0.0), Estimate.exact(1.0)
        )
