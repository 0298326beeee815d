"""A parser is made once for the same entries of tables, and anew wherever another is asked for."""

from typing import Any

import pytest

from ebar.backbones import BACKBONES
from ebar.cli import residual
from ebar.config import reader
from ebar.config.reader import Manual, read
from ebar.config.train import MANUAL, TrainConfig
from ebar.errors import UserError


class Small:
    """Small."""

    def __init__(self, vocabulary: int, *, size: int = 3):
        self.width = size


class Large:
    """Large."""

    def __init__(self, vocabulary: int, *, width: int = 5):
        self.width = width


def options(*words: str) -> dict[str, Any]:
    return dict(read(["--backbone.kind", "mine", *words], MANUAL, TrainConfig).backbone.options)


def test_an_entry_that_is_new_or_replaced_has_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="mine"):
        options()
    own: dict[str, type] = {"size": Small, "width": Large}
    for name, entry in own.items():
        monkeypatch.setitem(BACKBONES, "mine", entry)
        assert options(f"--backbone.{name}", "7") == {name: 7}
        assert options() == {name: {"size": 3, "width": 5}[name]}  # nothing is left of the 7
    with pytest.raises(UserError, match=r"no option '--backbone\.size'"):
        options("--backbone.size", "7")


def test_words_that_were_refused_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_parsers", {})
    first = read(["--seed", "3", "--training.epochs", "2"], MANUAL, TrainConfig)
    with pytest.raises(UserError):
        read(["--seed", "4", "--training.epochs", "many"], MANUAL, TrainConfig)
    second = read([], MANUAL, TrainConfig)
    assert (first.seed, first.training.epochs) == (3, 2)
    assert (second.seed, second.training.epochs) == (TrainConfig().seed, TrainConfig().training.epochs)
    assert len(reader._parsers) == 1


def test_no_more_parsers_are_kept_than_are_asked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_parsers", {})
    monkeypatch.setattr(reader, "MOST_PARSERS", 2)
    for kind in ("lstm", "awd_lstm", "transformer", "lstm"):
        assert read(["--backbone.kind", kind], MANUAL, TrainConfig).backbone.kind == kind
        assert len(reader._parsers) <= 2


@pytest.mark.parametrize("text", ["# one", "null", "{a: b}", "a: b", ""])
def test_a_text_that_may_be_left_out_is_taken_as_it_stands(text):
    words, manual, kind = ["runs/mine"], Manual.of(residual.generate.__doc__), residual.GenerateConfig
    assert read([*words, "--prompt", text], manual, kind).prompt == text
    assert read(words, manual, kind).prompt is None
