"""`ebar gam`: the whole journey from one command, gone on with after being stopped."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import Generator

import ebar
from ebar.build.terms import terms_of
from ebar.cli import main
from ebar.journeys.gam import figures
from ebar.recipes.gam.data_efficiency import RECIPE
from ebar.store.writing import to_json
from ebar.training.metrics import Lines
from tests.forked import in_a_process_of_its_own

MODEL = [
    "--backbone.layers", "1", "--backbone.hidden", "4", "--base.epochs", "2", "--distillation.size", "60",
    "--distillation.validation", "20", "--continuation.epochs", "1", "--refinement.epochs", "1",
    "--student.epochs", "1", "--checks", "500",
]  # fmt: skip
FEW = ["--matching.draws", "1000"]
SMALL = ["--data.motif", "11", "--data.length", "5", "--data.size", "40", "--data.test_size", "40", *MODEL]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many draws are measured with is not what is tested here."""
    monkeypatch.setattr(figures, "DRAWS", 200)


def gam(runs: Path, name: str, *words: str) -> int:
    return main(["gam", "--runs", str(runs), "--name", name, *words])


def answer(capsys: pytest.CaptureFixture[str], runs: Path, name: str, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert gam(runs, name, *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def complaint(capsys: pytest.CaptureFixture[str], runs: Path, *words: str) -> str:
    capsys.readouterr()
    assert gam(runs, "wrong", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not (runs / "wrong" / "r").exists(), "told before any work"
    return line


def intervals(tree: Any) -> list[dict[str, Any]]:
    """Every estimate in a tree."""
    if isinstance(tree, dict):
        return [tree] if {"value", "low", "high"} <= set(tree) else intervals(list(tree.values()))
    return [found for branch in tree for found in intervals(branch)] if isinstance(tree, list) else []


def test_the_journey_ends_in_figures_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, *FEW, "--features", "!motif:11", "expression:0(0|1)0", "--exact"]
    found = answer(capsys, tmp_path, "one", *words)
    assert found["status"] == "finished"
    assert list(found["models"]) == ["language", "r", "P_λ", "π"]
    exact = found["models"]["r"]["exact_cross_entropy"]
    assert exact["low"] == exact["high"] > found["entropy_per_token"]
    ratio = found["models"]["π"]["cross_entropy_over_entropy"]["value"]
    assert ratio == pytest.approx(found["models"]["π"]["exact_cross_entropy"]["value"] / found["entropy_per_token"])
    assert found["models"]["language"]["motif_frequency"]["value"] == 1
    assert set(found["lambda"][0]) == {"no motif 11", "expression 0(0|1)0"}
    assert list(found["moments"]) == ["data", "language", "r", "P_λ", "π"]
    assert any("is 0 in all 40 of the data" in words for words in found["warnings"])
    assert all(float(one["low"]) <= float(one["value"]) <= float(one["high"]) for one in intervals(found))
    assert len(intervals(found)) > 20
    gain, costs = found["gains"]["π"], [found["models"][name]["cross_entropy"]["value"] for name in ("r", "π")]
    assert gain["value"] == pytest.approx(costs[0] - costs[1], abs=1e-9)  # all sequences have one length
    assert f"{abs(gain['value']):.4f} [" in found["verdict"]
    assert "nats per token" in found["verdict"]
    assert "on 40 test items" in found["verdict"]
    folder = tmp_path / "one"
    assert json.loads((folder / "results.json").read_text())["models"] == found["models"]
    assert json.loads((folder / "environment.json").read_text())["seed"] == 0
    asked = yaml.safe_load((folder / "config.yaml").read_text())
    assert asked["features"] == ["!motif:11", "expression:0(0|1)0"]
    assert asked["matching"]["kind"] == "newton"
    assert asked["distillation"]["size"] == 60
    assert asked["continuation"]["learning_rate"] == 2e-3, "defaults are written too"

    capsys.readouterr()  # the configuration it wrote is the same run, and a finished one is told of again
    assert gam(tmp_path, "one", "--config", str(folder / "config.yaml")) == 0
    shown = capsys.readouterr().out
    for part in ("language", "r", "P_λ", "π", "motif frequency", "no motif 11", "⚠ λ", "report.html", found["verdict"]):
        assert part in shown
    assert json.loads((folder / "results.json").read_text())["models"] == found["models"]

    same = ebar.load(folder)
    assert same.fitted.coefficients.tolist() == [float(one) for one in found["matching"][0]["coefficients"]]
    assert same.p.base is same.base
    assert same.pi.sample(2, generator=Generator()).tokens.shape[0] == 2

    for command in (
        ["evaluate", "--n", "20"],
        ["sample", "--n", "3"],
        ["estimate", "--tilt", "motif:11=1", "--n", "50"],
    ):
        assert main([command[0], str(folder / "round-1" / "pi"), *command[1:]]) == 0  # π is a run like any other

    capsys.readouterr()
    assert gam(tmp_path, "one", *words, "--seed", "1") == 2
    line = capsys.readouterr().err
    assert "holds a run of another configuration: choose another name" in line
    assert "(what differs: seed)" in line
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    data = ["--data.motif", "11", "--data.length", "5", "--data.size", "40", "--data.test_size", "40"]
    for more in ([], ["--replace_config"]):
        assert main(["train", "--runs", str(tmp_path), "--name", "one", *data, *more]) == 2
        line = capsys.readouterr().err
        assert "holds a run of another kind, whose configuration has base, checks, continuation, distillation" in line
    assert {path: path.read_bytes() for path in before} == before


def test_your_own_lines_and_a_function_of_yours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("abba\nab\nbaab\nacca\n" * 10)
    (tmp_path / "mine.py").write_text("def palindrome(text):\n    return text == text[::-1]\n")
    words = ["--data.kind", "lines", "--data.train", str(tmp_path / "lines.txt"), *MODEL]
    features = ["--features", f"predicate:{tmp_path}/mine.py:palindrome", "expression:bb|cc"]
    words += FEW
    found = answer(capsys, tmp_path, "own", *words, *features)
    assert found["entropy_per_token"] is None
    assert list(found["models"]) == ["data", "r", "P_λ", "π"]
    assert found["moments"]["data"]["palindrome"]["value"] == pytest.approx(24 / 32)  # every fifth line is held out
    assert gam(tmp_path, "own", *words, *features) == 0
    assert "mean of palindrome" in capsys.readouterr().out
    assert str(tmp_path / "mine.py") in (tmp_path / "own" / "config.yaml").read_text()


def test_a_second_round_has_a_lambda_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--features", "motif:11", "--rounds", "2", "--fresh", "--student_backbone", "{hidden: 3}"]
    found = answer(capsys, tmp_path, "two", *SMALL, *more, "--matching.kind", "snis", "--matching.samples", "50",
                   "--matching.schedule.max_epochs", "2", "--sampler.kind", "look_ahead")  # fmt: skip
    assert list(found["models"]) == ["language", "r", "P_λ", "π", "P_λ 2", "π 2"]
    assert len(found["lambda"]) == 2
    assert [one["method"] for one in found["matching"]] == ["snis", "snis"]
    config = yaml.safe_load((tmp_path / "two" / "config.yaml").read_text())
    assert config["matching"]["schedule"]["max_epochs"] == 2
    assert yaml.safe_load((tmp_path / "two" / "round-1" / "pi" / "config.yaml").read_text())["backbone"]["hidden"] == 3
    page = (tmp_path / "two" / "report.html").read_text()
    assert page.count("<svg") == 2 * 2 + 4  # λ and its way twice; r, π, π refined, π again


def test_cyclical_training_fits_and_draws_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--features", "motif:11", "--regime", "cyclical", "--matching.draws", "200"]
    found = answer(capsys, tmp_path, "cycle", *SMALL, *words, "--distillation.size", "1000")
    rounds = tmp_path / "cycle" / "round-1" / "cycle" / "rounds"
    assert len(list(rounds.glob("*.txt"))) == 2  # of 500 draws each, with a λ of its own
    drawn = "".join(path.read_text() for path in sorted(rounds.glob("*.txt")))
    assert (tmp_path / "cycle" / "round-1" / "distilled.txt").read_text() == drawn
    lambdas = [json.loads(path.read_text())["coefficients"] for path in sorted(rounds.glob("*.json"))]
    assert lambdas[0] != lambdas[1]
    assert [found["lambda"][0]["motif 11"]["value"]] == lambdas[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "A GAM needs features: give --features, or --ft for a language with a motif."),
        (["--features", "motif:11", "motif:11"], "Features are given twice: motif:11."),
        (["--features", "motif:11", "--ft", "1000000"], "Give --features or --ft, not both."),
        (["--ft", "1001"], "ft is 7 bits, one for each of m, m+0, m/2, d0, d1, d2, d3, at least one of them 1"),
        (["--features", "nothing:1"], "There is no kind of feature called 'nothing'"),
        (["--features", "motif:12"], "not in the alphabet"),
        (["--features", "predicate:none.py:f"], "There is no Python file"),
        (["--features", "motif:1", "--matching.kind", "adam"], "There is no matching called 'adam'"),
        (["--features", "motif:1", "--sampler.kind", "gibbs"], "There is no sampler called 'gibbs'"),
        (["--features", "motif:1", "--regime", "other"], "regime"),
        (["--features", "motif:1", "--rounds", "0"], "rounds"),
        (["--features", "motif:1", "--base.epochs", "0"], "base.epochs must be 1 or more, not 0."),
        (["--features", "motif:1", "--distillation.validation", "0"], "distillation.validation must be 1 or more"),
        (["--features", "motif:1", "--matching.draws", "-3"], "matching.draws must be 1 or more, not -3."),
        (["--features", "motif:1", "--student_backbone", "{hidden: 3}"], "ask for a fresh one to give it another."),
        (["--features", "motif:1", "--mathcing.kind", "rs"], "did you mean --matching.kind"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_sentence_before_any_work(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in complaint(capsys, tmp_path, *SMALL, *words)


def test_the_bit_vector_needs_a_motif(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("01\n" * 10)
    own = ["--data.kind", "lines", "--data.train", str(tmp_path / "lines.txt")]
    for words in (own, ["--data.expression", "0*1"]):
        assert "these data have none: give --features." in complaint(capsys, tmp_path, *words, "--ft", "1000000")


def test_the_bit_vector_chooses_the_documents_features() -> None:
    motif = "10001011111000"
    assert terms_of(motif, "1001111") == [
        f"!motif:{motif}", "!starts_with:1", "!motif:10101101011010", "!motif:1001001100100110", "!motif:0011001",
    ]  # fmt: skip
    assert terms_of(motif, "0110000") == [f"!motif:{motif}0", "!motif:1000101"]


def interrupted(words: list[str]) -> int:
    """The command, with Ctrl-C at the third line of metrics, whatever else the machine does then."""
    write, written = Lines.write, []

    def noted(lines: Lines, record: Any) -> None:
        write(lines, record)
        written.append(record)
        if len(written) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lines, "write", noted)
        return main(words)


def test_stopped_by_ctrl_c_the_same_command_goes_on_to_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, *FEW, "--features", "motif:11", "--base.epochs", "10", "--base.patience", "10"]
    command = ["gam", "--runs", str(tmp_path), "--name", "stopped", *words]
    done = in_a_process_of_its_own(lambda: interrupted(command))
    assert done.code == 130, done.error
    assert re.search(r"interrupted, and saved in .*stopped: run the same command to go on", done.out)
    assert (tmp_path / "stopped" / "r" / "metrics.jsonl").read_text()
    assert not (tmp_path / "stopped" / "results.json").exists()
    found = answer(capsys, tmp_path, "stopped", *words)
    other = answer(capsys, tmp_path, "unhindered", *words)
    for key in ("models", "lambda", "moments"):
        assert found[key] == other[key]


@pytest.mark.parametrize("stage", ["train_as", "gam"])
def test_an_interrupt_between_the_steps_is_one_too(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ebar.build import gam as command

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, stage, interrupted)
    assert gam(tmp_path, "one", *SMALL, "--features", "motif:11", "--json") == 130
    assert json.loads(capsys.readouterr().out)["status"] == "interrupted"


def test_a_recipes_cell_is_what_the_command_makes_of_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of a cell of `gam/data_efficiency` at scale demo, to the last digit."""
    monkeypatch.undo()  # as many draws as the recipe has
    cell = RECIPE.grid("demo")[1]
    expected = json.loads(to_json(RECIPE.run(cell, tmp_path / "cell")))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(cell["configuration"]))
    found = answer(capsys, tmp_path, "command", "--config", str(tmp_path / "run.yaml"))
    for key in ("entropy_per_token", "models", "moments", "moment_distances", "kl_of_pi_from_p", "examples"):
        assert found[key] == expected[key]
    for one, other in zip(found["matching"], expected["matching"], strict=True):
        assert one["coefficients"] == other["coefficients"]
        # The ends of λ's intervals are found by a search, in which sums over the draws differ in their last bits.
        for ours, theirs in zip(one["intervals"], other["intervals"], strict=True):
            assert [float(ours[end]) for end in ("low", "high")] == pytest.approx(
                [float(theirs[end]) for end in ("low", "high")], rel=1e-9
            )


def test_a_gam_of_an_earlier_version_says_what_to_do(tmp_path, capsys):
    assert gam(tmp_path, "old", *SMALL, *FEW, "--features", "motif:11") == 0
    (tmp_path / "old" / "seconds.json").write_text("{}")  # which had the times of its stages
    capsys.readouterr()
    assert gam(tmp_path, "old", *SMALL, *FEW, "--features", "motif:11") == 2
    said = capsys.readouterr().err
    assert f"ebar gam --config {tmp_path / 'old'}/config.yaml --name ANOTHER" in said
    with pytest.raises(ebar.errors.UserError, match="earlier version"):
        ebar.load(tmp_path / "old")
    assert ebar.load(tmp_path / "old" / "round-1" / "pi").model is not None
