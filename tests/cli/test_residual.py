"""`ebar residual`: from a base to text, by the command line."""

import json
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
import yaml

from ebar.cli import main
from ebar.recipes.grid import toy_text

BASE = [
    "--data.kind", "text", "--data.length", "24", "--backbone.kind", "transformer", "--backbone.layers", "1",
    "--backbone.hidden", "8", "--backbone.heads", "2", "--training.epochs", "1", "--optimiser.learning_rate", "1e-2",
]  # fmt: skip
SMALL = [
    "--data.prefix", "12", "--data.continuation", "6", "--data.chunks", "16", "--data.validation_chunks", "6",
    "--training.epochs", "1", "--training.batch_size", "8", "--evaluation.prefixes", "3", "--evaluation.draws", "10",
]  # fmt: skip
BIT = ["--energy.layers", "1", "--energy.hidden", "8", "--energy.heads", "2", "--energy.warm_up", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a base and a residual model of them."""
    folder = tmp_path_factory.mktemp("residual")
    (folder / "text.txt").write_text(toy_text(80, 0))
    text = str(folder / "text.txt")
    assert main(["train", "--runs", str(folder), "--name", "base", "--json", "--data.train", text, *BASE]) == 0
    assert residual(folder, "train", "--name", "unit", "--energy.kind", "unit", *SMALL, "--json") == 0
    return folder


def residual(runs: Path, part: str, *words: str) -> int:
    own = ["--runs", str(runs), "--base", str(runs / "base")] if part == "train" else []
    return main(["residual", part, *own, *words])


def answer(capsys: pytest.CaptureFixture[str], runs: Path, part: str, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert residual(runs, part, *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["residual", *words]) == 2
    *bars, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ebar: ")
    assert not any(bar.startswith(("ebar", "Traceback")) for bar in bars)
    return line


def test_a_run_holds_its_configuration_figures_and_page(runs):
    folder = runs / "unit"
    told = yaml.safe_load((folder / "config.yaml").read_text())
    assert told["base"] == str((runs / "base").resolve())
    assert (told["energy"]["kind"], told["data"]["prefix"], told["training"]["form"]) == ("unit", 12, "binary")
    found = json.loads((folder / "results.json").read_text())
    evaluation = found["evaluation"]
    assert (evaluation["prefixes"], evaluation["draws"], len(evaluation["log_z"])) == (3, 10, 3)
    perplexity = evaluation["perplexity"]
    assert perplexity["low"] <= perplexity["value"] <= perplexity["high"]
    page = (folder / "report.html").read_text()
    assert "perplexity of the joint model" in page
    assert "log Z of each prefix" in page


def test_the_same_command_again_reads_everything_back(runs, capsys):
    before = (runs / "unit" / "results.json").read_bytes()
    parts = {path: path.stat().st_mtime_ns for path in (runs / "unit").rglob("part-*")}
    answer(capsys, runs, "train", "--name", "unit", "--energy.kind", "unit", *SMALL)
    assert (runs / "unit" / "results.json").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in (runs / "unit").rglob("part-*")} == parts
    same = [
        "train",
        "--runs",
        str(runs),
        "--base",
        str(runs / "base"),
        "--name",
        "unit",
        *SMALL,
        "--energy.kind",
        "unit",
    ]
    line = complaint(capsys, *same, "--seed", "7", "--training.epochs", "9", "--energy.pool", "all")
    assert "unit holds a run of another configuration: choose another --name" in line
    assert "(what differs: energy.pool, seed, training.epochs)" in line
    line = complaint(capsys, *same, "--evaluation.draws", "7")
    assert "`ebar residual evaluate" in line
    assert "(what differs: evaluation.draws)" in line


def test_people_are_shown_tables(runs, capsys):
    assert residual(runs, "train", "--name", "shown", *BIT, *SMALL) == 0
    out = capsys.readouterr().out
    assert "perplexity of the base" in out
    assert "with fewer draws" in out
    assert "report.html\n\n" in out
    assert out.endswith(f"ebar list {runs}\n")  # the last of the commands that can follow
    assert residual(runs, "evaluate", str(runs / "shown"), "--prefixes", "2", "--draws", "8", "--last_rows", "0") == 0
    out = capsys.readouterr().out
    assert "2 prefixes, 8 draws each" in out
    assert "last token" not in out
    assert residual(runs, "explain", str(runs / "shown"), "--prompt", "the cat", "--futures", "4") == 0
    assert "likeliest under the joint model" in capsys.readouterr().out
    assert residual(runs, "generate", str(runs / "shown"), "--prompt", "the cat", "--candidates", "4") == 0
    out = capsys.readouterr().out
    assert out.startswith("the cat\n→ ")
    for word in ("energy", "weight", "ESS", "k̂", "candidates"):
        assert word in out


def test_an_evaluation_is_kept_beside_what_training_wrote(runs, capsys):
    found = answer(capsys, runs, "evaluate", str(runs / "unit"), "--prefixes", "4", "--draws", "12", "--seed", "3",
                   "--last_rows", "2", "--last_candidates", "null")  # fmt: skip
    assert (found["prefixes"], found["draws"], found["seed"]) == (4, 12, 3)
    assert found["last_step"]["rest"] == 0
    kept = json.loads((runs / "unit" / "results.json").read_text())
    assert kept["evaluation"] == found
    assert kept["parameters"]["base"] > 0
    again = answer(capsys, runs, "evaluate", str(runs / "unit"), "--prefixes", "4", "--draws", "12", "--seed", "3",
                   "--last_rows", "2", "--last_candidates", "null")  # fmt: skip
    assert again == found


@pytest.mark.parametrize("way", [
    ["joint"], ["rejection", "--sampler.log_bound", "5"], ["quasi_rejection"],
    ["metropolis", "--sampler.burn_in", "3"], ["smc"],
])  # fmt: skip
def test_every_way_of_drawing_answers_the_same_call(runs, capsys, way):
    found = answer(capsys, runs, "generate", str(runs / "unit"), "--prompt", "my sister", "--candidates", "6",
                   "--count", "2", "--sampler.kind", *way)  # fmt: skip
    (one,) = found["prompts"]
    assert len(one["continuations"]) == 2
    assert len(one["candidates"]) == 6
    assert sum(candidate["weight"] for candidate in one["candidates"]) == pytest.approx(1)
    assert 1 <= one["effective_sample_size"] <= 6
    assert one["pareto_k"] is None
    for text in one["continuations"]:
        assert (text["weight"] is None) == (way[0] in ("rejection", "quasi_rejection", "metropolis"))
        assert text["log_q"] < 0


def test_prompts_come_from_a_file_or_the_pipe(runs, capsys, tmp_path, monkeypatch):
    (tmp_path / "prompts.txt").write_text("the cat\nnobody\n")
    found = answer(capsys, runs, "generate", str(runs / "unit"), "--prompts", str(tmp_path / "prompts.txt"),
                   "--candidates", "120", "--top_k", "5")  # fmt: skip
    assert [one["prompt"] for one in found["prompts"]] == ["the cat", "nobody"]
    assert all(isinstance(one["pareto_k"], float) or one["pareto_k"] is None for one in found["prompts"])
    words = ["generate", str(runs / "unit"), "--prompts", str(tmp_path / "prompts.txt"), "--backend", "process"]
    found = answer(capsys, runs, *words, "--candidates", "5")
    assert [one["prompt"] for one in found["prompts"]] == ["the cat", "nobody"]
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("a dog\n"))
    found = answer(capsys, runs, "generate", str(runs / "unit"), "--prompts", "-", "--candidates", "3")
    assert [one["prompt"] for one in found["prompts"]] == ["a dog"]


def test_an_explanation_adds_up(runs, capsys):
    found = answer(capsys, runs, "explain", str(runs / "unit"), "--prompt", "the cat", "--continuation", " sees us\n",
                   "--candidates", "20", "--futures", "6", "--exact_last")  # fmt: skip
    shares = [word["joint"]["value"] for word in found["next_words"]] + [found["rest"]["joint"]["value"]]
    assert sum(shares) == pytest.approx(1)
    base = [word["base"] for word in found["next_words"]] + [found["rest"]["base"]]
    assert sum(base) == pytest.approx(1, abs=1e-5)
    assert [step["token"] for step in found["steps"]] == ["' '", "'s'", "'e'", "'e'", "'s'", "' '"]
    for step in found["steps"]:
        assert step["difference"] == pytest.approx(step["joint"] - step["base"])


def test_what_cannot_be_done_is_told_in_one_sentence(runs, capsys, tmp_path):
    unit, base = str(runs / "unit"), str(runs / "base")
    train = ["train", "--runs", str(tmp_path), "--name", "x", "--base", base]
    assert "There is no part 'fly'" in complaint(capsys, "fly")
    assert "needs a base" in complaint(capsys, "train", "--runs", str(tmp_path))
    assert "There is no energy called 'trit'" in complaint(capsys, *train, "--energy.kind", "trit")
    assert "did you mean --data.prefix" in complaint(capsys, *train, "--data.prefx", "3")
    assert "data.prefix must be 1 or more" in complaint(capsys, *train, "--data.prefix", "0")
    assert "training.negatives must be 1 or more" in complaint(capsys, *train, "--training.negatives", "0")
    line = complaint(capsys, *train, "--negatives.draws", "1", "--training.negatives", "2")
    assert "negatives.draws is 1, fewer than the 2 of training.negatives" in line
    line = complaint(capsys, *train, "--data.prefix", "30", "--data.continuation", "6")
    assert "trained on windows of 24: make the prefix or the continuation shorter" in line
    (tmp_path / "empty.txt").write_text("")
    empty = ["--data.train", str(tmp_path / "empty.txt"), "--data.prefix", "9", "--data.continuation", "4"]
    assert "is empty" in complaint(capsys, *train, *empty)
    assert "is no model" in complaint(capsys, "train", "--base", str(runs / "text.txt"), *train[1:5])
    own = ["train", "--runs", str(runs), "--name", "base", "--base", base]  # the folder of another run
    assert "holds a run of another kind" in complaint(capsys, *own)
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "config.json").write_text("{}")
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"\x80\x02")
    line = complaint(capsys, *train[:5], "--base", str(tmp_path / "pickle"), "--data.train", str(runs / "text.txt"))
    assert "is a pickle" in line
    assert "There is no run in" in complaint(capsys, "generate", str(tmp_path), "--prompt", "a")
    assert "Give either --prompt" in complaint(capsys, "generate", unit)
    line = complaint(capsys, "generate", unit, "--prompt", "a much too long beginning")
    assert "25 tokens and a continuation of 6 are 31 in all" in line
    assert "needs a bound" in complaint(capsys, "generate", unit, "--prompt", "a", "--sampler.kind", "rejection")
    line = complaint(capsys, "explain", unit, "--prompt", "the cat", "--continuation", "s")
    assert "has 1 tokens, and this model's have 6" in line


def test_without_a_part_the_parts_are_listed(capsys):
    assert main(["residual"]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in ("train", "evaluate", "generate", "explain"))
    for part in ("train", "evaluate", "generate", "explain"):
        with pytest.raises(SystemExit) as stopped:
            main(["residual", part, "--help"])
        assert stopped.value.code == 0
        assert f"ebar residual {part}" in capsys.readouterr().out


def test_a_residual_model_of_an_earlier_version_is_measured_and_not_trained_on(runs, capsys, tmp_path):
    copytree(runs / "unit", tmp_path / "old")
    for path in (tmp_path / "old").rglob("header.json"):
        path.write_text('{"format": 1, "rows": 3}')
    rmtree(tmp_path / "old" / "evaluation")
    (tmp_path / "old" / "seconds.json").write_text("{}")
    config = str(tmp_path / "old" / "config.yaml")
    said = complaint(capsys, "train", "--runs", str(tmp_path), "--name", "old", "--config", config)
    assert f"ebar residual train --config {config} --name ANOTHER" in said
    assert answer(capsys, runs, "evaluate", str(tmp_path / "old"), "--prefixes", "2", "--draws", "5")["prefixes"] == 2
