import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, nn

from ebar.errors import UserError
from ebar.training.loop import Position
from ebar.training.optimisers import OPTIMISERS
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import Checkpoint, Checkpoints
from ebar.training.state import capture, restore, restore_weights
from ebar.training.stopping import Best


def checkpoint(step: int, best_step: int | None = None) -> Checkpoint:
    weights = {"model": {"weight": torch.full((300,), float(step))}}
    return Checkpoint(step=step, weights=weights, training={}, state={"best_step": best_step})


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def player(optimiser: str, **options: Any) -> Player:
    module = nn.Linear(3, 2).double()
    return Player(module=module, optimiser=OPTIMISERS[optimiser](**options).build(module.parameters()))


def move(player: Player) -> None:
    for parameter in player.parameters():
        parameter.grad = torch.rand_like(parameter)
    assert player.optimiser is not None
    player.optimiser.step()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adam", {}),
        ("adamw", {}),
        ("sgd", {}),
        ("sgd", {"momentum": 0.9}),
        ("asgd", {"decay": 0.1}),
        ("triggered_asgd", {}),
    ],
)
def test_an_optimiser_restored_from_disk_goes_on_as_if_never_saved(name, options, checkpoints):
    """In float64, to the last bit: torch's own way of loading would round what ASGD keeps in float32."""
    generator = seeded(0)
    players = {"model": player(name, **options)}
    for _ in range(3):
        move(players["model"])
    position, best = Position(3, 1, 2), Best(0.1 + 0.2, 2, 1)
    checkpoints.save(capture(players, position, best, generator))
    for _ in range(3):
        move(players["model"])
    resumed, other = {"model": player(name, **options)}, Generator()
    saved = checkpoints.newest()
    assert saved is not None
    assert restore(saved, resumed, other) == (position, best)
    for _ in range(3):
        move(resumed["model"])
    for got, expected in zip(resumed["model"].parameters(), players["model"].parameters(), strict=True):
        assert torch.equal(got, expected)
    assert torch.equal(torch.rand(5, generator=other), torch.rand(5, generator=generator))


def test_weights_that_share_memory_are_saved_and_come_back(checkpoints):
    embedding, out = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    out.weight = embedding.weight
    players = {"model": Player(module=nn.ModuleList([embedding, out]))}
    expected = out.weight.detach().clone()
    checkpoints.save(capture(players, Position(), Best(), Generator()))
    nn.init.zeros_(out.weight)
    saved = checkpoints.newest()
    assert saved is not None
    restore_weights(saved, players)
    assert torch.equal(embedding.weight, expected)


def test_the_last_two_and_the_best_are_kept(checkpoints):
    for step, best in [(0, None), (1, 1), (2, 1), (3, 1), (4, 1)]:
        checkpoints.save(checkpoint(step, best))
    assert checkpoints.steps() == [1, 3, 4]
    best_one = checkpoints.best()
    assert best_one is not None
    assert best_one.step == 1
    checkpoints.save(checkpoint(5, 5))
    assert checkpoints.steps() == [1, 4, 5]  # the best as 4 knows it: were 5 damaged, it would be wanted
    checkpoints.save(checkpoint(6, 5))
    assert checkpoints.steps() == [5, 6]


def test_the_sums_are_those_of_sha256sum(checkpoints):
    checkpoints.save(checkpoint(1))
    if shutil.which("sha256sum") is None:
        pytest.skip("needs sha256sum")
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=checkpoints.path(1)).returncode == 0


def test_none_at_all_is_no_error_but_none_that_can_be_read_is(checkpoints):
    assert checkpoints.newest() is None
    for step in (1, 2):
        checkpoints.save(checkpoint(step))
        (checkpoints.path(step) / "model.safetensors").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="damaged"), pytest.raises(UserError, match="None of the checkpoints"):
        checkpoints.newest()


def test_a_checkpoint_of_another_model_is_one_sentence(checkpoints):
    checkpoints.save(capture({"model": Player(module=nn.Linear(2, 2))}, Position(), Best(), Generator()))
    saved = checkpoints.newest()
    assert saved is not None
    with pytest.raises(UserError, match=r"step 0 does not fit this model: size mismatch for bias[^\n]*$"):
        restore_weights(saved, {"model": Player(module=nn.Linear(3, 3))})
    with pytest.raises(UserError, match=r"other players \(model\) than these \(critic\)"):
        restore_weights(saved, {"critic": Player(module=nn.Linear(2, 2))})


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir"])
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(call, checkpoints, monkeypatch):
    checkpoints.save(checkpoint(1))
    before = checkpoints.read(1)

    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(UserError, match=r"Could not save the checkpoint of step 2 in .*: the disk is full; [^\n]*\.$"):
        checkpoints.save(checkpoint(2))
    monkeypatch.undo()
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000000001"]
    assert torch.equal(checkpoints.read(1).weights["model"]["weight"], before.weights["model"]["weight"])


def test_a_limit_set_by_the_system_itself_is_one_sentence_too(checkpoints):
    checkpoints.save(checkpoint(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))  # bytes per file: the write stops half-way
    try:
        with pytest.raises(UserError, match=r"Could not save the checkpoint of step 2 in .*: File too large"):
            checkpoints.save(checkpoint(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000000001"]
    assert checkpoints.read(1).step == 1
