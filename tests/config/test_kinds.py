"""The names of options by which a run folder is told are those of the configurations themselves."""

from dataclasses import fields

import pytest

from ebar.config.classify import ClassifyConfig
from ebar.config.control import ControlConfig
from ebar.config.finetune import FinetuneConfig
from ebar.config.gam import GamConfig
from ebar.config.game import GameConfig
from ebar.config.kinds import OPTIONS, kind_of_run
from ebar.config.residual import ResidualConfig
from ebar.config.train import TrainConfig
from ebar.journeys.control.tuning import Tuning

CONFIGURATIONS: dict[str, type] = {
    "train": TrainConfig, "gam": GamConfig, "residual": ResidualConfig, "control": ControlConfig,
    "finetune": FinetuneConfig, "classify": ClassifyConfig, "game": GameConfig, "control tune": Tuning,
}  # fmt: skip


def test_every_kind_has_a_configuration() -> None:
    assert set(OPTIONS) == set(CONFIGURATIONS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_are_those_of_the_dataclass(kind: str) -> None:
    names = [own.name for own in fields(CONFIGURATIONS[kind])]
    assert sorted(OPTIONS[kind].split()) == sorted(names)
    assert kind_of_run(names) == kind


def test_what_no_command_writes_has_no_kind() -> None:
    assert kind_of_run(["model", "objective"]) is None
    assert kind_of_run([]) is None
