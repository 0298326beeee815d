"""Beam search finds what enumeration finds, and stops when nothing better can come."""

import math

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.lstm import Lstm
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.models.stepwise import ancestral
from ebar.samplers.beam import alike, beam_search, by_source, decode_contexts, greedy, length_normalised_score
from ebar.testing.enumeration import whole_space
from ebar.types import Context, Sequences, Space, Stepwise

ENDING, FIXED = Space(3, 5, 2), Space(3, 4)
PENALTIES = [0.0, 0.6, 1.0, -0.5, 2.0]


def conditions(*tokens: int) -> Context:
    return Context(Sequences(torch.tensor(tokens)[:, None], torch.ones(len(tokens), dtype=torch.long)))


def lstm(space: Space, seed: int = 3, scale: float = 4.0) -> Autoregressive:
    torch.manual_seed(seed)
    model = Autoregressive(
        Lstm(space.vocabulary, layers=1, hidden=6, dropout=0.5), Softmax(6, space.vocabulary), space
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def exact(model: Stepwise, context: Context | None, alpha: float, best: int) -> tuple[Tensor, list[list[list[int]]]]:
    """The best scores by enumeration, and their sequences."""
    rows = 1 if context is None else context.rows
    everything = whole_space(model.space, context)
    log_probs = model.log_prob(everything, context).detach().view(rows, -1)
    scores = length_normalised_score(log_probs, everything.lengths.view(rows, -1), alpha)
    values, at = scores.topk(best, 1)
    each = scores.shape[1]
    return values, [[everything.prefix(row * each + int(k)) for k in at[row]] for row in range(rows)]


def sequences(x: Sequences, best: int) -> list[list[list[int]]]:
    rows = len(x.lengths) // best
    return [[x.prefix(row * best + k) for k in range(best)] for row in range(rows)]


def by_hand() -> Tabular:
    """Tokens a = 0, b = 1, end = 2; at most 3 tokens. Greedy takes a (0.6) and then pays for it.

    a: .6, b: .4. After a: a .4, b .35, end .25. After b: end .9, a .1.
    """
    space = Space(3, 3, 2)
    table = torch.full((1 + 3 + 9, 3), 1e-30, dtype=torch.float64)
    table[0] = torch.tensor([0.6, 0.4, 1e-30])
    table[1] = torch.tensor([0.4, 0.35, 0.25])
    table[2] = torch.tensor([0.1, 1e-30, 0.9])
    return Tabular(space, table.log()[None])


def test_by_hand() -> None:
    model = by_hand()
    x, log_prob = greedy(model)
    assert x.prefix(0) == [0, 0, 2]
    assert float(log_prob) == pytest.approx(math.log(0.6 * 0.4))
    found = beam_search(model, width=2, length_penalty=0.0, best=2)
    # b end: .36; of the others a a end: .24 and a b end: .21.
    assert sequences(found.x, 2) == [[[1, 2], [0, 0, 2]]]
    torch.testing.assert_close(found.log_probs.exp(), torch.tensor([[0.36, 0.24]], dtype=torch.float64))
    # The mean per token: log .36 / 2 = −.511, log .24 / 3 = −.476.
    found = beam_search(model, width=2, length_penalty=1.0, best=2)
    assert sequences(found.x, 2) == [[[0, 0, 2], [1, 2]]]
    torch.testing.assert_close(
        found.scores, torch.tensor([[math.log(0.24) / 3, math.log(0.36) / 2]], dtype=torch.float64)
    )


@pytest.mark.parametrize("alpha", PENALTIES)
@pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
def test_full_width_is_exact(space: Space, alpha: float, generator: Generator) -> None:
    model = Tabular.random(space, conditions=3, scale=1.5, generator=generator)
    context = conditions(2, 0, 1, 1)
    values, expected = exact(model, context, alpha, 7)
    found = beam_search(model, context, width=128, length_penalty=alpha, best=7)
    torch.testing.assert_close(found.scores, values)
    assert sequences(found.x, 7) == expected
    torch.testing.assert_close(found.log_probs.flatten(), model.log_prob(found.x, context).detach())


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
def test_full_width_is_exact_for_an_lstm_with_prefixes(space: Space, alpha: float) -> None:
    model = lstm(space)
    context = Context(Sequences(torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 0]]), torch.tensor([3, 1, 2])))
    model.train()  # decode must not be moved by dropout
    found = decode_contexts(model, context, width=128, length_penalty=alpha, best=3, batch=2)
    assert model.training
    model.eval()
    values, expected = exact(model, context, alpha, 3)
    torch.testing.assert_close(found.scores, values)
    assert sequences(found.x, 3) == expected


