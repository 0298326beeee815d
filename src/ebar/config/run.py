"""What `ebar train` is told: frozen dataclasses, read from YAML and flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt

from ebar.backbones import BACKBONES
from ebar.config.options import add_kind, group, parse, parser
from ebar.data.kinds import DATA
from ebar.errors import UserError
from ebar.heads import HEADS
from ebar.objectives import OBJECTIVES
from ebar.training.course import Training
from ebar.training.optimisers import OPTIMISERS
from ebar.training.schedules import SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An entry of a table and its options."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides a run's result."""

    seed: int
    device: str
    dtype: str
    data: Chosen
    backbone: Chosen
    head: Chosen
    objective: Chosen
    optimiser: Chosen
    schedule: Chosen
    training: Training


# What a backbone is told by the data.
FROM_DATA = ("source_vocabulary", "image_height", "image_width", "channels")

# Key → table, the default, and the arguments that `build` provides.
CHOICES: dict[str, tuple[Mapping[str, Any], str, tuple[str, ...]]] = {
    "data": (DATA, "language", ()),
    "backbone": (BACKBONES, "lstm", ("vocabulary", *FROM_DATA)),
    "head": (HEADS, "softmax", ("vocabulary", "width")),
    "objective": (OBJECTIVES, "maximum_likelihood", ("model", "player")),
    "optimiser": (OPTIMISERS, "adam", ()),
    "schedule": (SCHEDULES, "constant", ()),
}


def run_parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """The options of a run; those of a table's entry are declared once the entry is known."""
    options = parser(words, command, purpose, example)
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of data, weights, order and dropout")
    options.add_argument("--device", type=str, default="cpu", help="where to compute, such as cpu or cuda")
    options.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="of the weights")
    for key, (table, default, provided) in CHOICES.items():
        add_kind(options, words, key, table, default, skip=provided)
    options.add_class_arguments(Training, "training")
    return options


def as_run(arguments: Namespace) -> Run:
    """Parsed options as the frozen configuration."""
    chosen = {}
    for key in CHOICES:
        options = group(arguments, key)
        chosen[key] = Chosen(kind=options.pop("kind"), options=options)
    training = Training(**group(arguments, "training"))
    return Run(seed=arguments.seed, device=arguments.device, dtype=arguments.dtype, training=training, **chosen)


def read_run(path: Path) -> Run:
    """The configuration a run was started with."""
    if not path.exists():
        raise UserError(f"There is no run in {path.parent}: it has no {path.name}.")
    words = ["--config", str(path)]
    return as_run(parse(run_parser(words, "train", "", ""), words))
