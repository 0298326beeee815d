"""Every command does what its help says, from a fresh folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ebar.cli import COMMANDS, main
from tests.cli.conftest import TINY


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence of an error a user can cause."""
    capsys.readouterr()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("ebar: ") == 1
    assert "Traceback" not in error
    *_, last = error.splitlines()  # a progress bar may stand above it
    assert last.startswith("ebar: ")
    return last


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds who looked last."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "lock"}


def test_help_imports_nothing_but_the_standard_library_and_so_answers_at_once() -> None:
    """What is imported is all that takes time, and unlike the time does not depend on how busy the machine is."""
    script = (
        "import runpy, sys; before = set(sys.modules); sys.argv = ['ebar', '--help']\n"
        "try: runpy.run_module('ebar.cli', run_name='__main__')\n"
        "finally: print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS if " " not in command)  # parts have a list of their own
    imported = set(done.stderr.split())
    assert "ebar" in imported
    assert imported <= {"ebar", *sys.stdlib_module_names}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"example:\n  ebar {command}" in capsys.readouterr().out


def test_the_language_of_document_000_has_its_entropy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["language", "--motif", "10001011111000", "--length", "30"]
    pure = answer(capsys, *words)
    assert f"{pure['entropy']:.6f} {pure['entropy_per_token']:.6f}" == "13.923144 0.449134"
    assert pure["strings"] == 1_113_640
    mixed = answer(capsys, *words, "--presence", "0.9")
    assert f"{mixed['entropy']:.6f} {mixed['entropy_per_token']:.6f}" == "14.935251 0.481782"


def test_a_motif_given_as_an_expression_has_the_same_entropy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["language", "--expression", ".*10001011111000.*", "--length", "30"]
    assert f"{answer(capsys, *words)['entropy']:.6f}" == "13.923144"
    assert f"{answer(capsys, *words, '--presence', '0.9')['entropy_per_token']:.6f}" == "0.481782"


def test_language_samples_have_the_motif_and_follow_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["language", "sample", "--motif", "1011", "--length", "9", "--n", "50"]
    drawn = answer(capsys, *words)["samples"]
    assert len(drawn) == 50
    assert all("1011" in line and len(line) == 9 for line in drawn)
    assert answer(capsys, *words)["samples"] == drawn
    assert answer(capsys, *words, "--seed", "1")["samples"] != drawn


def test_two_languages_compare_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    # Of the 4 strings of 2 bits, 3 have a 1 and 1 has 11: KL(11‖1) = log 3, and the other way round it is infinite.
    words = ["language", "compare", "--motif", "11", "--length", "2", "--other.motif", "1", "--other.length", "2"]
    found = answer(capsys, *words)
    assert found["kl"]["value"] == pytest.approx(1.0986122886681098, abs=1e-12)
    assert found["reverse_kl"]["value"] == "inf"
    assert found["total_variation"]["value"] == pytest.approx(2 / 3, abs=1e-12)


def test_a_run_holds_what_the_design_says(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.yaml", "environment.json", "metrics.jsonl", "checkpoints", "results.json"} <= names
    assert not list(trained.rglob("*.pt"))
    assert not list(trained.rglob("*.pkl"))


def test_training_again_from_the_resolved_configuration_gives_the_same_weights(trained: Path, tmp_path: Path) -> None:
    assert (
        main(["train", "--runs", str(tmp_path), "--name", "twin", "--config", str(trained / "config.yaml"), "--json"])
        == 0
    )
    weights = sorted((trained / "checkpoints").glob("step-*/model.safetensors"))
    twins = sorted((tmp_path / "twin" / "checkpoints").glob("step-*/model.safetensors"))
    assert [path.read_bytes() for path in weights] == [path.read_bytes() for path in twins]
    assert (trained / "config.yaml").read_text() == (tmp_path / "twin" / "config.yaml").read_text()


def test_a_finished_run_can_be_trained_on_with_a_changed_configuration(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "longer")
    words = ["train", "--runs", str(tmp_path), "--name", "longer", *TINY, "--training.epochs", "3"]
    assert "--replace_config" in complaint(capsys, *words)
    assert answer(capsys, *words, "--replace_config")["epoch"] == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["--backbone.hidden", "5"], "another backbone.hidden: The checkpoint of step"),
        (["--backbone.layers", "2", "--seed", "3"], "another backbone.layers, seed: The checkpoint of step"),
        (["--optimiser.kind", "sgd"], "The state of one optimiser is of no use to another"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights_leaves_the_folder_as_it_was(
    changes: list[str], reason: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(trained, folder)
    before = contents(folder)
    words = ["train", "--runs", str(tmp_path), "--name", "kept", *TINY, *changes, "--replace_config"]
    line = complaint(capsys, *words)
    assert "is left as it was, since it cannot go on with" in line
    assert reason in line
    assert contents(folder) == before
    assert main(["evaluate", str(folder), "--n", "10", "--json"]) == 0


@pytest.mark.parametrize("place", ["ebar.store.store.Store.write", "ebar.journeys.train.train_to_best"])
def test_a_folder_whose_configuration_is_being_replaced_opens_wherever_that_was_broken_off(
    place: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the new configuration is written, and between that and the first step with it."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "broken"
    shutil.copytree(trained, folder)
    words = ["train", "--runs", str(tmp_path), "--name", "broken", *TINY, "--training.epochs", "3", "--replace_config"]
    with monkeypatch.context() as patch:
        patch.setattr(place, interrupted)
        assert main(words) == 130
    replaced = (folder / "config.yaml").read_text() != (trained / "config.yaml").read_text()
    assert replaced is (place == "ebar.journeys.train.train_to_best")
    assert main(["evaluate", str(folder), "--n", "10", "--json"]) == 0
    assert answer(capsys, *words)["epoch"] == 3


def test_samples_come_from_the_model_and_from_the_tilted_model(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = answer(capsys, "sample", str(trained), "--n", "300")["samples"]
    tilt = ["--tilt", "!motif:11=-inf"]
    tilted = answer(capsys, "sample", str(trained), "--n", "300", *tilt, "--sampler.kind", "rejection")["samples"]
    assert len(plain) == len(tilted) == 300
    assert not all("11" in entry["text"] for entry in plain)
    assert all("11" in entry["text"] for entry in tilted)


@pytest.mark.parametrize("proposal", ["base", "look_ahead"])
@pytest.mark.parametrize("kind", ["importance", "resampling", "smc", "metropolis"])
def test_samplers_take_either_proposal(
    kind: str, proposal: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tilt", "motif:11=1.5", "--sampler.kind", kind, "--proposal", proposal, "--n", "20"]
    assert len(answer(capsys, "sample", str(trained), *words)["samples"]) == 20


def test_truncation_holds_in_the_draws(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    greedy = answer(capsys, "sample", str(trained), "--n", "20", "--top_k", "1")["samples"]
    assert len({entry["text"] for entry in greedy}) == 1
    short = answer(capsys, "sample", str(trained), "--n", "50", "--maximal_length", "3")["samples"]
    assert all(len(entry["text"]) <= 2 for entry in short)


def test_evaluation_has_intervals_writes_results_and_a_report(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "evaluate", str(trained), "--n", "200", "--feature", "expression:0{2}")
    assert found["entropy"]["value"] == found["entropy"]["low"]
    for figure in ("cross_entropy", "kl_from_language", "frequency of motif 11", "mean_length"):
        assert found[figure]["low"] < found[figure]["value"] < found[figure]["high"], figure
    recorded = json.loads((trained / "results.json").read_text())
    assert recorded["evaluation"] == found
    assert recorded["status"] == "finished"
    page = (trained / "report.html").read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")


def test_two_samplers_agree_on_log_z(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", str(trained), "--tilt", "motif:11=2", "length:=-0.1", "--n", "4000", "--divergence", "kl"]
    one = answer(capsys, *words, "--sampler.kind", "importance", "--seed", "1", "--within", "0.05")
    other = answer(capsys, *words, "--sampler.kind", "look_ahead", "--seed", "2")
    # Two independent 95 % intervals, widened threefold: apart once in about 10⁸ runs.
    for figure in ("log_z", "tilted: mean of motif 11", "kl of tilted from model"):
        width = sum(3 * (run[figure]["high"] - run[figure]["low"]) / 2 for run in (one, other))
        assert abs(one[figure]["value"] - other[figure]["value"]) <= width, figure
    needed, half = one["draws for log_z"], (one["log_z"]["high"] - one["log_z"]["low"]) / 2
    assert needed["draws"] == pytest.approx(4000 * (half / 0.05) ** 2, rel=0.1)
    assert needed["low"] < needed["draws"] < needed["high"]
    assert "draws for log_z" not in other
    assert one["log_z_lower"] <= one["log_z"]["value"] <= one["log_z_upper"]
    assert one["tilted: mean of motif 11"]["value"] > one["model: mean of motif 11"]["high"]


def test_your_own_lines_train_and_a_predicate_tilts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("abc\nabcabc\ncab\n" * 20)
    (tmp_path / "mine.py").write_text(
        "def starts_and_ends_alike(text):\n    return bool(text) and text[0] == text[-1]\n"
    )
    words = [
        "--name",
        "own",
        "--runs",
        str(tmp_path),
        "--data.kind",
        "lines",
        "--data.train",
        str(tmp_path / "lines.txt"),
    ]
    words += ["--backbone.hidden", "4", "--backbone.layers", "1", "--training.epochs", "1"]
    assert answer(capsys, "train", *words)["status"] == "finished"
    term = f"predicate:{tmp_path / 'mine.py'}:starts_and_ends_alike=50"
    drawn = answer(capsys, "sample", str(tmp_path / "own"), "--n", "20", "--tilt", term)["samples"]
    assert all(entry["text"][0] == entry["text"][-1] for entry in drawn)


def test_errors_say_what_to_do(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "position 2" in complaint(capsys, "language", "--expression", "01(0", "--length", "4")
    assert "does not fit" in complaint(capsys, "language", "--motif", "1111", "--length", "3")
    assert "--length" in complaint(capsys, "language", "--lenght", "3")
    assert "choose one of" in complaint(capsys, "train", "--backbone.kind", "nothing")
    assert "training.epochs" in complaint(capsys, "train", "--training.epochs", "-3")
    (tmp_path / "bad.yaml").write_text("backbone: {kind: lstm, heads: 3}")
    assert "heads" in complaint(capsys, "train", "--config", str(tmp_path / "bad.yaml"))
    assert "no run" in complaint(capsys, "sample", str(tmp_path))
    assert "=COEFFICIENT" in complaint(capsys, "sample", str(trained), "--tilt", "motif:11")
    assert "without weights" in complaint(
        capsys, "estimate", str(trained), "--tilt", "motif:11=1", "--sampler.kind", "metropolis"
    )
    words = ["sample", str(trained), "--tilt", "motif:11=1", "--sampler.kind", "rejection", "--proposal", "look_ahead"]
    assert "quasi_rejection" in complaint(capsys, *words)
    (tmp_path / "lines.txt").write_bytes(b"01\n10\n\xff\n")
    assert "lines.txt, line 3" in complaint(
        capsys, "train", "--data.kind", "lines", "--data.train", str(tmp_path / "lines.txt")
    )
    (tmp_path / "raises.py").write_text("def bad(text):\n    raise IndexError('too short')\n")
    raising = complaint(capsys, "sample", str(trained), "--tilt", f"predicate:{tmp_path / 'raises.py'}:bad=1")
    assert "'bad'" in raising
    assert "IndexError: too short" in raising
    assert "on the sequence [" in raising


def test_a_run_in_use_by_another_process_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ebar.training.run import open_run

    with open_run(tmp_path / "busy", config="", seed=0):
        assert "in use" in complaint(capsys, "train", "--runs", str(tmp_path), "--name", "busy", *TINY)


def test_a_truncated_checkpoint_is_told_and_the_one_before_is_used(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    steps = sorted((tmp_path / "copy" / "checkpoints").glob("step-*"))
    for step in steps:
        (step / "model.safetensors").write_bytes(b"garbled")
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert main(["sample", str(tmp_path / "copy")]) == 2


def test_doctor_knows_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0  # a command without a word
    found = answer(capsys, "doctor")
    assert found["extras"]["core"]["missing"] == []
    assert "matplotlib" in found["extras"]["report"]["installed"]
    for extra in found["extras"].values():
        assert bool(extra["missing"]) == (extra["get"] is not None)
