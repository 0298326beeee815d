"""Losses and figures by hand, and the objective in the loop."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.neural import bit
from ebar.models.construction import FromLogits
from ebar.objectives.nce import (
    Contrasted,
    Nce,
    binary_nce,
    calibration_error,
    contrast_figures,
    contrasted_energies,
    ranking_nce,
)
from ebar.training.batches import Batches
from ebar.training.loop import evaluate_objective, fit
from ebar.training.players import Player, evaluating
from ebar.types import Clock, Context, Objective, Sequences, Space

START = Clock(0, 0)


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Ahead(nn.Module):
    """E = 10·(first token of the context) + first token, times a weight; it notes what it was asked."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=dtype))
        self.asked: list[tuple[Sequences, Context | None]] = []

    def forward(self, x: Sequences, context: Context | None = None) -> Tensor:
        self.asked.append((x, context))
        each = (
            x.tokens[:, 0] * 0 if context is None else context.repeat(len(x.lengths) // context.rows).given.tokens[:, 0]
        )
        return self.weight * (10 * each + x.tokens[:, 0]).to(self.weight.dtype)


def column(values: list[int]) -> Sequences:
    return Sequences(torch.tensor(values)[:, None], torch.ones(len(values), dtype=torch.long))


def test_binary_by_hand():
    # ν = 1: E = 0 on data, log 3 on noise: log 2 − log ¾ = log 8/3.
    assert binary_nce(doubles([0.0]), doubles([[math.log(3)]])).item() == pytest.approx(math.log(8 / 3))
    assert binary_nce(doubles([0.0]), doubles([[0.0]])).item() == pytest.approx(2 * math.log(2))
    # ν = 2, E = 0: a datum among one and two draws has chance ⅓, a draw of being one ⅔, twice.
    assert binary_nce(doubles([0.0]), doubles([[0.0, 0.0]])).item() == pytest.approx(math.log(3) + 2 * math.log(3 / 2))
    # ν = 2, E = −log 2 on data: P(data) = 2/(2 + 2). E = log 3 and 0 on noise: P(noise) = 2/(⅓ + 2) = 6/7 and ⅔.
    wanted = math.log(2) + math.log(7 / 6) + math.log(3 / 2)
    assert binary_nce(doubles([-math.log(2)]), doubles([[math.log(3), 0.0]])).item() == pytest.approx(wanted)
    # A mean over the data, a sum over the negatives.
    twice = binary_nce(doubles([-math.log(2)] * 2), doubles([[math.log(3), 0.0]] * 2))
    assert twice.item() == pytest.approx(wanted)
    assert math.isfinite(binary_nce(doubles([1e4]), doubles([[-1e4]])).item())


def test_ranking_by_hand():
    # Weights e^{−E}: 2 for the datum, 1 and 3 for its draws: log 6/2.
    data, noise = doubles([-math.log(2)]), doubles([[0.0, -math.log(3)]])
    assert ranking_nce(data, noise).item() == pytest.approx(math.log(3))
    assert ranking_nce(data + 7, noise + 7).item() == pytest.approx(math.log(3))  # a constant cancels
    assert ranking_nce(doubles([0.0, 0.0]), doubles([[0.0], [0.0]])).item() == pytest.approx(math.log(2))


def test_each_datum_stands_before_its_own_negatives_with_its_own_context():
    energy = Ahead()
    context = Context(column([1, 2]))
    batch = Contrasted(column([3, 4]), context, (column([5, 6]), column([7, 8])))
    data, noise = contrasted_energies(energy, batch)
    assert data.tolist() == [13.0, 24.0]
    assert noise.tolist() == [[15.0, 17.0], [26.0, 28.0]]
    assert energy.asked[0][0].tokens[:, 0].tolist() == [3, 5, 7, 4, 6, 8]
    assert energy.asked[0][1] is context  # read once each, if the energy knows how
    assert contrasted_energies(energy, batch._replace(context=None))[1].tolist() == [[5.0, 7.0], [6.0, 8.0]]
    # Two data of one context: still context-major.
    shared = Contrasted(column([3, 4]), context.select(torch.tensor([1])), (column([5, 6]),))
    assert [each.tolist() for each in contrasted_energies(energy, shared)] == [[23.0, 24.0], [[25.0], [26.0]]]


def test_negatives_of_another_number_are_an_error():
    batch = Contrasted(column([3, 4]), None, (column([5, 6, 7]),))
    with pytest.raises(ValueError, match="2 rows of data need as many rows of each negative"):
        contrasted_energies(Ahead(), batch)
    with pytest.raises(ValueError, match="at least one negative"):
        contrasted_energies(Ahead(), batch._replace(negatives=()))


def test_figures_by_hand():
    # Data: E = −1 (right), 2 (wrong), 0 (half). Noise, two each: 1 1 | 3 −4 | 0 5: right right right wrong half right.
    data, noise = doubles([-1.0, 2.0, 0.0]), doubles([[1.0, 1.0], [3.0, -4.0], [0.0, 5.0]])
    figures = contrast_figures(data, noise)
    assert figures["energy_data"] == pytest.approx(1 / 3)
    assert figures["energy_noise"] == pytest.approx(1.0)
    weights = [math.exp(-each) for each in (1, 1, 3, -4, 0, 5)]
    assert figures["log_z"] == pytest.approx(math.log(sum(weights) / 6))
    assert figures["accuracy"] == pytest.approx((1.5 / 3 + 4.5 / 6) / 2)
    assert figures["ranked_first"] == pytest.approx((1 + 0 + 1 / 2) / 3)  # the third ties with one of its draws

    def square(x: float) -> float:
        return (1 / (1 + math.exp(-x))) ** 2

    brier = (square(-1) + square(2) + square(0)) / 3 / 2 + sum(square(-e) for e in (1, 1, 3, -4, 0, 5)) / 6 / 2
    assert figures["brier"] == pytest.approx(brier)
    ranked = contrast_figures(data, noise, normalised=False)
    assert ranked == {name: figures[name] for name in ("energy_data", "energy_noise", "log_z", "ranked_first")}


def test_calibration_by_hand():
    # σ(−E) = 0.75 for three data and one draw of four and four: perfectly calibrated there; so is 0.25 below.
    three = math.log(3)
    data, noise = doubles([-three] * 3 + [three]), doubles([-three] + [three] * 3)
    assert calibration_error(data, noise) == pytest.approx(0.0, abs=1e-12)
    assert contrast_figures(data, noise[:, None])["brier"] == pytest.approx(0.75 * 0.25)
    # All at 0.75 with half of them data: off by a quarter. Four draws to a datum weigh no more than it.
    assert calibration_error(doubles([-three]), doubles([-three])) == pytest.approx(0.25)
    assert calibration_error(doubles([-three]), doubles([-three] * 4)) == pytest.approx(0.25)
    assert calibration_error(doubles([-1e9]), doubles([1e9])) == 0.0  # at the ends of the last bins
    # Two bins off in two directions do not cancel: data at 0.25, noise at 0.75.
    assert calibration_error(doubles([three]), doubles([-three])) == pytest.approx(0.75)


@pytest.mark.parametrize("form", ["binary", "ranking"])
def test_the_objective_is_its_loss_with_its_figures(form, generator):
    energy = Ahead()
    with torch.no_grad():
        energy.weight.fill_(-0.1)
    context = Context(column([1, 2, 0]))
    batch = Contrasted(column([3, 4, 1]), context, (column([5, 6, 1]), column([7, 8, 2])))
    objective = Nce(energy=energy, form=form)
    assert isinstance(objective, Objective)
    (loss,) = objective.losses(batch, START, generator=generator)
    data, noise = contrasted_energies(energy, batch)
    wanted = (binary_nce if form == "binary" else ranking_nce)(data, noise)
    assert loss.value.item() == pytest.approx(wanted.item())
    assert (loss.player, loss.weight) == ("energy", 3.0)
    assert ("accuracy" in loss.metrics) == (form == "binary")
    assert objective.figures([batch]) == pytest.approx({"loss": wanted.item(), **loss.metrics})


def test_held_out_figures_are_those_of_all_batches_together(generator):
    x = torch.randint(-5, 5, (4, 30), generator=generator)
    data = Contrasted(
        column(x[0].tolist()), Context(column(x[1].tolist())), (column(x[2].tolist()), column(x[3].tolist()))
    )
    energy = Ahead()
    with torch.no_grad():
        energy.weight.fill_(0.2)
    objective = Nce(energy=energy)
    batches = Batches(data=data, batch_size=7, shuffle=False)
    whole = objective.figures([data])
    assert objective.figures(batches.at(0, 0)) == pytest.approx(whole)
    measured = evaluate_objective(objective.validation, batches, generator=generator)
    for name in ("loss", "energy_data", "energy_noise", "accuracy", "brier", "ranked_first"):  # the means
        assert measured[f"energy.{name}"] == pytest.approx(whole[name])
    assert measured["energy.log_z"] < whole["log_z"]  # no mean: Jensen


def test_an_unknown_form_is_an_error():
    objective = Nce(energy=Ahead())
    object.__setattr__(objective, "form", "ternary")
    with pytest.raises(ValueError, match="binary, ranking, not ternary"):
        objective.__post_init__()


LANGUAGE, WIDTH, TRIES = Space(6, 6), 4, 12


def sampled(rows: int, generator: Generator) -> Contrasted:
    """q knows the next token given the last; data are its draws that hold token 1 twice, which it cannot plan."""
    table = nn.Embedding.from_pretrained(1.5 * torch.randn(7, 6, generator=Generator().manual_seed(5)))
    q = FromLogits(table, LANGUAGE, beginning=6)
    given = torch.randint(0, 6, (rows, WIDTH), generator=generator)
    context = Context(Sequences(given, torch.full((rows,), WIDTH)))
    drawn = q.sample(TRIES, context, generator=generator)
    twice = ((drawn.tokens == 1).sum(1) >= 2).view(rows, TRIES)
    first = twice.int().argmax(1) + TRIES * torch.arange(rows)
    return Contrasted(drawn.select(first), context, (q.sample(1, context, generator=generator),))


def test_a_bidirectional_energy_learns_what_bigrams_cannot_know(generator):
    """Of q's draws 22 % hold it twice: whoever sees it is right about 87 % of data and draws; chance is half.

    With 500 held-out rows, 1,000 answers, 0.75 is more than 15 standard errors above chance.
    """
    torch.manual_seed(1)
    energy: Any = bit(BidirectionalTransformer(6, layers=1, hidden=32, heads=2, dropout=0.0))
    objective = Nce(energy=energy)
    player = Player(module=energy, optimiser=torch.optim.AdamW(energy.parameters(), 3e-3), clip_norm=1.0)
    held_out = sampled(500, generator)
    start = objective.figures([held_out])
    assert start["loss"] == pytest.approx(2 * math.log(2))
    assert (start["accuracy"], start["log_z"], start["energy_data"]) == (0.5, 0.0, 0.0)
    batches = Batches(data=sampled(1500, generator), batch_size=64)
    for step in fit(objective, batches, {"energy": player}, generator=generator):
        if step.number == 40:
            break
    with evaluating(player):
        figures = objective.figures([held_out])
    assert figures["accuracy"] > 0.75
    assert figures["loss"] < 1.1
    assert figures["energy_data"] < -0.5 < 0.5 < figures["energy_noise"]
