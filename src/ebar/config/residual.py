"""What `ebar residual train` is told: the base, the text, which energy, and how it is trained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt

from ebar.config.options import add_kind, group, parse, parser
from ebar.config.run import Chosen
from ebar.data.chunks import ChunksData
from ebar.energies.kinds import ENERGIES
from ebar.errors import UserError
from ebar.journeys.residual.settings import Fitting, Measuring, NegativesDraws


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Everything that decides the result."""

    base: str  # folder of a run of ebar's, or a pretrained model by folder, file or hub name
    seed: int = 0
    device: str = "cpu"
    precision: Literal["float32", "bfloat16", "float16", "8bit"] = "float32"  # of a pretrained base
    data: ChunksData = field(default_factory=ChunksData)
    energy: Chosen
    negatives: NegativesDraws = field(default_factory=NegativesDraws)
    fitting: Fitting = field(default_factory=Fitting)
    evaluation: Measuring = field(default_factory=Measuring)


GROUPS: dict[str, type] = {
    "data": ChunksData, "negatives": NegativesDraws, "fitting": Fitting, "evaluation": Measuring,
}  # fmt: skip

# What only means something from 1 up.
COUNTS = {
    "prefix", "continuation", "chunks", "validation_chunks", "test_chunks", "layers", "hidden", "heads", "lora",
    "draws", "at_once", "negatives", "evaluations", "last_candidates",
}  # fmt: skip


def residual_parser(words: Sequence[str], command: str, purpose: str, example: str) -> ArgumentParser:
    """The options of a residual model; those of the energy are declared once its kind is known."""
    options = parser(words, command, purpose, example)
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--base", type=str | None, default=None,
        help="folder of a text run of ebar's, or a causal language model: a Hugging Face folder or hub name, a .gguf "
        "file, a .bin file of llama2.c")  # fmt: skip
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of weights, order, dropout and draws")
    options.add_argument("--device", type=str, default="cpu", help="where to compute, such as cpu or cuda")
    options.add_argument("--precision", choices=["float32", "bfloat16", "float16", "8bit"], default="float32",
        help="of a pretrained base's weights")  # fmt: skip
    add_kind(options, words, "energy", ENERGIES, "bit")
    for key, entry in GROUPS.items():
        options.add_class_arguments(entry, key)
    return options


def as_residual(arguments: Namespace) -> Residual:
    """Parsed options as the frozen configuration; whatever lies on this machine by its whole path."""
    if arguments.base is None:
        raise UserError("A residual model needs a base: give --base, a run of ebar's or a pretrained model.")
    energy = group(arguments, "energy")
    kind = energy.pop("kind")
    if kind == "pretrained":
        energy["encoder"] = _place(energy["encoder"])
    groups = {key: group(arguments, key) for key in GROUPS}
    for key, options in {**groups, "energy": energy}.items():
        _check(key, options)
    draws, negatives = groups["negatives"]["draws"], groups["fitting"]["negatives"]
    if draws is not None and draws < negatives:
        raise UserError(f"negatives.draws is {draws}, fewer than the {negatives} of fitting.negatives: give more.")
    return Residual(
        base=_place(arguments.base),
        seed=arguments.seed,
        device=arguments.device,
        precision=arguments.precision,
        energy=Chosen(kind=kind, options=energy),
        **{key: entry(**groups[key]) for key, entry in GROUPS.items()},
    )


def read_residual(path: Path) -> Residual:
    """The configuration a residual model was made with."""
    if not path.exists():
        raise UserError(f"There is no residual model in {path.parent}: it has no {path.name}.")
    words = ["--config", str(path)]
    try:
        return as_residual(parse(residual_parser(words, "residual train", "", ""), words))
    except UserError as error:
        raise UserError(f"{path.parent} holds no run of `ebar residual train`: {error}") from None


def _place(name: str) -> str:
    """A path as a whole, so that the run can be gone on with from any folder; a hub's name as it is."""
    try:
        return str(Path(name).resolve()) if Path(name).exists() else name
    except (OSError, ValueError):
        return name


def _check(key: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name in COUNTS and not (key == "evaluation" and name == "prefixes") and value is not None and value < 1:
            raise UserError(f"{key}.{name} must be 1 or more, not {value}.")
        if name in ("learning_rate", "warm_up_learning_rate", "masked") and not value > 0:
            raise UserError(f"{key}.{name} must be above 0, not {value}.")
        if name == "bound" and value is not None and not 0 < value < math.inf:
            raise UserError(f"{key}.bound must be a number above 0, or null for none, not {value}.")
        if (
            name in ("warm_up", "frozen_layers", "prefixes", "last_rows", "weight_decay", "warmup", "dropout")
            and value < 0
        ):
            raise UserError(f"{key}.{name} must be 0 or more, not {value}.")
        if name in ("masked", "warmup", "dropout") and value > 1:
            raise UserError(f"{key}.{name} must be 1 or less, not {value}.")
