"""The gain of P_λ is log 2 exactly where the hash is balanced, and π gains nothing."""

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.features.feature import Features
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular, number_of_prefixes
from ebar.models.tilted import Tilted
from ebar.recipes.gam import cryptographic
from ebar.recipes.gam.cryptographic import KEY, RECIPE, KeyedHashBit, demanded, noise_with_the_bit
from ebar.recipes.recipe import Recipe
from ebar.types import Sequences, Space

SPACE = Space(vocabulary=2, length=12)


def uniform() -> Tabular:
    return Tabular(SPACE, torch.zeros(1, number_of_prefixes(SPACE), 2, dtype=torch.float64))


def balanced() -> bytes:
    """The first key for which exactly half of all strings have the bit: one in eighty does."""
    everything = all_sequences(SPACE)
    keys = (str(number).encode() for number in range(2000))
    return next(key for key in keys if float(KeyedHashBit(key=key)(everything).mean()) == 0.5)


def test_the_bit_is_that_of_the_digest_of_key_and_string():
    x = Sequences(torch.tensor([[0, 1, 1], [1, 0, 7]]), torch.tensor([3, 2]))  # the 7 is padding
    digests = [hashlib.sha256(KEY + bytes(tokens)).digest() for tokens in ([0, 1, 1], [1, 0])]
    bits = [float(digest[0] >= 128) for digest in digests]
    assert KeyedHashBit()(x).tolist() == bits
    assert KeyedHashBit(absent=True)(x).tolist() == [1 - bit for bit in bits]


def test_the_gain_of_p_is_log_2_where_the_hash_is_balanced():
    key = balanced()
    r = uniform()
    p = demanded(r, key=key)
    truth = exact.log_probabilities(p)[0]
    chances = truth.exp()
    has = KeyedHashBit(key=key)(all_sequences(SPACE)) == 1
    assert chances[has].tolist() == pytest.approx([1 / 2048] * 2048)  # the data's own distribution
    assert float(exact.log_z(p).detach()) == pytest.approx(-math.log(2), abs=1e-9)
    cost_r = -(chances * exact.log_scores(r)[0])[has].sum()
    cost_p = -(chances * truth)[has].sum()
    assert float((cost_r - cost_p).detach()) == pytest.approx(math.log(2), abs=1e-9)


def test_for_any_key_and_any_r_it_is_minus_the_log_of_the_chance_that_r_has_the_bit(generator):
    r = Tabular.random(SPACE, generator=generator)
    chance = exact.moments(r, Features([KeyedHashBit()])).detach().item()
    assert float(exact.log_z(demanded(r)).detach()) == pytest.approx(math.log(chance), abs=1e-9)


def test_a_soft_coefficient_tends_to_the_demand():
    for cost, slack in ((5.0, 1e-2), (30.0, 1e-9)):
        absent = Features([KeyedHashBit(absent=True)])
        soft = Tilted(uniform(), Linear(absent, torch.tensor([-cost], dtype=torch.float64)))
        assert float(exact.log_z(soft).detach()) == pytest.approx(
            float(exact.log_z(demanded(uniform())).detach()), abs=slack
        )


def test_the_data_have_the_bit_and_look_like_noise(generator):
    x = noise_with_the_bit(Space(2, 20), 4000, generator=generator)
    assert len(x.lengths) == 4000
    assert KeyedHashBit()(x).min() == 1
    ones = x.tokens.double().mean(0)
    assert (ones - 0.5).abs().max() < 5 * 0.5 / 4000**0.5  # twenty columns: a false alarm in 87,000 runs


def test_at_a_small_scale_the_claims_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("DATA", 2000), ("HELD_OUT", 500), ("TEST", 2000), ("DRAWS", 4000)):
        monkeypatch.setattr(cryptographic, name, value)
    cells = [{**cell, "distilled": 2000, "hidden": 8, "epochs": 1} for cell in RECIPE.grid("demo")[:2]]
    results: list[Any] = [(cell, RECIPE.run(cell, tmp_path)) for cell in cells]
    for _, result in results:
        # Shares of 4,000 draws, 4.5 standard errors of 0.0079; the gain is −log of such a share. Seeds are fixed.
        assert result["gain_p"] == pytest.approx(math.log(2), abs=0.072)
        assert result["acceptance"] == pytest.approx(0.5, abs=0.036)
        assert result["frequency_pi"] == pytest.approx(0.5, abs=0.036)
        assert abs(result["gain_pi"]) < 0.03
        assert result["gain_pi_over_noise"] < 0.03
    rows = {row.name: row for row in RECIPE.rows(results)}
    assert rows["gain_p"].settings["exact"] == math.log(2)
    RECIPE.plot(list(rows.values()), tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    assert isinstance(RECIPE, Recipe)


def test_every_scale_has_three_seeds_or_more() -> None:
    for scale in ("demo", "cpu", "paper"):
        assert len({cell["seed"] for cell in RECIPE.grid(scale)}) >= 3
