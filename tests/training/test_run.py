import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ebar.errors import UserError
from ebar.training import open_run

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(4242, file=file, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


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
