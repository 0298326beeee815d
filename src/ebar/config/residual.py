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
from ebar.errors import UserError

PoolOver = Literal["continuation", "all"]


@dataclass(frozen=True, kw_only=True)
class ChunksData:
    """Text, cut into prefixes and continuations (.txt, .gz, .xz)."""

    train: Path | None = None
    """Training text; by default that of the base, where it is a run of ebar's."""
    validation: Path | None = None
    """Held-out text to choose weights by; without a file, the last tenth of the training chunks."""
    test: Path | None = None
    """Held-out text for evaluation; without a file, the validation text."""
    dataset: str | None = None
    """In place of files, a data set by its name on the hub, or a folder that save_to_disk wrote."""
    dataset_configuration: str | None = None
    """Which of the hub's data sets of that name."""
    column: str = "text"
    """The column of the data set that holds the text."""
    prefix: int = 120
    """Tokens of the base that are given."""
    continuation: int = 40
    """Tokens that follow and are modelled."""
    chunks: int | None = None
    """At most so many training chunks, evenly spread over the text."""
    validation_chunks: int = 1000
    """At most so many to choose weights by."""
    test_chunks: int = 1000
    """At most so many for evaluation."""


@dataclass(frozen=True, kw_only=True)
class UnitEnergy:
    """UniT: reads from left to right, as the base does."""

    start: Literal["base", "fresh"] = "base"
    """Begin with a copy of the base's weights, or with random ones."""
    lora: int | None = None
    """Rank of the matrices that learn beside a pretrained base's own; by default its own learn."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: float | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


@dataclass(frozen=True, kw_only=True)
class BitEnergy:
    """BiT: a bidirectional Transformer from scratch."""

    layers: int = 4
    """Of the Transformer."""
    hidden: int = 256
    """Numbers in a vector."""
    heads: int = 4
    """Of attention, in each layer."""
    dropout: float = 0.1
    """Chance that a number is left out while it learns."""
    warm_up: int = 3
    """Passes over the text in which it first learns to fill gaps; 0 for none: on real text it then seldom learns."""
    warm_up_learning_rate: float = 5e-4
    """Of AdamW, there."""
    masked: float = 0.15
    """Share of the tokens that are gaps, there."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: float | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


@dataclass(frozen=True, kw_only=True)
class PretrainedEnergy:
    """BiT*: a pretrained network over the text, in tokens of its own."""

    encoder: str
    """Folder, hub name or file of an encoder, or of a causal model."""
    lora: int | None = None
    """Rank of the matrices that learn beside its own; by default its own learn."""
    frozen_layers: int = 0
    """So many layers, the lowest first and the embeddings with them, stay as they are."""
    cut_prefix: bool = False
    """Where a text takes more tokens than the encoder has positions, leave out the beginning of the prefix."""
    pool: PoolOver = "continuation"
    """Whose vectors are averaged: the continuation's, or the prefix's too."""
    bound: float | None = None
    """Largest energy in absolute value, such as 3: then every weight is bounded and perplexities can be certified."""


ENERGIES = {"unit": UnitEnergy, "bit": BitEnergy, "pretrained": PretrainedEnergy}


@dataclass(frozen=True, kw_only=True)
class NegativesDraws:
    """The base's own continuations of the training prefixes, on disk."""

    draws: int | None = None
    """For each prefix; those that one epoch does not use are the next one's. By default as many as are used."""
    refresh: bool = False
    """Draw new ones for every epoch: what was seen once cannot be learnt by heart."""
    at_once: int = 256
    """Draws computed together: more are faster and take more memory."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How an energy is trained."""

    form: Literal["binary", "ranking"] = "binary"
    """Binary: real or drawn, each by itself, so that log Z is learnt too. Ranking: which of these is real."""
    negatives: int = 1
    """Drawn continuations beside each real one."""
    epochs: int = 3
    """At most so many passes over the data."""
    batch_size: int = 32
    """Chunks per step, each with its negatives."""
    learning_rate: float = 1e-4
    """Of AdamW, after the warm-up; it then falls along half a cosine to a tenth."""
    weight_decay: float = 0.01
    """Of AdamW."""
    warmup: float = 0.1
    """Share of all steps over which the learning rate rises."""
    clip: float | None = 1.0
    """Largest Euclidean norm of a gradient."""
    patience: int = 3
    """Stop after so many evaluations in a row without a better held-out loss."""
    evaluations: int = 1
    """In each epoch, on held-out chunks."""
    accumulate: int = 1
    """Parts a batch is computed in, to save memory; the result does not change."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """A first evaluation, once the energy is trained; `ebar residual evaluate` makes others."""

    prefixes: int = 50
    """Test prefixes; 0 for no evaluation."""
    draws: int = 100
    """Of the base, for each of them; below 100 nothing is established."""


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
    "draws", "at_once", "negatives", "evaluations",
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
        if name in ("warm_up", "frozen_layers", "prefixes", "weight_decay", "warmup", "dropout") and value < 0:
            raise UserError(f"{key}.{name} must be 0 or more, not {value}.")
        if name in ("masked", "warmup", "dropout") and value > 1:
            raise UserError(f"{key}.{name} must be 1 or less, not {value}.")
