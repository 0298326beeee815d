"""The page of a journey has everything in it, and loads nothing."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ebar.build.gam import make_gam
from ebar.config.gam import GamConfig
from ebar.config.reader import Chosen
from ebar.journeys.gam import figures as figures_module
from ebar.journeys.gam.figures import GamFigures, said_once
from ebar.journeys.gam.settings import BasePhase, ContinuationPhase, Distillation
from ebar.types import Estimate

LANGUAGE = {"motif": "11", "expression": None, "alphabet": "01", "length": 5, "presence": 1.0, "stop": None, "size": 40,
            "test_size": 40}  # fmt: skip
LSTM = {"layers": 1, "hidden": 4, "dropout": 0.0, "embedding": None, "compiled": False}
GAM = GamConfig(
    data=Chosen(kind="language", options=LANGUAGE),
    features=("!motif:11", "expression:0(0|1)0"),
    backbone=Chosen(kind="lstm", options=LSTM),
    base=BasePhase(epochs=2),
    continuation=ContinuationPhase(epochs=1),
    distillation=Distillation(size=40, validation=10),
    checks=500,
)
Made = tuple[Path, GamFigures, str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder: Path = tmp_path_factory.mktemp("runs") / "one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures_module, "DRAWS", 100)
        return folder, make_gam(GAM, folder)[1], (folder / "report.html").read_text()


def test_the_page_has_what_it_must(made: Made) -> None:
    folder, figures, page = made
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles[0] == "Warnings"
    assert set(titles) >= {"What was asked", "r, P_λ and π", "How much each feature counts", "Moments", "Learning",
                           "Samples", "Time"}  # fmt: skip
    assert figures.warnings
    for sentence in (*figures.warnings, *figures.features, *figures.table(), *figures.seconds):
        assert html.escape(sentence) in page
    for model in figures.models.values():
        for figure in model.values():
            assert figure.is_exact or f"[{figure.low:.4g}, {figure.high:.4g}]" in page
    for row in figures.coefficients[0]:
        assert f"[{row.low:.4g}, {row.high:.4g}]" in page
    assert page.count("<svg") == 4  # λ, its way there, and the learning of r and π
    marked = re.findall(r"<h3>(\S+)</h3><pre>(.*?)</pre>", page, re.DOTALL)
    assert [name for name, _ in marked] == ["data", "r", "P_λ", "π"]
    assert all("<mark" in line for line in marked[0][1].splitlines())  # every one of the data has the motif
    assert (folder / "config.yaml").read_text().splitlines()[0] in page


def test_the_page_loads_nothing(made: Made) -> None:
    page = made[2]
    assert not re.findall(r"(?:src|href)=[\"'](?!#)", page)
    assert not re.findall(r"<(?:script|link|iframe|img)|@import|url\((?!#)", page)


def test_p_has_the_frequencies_of_its_samples_on_disk(made: Made) -> None:
    folder, figures, _ = made
    lines = (folder / "round-1" / "distilled.txt").read_text().splitlines()
    share = sum("11" in line for line in lines) / len(lines)
    assert figures.models["P_λ"]["motif_frequency"].value == pytest.approx(share)
    assert figures.moments["P_λ"]["no motif 11"].value == pytest.approx(1 - share)
    lengths = sum(len(line) + 1 for line in lines) / len(lines)
    assert figures.models["P_λ"]["mean_length"].value == pytest.approx(lengths)
    assert figures.models["language"]["mean_length"].value == pytest.approx(6)


def test_a_sentence_about_several_figures_is_said_once() -> None:
    said = [
        "λ, round 1: a; b",
        "samples, round 1: never seen",
        "cross-entropy of P_λ: never seen; rare",
        "KL(p‖π): rare",
    ]
    assert said_once(said) == [
        "λ, round 1: a; b",
        "samples, round 1, cross-entropy of P_λ: never seen",
        "cross-entropy of P_λ, KL(p‖π): rare",
    ]


@pytest.mark.parametrize(
    ("gain", "sentence"),
    [
        (
            Estimate(0.02, 0.01, 0.03, 40.0),
            "π gained: it costs 0.0200 [0.0100, 0.0300] nats per token less than r, on 40 test items (95 %, paired).",
        ),
        (
            Estimate(-0.02, -0.03, -0.01, 40.0),
            "π lost: it costs 0.0200 [0.0100, 0.0300] nats per token more than r, on 40 test items (95 %, paired); "
            "keep r, or give π more draws to learn from.",
        ),
        (
            Estimate(0.01, -0.01, 0.03, 40.0),
            "Nothing tells whether π gained: it costs 0.0100 [-0.0100, 0.0300] nats per token less than r, on 40 test "
            "items (95 %, paired), and 0 is in the interval.",
        ),
    ],
)
def test_one_sentence_says_whether_pi_gained(gain: Estimate, sentence: str, made: Made) -> None:
    assert made[1].items == 40
    assert replace(made[1], gains={"P_λ": Estimate.exact(1.0), "π": gain}).verdict == sentence
