"""Which of two models finds the true tokens likelier, after their own prefixes and after the true ones."""

import math

import pytest
import torch
from torch import Generator

from ebar.backbones.lstm import Lstm
from ebar.errors import UserError
from ebar.evaluation.cross_entropy import cross_entropy, stream_cost
from ebar.evaluation.exposure_bias import after_own_prefix, exposure_bias, win_rate, words_of
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.models.stepwise import token_log_probs
from ebar.samplers.beam import greedy
from ebar.types import Context, Sequences, Space, Stepwise

SPACE = Space(3, 4, 2)  # tokens a = 0, b = 1, end = 2


def table(*rows: tuple[list[int], list[float]]) -> Tabular:
    """Next-token probabilities after some prefixes; elsewhere ⅓ each."""
    found = torch.full((1 + 3 + 9 + 27, 3), 1 / 3, dtype=torch.float64)
    for prefix, probabilities in rows:
        number = 0
        for token in prefix:
            number = 3 * number + token
        found[sum(3**place for place in range(len(prefix))) + number] = torch.tensor(probabilities).double()
    return Tabular(SPACE, found.log()[None])


def test_by_hand() -> None:
    """The reference is a b end; the end is not tested.

    The model decodes a and b: its prefixes are the true ones. The baseline decodes b, then ends: it never reads a.
    """
    model = table(([], [0.6, 0.3, 0.1]), ([0], [0.1, 0.5, 0.4]), ([0, 1], [0.1, 0.1, 0.8]))
    baseline = table(([], [0.4, 0.5, 0.1]), ([1], [0.1, 0.3, 0.6]), ([0], [0.1, 0.8, 0.1]))
    x = Sequences(torch.tensor([[0, 1, 2]]), torch.tensor([3]))
    mine, reached = after_own_prefix(model, x)
    assert reached.tolist() == [[True, True, True]]
    torch.testing.assert_close(mine.exp(), torch.tensor([[0.6, 0.5, 0.8]], dtype=torch.float64))
    theirs, reached = after_own_prefix(baseline, x)
    assert reached.tolist() == [[True, True, False]]
    torch.testing.assert_close(theirs[:, :2].exp(), torch.tensor([[0.4, 0.3]], dtype=torch.float64))
    # Own prefixes: .6 > .4 and .5 > .3. Gold prefixes: .6 > .4 but .5 < .8.
    found = exposure_bias(model, baseline, x)
    assert (found.own.value, found.gold.value) == (1.0, 0.5)
    assert (found.own_tested, found.gold_tested, found.left_out) == (2, 2, 0)
    # The other way round, and with a longer reference whose third token only one decoding reaches.
    longer = Sequences(torch.tensor([[0, 1, 1, 2]]), torch.tensor([4]))
    found = exposure_bias(baseline, model, longer)
    assert (found.own.value, found.own_tested, found.gold_tested, found.left_out) == (0.0, 2, 3, 1)
    assert "own decoding as prefix" in str(found)


def test_ties_are_no_wins(generator: Generator) -> None:
    model = Tabular.random(SPACE, generator=generator)
    x = model.sample(20, generator=generator)
    found = exposure_bias(model, model, x)
    assert (found.own.value, found.gold.value) == (0.0, 0.0)


def test_own_prefixes_step_by_step_for_an_lstm(generator: Generator) -> None:
    """Against the parallel pass over the greedy decoding with the true token put in at the end."""
    torch.manual_seed(1)
    space = Space(4, 6, 3)
    model = Autoregressive(Lstm(4, layers=1, hidden=5, dropout=0.5), Softmax(5, 4), space).double()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    context = Context(Sequences(torch.tensor([[0, 1], [2, 2], [1, 0]]), torch.tensor([2, 1, 2])))
    x = Tabular.random(space, generator=generator).sample(3, generator=generator)
    found, reached = after_own_prefix(model, x, context)
    assert model.training  # found without dropout, and left as it was
    model.eval()
    own, _ = greedy(model, context)
    for row in range(3):
        for place in range(int(x.lengths[row])):
            prefix = own.prefix(row)[:place]
            assert bool(reached[row, place]) == (len(prefix) == place and 3 not in prefix)
            if reached[row, place]:
                whole = torch.tensor([[*prefix, int(x.tokens[row, place])]])
                only = context.select(torch.tensor([row]))
                with torch.no_grad():
                    expected = token_log_probs(model, Sequences(whole, torch.tensor([place + 1])), only)[0, -1]
                torch.testing.assert_close(found[row, place], expected)


def test_batches_change_nothing(generator: Generator) -> None:
    model, baseline = (Tabular.random(SPACE, conditions=3, generator=generator) for _ in range(2))
    x = model.sample(30, generator=generator)
    context = Context(Sequences(torch.randint(0, 3, (30, 1), generator=generator), torch.ones(30, dtype=torch.long)))
    assert exposure_bias(model, baseline, x, context, batch=7) == exposure_bias(model, baseline, x, context)


