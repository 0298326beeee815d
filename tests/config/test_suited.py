"""The backbone that suits the kind of data, where nobody chooses one."""

from pathlib import Path

import pytest

from ebar.config.gam import MANUAL as GAM
from ebar.config.gam import GamConfig
from ebar.config.given import kind_is_given
from ebar.config.pretrain import MANUAL as PRETRAIN
from ebar.config.reader import read, read_tree
from ebar.config.train import MANUAL, TrainConfig
from ebar.data import DATA

SUITED = {"language": "lstm", "lines": "lstm", "text": "transformer", "parallel": "encoder_decoder",
          "images": "gated_pixelcnn", "stream": "lstm"}  # fmt: skip


@pytest.mark.parametrize("kind", SUITED)
def test_the_kind_of_data_chooses_and_a_given_one_wins(kind: str, tmp_path: Path) -> None:
    words = ["--data.kind", kind]
    needed = [] if kind == "language" else ["--data.train", str(tmp_path)]
    assert read([*words, *needed], MANUAL, TrainConfig).backbone.kind == SUITED[kind]
    assert not kind_is_given("backbone", words)
    given = [*words, *needed, "--backbone.kind", "convolution"]
    assert read(given, MANUAL, TrainConfig).backbone.kind == "convolution"
    assert kind_is_given("backbone", given)
    file = tmp_path / "run.yaml"
    file.write_text("backbone: {kind: awd_lstm}\n")
    assert read(["--config", str(file), *words, *needed], MANUAL, TrainConfig).backbone.kind == "awd_lstm"
    assert kind_is_given("backbone", ["--config", str(file)])


def test_options_are_those_of_the_backbone_that_suits(tmp_path: Path) -> None:
    tree = {"data": {"kind": "text", "train": str(tmp_path)}, "backbone": {"heads": 2}}
    assert read_tree(tree, MANUAL, TrainConfig).backbone.options["heads"] == 2


def test_a_command_with_a_backbone_of_its_own_keeps_it() -> None:
    assert read(["--data.train", "text.txt"], PRETRAIN, TrainConfig).backbone.kind == "xlnet"
    assert read(["--features", "motif:1"], GAM, GamConfig).backbone.kind == "lstm"


def test_what_suits_is_said_by_the_kind_of_data_itself() -> None:
    assert {kind: getattr(DATA[kind], "backbone", "lstm") for kind in SUITED} == SUITED
