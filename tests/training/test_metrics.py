import json
import math
import os
import sys
from pathlib import Path

import pytest

from ebar import progress
from ebar.errors import UserError
from ebar.training.metrics import Console, opened_lines, tensorboard


def test_numbers_come_back_exactly_and_the_file_is_strict_json(tmp_path):
    values = {"third": 1 / 3, "tiny": 5e-324, "none": math.nan, "low": -math.inf}
    with opened_lines(tmp_path / "m.jsonl") as file:
        file.write(values)
        assert file.sync() == (tmp_path / "m.jsonl").stat().st_size
    text = (tmp_path / "m.jsonl").read_text()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (read["third"], read["tiny"]) == (1 / 3, 5e-324)
    assert math.isnan(float(read["none"]))
    assert float(read["low"]) == -math.inf


def test_resuming_cuts_at_the_byte_noted_or_after_the_last_whole_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    with opened_lines(path) as file:
        file.write({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'
    with opened_lines(path, keep=12) as file:
        file.write({"step": 9})
    assert path.read_text() == '{"step": 1}\n{"step": 9}\n'


def test_metrics_that_were_lost_warn(tmp_path):
    with (
        pytest.warns(RuntimeWarning, match="holds 0 bytes where the checkpoint saw 100"),
        opened_lines(tmp_path / "m", keep=100),
    ):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "m.jsonl").symlink_to("/dev/full")
    with (
        pytest.raises(UserError, match=r"Could not save a line of .*m.jsonl: the disk is full"),
        opened_lines(tmp_path / "m.jsonl") as file,
    ):
        file.write({"step": 1})


def test_the_console_shows_a_line_even_under_a_bar(capsys):
    with progress.shown(), progress.bar("training", 2) as bar:
        bar.advance(1)
        Console().write(1200, {"loss": 0.25})
    shown = capsys.readouterr()
    assert "1,200" in shown.err
    assert "loss 0.25" in shown.err
    assert shown.out == ""


def test_tensorboard_gets_event_files(tmp_path: Path):
    pytest.importorskip("tensorboard")
    with tensorboard(tmp_path) as sink:
        sink.write(1, {"validation.loss": 0.5})
    (path,) = tmp_path.glob("events.*")
    assert b"validation/loss" in path.read_bytes()


def test_tensorboard_that_is_missing_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(UserError, match=r"pip install 'ebar\[log\]'"), tensorboard(tmp_path):
        pass