def test_intervals_count_sentences_not_tokens(generator: Generator) -> None:
    """Tokens of a sentence that all agree are worth one: 50 sentences of 20 tokens, all won or all lost."""
    tested = torch.full((50,), 20.0, dtype=torch.float64)
    won = tested * (torch.arange(50) % 2)
    found = win_rate(won, tested)
    assert found.value == 0.5
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 50), rel=0.1)  # not /1000
    with pytest.raises(UserError, match="no token to test"):
        win_rate(torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))


def test_models_of_other_tokens_are_refused(generator: Generator) -> None:
    other = Tabular.random(Space(3, 5, 2), generator=generator)
    with pytest.raises(UserError, match="share their tokens"):
        exposure_bias(table(), other, Sequences(torch.tensor([[2]]), torch.tensor([1])))


def windows_model(length: int, generator: Generator) -> Tabular:
    return Tabular.random(Space(3, length), generator=generator)


def conditional(model: Stepwise, prefix: list[int], token: int) -> float:
    x = Sequences(torch.tensor([[*prefix, token]]), torch.tensor([len(prefix) + 1]))
    return float(token_log_probs(model, x).detach()[0, -1])


@pytest.mark.parametrize("stride", [1, 2, 3, None])
def test_every_token_of_a_stream_is_scored_once(stride: int | None, generator: Generator) -> None:
    model = windows_model(3, generator)
    stream = torch.randint(0, 3, (11,), generator=generator)
    found = stream_cost(model, stream, stride=stride)
    tokens = stream.tolist()
    # Windows by hand: the first whole, each later one its last `stride`, the last one to the end of the stream.
    expected, done = 0.0, 0
    for end in [*range(3, 11, stride or 3), 11]:
        for place in range(done, end):
            expected -= conditional(model, tokens[end - 3 : place], tokens[place])
        done = end
    assert found.tokens == 11
    assert found.total == pytest.approx(expected)
    assert found.per_token.value == pytest.approx(expected / 11)
    assert found.perplexity.value == pytest.approx(math.exp(expected / 11))
    assert found.perplexity_per(4).value == pytest.approx(math.exp(expected / 4))
    assert found.bits_per(22).value == pytest.approx(expected / 22 / math.log(2))


def test_windows_that_follow_one_another_are_cross_entropys(generator: Generator) -> None:
    model = windows_model(4, generator)
    x = model.sample(50, generator=generator)
    found, known = stream_cost(model, x.tokens.flatten()), cross_entropy(model, x)
    assert found.per_token.value == pytest.approx(known.pooled_per_token.value)
    assert found.per_token.low == pytest.approx(known.pooled_per_token.low)
    assert found.perplexity.value == pytest.approx(known.perplexity.value)


def test_streams_that_cannot_be_scored(generator: Generator) -> None:
    stream = torch.zeros(9, dtype=torch.long)
    with pytest.raises(UserError, match="no end"):
        stream_cost(table(), stream)
    with pytest.raises(UserError, match="move on by 1 to 3"):
        stream_cost(windows_model(3, generator), stream, stride=4)
    with pytest.raises(UserError, match="too few"):
        stream_cost(windows_model(3, generator), stream[:2])


def test_words_by_hand() -> None:
    """Tokens a = 0 and b = 1, of which b begins a word: the reference a a b is the words aa and b.

    The model decodes a a end: one word, so that b comes after aa. The baseline decodes b end: its b comes after b.
    """
    begins = torch.tensor([False, True, False])
    assert words_of([0, 0, 1, 0, 2], begins, 2) == [[0, 0], [1, 0]]
    model = table(([], [0.6, 0.3, 0.1]), ([0], [0.5, 0.1, 0.4]), ([0, 0], [0.1, 0.2, 0.7]))
    baseline = table(([], [0.3, 0.6, 0.1]), ([0], [0.8, 0.1, 0.1]), ([1], [0.1, 0.4, 0.5]), ([0, 0], [0.4, 0.1, 0.5]))
    x = Sequences(torch.tensor([[0, 0, 1, 2]]), torch.tensor([4]))
    found = exposure_bias(model, baseline, x, begins=begins)
    # aa: .6·.5 against .3·.8; b: after aa .2 against, after b, .4; after aa .1.
    assert (found.own.value, found.gold.value) == (0.5, 1.0)
    assert (found.own_tested, found.gold_tested, found.left_out) == (2, 2, 0)


def test_where_every_token_begins_a_word_words_are_tokens(generator: Generator) -> None:
    space = Space(4, 6, 3)
    torch.manual_seed(2)
    model, baseline = (
        Autoregressive(Lstm(4, layers=1, hidden=5, dropout=0.5), Softmax(5, 4), space).double() for _ in range(2)
    )
    x = model.sample(40, generator=generator)
    by_tokens = exposure_bias(model, baseline, x, batch=16)
    by_words = exposure_bias(model, baseline, x, begins=torch.ones(4, dtype=torch.bool), batch=16)
    assert by_words == by_tokens
