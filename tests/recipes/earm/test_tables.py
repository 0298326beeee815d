"""What the smaller tables of E-ARM make of finished runs, with numbers small enough to be worked out on paper."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from ebar.build.train import build_corpus, build_model
from ebar.evaluation.exposure_bias import words_of
from ebar.objectives.earm import Earm
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.recipes import SCALES, find_recipe
from ebar.recipes.earm import ablations, cases, exposure, language, overfitting, resampling, timing
from ebar.recipes.earm.ablations import RECENT, WITHOUT_CE
from ebar.recipes.earm.cases import CASES
from ebar.recipes.earm.exposure import TABLE8
from ebar.recipes.earm.overfitting import FIGURE2
from ebar.recipes.earm.resampling import TABLE9
from ebar.recipes.earm.tables import TABLE1, TABLE2, TABLE7, TABLE10
from ebar.recipes.earm.translation import SCHEDULED, SEEDS, SMOOTHED, WAYS, WEIGHTS, resampled, word_beginnings
from ebar.recipes.earm.twins import BASE, LEFT, PAIRED, best_epoch, configurations, share_of_learning
from ebar.recipes.recipe import Cell, Row, several
from ebar.samplers.beam import beam_search
from ebar.types import Clock, Objective, Sequences

READINGS = ("table7", "table8", "table9", "table10", "cases")


def estimate(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 1, "high": value + 1, "effective_sample_size": 50.0, "warning": None}


def branch(bleu: float, seed: int) -> dict[str, Any]:
    """Longer sentences score 1 and 2 less, resampling 0.5 less, each metric its own; a seed adds 0.1."""
    bleu += seed / 10
    return {
        "bleu": {"1": estimate(bleu - 3), "5": estimate(bleu)},
        "by_length": {
            "[0, 2)": estimate(bleu),
            "[2, 3)": estimate(bleu - 1),
            "[3, ∞)": None if bleu < 20 else estimate(bleu - 2),
        },
        "overlap": {
            "ROUGE-1": estimate(2 * bleu), "ROUGE-2": estimate(bleu + 1), "ROUGE-L": estimate(bleu + 2),
        },
        "resampling": {
            k: {"bleu": {way: estimate(bleu - less - place) for place, way in enumerate(WAYS)},
                "effective": dict.fromkeys(WEIGHTS, 2.0)}
            for k, less in (("5", 0.5), ("10", 0.25))
        },
        "curves": {"training": [[10, 5.0], [20, 3.0], [30, 2.0]], "validation": [[25, 4.0], [50, 3.0 + seed]]},
        "texts": ["one two", "six"],
        "nats_per_token": estimate(2.0),
    }  # fmt: skip


def results(cells: Sequence[Cell], gain: float = 1.0) -> list[tuple[Cell, dict[str, Any]]]:
    """Label smoothing adds 2 to BLEU, scheduled sampling 3; E-ARM `gain`, and half as much on the second seed."""
    base = {"base": 30.0, "label smoothing": 32.0, "scheduled sampling": 33.0}
    return [
        (
            cell,
            {
                "twins": {
                    "base": branch(base[cell["variant"]], cell["seed"]),
                    "earm": branch(base[cell["variant"]] + gain / (1 + cell["seed"]), cell["seed"]),
                },
                "exposure": {
                    part: {
                        of: {"own": estimate(own + cell["seed"] / 10), "gold": estimate(0.5 + cell["seed"] / 10),
                             "own_tested": 80, "gold_tested": 90}
                        for of, own in (("words", 0.6), ("tokens", 0.55))
                    }
                    for part in ("train", "test")
                },
                "difference": {"1": estimate(0.0), "5": estimate(0.0)},
                "sources": ["eins zwei", "fünf"],
                "references": ["one two", "five"],
            },
        )
        for cell in cells
    ]  # fmt: skip


def one(rows: Sequence[Row], name: str, **settings: Any) -> Any:
    (found,) = [row for row in rows if row.name == name and settings.items() <= row.settings.items()]
    return found


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("scale", SCALES)
def test_readings_need_no_run_that_table_1_has_not(name: str, scale: str) -> None:
    finished = {json.dumps(cell) for cell in TABLE1.grid(scale)}
    recipe = find_recipe(f"earm/{name}")
    assert {json.dumps(cell) for cell in recipe.grid(scale)} <= finished
    assert recipe.runs == TABLE1.runs
    assert recipe.run is TABLE1.run


def test_bleu_by_length_stands_beside_the_documents_bin_of_the_same_rank() -> None:
    rows = TABLE7.rows(results(TABLE7.grid("demo")))
    short = one(rows, "BLEU, beam 5", system="base", words="[0, 2)")
    assert short.value == pytest.approx(32.05)  # seeds: 32, 32.1
    assert short.document == 37.72
    assert one(rows, "BLEU, beam 5", system="base", words="[2, 3)").value == pytest.approx(31.05)
    long = one(rows, "BLEU, beam 5", system="scheduled sampling + E-ARM", words="[3, ∞)")
    assert long.value == pytest.approx(31.8)  # 33 + 1 − 2, 33.1 + 0.5 − 2
    assert long.document == 31.43
    paired = one(rows, "BLEU, beam 5, paired difference", words="all", system="E-ARM − base")
    assert paired.value == pytest.approx(0.75)
    # Student's t of one degree of freedom is 12.706; the deviation of 1 and ½ over √2 is ¼.
    assert paired.low == pytest.approx(0.75 - 12.7062 / 4, abs=1e-4)
    assert paired.document is None
    paired = one(rows, "BLEU, beam 5, paired difference", words="[3, ∞)",
                 system="scheduled sampling + E-ARM − scheduled sampling")  # fmt: skip
    assert paired.document == 0.35


def test_an_empty_bin_is_said_to_be_empty() -> None:
    # 50 less: no base reaches 20, below which there is no long sentence.
    found = [
        (cell, {**result, "twins": {name: branch(10.0, cell["seed"]) for name in ("base", "earm")}})
        for cell, result in results(TABLE7.grid("demo"))
    ]
    rows = TABLE7.rows(found)
    long = [row for row in rows if row.settings["words"] == "[3, ∞)"]
    assert {row.value for row in long} == {None}
    assert all(row.warning for row in long)


def test_exposure_bias_is_counted_from_one_half() -> None:
    rows = TABLE8.rows(results(TABLE8.grid("demo")))
    place = {"pairs": "training pairs", "of": "words"}
    own = one(rows, exposure.SHARE, prefix="own decoding", **place)
    assert (own.value, own.document) == (pytest.approx(0.65), 0.6412)
    others = [row for row in rows if row.name == exposure.SHARE and row is not own]
    assert len(others) == 7
    assert all(row.document is None for row in others)  # the paper counts words of training pairs
    assert one(rows, exposure.SHARE, prefix="reference", **place).value == pytest.approx(0.55)
    assert one(rows, exposure.EXCESS, prefix="own decoding", **place).value == pytest.approx(0.15)
    paired = one(rows, "paired difference of the shares", **place)
    assert (paired.value, paired.low, paired.high) == tuple(pytest.approx(0.1) for _ in range(3))
    single = TABLE8.rows(results(TABLE8.grid("demo")[:1]))
    low = one(single, exposure.EXCESS, prefix="own decoding", **place).low
    assert low == pytest.approx(-0.9)  # −0.4 − ½


def test_resampling_is_compared_with_beam_search_of_the_same_model() -> None:
    rows = TABLE9.rows(results(TABLE9.grid("demo")))
    best = one(rows, "BLEU", system="E-ARM", K="0")
    assert (best.value, best.document) == (pytest.approx(32.8), 34.86)
    base = one(rows, "BLEU", system="base", K="5", choice=resampling.WORDED)
    assert (base.value, base.document) == (pytest.approx(31.55), None)
    paired = one(rows, "BLEU, paired difference", system="E-ARM", K="10 − 0", choice=resampling.WORDED)
    assert (paired.value, paired.document) == (pytest.approx(-0.25), 0.02)
    # The fifth of the ways, and none that the paper has.
    other = one(rows, "BLEU, paired difference", system="E-ARM", K="10 − 0", choice=resampling.BEST_BY_ENERGY)
    assert (other.value, other.document) == (pytest.approx(-4.25), None)
    assert one(rows, resampling.EFFECTIVE, system="base", K="5", weight="q alone").value == 2.0


def test_candidates_chosen_by_q_alone_are_the_beams(tmp_path: Path) -> None:
    """The likeliest candidate is the best of a beam without a penalty for length; by the energy it may be another."""
    cell = next(cell for cell in TABLE9.grid("demo"))
    run = configurations(cell, tmp_path)[BASE]
    corpus = build_corpus(run)
    torch.manual_seed(0)
    model = build_model(run, corpus.space, corpus.shape).eval()
    texts, effective = resampled(model, corpus, 3, 0)
    sources = corpus.sources("test")
    beam = beam_search(model, sources, width=3, length_penalty=0.0, best=3)
    assert texts["best by q alone"] == corpus.text(beam.first())
    assert set(texts) == set(WAYS)
    likely = [corpus.text(beam.x.select(torch.arange(place, len(beam.x.lengths), 3))) for place in range(3)]
    for way in WAYS:
        assert all(text in group for text, group in zip(texts[way], zip(*likely, strict=True), strict=True))
    wanted = 1 / torch.softmax(beam.log_probs, 1).square().sum(1)
    assert effective["q alone"] == pytest.approx(float(wanted.mean()), rel=1e-5)


def test_words_begin_with_a_blank(tmp_path: Path) -> None:
    corpus = build_corpus(configurations(TABLE8.grid("demo")[0], tmp_path)[BASE])
    assert corpus.tokeniser is not None
    begins = word_beginnings(corpus)
    text = "twelve eleven ten"
    tokens = corpus.tokeniser.encode(text)
    words = words_of([*tokens, corpus.space.end or 0], begins, corpus.space.end)
    assert [corpus.tokeniser.decode(word) for word in words] == ["twelve", " eleven", " ten"]


def test_the_share_of_the_learning_that_is_left() -> None:
    """Four steps after a warm-up of none: constant, half is left after the first of two epochs; of √(1/t) less."""
    cell = {"configuration": {"schedule": {"kind": "constant", "warmup": 0}}}
    assert share_of_learning(cell, 1, [[2, 1.0], [4, 1.0]]) == 0.5
    cell = {"configuration": {"schedule": {"kind": "inverse_square_root", "warmup": 1}}}
    rates = [1, 2**-0.5, 3**-0.5, 0.5]
    assert share_of_learning(cell, 1, [[2, 1.0], [4, 1.0]]) == pytest.approx(sum(rates[2:]) / sum(rates))
    assert share_of_learning(cell, 0, [[2, 1.0], [4, 1.0]]) == 1.0
    cell = {"configuration": {"schedule": {"kind": "cosine", "warmup": 0}}}
    assert share_of_learning(cell, 5, [[100 * epoch, 0.0] for epoch in range(1, 9)]) < 0.11  # from 5/8 on
    assert best_epoch([[1, 3.0], [2, 1.0], [3, 2.0]]) == 2
    rows = TABLE1.rows(results(TABLE1.grid("demo")))
    assert one(rows, "epoch of the lowest held-out loss, E-ARM", variant=SMOOTHED).value == 1.5  # seeds: 2, 1
    assert 0 < one(rows, LEFT, variant=SMOOTHED).value < 1


def test_other_metrics_and_meteor_only_where_it_was_measured() -> None:
    found = results(TABLE10.grid("demo"))
    rows = TABLE10.rows(found)
    assert {row.name for row in rows if "METEOR" in row.name} == set()
    two = one(rows, "ROUGE-1", system="base")
    assert (two.value, two.document) == (pytest.approx(64.1), 66.51)
    assert one(rows, "ROUGE-L, paired difference", system="scheduled sampling − base").document == 0.33
    assert one(rows, "BLEU", system="E-ARM").value == pytest.approx(32.8)
    for _, result in found:
        for twin in result["twins"].values():
            twin["overlap"]["METEOR"] = estimate(twin["bleu"]["5"]["value"] + 3)
    rows = TABLE10.rows(found)
    assert one(rows, "METEOR", system="scheduled sampling + E-ARM").document == 65.13
    assert one(rows, "METEOR, paired difference", system="scheduled sampling − base").document == 0.26


def test_curves_by_epoch() -> None:
    found = overfitting.of_epochs(branch(0.0, 1)["curves"])
    assert found == {"training": {1: 4.0, 2: 2.0}, "validation": {1: 4.0, 2: 4.0}}
    made = results(FIGURE2.grid("demo"))  # two epochs, E-ARM in the second
    for _, result in made:
        result["twins"]["earm"]["curves"]["validation"][1][1] += 0.5
    rows = FIGURE2.rows(made)
    assert one(rows, "held-out nats per token", system="base", epoch=2).value == pytest.approx(3.5)
    paired = one(rows, "held-out nats per token, E-ARM − base, paired", epoch=2)
    assert (paired.value, paired.low, paired.document) == (pytest.approx(0.5), pytest.approx(0.5), "below 0")
    assert len([panel for plot in several(FIGURE2.plots) for panel in plot(rows)]) == 2


def test_differences_from_the_reference_are_marked_and_counted() -> None:
    assert cases.marked("the cat sat here", "the dog sat") == "the *cat* sat *here*"
    assert cases.marked("the sat", "the dog sat") == "the sat"
    assert cases.marked("", "the dog") == ""
    # cat, here and dog are alone, of 7 words.
    assert cases.unmatched_share(["the cat sat here"], ["the dog sat"]) == pytest.approx(3 / 7)
    assert cases.unmatched_share(["a b", "c"], ["a b", "d"]) == pytest.approx(2 / 6)
    assert cases.most_different([["a b", "c", "e"], ["a b", "d", "e"], ["a c", "f", "e"]], most=2) == [1, 0]


def test_cases_hold_the_texts_of_all_systems() -> None:
    found = results(CASES.grid("demo"))
    for cell, result in found:
        if cell["variant"] == "scheduled sampling":
            result["twins"]["base"]["texts"] = ["one three", "five"]
    rows = CASES.rows(found)
    assert one(rows, cases.DIFFERENT, system="base").value == pytest.approx(2 / 6)
    assert one(rows, cases.DIFFERENT + PAIRED, system="base + scheduled sampling − base").value == pytest.approx(0.0)
    shown = {(row.name, row.settings["system"]): row.settings["text"] for row in rows if row.name.startswith("case")}
    assert shown["case 1", "source"] == "fünf"
    assert shown["case 1", "base"] == "*six*"
    assert shown["case 1", "base + scheduled sampling"] == "five"
    assert shown["case 2", "base + scheduled sampling"] == "one *three*"
    assert shown["case 2", "E-ARM"] == shown["case 2", "reference"] == "one two"


def test_sizes_are_not_mixed() -> None:
    cells = [cell for cell in TABLE2.grid("paper") if cell["seed"] < 3]
    made = results(cells)
    for cell, result in made:
        if cell["size"] == "large":
            for measured in result["twins"].values():
                measured["bleu"]["5"]["value"] += 10
    rows = TABLE2.rows(made)
    for size, value, told in (("base", 30.1, 27.56), ("large", 40.1, 28.70)):
        found = one(rows, "BLEU, beam 5", size=size, system="base")
        assert (found.value, found.document) == (pytest.approx(value), told)
        paired = one(rows, "BLEU, beam 5, paired difference", size=size,
                     system="scheduled sampling + E-ARM − scheduled sampling")  # fmt: skip
        assert paired.value == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert {cell["direction"] for cell in cells} == {"en→de"}
    large = next(cell for cell in TABLE2.grid("paper") if cell["size"] == "large")
    backbone = large["configuration"]["backbone"]
    assert (backbone["hidden"], backbone["feedforward"], backbone["heads"]) == (1024, 4096, 16)
    assert large["twins"]["earm"]["start_epoch"] == 10


def test_a_median_of_times_has_the_interval_of_the_sign_test() -> None:
    # Of 25 values the 8th and the 18th, as in every table; of 6 all of them (1 − 2/2⁶ = 97 %); of 5 none.
    row = timing.median_row("s", {}, [float(value) for value in range(25, 0, -1)], None)
    assert (row.value, row.low, row.high) == (13.0, 8.0, 18.0)
    row = timing.median_row("s", {}, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], None)
    assert (row.value, row.low, row.high) == (3.5, 1.0, 6.0)
    row = timing.median_row("s", {}, [1.0, 2.0, 3.0, 4.0, 5.0], None)
    assert (row.value, row.low, row.warning) == (3.0, None, "5 rounds are too few for an interval")


def test_times_are_compared_round_by_round() -> None:
    seconds = {"base": [1.0, 2.0, 4.0], "E-ARM": [3.0, 4.0, 16.0], "Langevin, 20 steps": [9.0, 20.0, 32.0]}
    rows = timing.TABLE11.rows([({}, {"seconds": seconds})])
    found = one(rows, timing.RATIO, method="E-ARM")
    assert (found.value, found.document) == (3.0, 5.34)  # the ratio of the medians would be 2
    assert one(rows, timing.PER_100, method="base").value == 200.0
    dynamics = one(rows, timing.TO_EARM, method="Langevin, 20 steps")
    assert (dynamics.value, dynamics.document) == (3.0, 4.33)  # of 3, 5 and 2


def test_every_method_of_the_paper_is_timed(tmp_path: Path) -> None:
    [cell] = timing.TABLE11.grid("demo")
    runs = configurations(cell, tmp_path)
    corpus = build_corpus(runs[BASE])
    methods = timing.methods_of(runs, build_model(runs[BASE], corpus.space), 10)
    assert set(methods) == set(timing.SECONDS)


def test_the_cells_of_an_ablation_differ_in_nothing_but_the_seed() -> None:
    for scale in SCALES:
        cells = [dict(cell) for cell in RECENT.grid(scale)]
        for cell in cells:
            assert cell["configuration"].pop("seed") == cell.pop("seed")
        assert all(cell == cells[0] for cell in cells)
    for scale, factors in (("cpu", [0, 1, 2, None]), ("paper", [0, 1, 2, 3, 5, None])):
        assert [twin["recent"] for twin in RECENT.grid(scale)[0]["twins"].values()] == factors
    costs = {"base": 2.0, "0": 1.9, "2": 1.5, "all": 1.75}
    made: list[tuple[Cell, dict[str, Any]]] = [
        ({"seed": seed}, {"twins": {name: {"nats_per_token": estimate(cost + seed)} for name, cost in costs.items()}})
        for seed in range(2)
    ]
    rows = RECENT.rows(made)
    assert one(rows, language.GAIN, m="2").value == pytest.approx(-0.5)
    assert one(rows, ablations.FROM_TWO, m="all").value == pytest.approx(0.25)
    assert {row.settings["m"] for row in rows if row.name == ablations.FROM_TWO} == {"0", "all"}
    assert one(rows, ablations.COST, m="2").document == "best"


@pytest.mark.parametrize("data_term", [True, False])
def test_the_term_alone_is_earm_less_the_cross_entropy(data_term: bool, tmp_path: Path) -> None:
    run = configurations(WITHOUT_CE.grid("demo")[0], tmp_path)[BASE]
    corpus = build_corpus(run)
    torch.manual_seed(0)
    model = build_model(run, corpus.space).double()
    batch: Sequences = corpus.train.select(torch.arange(10))

    def value(objective: Objective) -> float:
        (loss,) = objective.losses(batch, Clock(0, 0), generator=Generator().manual_seed(1))
        return float(loss.value.detach())

    both = value(Earm(model=model, weight=1.0, data_term=data_term))
    alone = value(Earm(model=model, weight=1.0, data_term=data_term, cross_entropy=False))
    assert alone == pytest.approx(both - value(MaximumLikelihood(model=model)), abs=1e-9)
    assert abs(alone) > 0.1


def test_curves_without_cross_entropy_end_beside_those_with_it() -> None:
    def curve(end: float) -> dict[str, Any]:
        return {"curves": {"validation": [[5, 3.0], [10, end]]}}

    made: list[tuple[Cell, dict[str, Any]]] = [
        ({"seed": seed}, {"twins": {BASE: curve(2.0 + seed), ablations.SCRATCH: curve(4.0 + seed)}})
        for seed in range(2)
    ]
    rows = WITHOUT_CE.rows(made)
    found = one(rows, ablations.AT_THE_END)
    assert (found.value, found.low, found.document) == (pytest.approx(2.0), pytest.approx(2.0), "did not work well")
    assert one(rows, ablations.HELD_OUT, epoch=2, **{"trained by": "cross-entropy"}).value == pytest.approx(2.5)
    (panel,) = [panel for plot in several(WITHOUT_CE.plots) for panel in plot(rows)]
    assert [line.dashed for line in panel.lines] == [False, True]  # type: ignore[union-attr]


def test_settings_of_the_readings_are_those_of_the_paper() -> None:
    def objectives(cells: Sequence[Cell]) -> list[dict[str, Any]]:
        return [{"twin": cell["twins"]["earm"], **cell["configuration"]["objective"]} for cell in cells]

    assert {one["kind"] for one in objectives(TABLE8.grid("paper"))} == {"maximum_likelihood"}
    for one in objectives([*TABLE7.grid("cpu"), *TABLE8.grid("cpu")]):
        assert one["label_smoothing"] == one["twin"]["label_smoothing"] == 0.1
        assert one["kind"] == one["twin"].get("base", "maximum_likelihood")
    assert {cell["variant"] for cell in TABLE7.grid("cpu")} == {SMOOTHED, SCHEDULED}
    assert all(cell["measures"]["candidates"] == [5, 10] for cell in TABLE9.grid("cpu"))
    assert {cell["direction"] for cell in FIGURE2.grid("paper")} == {"es→en"}
    assert len(TABLE1.grid("cpu")) == 3 * len(SEEDS["cpu"])


def test_sentences_at_scale_paper_are_in_a_file_for_each_language() -> None:
    data = next(cell for cell in TABLE1.grid("paper") if cell["direction"] == "en→it")["configuration"]["data"]
    assert (data["train"], data["train_target"]) == ("iwslt14/train.en", "iwslt14/train.it")
    assert data["validation"] == "iwslt14/valid.en"
    data = TABLE2.grid("cpu")[0]["configuration"]["data"]
    assert (data["train"], data["source_column"], data["target_column"]) == ("tatoeba-deu-eng/train.tsv.xz", 0, 1)


def test_perplexities_stand_beside_the_papers_where_the_text_is_the_same() -> None:
    def made(cell: Cell) -> tuple[Cell, dict[str, Any]]:
        costs = {
            name: estimate(2.0 + place / 4 + cell["seed"] / 8) for place, name in enumerate([BASE, *cell["twins"]])
        }
        epochs = cell["configuration"]["training"]["epochs"]
        curves = {"effective_share": [[10, 0.9], [20, 0.5 + cell["seed"] / 10]],
                  "validation": [[10 * epoch, 3.0] for epoch in range(1, epochs + 1)]}  # fmt: skip
        twin = {"nats_per_word": None, "curves": curves}
        return cell, {"twins": {name: {**twin, "nats_per_token": cost} for name, cost in costs.items()}}

    for recipe, scale, corpus, weight, without, with_earm, less in (
        (language.TABLE3, "paper", "wikitext-103", 0.05, 30.56, 29.89, -0.0222),
        (language.TABLE3_XL, "paper", "wikitext-103, Transformer-XL", 0.02, 24.20, 23.81, -0.0162),
        (language.TABLE3, "cpu", "enwik8-10m", 0.02, None, None, None),
    ):
        rows = recipe.rows([made(cell) for cell in recipe.grid(scale) if cell["corpus"] == corpus])
        plain, other = (one(rows, language.PERPLEXITY, λ=λ) for λ in (0.0, weight))
        assert (plain.value, plain.document) == (pytest.approx(_mean_of_exp(2.0)), without)
        assert (other.value, other.document) == (pytest.approx(_mean_of_exp(2.25)), with_earm)
        paired = one(rows, language.GAIN, λ=weight)
        assert (paired.value, paired.document) == (pytest.approx(0.25), less)
        assert one(rows, language.SHARE, λ=weight).value == 0.5
        assert 0 < one(rows, LEFT, λ=weight).value < 1
        assert bool([row for row in rows if row.name.startswith("bits per byte")]) == (scale == "cpu")
        said = [claim(rows) for claim in several(recipe.claims)]
        assert isinstance(said[-1], str)
        assert "would have told from 0 with 80 % power" in said[-1]
    rows = language.TABLE4.rows([made(cell) for cell in language.TABLE4.grid("paper")])
    place = {"λ": 0.05, "start epoch": 15}
    assert one(rows, language.PERPLEXITY, **place).document == 29.89
    assert one(rows, language.GAIN, **place).value == pytest.approx(0.5)
    assert not [row for row in rows if row.name == language.GAIN and row.settings["λ"] == 0.0]
    assert one(rows, language.FROM_BEST, **{"λ": 0.5, "start epoch": 5}).value == pytest.approx(0.5)
    assert not [row for row in rows if row.name == language.FROM_BEST and place.items() <= row.settings.items()]


def _mean_of_exp(nats: float) -> float:
    return sum(math.exp(nats + seed / 8) for seed in range(5)) / 5


@pytest.mark.parametrize("scale", ["demo", "cpu"])
def test_table_4_has_the_runs_of_table_3_on_the_same_text(scale: str) -> None:
    runs = {json.dumps(cell) for cell in language.TABLE4.grid(scale)}
    corpus = language.TABLE4.grid(scale)[0]["corpus"]
    assert {json.dumps(cell) for cell in language.TABLE3.grid(scale) if cell["corpus"] == corpus} <= runs
    assert language.TABLE3.runs == language.TABLE4.runs
    assert language.TABLE3.run is language.TABLE4.run
