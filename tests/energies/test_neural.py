"""The pooled scalar by hand, then what UniT and BiT see of prefix and continuation."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.local_xl import LocalBidirectional
from ebar.backbones.lstm import Lstm
from ebar.backbones.transformer import BidirectionalTransformer, Transformer
from ebar.energies import neural
from ebar.energies.linear import BoundedEnergy, bound_of, rounded, squashed
from ebar.energies.neural import Causal, Encoded, Encoder, Neural, bit, blocks, joined, unit, unit_from
from ebar.errors import UserError
from ebar.heads.softmax import Softmax
from ebar.maths.orders import mean_pooled
from ebar.models.construction import Autoregressive
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.samplers.rejection import Rejection
from ebar.types import Context, Energy, Sequences, Space
from tests.backbones.reading import UNEQUAL, VOCABULARY, lively

ROWS, LENGTH = 6, 7
KINDS = pytest.mark.parametrize("kind", ["unit", "unit lstm", "bit", "bit local"])
POOLS = pytest.mark.parametrize("pool", ["continuation", "all"])


def energy_of(kind: str, pool: Any = "continuation") -> Any:
    """Away from zero, every parameter alive."""
    torch.manual_seed(0)
    sizes: Any = {"layers": 2, "hidden": 12, "heads": 3}
    if kind == "bit":
        made = bit(BidirectionalTransformer(VOCABULARY, **sizes), pool=pool)
    elif kind == "bit local":
        made = bit(LocalBidirectional(VOCABULARY, **sizes, chunk=4), pool=pool)
    elif kind == "unit":
        made = unit(Transformer(VOCABULARY, **sizes), pool=pool)
    else:
        made = unit(Lstm(VOCABULARY, layers=1, hidden=12), pool=pool)
    return lively(made)


def some_x(lengths: list[int] | None = None, rows: int = ROWS) -> Sequences:
    tokens = torch.randint(0, VOCABULARY, (rows, LENGTH), generator=Generator().manual_seed(4))
    given = torch.full((rows,), LENGTH) if lengths is None else torch.tensor(lengths)
    return Sequences(torch.where(Sequences(tokens, given).mask(), tokens, 99), given)


class Given(nn.Module):
    """An encoder whose vector at each place is (token, 1) and which pools over x, as it is told."""

    width = 2

    def forward(self, x: Sequences, context: Context | None, pool: Any) -> Encoded:
        hidden = torch.stack([x.tokens.double(), torch.ones_like(x.tokens).double()], 2)
        return Encoded(hidden, x.mask())


def test_the_scalar_is_zero_at_first_and_linear_in_the_mean_after():
    # Tokens 1, 2, 6 have mean 3; 4 alone has 4: 0.5·3 − 2·1 + 0.25 and 0.5·4 − 2 + 0.25.
    energy: Any = Neural(Given()).double()
    x = Sequences(torch.tensor([[1, 2, 6], [4, 99, 99]]), torch.tensor([3, 1]))
    assert energy(x).tolist() == [0.0, 0.0]
    with torch.no_grad():
        energy.head.weight.copy_(torch.tensor([[0.5, -2.0]]))
        energy.head.bias.fill_(0.25)
    assert energy(x).tolist() == [-0.25, 0.25]
    assert isinstance(energy, Energy)


def test_only_places_that_count_are_pooled():
    hidden = torch.tensor([[[1.0], [3.0], [torch.nan]], [[5.0], [7.0], [9.0]]])
    counts = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_pooled(hidden, counts).tolist() == [[2.0], [0.0]]


def test_prefix_and_continuation_are_joined_without_a_gap():
    context = Context(Sequences(torch.tensor([[1, 2, 3], [4, 99, 99]]), torch.tensor([3, 1])))
    x = Sequences(torch.tensor([[5, 6], [7, 98], [8, 9], [98, 98]]), torch.tensor([2, 1, 2, 0]))
    whole, continuation = joined(x, context)
    assert [whole.prefix(row) for row in range(4)] == [[1, 2, 3, 5, 6], [1, 2, 3, 7], [4, 8, 9], [4]]
    assert [row.nonzero().flatten().tolist() for row in continuation] == [[3, 4], [3], [1, 2], []]
    whole, continuation = joined(x, None)
    assert [whole.prefix(row) for row in range(4)] == [[5, 6], [7], [8, 9], []]
    assert torch.equal(continuation, x.mask())
    with pytest.raises(ValueError, match="3 sequences"):
        joined(x.select(torch.arange(3)), context)


@POOLS
@KINDS
@torch.no_grad()
def test_all_start_at_q_and_are_what_the_mean_of_their_vectors_says(kind, pool):
    energy, x = energy_of(kind, pool), some_x([7, 3, 1, 5, 7, 2])
    assert isinstance(energy.encoder, Encoder)
    assert Neural(energy.encoder, pool=pool)(x, UNEQUAL).tolist() == [0.0] * ROWS
    backbone: Any = energy.encoder.backbone  # type: ignore[attr-defined]
    for row in range(ROWS):  # alone, without padding; the mean taken by hand
        own = UNEQUAL.select(torch.tensor([row]))
        given = own.given.prefix(0)
        alone = x.prefix(row)
        whole = torch.tensor([given + alone])
        if kind.startswith("bit"):
            hidden = backbone(Sequences(whole, torch.tensor([whole.shape[1]])))[0]
        else:
            hidden = backbone.read(backbone.embed(whole))[0, 1:]
        mean = hidden[len(given) if pool == "continuation" else 0 :].mean(0)
        wanted = mean @ energy.head.weight[0] + energy.head.bias[0]
        torch.testing.assert_close(energy(x, UNEQUAL)[row], wanted, rtol=0, atol=1e-10)


@POOLS
@KINDS
def test_padding_never_matters(kind, pool):
    energy, x = energy_of(kind, pool), some_x([7, 3, 1, 5, 7, 2])
    wanted = energy(x, UNEQUAL)
    for content in (0, -1, 3):
        tokens = torch.where(x.mask(), x.tokens, content)
        given = UNEQUAL.given
        context = Context(given._replace(tokens=torch.where(given.mask(), given.tokens, content)))
        torch.testing.assert_close(energy(Sequences(tokens, x.lengths), context), wanted, rtol=0, atol=0)
    wider = Sequences(nn.functional.pad(x.tokens, (0, 4), value=99), x.lengths)
    torch.testing.assert_close(energy(wider, UNEQUAL), wanted, rtol=0, atol=1e-12)


@POOLS
@KINDS
def test_rows_that_share_a_context_are_context_major_and_so_are_blocks(kind, pool, monkeypatch):
    energy = energy_of(kind, pool)
    x, context = some_x([7, 3, 1, 5] * 6, rows=24), UNEQUAL.select(torch.tensor([1, 2, 3, 4]))
    with_gradient = energy(x, context)
    assert with_gradient.requires_grad
    torch.testing.assert_close(with_gradient, energy(x, context.repeat(6)), rtol=0, atol=1e-10)
    with torch.no_grad():
        for numbers in (1, 12 * 11 * 4, 12 * 11 * 6, 12 * 11 * 13, 2**30):
            monkeypatch.setattr(neural, "NUMBERS", numbers)
            torch.testing.assert_close(energy(x, context), with_gradient, rtol=0, atol=1e-10)
            torch.testing.assert_close(energy(x), energy(x, None), rtol=0, atol=0)
        assert energy(x.select(torch.arange(0)), context).shape == (0,)
        with pytest.raises(ValueError, match="23 sequences"):
            energy(x.select(torch.arange(23)), context)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 11, 12, 100])
def test_blocks_hold_each_row_once_with_its_own_context(size):
    x = Sequences(torch.arange(12)[:, None], torch.ones(12, dtype=torch.long))
    context = Context(Sequences(torch.arange(3)[:, None], torch.ones(3, dtype=torch.long)))
    seen = []
    for part, own in blocks(x, context, size):
        assert own is not None
        assert 1 <= len(part.lengths) <= size
        each = own.repeat(len(part.lengths) // own.rows).given.tokens[:, 0]
        seen += list(zip(part.tokens[:, 0].tolist(), each.tolist(), strict=True))
    assert seen == [(row, row // 4) for row in range(12)]
    assert sum(len(part.lengths) for part, _ in blocks(x, None, size)) == 12


def vectors(energy: Any, x: Sequences) -> Tensor:
    hidden, _ = energy.encoder(x, UNEQUAL, "continuation")
    # Of BiT the places of [C; x], of UniT those of x: row by row the LENGTH places of x.
    whole = (
        UNEQUAL.given.lengths if isinstance(energy.encoder, Causal) is False else torch.zeros(ROWS, dtype=torch.long)
    )
    return torch.stack([row[start : start + LENGTH] for row, start in zip(hidden, whole.tolist(), strict=True)])


@pytest.mark.parametrize(("kind", "sees"), [("unit", False), ("unit lstm", False), ("bit", True), ("bit local", True)])
@torch.no_grad()
def test_bit_sees_the_future_and_unit_does_not(kind, sees):
    energy, x = energy_of(kind), some_x()
    wanted = vectors(energy, x)
    for place in range(1, LENGTH):
        changed = x.tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        moved = (vectors(energy, Sequences(changed, x.lengths)) - wanted).abs().amax(2)
        assert bool((moved[:, :place] > 1e-9).all()) if sees else float(moved[:, :place].max()) < 1e-12
        assert bool((moved[:, place:] > 1e-9).all())  # both see the past


@KINDS
@torch.no_grad()
def test_the_prefix_matters_and_its_order_does(kind):
    energy, x = energy_of(kind), some_x()
    turned = UNEQUAL.given.tokens.clone()
    turned[2] = turned[2].flip(0)
    wanted, other = energy(x, UNEQUAL), energy(x, Context(UNEQUAL.given._replace(tokens=turned)))
    assert float((wanted - other).abs()[2]) > 1e-9
    torch.testing.assert_close(other[[0, 1, 3, 4, 5]], wanted[[0, 1, 3, 4, 5]], rtol=0, atol=1e-12)
    none = energy(x)
    assert float((wanted - none).abs()[0]) > 1e-9
    torch.testing.assert_close(none[3], wanted[3], rtol=0, atol=1e-12)  # an empty prefix is no prefix


def test_unit_starts_from_qs_weights_and_leaves_them_alone():
    q: Any = Autoregressive(lively(Transformer(VOCABULARY, layers=2, hidden=12, heads=3)),
                            Softmax(12, VOCABULARY), Space(VOCABULARY, LENGTH)).double()  # fmt: skip
    q.requires_grad_(False)
    before, x = copy.deepcopy(q.state_dict()), some_x()
    energy: Any = unit_from(q)
    hidden, counts = energy.encoder(x, UNEQUAL, "continuation")
    torch.testing.assert_close(hidden, q.backbone.read(q.backbone.embed(x.tokens), UNEQUAL)[:, 1:])
    assert bool(counts.all())
    assert all(parameter.requires_grad for parameter in energy.parameters())
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.add_(1.0)
    for name, value in q.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_cannot_be_read_is_told():
    with pytest.raises(UserError, match="Linear does not read a whole sequence"):
        unit(nn.Linear(2, 2))
    table = Tabular.random(Space(2, 2), generator=Generator().manual_seed(0))
    with pytest.raises(UserError, match="which Tabular has not"):
        unit_from(table)


@KINDS
def test_gradients_reach_every_part_under_deterministic_algorithms(kind):
    energy, x = energy_of(kind), some_x([7, 3, 1, 5, 7, 2])
    torch.use_deterministic_algorithms(True)
    try:
        (energy(x, UNEQUAL) * torch.arange(1.0, ROWS + 1)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    unused = {"encoder.backbone.inputs"} if kind.startswith("bit") else set()  # one of its rows, the mask's
    for name, parameter in energy.named_parameters():
        assert name in unused or bool(parameter.grad.any()), name


def test_a_bound_squashes_the_scalar_and_its_constant_by_hand():
    # Token 4: raw = 0.5·4 − 2 + 0.25 = 0.25, token 10: 3.25; b·tanh(raw/b) with b = 3.
    energy: Any = Neural(Given(), bound=3.0).double()
    with torch.no_grad():
        energy.head.weight.copy_(torch.tensor([[0.5, -2.0]]))
        energy.head.bias.fill_(0.25)
        found = energy(Sequences(torch.tensor([[4], [10]]), torch.tensor([1, 1]))).tolist()
        assert found == pytest.approx([3 * math.tanh(0.25 / 3), 3 * math.tanh(3.25 / 3)])
        energy.head.bias.fill_(1e6)
        assert energy(Sequences(torch.tensor([[4]]), torch.tensor([1]))).tolist() == [3.0]
    assert energy.energy_bound() == 3
    assert isinstance(energy, BoundedEnergy)


@pytest.mark.parametrize("bound", [0.1, 0.3, 3.0, 7.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_rounding_puts_an_energy_above_its_bound(bound, dtype):
    raw = torch.tensor([1e30, -1e30, 5.0, -0.1], dtype=dtype)
    assert float(squashed(raw, bound).double().abs().max()) <= rounded(bound, dtype)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_is_a_positive_number(bound):
    with pytest.raises(ValueError, match="above 0"):
        Neural(Given(), bound=bound)


def test_without_a_bound_there_is_none():
    assert bound_of(Neural(Given())) is None
    assert bound_of(lambda x, context=None: 0) is None


def test_rejection_takes_a_neural_energys_own_bound():
    q = Tabular.random(Space(3, 2), generator=Generator().manual_seed(1))
    assert Rejection().bound(Tilted(q, Neural(Given(), bound=2.0))) == 2
    with pytest.raises(UserError, match="none is known"):
        Rejection().bound(Tilted(q, Neural(Given())))
