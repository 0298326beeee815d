"""Training an energy on draws from disk: which rows meet, where it goes on, which weights it ends with."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, nn

from ebar.data.chunks import Positives
from ebar.errors import UserError
from ebar.journeys.residual.negatives import draw_negatives
from ebar.journeys.residual.settings import Fitting
from ebar.journeys.residual.train_energy import ContrastedBatches, train_energy
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.training.loop import NonFiniteError
from ebar.types import Context, Sequences, Space

SPACE = Space(3, 2)
CONDITIONS = 2


class Table(nn.Module):
    """One energy for each condition and sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.energies = nn.Embedding(CONDITIONS * 9, 1, dtype=torch.float64)
        nn.init.zeros_(self.energies.weight)
        self.calls = 0

    def forward(self, x, context=None):
        self.calls += 1
        condition = context.given.tokens[:, 0].repeat_interleave(len(x.lengths) // context.rows)
        return self.energies(condition * 9 + x.tokens[:, 0] * 3 + x.tokens[:, 1]).squeeze(1)


def contexts(conditions: torch.Tensor) -> Context:
    return Context(Sequences(conditions[:, None], torch.ones_like(conditions)))


def chunks(rows: int, seed: int) -> Positives:
    """Data of another distribution than q."""
    truth = Tabular.random(SPACE, conditions=CONDITIONS, generator=Generator().manual_seed(99))
    context = contexts(torch.arange(rows) % CONDITIONS)
    return Positives(truth.sample(1, context, generator=Generator().manual_seed(seed)), context)


@pytest.fixture
def q():
    return Tabular.random(SPACE, conditions=CONDITIONS, generator=Generator().manual_seed(1))


@pytest.fixture
def scene(q, tmp_path):
    data, held_out = chunks(40, 1), chunks(20, 2)
    pool = draw_negatives(tmp_path / "negatives", q, data[1], 4, seed=3)
    validation = draw_negatives(tmp_path / "validation", q, held_out[1], 2, seed=4)
    return data, pool, (held_out, validation)


FITTING = Fitting(epochs=3, batch_size=8, learning_rate=0.05, negatives=2, checkpoint_every=2, patience=9)


def test_each_row_meets_the_draws_of_its_own_prefix_in_turn(scene):
    data, pool, _ = scene
    batches = ContrastedBatches(data=data, drawn=pool, negatives=3, batch_size=16, seed=5)
    assert len(batches) == 3
    wanted = {0: [0, 1, 2], 1: [3, 0, 1], 2: [2, 3, 0]}
    for epoch, numbers in wanted.items():
        found = list(batches.at(epoch, 0))
        assert [len(batch.x.lengths) for batch in found] == [16, 16, 8]
        order = torch.randperm(40, generator=Generator().manual_seed(_folded(5, epoch)))
        for place, number in enumerate(numbers):
            seen = torch.cat([batch.negatives[place].tokens for batch in found])
            assert seen.tolist() == pool.fetch(order, draws=torch.tensor([number])).tokens.tolist()
        assert torch.cat([batch.x.tokens for batch in found]).tolist() == data[0].tokens[order].tolist()
        read = [batch.context for batch in found if batch.context is not None]
        assert torch.cat([context.given.tokens for context in read]).tolist() == data[1].given.tokens[order].tolist()
    later = list(batches.at(1, 2))
    assert later[0].x.tokens.tolist() == list(batches.at(1, 0))[2].x.tokens.tolist()


def _folded(*numbers):
    from ebar.maths.randomness import folded

    return folded(*numbers)


def test_refreshed_negatives_are_each_epochs_own(q, scene, tmp_path):
    data, _, _ = scene
    asked = []

    def refreshed(epoch):
        asked.append(epoch)
        return draw_negatives(tmp_path / f"epoch-{epoch}", q, data[1], 1, seed=epoch)

    batches = ContrastedBatches(data=data, drawn=refreshed, batch_size=40, shuffle=False)
    first, second = (next(iter(batches.at(epoch, 0))).negatives[0].tokens for epoch in (0, 1))
    assert asked == [0, 1]
    assert first.tolist() != second.tolist()


def test_training_goes_towards_the_data_and_ends_with_the_best_weights(q, scene, tmp_path):
    data, pool, validation = scene
    energy = Table()
    result = train_energy(tmp_path / "run", energy, data, pool, validation=validation, fitting=FITTING)
    assert result.status == "finished"
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    held_out = {record["step"]: record for record in records if "validation.loss" in record}
    assert len(held_out) == 3
    assert {"validation.accuracy", "validation.log_z"} <= set(held_out[5])
    best = min(held_out, key=lambda step: held_out[step]["validation.loss"])
    assert (result.best.step, result.best.value) == (best, held_out[best]["validation.loss"])
    # Binary with ν = 2 and E = 0: log σ(−log 2) and 2·log σ(log 2).
    chance = math.log(3) + 2 * math.log(1.5)
    assert result.best.value is not None
    assert result.best.value < chance - 0.02
    # The energies are those of the best step: its loss comes out again.
    held = ContrastedBatches(data=validation[0], drawn=validation[1], negatives=2, batch_size=99, shuffle=False)
    assert _loss(energy, next(iter(held.at(0, 0)))) == pytest.approx(result.best.value, abs=1e-9)
    everything = all_sequences(SPACE)
    truth = Tabular.random(SPACE, conditions=CONDITIONS, generator=Generator().manual_seed(99))
    gained = 0.0
    for condition in range(CONDITIONS):
        context = contexts(torch.tensor([condition]))
        log_q, log_p = q.log_prob(everything, context), truth.log_prob(everything, context)
        with torch.no_grad():
            log_joint = torch.log_softmax(log_q - energy(everything, context), 0)
        gained += float((log_p.exp() * (log_joint - log_q)).sum().detach())
    assert gained > 0  # nearer to the data's distribution than q is


def test_weights_that_got_worse_since_are_not_kept(scene, tmp_path):
    data, pool, validation = scene
    greedy = replace(FITTING, learning_rate=1.0, epochs=6, patience=99)
    energy = Table()
    result = train_energy(tmp_path / "run", energy, data, pool, validation=validation, fitting=greedy)
    assert result.best.step is not None
    assert result.best.step < result.position.step  # such steps learn the training rows by heart
    held = ContrastedBatches(data=validation[0], drawn=validation[1], negatives=2, batch_size=99, shuffle=False)
    assert _loss(energy, next(iter(held.at(0, 0)))) == pytest.approx(result.best.value, abs=1e-9)


def _loss(energy, batch):
    """By hand: −log σ(−E⁺ − log ν) − Σ log σ(E⁻ + log ν)."""
    with torch.no_grad():
        data = energy(batch.x, batch.context)
        noise = torch.stack([energy(x, batch.context) for x in batch.negatives])
    shift = math.log(len(noise))
    return float(torch.log1p((data + shift).exp()).mean() + torch.log1p((-noise - shift).exp()).sum(0).mean())


def test_training_killed_at_any_step_ends_as_the_one_that_never_was(scene, tmp_path):
    data, pool, validation = scene
    whole = Table()
    train_energy(tmp_path / "whole", whole, data, pool, validation=validation, fitting=FITTING)
    calls, weights = whole.calls, whole.energies.weight.tolist()
    for last in range(1, calls, 3):
        energy = Dying(last)
        with pytest.raises(KeyboardInterrupt):
            train_energy(tmp_path / f"{last}", energy, data, pool, validation=validation, fitting=FITTING)
        again = Table()
        train_energy(tmp_path / f"{last}", again, data, pool, validation=validation, fitting=FITTING)
        assert again.energies.weight.tolist() == weights


class Dying(Table):
    def __init__(self, last: int) -> None:
        super().__init__()
        self.last = last

    def forward(self, x, context=None):
        if self.calls == self.last:
            raise KeyboardInterrupt
        return super().forward(x, context)


def test_a_finished_training_is_read_back_not_done_again(scene, tmp_path):
    data, pool, validation = scene
    first, second = Table(), Table()
    train_energy(tmp_path / "run", first, data, pool, validation=validation, fitting=FITTING)
    result = train_energy(tmp_path / "run", second, data, pool, validation=validation, fitting=FITTING)
    assert (result.status, second.calls) == ("finished", 0)
    assert second.energies.weight.tolist() == first.energies.weight.tolist()
    with pytest.raises(UserError, match="another configuration"):
        train_energy(tmp_path / "run", second, data, pool, validation=validation, fitting=replace(FITTING, epochs=4))


def test_what_does_not_fit_is_refused(scene, tmp_path):
    data, pool, validation = scene
    with pytest.raises(UserError, match="4 draws, fewer than the 5 negatives"):
        train_energy(tmp_path / "a", Table(), data, pool, validation=validation, fitting=replace(FITTING, negatives=5))
    with pytest.raises(ValueError, match="as many prefixes"):
        train_energy(tmp_path / "b", Table(), data, validation[1], validation=validation, fitting=FITTING)
    frozen = Table()
    frozen.energies.weight.requires_grad_(False)
    with pytest.raises(UserError, match="No parameter"):
        train_energy(tmp_path / "c", frozen, data, pool, validation=validation, fitting=FITTING)


def test_an_energy_that_is_no_number_stops_the_training(scene, tmp_path):
    data, pool, validation = scene
    energy = Table()
    with torch.no_grad():
        energy.energies.weight.fill_(math.nan)
    with pytest.raises(UserError, match="The loss is nan"):
        train_energy(tmp_path / "run", energy, data, pool, validation=validation, fitting=FITTING)
    assert issubclass(NonFiniteError, UserError)
