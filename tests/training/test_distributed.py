"""Two processes take the steps that one would."""

import json
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ebar.training.course import Training
from ebar.training.loop import fit
from ebar.training.optimisers import Sgd, for_steps
from ebar.training.players import Player
from ebar.training.run import Run
from ebar.training.train import History
from tests.journeys.game.killed import game_trajectory, run_game
from tests.training import every_objective, several
from tests.training.tiny import kept, run_pretraining, run_stream

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "tests.training.several", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def assert_same(
    got: tuple[dict[str, Tensor], list[dict[str, float]]],
    expected: tuple[dict[str, Tensor], list[dict[str, float]]],
    dtype: torch.dtype,
) -> None:
    """In float32 weights and losses to 1e-6; in float64, where only a wrong formula could differ, all to 1e-10."""
    tolerance = 1e-6 if dtype == torch.float32 else 1e-10
    assert set(got[0]) == set(expected[0])
    for name, value in expected[0].items():
        torch.testing.assert_close(got[0][name], value, rtol=0, atol=tolerance, msg=name)
    for step, other in zip(got[1], expected[1], strict=True):
        compared = {name for name in other if dtype == torch.float64 or name.endswith("loss")}
        assert {name: step[name] for name in compared} == pytest.approx(
            {name: other[name] for name in compared}, rel=0, abs=tolerance
        )


@pytest.mark.parametrize(("optimiser", "dtype"), several.CASES)
def test_two_processes_reproduce_one_to_a_millionth_at_every_step(optimiser, dtype, two):
    """With batches of unequal slices and of fewer rows than processes, and two players."""
    one = several.trajectory(optimiser, dtype)
    weights = load_file(two / f"{optimiser}-{dtype}.safetensors")
    assert_same((weights, json.loads((two / f"{optimiser}-{dtype}.json").read_text())), one, dtype)
    moved = (one[0]["10.leader.out.weight"] - one[0]["1.leader.out.weight"]).abs().max()
    assert moved > 0.01  # ten thousand times what may differ
    assert torch.equal(weights["10.leader.unused"], torch.ones(2, dtype=dtype))  # no loss has it: no decay either


OBJECTIVES = list(enumerate(product(every_objective.CASES, several.DTYPES)))
whole_trajectory = cache(every_objective.trajectory)  # of one process and batches in one piece


def written(two: Path, name: str) -> every_objective.Trajectory:
    return load_file(two / f"{name}.safetensors"), json.loads((two / f"{name}.json").read_text())


@pytest.mark.parametrize(("number", "case", "dtype"), [(number, *case) for number, case in OBJECTIVES])
def test_two_processes_reproduce_one_with_every_objective(number, case, dtype, two):
    """What it draws and what it normalises over its batch included; in one step a process has no rows."""
    one = whole_trajectory(case, dtype)
    assert_same(written(two, f"objective-{number}"), one, dtype)
    last = f"{every_objective.STEPS}."
    moved = [
        (value - one[0]["1." + name.removeprefix(last)]).abs().max()
        for name, value in one[0].items()
        if name.startswith(last)
    ]
    assert max(moved) > 0.01


@pytest.mark.parametrize(("case", "dtype"), list(product(every_objective.CASES, several.DTYPES)))
def test_cutting_batches_into_parts_changes_nothing_with_every_objective(case, dtype):
    """Six rows in four parts, of one row and of two; in the third step there is one row, and one part."""
    assert_same(every_objective.trajectory(case, dtype, accumulate=4), whole_trajectory(case, dtype), dtype)


@pytest.mark.parametrize(("number", "case"), list(enumerate(every_objective.CASES)))
def test_two_processes_with_two_parts_each_reproduce_one_with_every_objective(number, case, two):
    assert_same(written(two, f"parts-{number}"), whole_trajectory(case, torch.float64), torch.float64)


def most_logits(case: str, accumulate: int) -> int:
    """How many logits were in memory at once, in a step of six rows: a graph holds those that it needs."""
    objective, source, model = every_objective.CASES[case](torch.float64)
    held: list[tuple[StorageWeakRef, int]] = []
    most = []

    def count(head: object, given: object, logits: Tensor) -> None:
        held.append((StorageWeakRef(logits.untyped_storage()), logits.numel()))
        most.append(sum(numbers for storage, numbers in held if not storage.expired()))

    head: Any = model.head
    head.register_forward_hook(count)
    optimiser = Sgd(learning_rate=0.1).build(model.parameters())
    objective = for_steps(objective, 20)
    players = {"model": Player(module=model, optimiser=optimiser)}
    next(fit(objective, source, players, generator=Generator().manual_seed(4), accumulate=accumulate))
    return max(most)


@pytest.mark.parametrize("case", ["scheduled_sampling", "earm", "earm, langevin", "policy gradient, contexts"])
def test_of_parts_one_is_in_memory_at_a_time(case):
    """Also where all are computed before one of them can have its loss."""
    assert most_logits(case, 6) <= most_logits(case, 1) / 5


