"""Many continuations of one prefix: kept once, seen by all, and every number as if each row had its own."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from ebar.backbones.transformer import EncoderDecoder, Transformer
from ebar.backbones.transformer_stepper import _Groups, _Memory, log_sum
from ebar.heads.softmax import Softmax
from ebar.models import drawing, stepwise
from ebar.models.construction import Autoregressive
from ebar.models.stepwise import ancestral_by_token, token_log_probs
from ebar.types import Context, Space
from tests.backbones.reading import EQUAL, UNEQUAL, VOCABULARY, lively

STEPS = 20  # past the room there is at first


def backbone_of(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "prefix":
        return lively(Transformer(VOCABULARY, layers=2, hidden=12, heads=3))
    return lively(EncoderDecoder(VOCABULARY, layers=2, encoder_layers=1, hidden=12, heads=3))


def model_of(kind: str, space: Space) -> Autoregressive:
    torch.manual_seed(0)
    return Autoregressive(backbone_of(kind), Softmax(12, VOCABULARY).double(), space).eval()


def parts(stepper: Any) -> list[Any]:
    return [*stepper.prefix, *stepper.source]


def test_what_two_keys_weigh_together_by_hand():
    """Query log 3 against keys 0 and 1 weighs them 1 to 3, which sums to 4; the second hidden, 1 is left."""
    memory = torch.tensor([[0.0, 8.0], [1.0, 4.0]], dtype=torch.float64).reshape(1, 2, 2, 1, 1)  # keys beside values
    query = torch.full((1, 1, 1, 1), math.log(3), dtype=torch.float64)
    kept = _Memory(memory, 2)
    scores = kept.scores(query)
    seen, weights = kept.seen_by(scores)
    assert seen.item() == pytest.approx((8 + 3 * 4) / 4)
    assert log_sum(scores, weights).item() == pytest.approx(math.log(4))
    scores = kept.scores(query, mask=torch.tensor([[0.0, -math.inf]], dtype=torch.float64))
    seen, weights = kept.seen_by(scores)
    assert seen.item() == 8
    assert log_sum(scores, weights).item() == pytest.approx(0)


def test_rows_of_a_context_stand_together_by_hand():
    groups = _Groups(torch.tensor([1, 0, 1, 1]), 2)
    part = torch.arange(1.0, 5).reshape(4, 1, 1)
    assert groups.gather(part).flatten(1).tolist() == [[2, 0, 0], [1, 3, 4]]
    assert torch.equal(groups.scatter(groups.gather(part)), part)
    assert not groups.full
    assert _Groups(torch.tensor([0, 0, 1, 1]), 2).full
    assert not _Groups(torch.tensor([0, 1, 0, 1]), 2).full


@pytest.mark.parametrize("kind", ["prefix", "source"])
@torch.no_grad()
def test_a_context_is_kept_once(kind):
    backbone = backbone_of(kind)
    _, state = backbone.start(6, UNEQUAL)
    rows = torch.tensor([4] * 500 + [1] * 500)
    many = state.select(rows).select(torch.arange(1000).flip(0))
    for shared, before in zip((*many.prefix, *many.source), (*state.prefix, *state.source), strict=True):
        assert shared is before
    stepper = backbone.stepper(many)
    assert [len(part.keys) for part in parts(stepper)] == [2, 2]
    stepper.step(torch.zeros(1000, dtype=torch.long))
    stepper.keep(torch.arange(3, 11))
    assert [len(part.keys) for part in parts(stepper)] == [1, 1]
    assert len(stepper.own[0].keys) == 8


@pytest.mark.parametrize("kind", ["prefix", "source"])
@pytest.mark.parametrize("context", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "rows",
    [[0, 0, 0, 1, 1, 1, 2, 2, 2], [5, 2, 2, 5, 2, 0], [3] * 7, [4, 1, 0], [2] * 30 + [0, 1, 3, 4, 5]],
    ids=["even", "uneven", "one", "alone", "too uneven"],
)
@torch.no_grad()
def test_steps_are_those_of_rows_with_a_context_each(kind, context, rows):
    """Rows that end, are reordered and go on as several, contexts that run out of rows."""
    backbone, generator = backbone_of(kind), Generator().manual_seed(3)
    each = torch.tensor(rows)
    _, state = backbone.start(6, context)
    stepper = backbone.stepper(state.select(each))
    tokens = torch.zeros(len(each), 0, dtype=torch.long)
    for place in range(STEPS):
        token = torch.randint(0, VOCABULARY, (len(each),), generator=generator)
        tokens = torch.cat([tokens, token[:, None]], 1)
        hidden = stepper.step(token)
        wanted = backbone.read(backbone.embed(tokens), context.select(each))[:, -1]
        torch.testing.assert_close(hidden, wanted, rtol=0, atol=1e-9)
        if place % 3 == 1:
            kept = torch.randperm(len(each), generator=generator)[: max(2, len(each) - 2)]
            kept = torch.cat([kept, kept[:3]]) if place % 4 == 0 else kept
            stepper.keep(kept)
            each, tokens = each[kept], tokens[kept]


@pytest.mark.parametrize("kind", ["prefix", "source"])
@torch.no_grad()
def test_a_state_is_a_value(kind):
    """Rows may end before the first step, and a state goes on after a stepper and after itself."""
    backbone = backbone_of(kind)
    _, state = backbone.start(6, UNEQUAL)

    def everything() -> list[Tensor]:
        tensors = [*state.memory, *state.prefix, *state.source, state.place, state.counts, state.source_counts]
        return [part.clone() for part in tensors if isinstance(part, Tensor)]

    before = everything()
    stepper = backbone.stepper(state)
    stepper.keep(torch.tensor([5, 3]))
    stepper.step(torch.tensor([1, 2]))
    hidden, after = backbone.advance(torch.tensor([[1, 0]] * 4), state.select(torch.tensor([3, 3, 0, 5])))
    assert all(torch.equal(part, kept) for part, kept in zip(everything(), before, strict=True))
    torch.testing.assert_close(hidden[0], hidden[1], rtol=0, atol=1e-12)
    stepped = backbone.stepper(after).step(torch.tensor([2, 2, 2, 2]))  # what was read since is a row's own
    wanted = backbone.advance(torch.tensor([[2]] * 4), after)[0][:, 0]
    torch.testing.assert_close(stepped, wanted, rtol=0, atol=1e-9)
    assert after.memory[0].shape[1] == (2 if kind == "prefix" else 3)


@pytest.mark.parametrize("kind", ["prefix", "source"])
@pytest.mark.parametrize("space", [Space(VOCABULARY, 7, end=4), Space(VOCABULARY, 6)], ids=["ending", "fixed"])
@torch.no_grad()
def test_the_same_draws_as_rows_with_a_context_each(kind, space):
    model = model_of(kind, space)
    x, log_q = ancestral_by_token(model, 40, UNEQUAL, generator=Generator().manual_seed(5))
    other, other_log_q = ancestral_by_token(model, 1, UNEQUAL.repeat(40), generator=Generator().manual_seed(5))
    assert torch.equal(torch.where(x.mask(), x.tokens, 0), torch.where(other.mask(), other.tokens, 0))
    torch.testing.assert_close(log_q, other_log_q, rtol=0, atol=1e-9)
    torch.testing.assert_close(token_log_probs(model, x, UNEQUAL), log_q, rtol=0, atol=1e-9)


@torch.no_grad()
def test_in_float32_a_long_prefix_is_worth_what_log_prob_says(generator):
    torch.manual_seed(0)
    model = Autoregressive(Transformer(50, layers=4, hidden=32), Softmax(32, 50), Space(50, 40)).eval()
    tokens = torch.randint(0, 50, (2, 120), generator=generator)
    context = Context(UNEQUAL.given._replace(tokens=tokens, lengths=torch.tensor([120, 77])))
    x, log_q = ancestral_by_token(model, 100, context, generator=generator)
    torch.testing.assert_close(token_log_probs(model, x, context), log_q, rtol=0, atol=1e-5)


@pytest.mark.parametrize("read", [1, 3, 100])
@torch.no_grad()
def test_contexts_are_read_as_blocks_come_to_them(read, monkeypatch):
    """20 contexts of 5 rows in blocks of 8: the draws do not depend on how many contexts are read together."""
    model, context = model_of("prefix", Space(VOCABULARY, 6, end=4)), UNEQUAL.select(torch.arange(20) % 6)
    for part in (drawing, stepwise):
        monkeypatch.setattr(part, "BLOCK", 8)
    wanted, wanted_log_q = ancestral_by_token(model, 5, context, generator=Generator().manual_seed(2))
    started: list[int] = []
    start = Autoregressive.start

    def counted(self: Autoregressive, rows: int, context: Context | None = None) -> Any:
        started.append(rows)
        return start(self, rows, context)

    monkeypatch.setattr(Autoregressive, "start", counted)
    monkeypatch.setattr(stepwise, "READ", read)
    x, log_q = ancestral_by_token(model, 5, context, generator=Generator().manual_seed(2))
    assert torch.equal(x.tokens, wanted.tokens)
    torch.testing.assert_close(log_q, wanted_log_q, rtol=0, atol=1e-12)
    assert max(started) <= max(3, read)  # 8 rows belong to 3 contexts at most
    assert 20 <= sum(started) < 20 + len(started)  # two readings have at most one context in common
    monkeypatch.setattr(stepwise, "LOGITS", 6 * VOCABULARY * 8)
    torch.testing.assert_close(token_log_probs(model, x, context), log_q, rtol=0, atol=1e-9)
    assert len(ancestral_by_token(model, 0, context, generator=Generator())[0].lengths) == 0