def test_a_space_with_fewer_sequences_than_asked_for(generator: Generator) -> None:
    model = Tabular.random(Space(2, 2, 1), generator=generator)  # two sequences: [end] and [0, end]
    found = beam_search(model, width=4, best=3)
    assert found.x.lengths.tolist()[2] == 0
    assert float(found.log_probs[0, 2]) == -math.inf
    torch.testing.assert_close(found.log_probs[0, :2].exp().sum(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("space", [ENDING, FIXED], ids=["ending", "fixed"])
def test_width_one_is_greedy_and_greedy_is_the_argmax_of_every_step(space: Space, generator: Generator) -> None:
    for model in (Tabular.random(space, conditions=3, generator=generator), lstm(space).eval()):
        context = conditions(0, 2, 1)
        x, log_probs = greedy(model, context)
        beam = beam_search(model, context, width=1)
        assert sequences(beam.x, 1) == sequences(x, 1)
        independent, expected = ancestral(model, 1, context, generator=generator, choose=lambda p, _: p.argmax(1))
        assert sequences(independent, 1) == sequences(x, 1)
        torch.testing.assert_close(log_probs, expected)
        torch.testing.assert_close(log_probs, model.log_prob(x, context).detach())


@pytest.mark.parametrize("width", [1, 2, 3, 40])
def test_a_shorter_limit_ends_sequences_at_the_models_own_price(width: int, generator: Generator) -> None:
    model = Tabular.random(ENDING, conditions=3, generator=generator)
    context = conditions(0, 1, 2)
    limit = torch.tensor([2, 5, 3])
    found = beam_search(model, context, width=width, maximal_length=limit)
    assert bool((found.x.lengths <= limit).all())
    torch.testing.assert_close(found.log_probs.flatten(), model.log_prob(found.x, context).detach())
    if width == 40:  # exact among the sequences that are short enough
        everything = whole_space(ENDING, context)
        scores = length_normalised_score(model.log_prob(everything, context).detach(), everything.lengths, 1.0).view(
            3, -1
        )
        scores = scores.masked_fill(everything.lengths.view(3, -1) > limit[:, None], -math.inf)
        torch.testing.assert_close(found.scores[:, 0], scores.amax(1))


def test_fixed_sequences_are_cut_at_the_limit(generator: Generator) -> None:
    model = Tabular.random(FIXED, generator=generator)
    for width in (1, 3):
        assert beam_search(model, width=width, maximal_length=2).x.lengths.tolist() == [2]


class Counted(Tabular):
    """Counts how often, and for how many rows, it is advanced."""

    def advance(self, tokens, state):
        self.rows = [*getattr(self, "rows", []), len(tokens)]
        return super().advance(tokens, state)


def ending_with(probability: float, length: int) -> Counted:
    """The end has this probability at every place, the other token the rest."""
    space = Space(2, length, 1)
    row = torch.tensor([1 - probability, probability], dtype=torch.float64).log()
    return Counted(space, row.expand(1, 2**length - 1, 2).clone())


def test_the_search_stops_as_soon_as_nothing_better_can_come() -> None:
    # log p of [end] is log .9; what goes on has log .1 and stays below it: one step decides.
    model = ending_with(0.9, 12)
    found = beam_search(model, width=2, length_penalty=0.0)
    assert found.x.prefix(0) == [1]
    assert not hasattr(model, "rows")
    # With α = 1 the mean per token of what goes on could still rise to log .1 / 12 = −.19 < log .9 = −.105: stop, too.
    beam_search(model, width=2, length_penalty=1.0)
    assert not hasattr(model, "rows")
    # But with 40 places it could reach −.058: go on until log .1 · t / 40 is below −.105, t = 2.
    space = Space(2, 40, 1)

    class Constant:
        """The same, without a table of 2⁴⁰ prefixes."""

        free_logits = True
        steps = 0

        def __init__(self) -> None:
            self.space = space
            self.row = torch.tensor([0.1, 0.9], dtype=torch.float64).log()

        def start(self, rows, context=None):
            return self.row.expand(rows, -1), Nothing(rows)

        def advance(self, tokens, state):
            self.steps += 1
            return self.row.expand(*tokens.shape, -1), state

        def log_prob(self, x, context=None): ...

        def sample(self, n, context=None, *, generator): ...

    constant = Constant()
    assert beam_search(constant, width=2, length_penalty=1.0).x.prefix(0) == [1]
    assert constant.steps == 1


class Nothing:
    """The state of a model without memory."""

    def __init__(self, rows: int):
        self.rows = rows

    def select(self, rows: Tensor) -> "Nothing":
        return Nothing(len(rows))


def test_enough_ended_sequences_stop_the_search_sooner(generator: Generator) -> None:
    model = Counted(Space(3, 6, 2), Tabular.random(Space(3, 6, 2), scale=0.5, generator=generator).logits.detach())
    exactly = beam_search(model, width=4, length_penalty=1.0)
    steps = len(model.rows)
    model.rows = []
    soon = beam_search(model, width=4, length_penalty=1.0, enough=1)
    assert len(model.rows) < steps
    assert float(soon.scores) <= float(exactly.scores) + 1e-12


def test_finished_contexts_are_computed_no_longer() -> None:
    logits = torch.stack([ending_with(p, 6).logits.detach()[0] for p in (0.99, 0.3)])
    model = Counted(Space(2, 6, 1), logits)
    beam_search(model, conditions(0, 1, 0), width=2, length_penalty=0.0)
    assert set(model.rows) == {2}  # the one context whose end is unlikely, two prefixes of it


def test_decode_restores_the_order_whatever_the_batch(generator: Generator) -> None:
    model = lstm(ENDING)
    lengths = torch.tensor([3, 0, 2, 1, 3, 2, 0])
    context = Context(Sequences(torch.randint(0, 2, (7, 3), generator=generator), lengths))
    limit = torch.tensor([5, 4, 3, 5, 2, 5, 5])
    model.eval()
    alone = [
        beam_search(model, context.select(torch.tensor([row])), width=3, best=2, maximal_length=int(limit[row]))
        for row in range(7)
    ]
    for batch in (1, 3, 100):
        together = decode_contexts(model, context, width=3, best=2, maximal_length=limit, batch=batch)
        assert sequences(together.x, 2) == [sequences(one.x, 2)[0] for one in alone]
        torch.testing.assert_close(together.scores, torch.cat([one.scores for one in alone]))
        assert sequences(together.first(), 1) == [[sequences(one.x, 2)[0][0]] for one in alone]
    assert decode_contexts(model, width=2).x.lengths.shape == (1,)


def test_alike_covers_every_row_once_without_needless_padding() -> None:
    context = Context(Sequences(torch.zeros(5, 9, dtype=torch.long), torch.tensor([9, 1, 4, 1, 3])))
    parts = list(alike(context, 2))
    assert sorted(torch.cat([rows for rows, _ in parts]).tolist()) == [0, 1, 2, 3, 4]
    assert [part.given.tokens.shape[1] for _, part in parts if part is not None] == [1, 4, 9]
    assert by_source(context, ratio=1.5, extra=2).tolist() == [16, 4, 8, 4, 7]


def test_what_cannot_be_asked_for(generator: Generator) -> None:
    model = Tabular.random(ENDING, generator=generator)
    with pytest.raises(UserError, match="at least that wide"):
        beam_search(model, width=2, best=3)
    with pytest.raises(UserError, match="maximal_length must be at least 1"):
        beam_search(model, width=2, maximal_length=0)
    with pytest.raises(UserError, match="one number for each of 1"):
        beam_search(model, width=2, maximal_length=torch.tensor([2, 3]))
    with pytest.raises(UserError, match="cannot give its 2 best"):
        beam_search(model, width=2, best=2, enough=1)
