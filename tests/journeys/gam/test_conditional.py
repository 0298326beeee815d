"""A GAM of pairs: draws and figures against exact numbers, and the whole journey by its command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

import ebar
from ebar.cli import main
from ebar.energies.linear import Linear
from ebar.estimators import exact
from ebar.features.feature import Features
from ebar.features.regular import Motif
from ebar.journeys.gam.conditional import cost_of_pairs, draw_pairs, joined
from ebar.maths.enumeration import all_sequences
from ebar.models.ngram import Tabular
from ebar.models.tilted import Tilted
from ebar.recipes.grid import toy_file
from ebar.samplers.rejection import Rejection
from ebar.types import Context, Sequences, Space
from tests.models.examples import three_contexts

SPACE = Space(vocabulary=3, length=3)
EVERYTHING = all_sequences(SPACE)
FEATURES = Features([Motif(motif="01", alphabet="012", end=None), Motif(motif="2", alphabet="012", end=None)])
SIGMAS = 4.5  # two-sided: one false alarm in 150,000 runs, for each of the few numbers compared


@pytest.fixture
def model() -> Tilted:
    base = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1))
    return Tilted(base, Linear(FEATURES, torch.tensor([1.5, -1.0], dtype=torch.float64)))


@torch.no_grad()
def test_each_source_has_draws_of_its_own_distribution(model: Tilted, generator: Generator) -> None:
    context = three_contexts().repeat(2)  # six rows, two of each: they need not be different
    drawn = draw_pairs(model, context, 6 * 500 + 2, Rejection(), generator=generator)
    assert len(drawn.x.lengths) == drawn.context.rows == 3002
    rows = [tuple(row) for row in context.given.rows()]
    counted = [rows.index(tuple(row)) for row in drawn.context.given.rows()]
    assert sorted(counted.count(row) for row in set(counted)) == [1000, 1000, 1002]
    chances = exact.log_probabilities(model, three_contexts()).exp()
    values = FEATURES(EVERYTHING).double()
    for condition in range(3):
        own = drawn.x.select(torch.tensor([row // 2 == condition for row in counted]))
        wanted = chances[condition] @ values
        spread = (wanted * (1 - wanted) / len(own.lengths)).sqrt()
        assert ((FEATURES(own).double().mean(0) - wanted).abs() < SIGMAS * spread + 1e-12).all()
    assert 0 < drawn.accepted / drawn.proposed < 1


@torch.no_grad()
def test_costs_moments_and_divergence_are_the_exact_ones_within_their_intervals(
    model: Tilted, generator: Generator
) -> None:
    three = three_contexts()
    log_p = exact.log_probabilities(model, three)
    student = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(2))
    log_student = exact.log_probabilities(student, three)
    rows = torch.arange(3).repeat_interleave(100)
    x = EVERYTHING.select(torch.cat([torch.multinomial(log_p[row].exp(), 100, True, generator=generator)
                                     for row in range(3)]))  # fmt: skip
    found = cost_of_pairs(
        model, student, FEATURES, (x, three.select(rows)), draws=300 * 100, generator=generator
    )  # fmt: skip
    # The pairs are given: over other draws of r the cost is that of these very pairs, per token.
    places = {tuple(row): place for place, row in enumerate(EVERYTHING.rows())}
    costs = torch.stack([-log_p[row, places[tuple(word)]] for row, word in zip(rows, x.rows(), strict=True)]) / 3
    assert found.per_token.value == pytest.approx(float(costs.mean()), abs=0.01)
    assert found.per_token.low < float(costs.mean()) < found.per_token.high
    wanted = torch.einsum("rx,xf->f", log_p.exp(), FEATURES(EVERYTHING).double()) / 3
    for estimate, true in zip(found.moments.values(), wanted.tolist(), strict=True):
        assert estimate.value == pytest.approx(true, abs=0.02)  # 30,000 draws: over 4.5 standard errors
    kl = float((log_p.exp() * (log_p - log_student)).sum(1).mean())
    assert found.divergence.value == pytest.approx(kl, abs=0.05)
    assert float(found.length.value) == pytest.approx(3.0)


def test_a_feature_that_no_draw_shows_does_not_flatter_the_model(generator: Generator) -> None:
    """r never shows what all references have; by its own draws alone Z would be 1 and the cost e^λ too good."""
    logits = torch.zeros(1, 1, 2, dtype=torch.float64)
    logits[0, 0, 1] = -30.0
    coin = Tabular(Space(vocabulary=2, length=1), logits)
    heads = Features([Motif(motif="1", alphabet="01", end=None)])
    model = Tilted(coin, Linear(heads, torch.tensor([10.0], dtype=torch.float64)))
    x = Sequences(torch.ones(40, 1, dtype=torch.long), torch.ones(40, dtype=torch.long))
    context = Context(Sequences(torch.zeros(40, 1, dtype=torch.long), torch.ones(40, dtype=torch.long)))
    found = cost_of_pairs(model, coin, heads, (x, context), draws=1, generator=generator)
    flattering = 30.0 - 10.0
    # log Z by 32 draws and the reference: log((32 + e^10)/33).
    wanted = flattering + float(torch.log((32 + torch.tensor(10.0).exp()) / 33))
    assert found.per_token.value == pytest.approx(wanted, abs=1e-4)
    assert found.per_token.low == pytest.approx(flattering, abs=1e-4)


def test_parts_are_joined_with_their_sources(generator: Generator) -> None:
    one, other = (EVERYTHING.select(slice(rows)) for rows in (2, 3))
    assert len(joined(one, other).lengths) == 5  # type: ignore[union-attr]
    context = three_contexts()
    pairs: Any = joined((one, context.select(torch.arange(2))), (other, context))
    assert pairs[1].given.rows() == context.given.rows()[:2] + context.given.rows()


WORDS = [
    "--data.kind", "parallel", "--data.vocabulary", "280", "--backbone.kind", "encoder_decoder", "--backbone.hidden",
    "16", "--backbone.feedforward", "32", "--backbone.layers", "1", "--backbone.encoder_layers", "1",
    "--backbone.heads", "2", "--features", "agrees:eins=>one", "--base.epochs", "12",
    "--continuation.epochs", "1", "--distillation.size", "60", "--distillation.validation", "20",
    "--matching.draws", "1920", "--checks", "100", "--data.held_out_limit", "20",
]  # fmt: skip


@pytest.fixture
def pairs(tmp_path: Path) -> list[str]:
    names = {"train": "train", "validation": "valid", "test": "test"}
    return [word for part, name in names.items() for word in (f"--data.{part}", str(toy_file(f"{name}.tsv", tmp_path)))]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_command_makes_r_lambda_draws_and_pi_of_pairs(
    pairs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gam", "--runs", str(tmp_path), "--name", "pairs", *pairs, *WORDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["models"]) == ["data", "r", "P_λ", "π"]
    moments = {who: column["agrees on eins=>one"] for who, column in found["moments"].items()}
    assert moments["data"]["value"] == 1.0  # in this language
    assert moments["r"]["value"] < 1.0
    assert moments["P_λ"]["value"] > moments["r"]["value"]
    assert found["lambda"][0]["agrees on eins=>one"]["value"] > 0
    assert all(one["low"] <= one["value"] <= one["high"] for one in found["models"]["P_λ"].values())
    assert len(found["examples"]["source"]) == len(found["examples"]["π"]) == 3
    folder = tmp_path / "pairs"
    lines = (folder / "round-1" / "distilled.tsv").read_text().splitlines()
    assert len(lines) == 60
    sources = {line.split("\t")[0] for line in (tmp_path / "train.tsv").read_text().splitlines()}
    assert {line.split("\t")[0] for line in lines} <= sources
    assert "source" in (folder / "report.html").read_text()
    gam: Any = ebar.load(folder)
    source = gam.data.sources("test").select(torch.tensor([0]))
    assert len(gam.pi.sample(2, source, generator=Generator().manual_seed(0)).lengths) == 2


def test_what_a_gam_of_pairs_cannot_do_is_said(
    pairs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*pairs, *WORDS[: WORDS.index("--base.epochs")], "--base.epochs", "1", "--json"]
    for number, (more, words) in enumerate(
        (
            (["--regime", "cyclical"], "trained on in two stages"),
            (["--matching.kind", "rs"], "λ is found by newton"),
        )
    ):
        name = ["gam", "--runs", str(tmp_path), "--name", f"n{number}"]
        assert main([*name, *few, *more]) == 2
        assert words in capsys.readouterr().err
