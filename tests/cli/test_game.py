"""`ebar game train`, `sample` and `rank`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ebar
from ebar.cli import main
from ebar.journeys.game.journey import Played
from ebar.training.run import Run
from tests.cli.test_commands import answer, complaint

QUICK = [
    "--training.batch_size", "50", "--training.log_every", "1", "--generator.hidden", "8",
    "--discriminator.hidden", "8", "--training.epochs", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A game on points, with a variational entropy, and one on images of 4 × 4 bytes."""
    folder = tmp_path_factory.mktemp("home")
    np.savez(folder / "images.npz", images=np.random.default_rng(0).integers(0, 256, (120, 4, 4), dtype=np.uint8))
    np.savetxt(folder / "points.csv", np.random.default_rng(0).normal(size=(7, 2)), delimiter=",")
    np.savetxt(folder / "wide.csv", np.random.default_rng(0).normal(size=(7, 3)), delimiter=",")
    start = ["game", "train", "--json", "--runs", str(folder / "runs")]
    points = ["--name", "points", "--data.mixture", "four_gaussians", "--data.size", "150"]
    assert main([*start, *points, "--entropy.kind", "variational", "--entropy.bound", "3", *QUICK]) == 0
    images = ["--name", "images", "--data.kind", "images", "--data.train", str(folder / "images.npz")]
    assert main([*start, *images, "--entropy.form", "unit", "--entropy.neighbours", "5", *QUICK]) == 0
    return folder


def test_a_game_is_trained_sampled_ranked_and_opened(home, capsys):
    run = home / "runs" / "points"
    opened = ebar.load(run)
    assert isinstance(opened, Played)
    assert opened.inference is not None
    assert opened.weight == 1.0
    assert [line["step"] for line in opened.history] == list(range(1, 7))
    assert "<svg" in (run / "report.html").read_text()
    drawn = answer(capsys, "game", "sample", str(run), "--n", "3", "--seed", "5")
    again = opened.sample(3, generator=torch.Generator().manual_seed(5)).tolist()
    assert [one["point"] for one in drawn["samples"]] == [pytest.approx(row) for row in again]
    assert main(["game", "sample", str(run), "--n", "2", "--energies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split("\t")) for line in lines] == [3, 3]
    ranked = answer(capsys, "game", "rank", str(run))
    assert ranked["rows"] == 1000
    energies = [ranked["energies"][row] for row in ranked["order"]]
    assert energies == sorted(energies)
    assert main(["game", "rank", str(run), "--input", str(home / "points.csv"), "--n", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7  # five from one end, and the two that are left from the other
    assert float(lines[0].split("\t")[0]) <= float(lines[-1].split("\t")[0])
    assert len(lines[0].split("\t")) == 4


def test_images_are_drawn_on_sheets(home, capsys):
    run = str(home / "runs" / "images")
    assert main(["game", "sample", run, "--n", "4", "--output", str(home / "sheet.png")]) == 0
    assert (home / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert main(["game", "rank", run, "--n", "3", "--output", str(home / "ranked.png")]) == 0
    assert (home / "ranked.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert "give --output" in complaint(capsys, "game", "sample", run)


def test_the_same_command_reads_back_a_finished_game_and_another_is_refused(home, capsys):
    run = home / "runs" / "points"
    before = (run / "metrics.jsonl").read_bytes()
    words = ["--runs", str(home / "runs"), "--name", "points", "--data.mixture", "four_gaussians", "--data.size", "150",
             "--entropy.kind", "variational", "--entropy.bound", "3", *QUICK]  # fmt: skip
    found = answer(capsys, "game", "train", *words)
    assert (found["status"], found["reason"], found["step"]) == ("finished", "epochs", 6)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert "entropy.weight" in complaint(capsys, "game", "train", *words, "--entropy.weight", "2")
    more = answer(capsys, "game", "train", *words[:-1], "3", "--replace_config")
    assert more["step"] == 9


def test_a_game_that_fails_is_said_and_its_last_good_state_is_kept(tmp_path, capsys):
    words = ["game", "train", "--runs", str(tmp_path), "--name", "wild", "--data.mixture", "biased_gaussians",
             "--data.size", "500", "--entropy.kind", "constant", "--control.kind", "together", *QUICK,
             "--optimiser.learning_rate", "0.5", "--halt.largest_energy", "1000", "--training.checkpoint_every",
             "1"]  # fmt: skip
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "halted"
    assert "beyond 1e+03" in found["reason"]
    assert Run(tmp_path / "wild").checkpoints.steps()[-1] == found["step"] - 1
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "halted at step" in said
    assert "The last good state is kept" in said
    assert bool(ebar.load(tmp_path / "wild").rank().energies.isfinite().all())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "--data.mixture", "squares"], "squares"),
        (["train"], "give one of them"),
        (["train", "--data.mixture", "spirals", "--entropy.kind", "guess"], "guess"),
        (["train", "--data.mixture", "spirals", "--data.size", "100"], "fewer than a batch of 500"),
        (["train", "--data.mixture", "spirals", "--training.batch_size", "20"], "20 neighbours are wanted"),
        (["train", "--data.mixture", "spirals", "--costs.kind", "ebgan"], "at least 0"),
        (["sample", "nowhere"], "nowhere"),
        (["rank", "{runs}/points", "--input", "{home}/wide.csv"], "must have shape"),
        (["rank", "{runs}/images", "--input", "{home}/points.csv"], "no idx file"),
        (["rank", "{runs}/points", "--output", "x.png"], "leave out --output"),
        (["play"], "train, sample, rank"),
    ],
)
def test_what_goes_wrong_is_one_sentence(words, sentence, home, capsys, tmp_path):
    filled = [word.format(runs=home / "runs", home=home) for word in words]
    where = ["--runs", str(tmp_path)] if words[0] == "train" else []
    assert sentence in complaint(capsys, "game", *filled, *where)


def test_the_help_has_examples_of_every_part(capsys):
    for part in ("train", "sample", "rank"):
        with pytest.raises(SystemExit) as ended:
            main(["game", part, "--help"])
        assert ended.value.code == 0
        assert f"ebar game {part}" in capsys.readouterr().out
