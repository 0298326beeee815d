"""Weights spread over processes (FSDP2): the steps of one process, and checkpoints that any number goes on from."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ebar.errors import UserError
from ebar.objectives.earm import EarmMemory
from ebar.training.players import Player
from ebar.training.run import Run
from ebar.training.sharding import check_degrees
from ebar.training.state import restore_weights
from ebar.training.train import History
from tests.training import sharded
from tests.training.several import assert_close_everywhere
from tests.training.test_distributed import assert_same

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spread")
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.sharded", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def found_by(rank: int, spread: Path) -> Any:
    return json.loads((spread / f"found-{rank}.json").read_text())


@pytest.mark.parametrize("case", sharded.CASES)
def test_weights_spread_over_two_processes_take_the_steps_of_one(case, spread):
    found = load_file(spread / f"{case}.safetensors"), json.loads((spread / f"{case}.json").read_text())
    assert_same(found, sharded.trajectory(case, shard=1), sharded.CASES[case]["dtype"])


def test_processes_draw_rows_that_end_at_different_lengths(spread):
    """The first one's rows have ended after one step: it takes no part in the others, and nobody waits for it."""
    tokens, lengths = sharded.fakes(shard=1)
    assert lengths[:2].tolist() == [1, 1]
    assert int(lengths.max()) > 2
    assert [found_by(rank, spread)["fakes"] for rank in (0, 1)] == 2 * [[tokens.tolist(), lengths.tolist()]]


def test_langevin_dynamics_on_layers_that_are_gathered_one_by_one_is_refused(spread):
    assert "choose negatives autoregressive, or leave out training.shard" in found_by(1, spread)["refused"]
    assert sharded.refused(shard=1) is None


def test_each_process_ends_with_the_whole_model(spread, tmp_path):
    one = sharded.journey(tmp_path / "one", shard=1)
    assert [found_by(rank, spread)["journey"] for rank in (0, 1)] == [one, one]


def assert_same_lists(found: Any, expected: Any) -> None:
    """Numbers to 1e-10."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_lists(one, other)
    else:
        assert found == pytest.approx(expected, rel=0, abs=1e-10)


def test_a_branch_and_its_trunk_that_are_spread_are_those_of_one_process(spread, tmp_path):
    one = sharded.branched(tmp_path, shard=1)
    assert len(one[0]) == 3
    for rank in (0, 1):
        assert_same_lists(found_by(rank, spread)["branched"], one)


@pytest.mark.parametrize("network", sharded.TUNED)
def test_a_network_that_is_spread_is_fine_tuned_as_in_one_process(network, spread, tmp_path):
    one = sharded.tuned(tmp_path, network, shard=1)
    assert abs(one[0][0] - one[0][-1]) > 1e-4
    for rank in (0, 1):
        assert_same_lists(found_by(rank, spread)["tuned"][sharded.TUNED.index(network)], one)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    sharded.run(folder, sharded.ENDED, shard=1)
    return folder


@pytest.mark.parametrize("processes", ["one", "two", "four", "grown"])
def test_what_two_have_saved_others_go_on_from_to_the_same_numbers(processes, spread, alone):
    """Four are two pairs, each with all the weights; "grown" was saved by one process, and gone on with by two."""
    newest, expected = (Run(folder).checkpoints.newest() for folder in (spread / processes, alone))
    assert newest is not None
    assert expected is not None
    for player in ("model", "objective"):
        assert_close_everywhere(newest.weights[player], expected.weights[player], 1e-10)
    moments = {name: value for name, value in expected.training.items() if not name.startswith("random.")}
    assert_close_everywhere({name: newest.training[name] for name in moments}, moments, 1e-10)
    histories = [History.read(folder) for folder in (spread / processes, alone)]
    for curve in ("loss", "validation.loss"):
        got, wanted = (history.curve(curve) for history in histories)
        assert len(wanted) > 1
        assert [value for _, value in got] == pytest.approx([value for _, value in wanted], abs=1e-10, rel=0)


def test_each_process_saves_its_own_share_and_nothing_is_pickled(spread):
    folder = Run(spread / "broken").checkpoints.path(sharded.SAVED)
    names = sorted(path.name for path in folder.iterdir())
    shards = [f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2)]
    assert names == ["SHA256SUMS", *shards, "shares.json", "state.json"]
    inputs = [load_file(folder / name)["weights/model/backbone.decoder.inputs"] for name in shards]
    assert [len(part) for part in inputs] == [3, 3]


@pytest.mark.filterwarnings("ignore:the checkpoint of step")
def test_a_checkpoint_without_one_of_its_shares_is_named_and_the_one_before_is_used(spread, tmp_path):
    shutil.copytree(spread / "broken", tmp_path / "run")
    checkpoints = Run(tmp_path / "run").checkpoints
    last, before = checkpoints.path(sharded.SAVED), checkpoints.steps()[0]
    (last / "shard-00002-model-00001-of-00001.safetensors").unlink()
    with pytest.warns(RuntimeWarning, match=r"is damaged .shard-00002.*No such file.*: using the one before"):
        newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == before
    (checkpoints.path(before) / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"None of the checkpoints in .* can be read"):
        checkpoints.newest()


def test_shares_of_another_model_are_refused_in_a_sentence(spread):
    checkpoint = Run(spread / "broken").checkpoints.newest()
    assert checkpoint is not None
    players = {"model": sharded.player_of(shard=1, hidden=4), "objective": Player(module=EarmMemory())}
    with pytest.raises(UserError, match="does not fit this model: size mismatch"):
        restore_weights(checkpoint, players)


def test_degrees_that_are_not_the_number_of_processes_are_refused():
    assert check_degrees(None, 1) == (1, 1)
    with pytest.raises(UserError, match=r"training.shard 2 must divide the number of processes, 1: "):
        check_degrees(None, 2)
    with pytest.raises(UserError, match=r"training.shard 1 × training.replicate 3 must be the number of processes, 1"):
        check_degrees(3, 1)
