"""What `ebar evaluate`, `estimate` and `decode` do, as functions of objects."""

import math
from pathlib import Path

import pytest
import torch

import ebar
from ebar.errors import UserError
from ebar.types import Estimate


@pytest.fixture
def data() -> ebar.Corpus:
    return ebar.language(motif="11", length=4, size=40, test_size=30)


def test_evaluate_gives_the_figures_of_the_test_set_and_of_draws(data: ebar.Corpus) -> None:
    torch.manual_seed(0)
    model = ebar.lstm(data, hidden=4, layers=1)
    found = ebar.evaluate(model, data, features=[ebar.Expression("0{2}")], draws=50).figures
    cost, entropy = found["cross_entropy"], found["entropy"]
    assert isinstance(cost, Estimate)
    assert isinstance(entropy, Estimate)
    assert cost.value == pytest.approx(-float(model.eval().log_prob(data.test).detach().mean()), rel=1e-5)
    assert entropy.value == pytest.approx(math.log(8))  # strings of 4 bits with 11 in them
    assert {"frequency of motif 11", "frequency of expression 0{2}", "mean_length"} <= set(found)
    torch.manual_seed(0)
    again = ebar.evaluate(ebar.lstm(data, hidden=4, layers=1), data, features=[ebar.Expression("0{2}")], draws=50)
    assert again.figures == found  # torch's own state decides


def test_estimate_agrees_with_what_is_known_exactly() -> None:
    space = ebar.Space(2, 2)
    base = ebar.Tabular(space, torch.zeros(1, 3, 2, dtype=torch.float64))
    ones = ebar.Predicate(lambda tokens: tokens == [1, 1], name="ones", end=None)
    target = ebar.Tilted(base, ebar.Linear(ebar.Features([ones]), torch.tensor([math.log(5)]).double()))
    found = ebar.estimate(target, 2000, within=0.1, generator=torch.Generator().manual_seed(0))
    log_z, mean = found["log_z"], found["tilted: mean of ones"]
    assert isinstance(log_z, Estimate)
    assert isinstance(mean, Estimate)
    assert log_z.low < math.log(2) < log_z.high  # (1 + 1 + 1 + 5)/4
    assert mean.low < 5 / 8 < mean.high
    assert "draws for log_z" in found
    with pytest.raises(UserError, match="without weights"):
        ebar.estimate(target, 10, sampler=ebar.Metropolis())


def test_decode_continues_lines(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcab\n" * 30)
    data = ebar.read_text(tmp_path / "text.txt", tokeniser="characters", length=6)
    model = ebar.lstm(data, hidden=4, layers=1)
    how = ebar.Decoding(method="sample", best=2)
    generator = torch.Generator().manual_seed(0)
    found = list(ebar.decode(model, data, ["ab", "abc"], how, generator=generator))
    assert [(one.source, [len(output.text) for output in one.outputs]) for one in found] == [
        ("ab", [4, 4]),
        ("abc", [3, 3]),
    ]
    with pytest.raises(UserError, match="line 2"):
        list(ebar.decode(model, data, ["ab", "xyz"]))
    with pytest.raises(UserError, match="Greedy search finds one"):
        ebar.Decoding(method="greedy", best=2)