def test_a_batch_that_cannot_be_shared_out_evenly_is_refused_in_a_sentence(two):
    """Before anything is read or written: by all processes alike."""
    sentence = "A batch of {} sequences cannot be shared out evenly to 2 processes × {} parts: choose a " \
        "training.batch_size that is a multiple of {}."  # fmt: skip
    for rank in (0, 1):
        refused = json.loads((two / f"refused-{rank}.json").read_text())
        assert refused == [sentence.format(3, 1, 2), sentence.format(6, 2, 4)]
    assert several.refusal(Training(batch_size=6, accumulate=2)) is None


def test_held_out_figures_of_two_processes_are_those_of_one(two):
    assert json.loads((two / "held-out.json").read_text()) == pytest.approx(several.held_out(), abs=1e-6)


def test_a_run_of_two_processes_that_was_stopped_goes_on_to_the_same_end(two):
    whole = kept(two / "whole")
    assert any(path.startswith("checkpoints/step-000000008/") for path in whole)
    newest = Run(two / "whole").checkpoints.newest()
    assert newest is not None
    states = [[newest.training[f"random.{rank}.{source}"] for rank in (0, 1)] for source in ("torch", "generator")]
    assert [torch.equal(*pair) for pair in states] == [False, True]  # what drops is each process's own
    stopped = kept(two / "stopped")
    for name in ("leader", "follower", "training"):
        path = f"checkpoints/step-000000008/{name}.safetensors"
        assert stopped[path] == whole[path]
    assert stopped["metrics.jsonl"] == whole["metrics.jsonl"]


CARRIED = {
    "stream": {"carried_memory_hidden", "carried_memory_cell", "carried_last"},
    "pretraining": {"carried_inputs", "carried_filled", "objective.weight", "objective.bias"},
}


@pytest.mark.parametrize("what", CARRIED)
def test_two_processes_reproduce_one_on_a_stream_memory_included(what, two, tmp_path):
    """Five columns, so that one process has two and the other three; and the same, taken over by one process."""
    run = {"stream": run_stream, "pretraining": run_pretraining}[what]
    run(tmp_path / what, steps=11, dropout=0.0)
    one = Run(tmp_path / what).checkpoints.newest()
    with pytest.warns(RuntimeWarning, match="saved by 2 processes and resumed by 1"):
        run(two / f"{what}-stopped", steps=11, dropout=0.0)
    assert one is not None
    for name in (what, f"{what}-stopped"):
        other = Run(two / name).checkpoints.newest()
        assert other is not None
        assert other.step == one.step == 11
        assert CARRIED[what] <= set(one.weights["objective"])
        for player in ("model", "objective"):
            several.assert_close_everywhere(other.weights[player], one.weights[player], 1e-6)
        moved = History.read(two / name).curve("loss")
        assert [value for _, value in moved] == pytest.approx(
            [value for _, value in History.read(tmp_path / what).curve("loss")], abs=1e-6
        )


def test_cutting_inputs_of_pretraining_into_parts_changes_nothing(tmp_path):
    """Five rows in three parts: weights, memories and losses."""
    for parts in (1, 3):
        run_pretraining(tmp_path / str(parts), steps=9, dropout=0.0, accumulate=parts)
    whole, cut = (Run(tmp_path / parts).checkpoints.newest() for parts in ("1", "3"))
    assert whole is not None
    assert cut is not None
    for player in ("model", "objective"):
        several.assert_close_everywhere(cut.weights[player], whole.weights[player], 1e-6)
    losses = [[value for _, value in History.read(tmp_path / parts).curve("loss")] for parts in ("1", "3")]
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    assert losses[0][0] != pytest.approx(losses[0][-1], abs=1e-3)


@pytest.mark.parametrize(("optimiser", "dtype"), several.CASES)
def test_cutting_batches_into_parts_changes_memory_and_not_the_result(optimiser, dtype):
    one = several.trajectory(optimiser, dtype)
    assert_same(several.trajectory(optimiser, dtype, accumulate=3), one, dtype)


@pytest.mark.parametrize("parts", [1, 3])
def test_two_processes_play_the_game_that_one_plays_whole_or_in_parts(parts, two):
    """To the last bits: a game's batches are not shared out. Its generator, energy, averages and gap, at every step."""
    one = game_trajectory()
    several.assert_close_everywhere(load_file(two / f"game-{parts}.safetensors"), one, 1e-12)
    several.assert_close_everywhere(game_trajectory(accumulate=parts), one, 0.0)
    assert float((one["8.generator.layers.0.weight"] - one["1.generator.layers.0.weight"]).abs().max()) > 1e-3


def test_a_game_of_two_processes_leaves_the_run_of_one(two, tmp_path):
    run_game(tmp_path, steps=10)
    one, other = (Run(folder).checkpoints.newest() for folder in (tmp_path, two / "game"))
    assert one is not None
    assert other is not None
    for player in ("generator", "discriminator", "inference", "memory"):
        several.assert_close_everywhere(other.weights[player], one.weights[player], 1e-6)
