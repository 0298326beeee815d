import json
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from ebar.config.control import ControlConfig
from ebar.config.gam import GamConfig
from ebar.config.residual import ResidualConfig
from ebar.config.train import TrainConfig
from ebar.errors import UserError
from ebar.journeys.control.tuning import Tuning
from ebar.store.differences import as_yaml, differences, listed_names, of_another_kind
from ebar.training.run import open_run

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(4242, file=file, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


def tree(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds who looked last."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "lock"}


def test_a_folder_in_use_by_another_process_is_an_error_until_that_process_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        message = r"is in use by another process \(4242\): wait for it, or choose another name\.$"
        with pytest.raises(UserError, match=message), open_run(tmp_path, config="", seed=0):
            pass
        assert not (tmp_path / "config.yaml").exists()
        holder.send_signal(signal.SIGKILL)
    with open_run(tmp_path, config="", seed=0):
        pass


def test_a_folder_is_free_again_after_use_even_when_the_use_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), open_run(tmp_path, config="", seed=0):
        _ = 1 / 0
    with open_run(tmp_path, config="", seed=0), pytest.raises(UserError, match="in use"):
        open_run(tmp_path, config="", seed=0).__enter__()


def test_a_run_of_another_configuration_is_not_continued_by_mistake(tmp_path):
    with open_run(tmp_path, config="steps: 1\n", seed=0):
        pass
    with pytest.raises(UserError, match="another configuration"), open_run(tmp_path, config="steps: 2\n", seed=0):
        pass
    assert (tmp_path / "config.yaml").read_text() == "steps: 1\n"
    with open_run(tmp_path, config="steps: 2\n", seed=0, replace_config=True):
        pass
    assert (tmp_path / "config.yaml").read_text() == "steps: 2\n"


def test_the_environment_is_that_of_the_first_start_and_another_version_warns(tmp_path):
    with open_run(tmp_path, config="", seed=31):
        pass
    path = tmp_path / "environment.json"
    noted = json.loads(path.read_bytes())
    assert noted["seed"] == 31
    assert noted["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"commit", "machine", "command"} <= set(noted)
    noted["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(noted))
    with pytest.warns(RuntimeWarning, match=r"was started with torch 1\.0"), open_run(tmp_path, config="", seed=31):
        pass
    assert json.loads(path.read_bytes()) == noted


def test_a_folder_of_one_kind_is_never_given_to_another_kind(tmp_path):
    """Every pair of kinds, as their commands describe them; one that lacks options of a later version is the same."""
    kinds = {
        kind.__name__: as_yaml({option.name: 1 for option in fields(kind)})
        for kind in (TrainConfig, GamConfig, ResidualConfig, ControlConfig, Tuning)
    }
    for kind, config in kinds.items():
        for other, asked in kinds.items():
            assert of_another_kind(config, asked) is (kind != other)
        with open_run(tmp_path / kind, config=config, seed=0):
            pass
        before = tree(tmp_path / kind)
        for other in set(kinds) - {kind}:
            message = rf"{kind} holds a run of another kind, whose configuration has .+: choose another name\.$"
            for replacing in (False, True):
                with pytest.raises(UserError, match=message), open_run(
                    tmp_path / kind, config=kinds[other], seed=0, replace_config=replacing
                ):  # fmt: skip
                    pass
            assert tree(tmp_path / kind) == before
        older = "".join(line for line in config.splitlines(keepends=True) if not line.startswith("seed:"))
        assert not of_another_kind(older, config)


def test_what_differs_is_named_and_nothing_is_written_before_it_was_checked(tmp_path):
    before = "data:\n  kind: lines\n  size: 3\nseed: 1\n"
    now = "data:\n  kind: lines\n  size: 4\nseed: 2\n"
    with open_run(tmp_path, config=before, seed=1):
        pass
    held, asked = tree(tmp_path), []
    with pytest.raises(UserError, match=r"another configuration: .+ \(what differs: data\.size, seed\)\.$"):
        open_run(tmp_path, config=now, seed=2).__enter__()

    def refuse(run, changed):
        asked.append(changed)
        assert tree(run.folder) == held
        raise UserError("The weights are of another size.")

    message = "left as it was, since it cannot go on with another data.size, seed: The weights are of another size."
    with pytest.raises(UserError, match=re.escape(message)):
        open_run(tmp_path, config=now, seed=2, replace_config=True, check=refuse).__enter__()
    assert asked == [["data.size", "seed"]]
    assert tree(tmp_path) == held
    with open_run(tmp_path, config=before, seed=1, replace_config=True, check=refuse):
        pass  # the same configuration: nothing to ask
    with open_run(tmp_path, config=now, seed=2, replace_config=True, check=lambda run, changed: None):
        assert (tmp_path / "config.yaml").read_text() == now


def test_many_differences_are_counted():
    assert listed_names([str(number) for number in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert differences("- 1\n", "a: [\n") == []
