"""Which tokens are hidden and how, the loss against torch's own, and that it warms an encoder up."""

import math
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.neural import MaskedModel
from ebar.objectives.nce import Masked, hide
from ebar.training.batches import Batches
from ebar.training.loop import evaluate_objective, fit
from ebar.training.players import Player, evaluating
from ebar.types import Clock, Context, Objective, Sequences

START = Clock(0, 0)
MASK = 8


def hidden(x: Sequences, seed: int, share: float = 0.15) -> Any:
    generator = Generator().manual_seed(seed)
    return hide(x, share=share, vocabulary=7, mask_token=MASK, generator=generator)


def some(rows: int, lengths: list[int], seed: int = 0) -> Sequences:
    tokens = torch.randint(0, 7, (rows, max(lengths)), generator=Generator().manual_seed(seed))
    given = torch.tensor((lengths * rows)[:rows])
    return Sequences(torch.where(Sequences(tokens, given).mask(), tokens, 99), given)


def test_a_share_of_each_row_is_chosen_at_least_one_and_no_padding():
    x = some(6, [40, 20, 7, 3, 1, 0])
    tokens, chosen = hidden(x, 1)
    assert chosen.sum(1).tolist() == [6, 3, 1, 1, 1, 0]  # 15 % of 40, 20 and 7 is 6, 3 and 1.05
    assert not bool((chosen & ~x.mask()).any())
    assert torch.equal(tokens.tokens[~chosen], x.tokens[~chosen])
    assert torch.equal(tokens.lengths, x.lengths)


def test_it_is_the_generators_alone():
    x = some(6, [40, 20])
    torch.manual_seed(1)
    first = hidden(x, 3)
    torch.manual_seed(2)
    again, other = hidden(x, 3), hidden(x, 4)
    assert torch.equal(first.x.tokens, again.x.tokens)
    assert torch.equal(first.chosen, again.chosen)
    assert not torch.equal(first.chosen, other.chosen)


def test_eight_in_ten_are_masked_one_is_another_and_one_stays():
    """24,000 chosen: three shares at 4.8 standard errors, places alike at 5: a false alarm in 50,000 runs."""
    x = some(4000, [40], seed=5)
    tokens, chosen = hidden(x, 6)
    n = int(chosen.sum())
    assert n == 24_000
    masked = float((tokens.tokens == MASK)[chosen].double().mean())
    same = float((tokens.tokens == x.tokens)[chosen].double().mean())
    wanted = {"masked": (masked, 0.8), "same": (same, 0.1 + 0.1 / 7), "other": (1 - masked - same, 0.6 / 7)}
    for name, (found, p) in wanted.items():
        assert abs(found - p) < 4.8 * math.sqrt(p * (1 - p) / n), name
    places = chosen.double().mean(0)
    assert float((places - 0.15).abs().max()) < 5 * math.sqrt(0.15 * 0.85 / 4000)


def made(**settings: Any) -> Any:
    torch.manual_seed(2)
    encoder = BidirectionalTransformer(7, layers=1, hidden=12, heads=2, dropout=0.0)
    return MaskedModel(encoder, **settings)


@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_is_the_cross_entropy_of_the_chosen_tokens_of_prefix_and_continuation(tied):
    model = made(tied=tied)
    x, context = some(4, [5, 3]), Context(some(4, [4, 9, 2, 0], seed=1))
    objective = Masked(model=model, share=0.5)
    assert isinstance(objective, Objective)
    (loss,) = objective.losses((x, context), START, generator=Generator().manual_seed(9))
    whole = [context.given.prefix(row) + x.prefix(row) for row in range(4)]
    width = max(map(len, whole))
    packed = Sequences(
        torch.tensor([row + [0] * (width - len(row)) for row in whole]), torch.tensor(list(map(len, whole)))
    )
    seen, chosen = hide(packed, share=0.5, vocabulary=7, mask_token=MASK, generator=Generator().manual_seed(9))
    states = model.between(model.encoder(seen)[chosen])
    logits = states @ (model.encoder.inputs[:7] if tied else model.out.weight).T + model.bias
    wanted = torch.nn.functional.cross_entropy(logits, packed.tokens[chosen])
    torch.testing.assert_close(loss.value, wanted)
    assert (loss.player, loss.weight) == ("model", float(chosen.sum()))
    right = logits.argmax(1) == packed.tokens[chosen]
    assert loss.metrics == {"masked_accuracy": pytest.approx(float(right.double().mean()))}
    loss.value.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert (model.out is None) == tied


def test_it_learns_under_deterministic_algorithms():
    """Each token is the one before plus one: a hidden one is known from its neighbours."""
    starts = torch.randint(0, 7, (600, 1), generator=Generator().manual_seed(1))
    x = Sequences((starts + torch.arange(8)) % 7, torch.full((600,), 8))
    model = made()
    player = Player(module=model, optimiser=torch.optim.AdamW(model.parameters(), 1e-2))
    objective = Masked(model=model)
    held_out = Batches(data=Sequences(x.tokens[:200], x.lengths[:200]), batch_size=64, shuffle=False)
    torch.use_deterministic_algorithms(True)
    try:
        steps = fit(objective, Batches(data=x, batch_size=64), {"model": player}, generator=Generator().manual_seed(2))
        for step in steps:
            if step.number == 120:
                break
    finally:
        torch.use_deterministic_algorithms(False)
    with evaluating(player):
        figures = [
            evaluate_objective(objective.validation, held_out, generator=Generator().manual_seed(3)) for _ in range(2)
        ]
    assert figures[0] == figures[1]
    assert figures[0]["masked_accuracy"] > 0.8  # 200 chances of one in seven by guessing
    assert figures[0]["loss"] < 1.0


def test_a_share_is_a_share():
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match="above 0 and not above 1"):
            Masked(model=made(), share=share)
