"""From the configuration of a controlled model to its objects: language model and constraints; and the journey."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebar.build.terms import read_feature, split_term
from ebar.build.train import load_trained
from ebar.config.control import MANUAL, CheckConfig, ControlConfig, read_control
from ebar.config.reader import described
from ebar.errors import UserError
from ebar.features.feature import Feature
from ebar.journeys.control.bending import Bend, bend
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.journey import control
from ebar.models.construction import from_pretrained


def fit_control(config: ControlConfig, folder: Path | None) -> Controlled:
    """As configured, in a run folder; λ is read back where that has it."""
    wanted = read_constraints(config.features)
    model = load_language_model(config)
    return control(
        model, wanted, prompt=config.prompt, reads_prompt=config.reads_prompt,
        length=min(config.length, model.space.length), draws=config.draws, checks=config.checks,
        surrogate_draws=config.surrogate_draws, rounds=config.rounds, round_draws=config.round_draws, rows=config.rows,
        seed=config.seed, folder=folder,
        description=None if folder is None else described(folder, MANUAL, config),
    )  # fmt: skip


def check_control(config: CheckConfig) -> list[Bend]:
    """How far the constraints bend the model."""
    wanted = read_constraints(config.features)
    model = load_model_at(config.model, length=config.length, ends=config.ends, device=config.device)
    return bend(
        model, wanted, prompt=config.prompt, reads_prompt=config.reads_prompt,
        length=min(config.length, model.space.length), draws=config.draws, surrogate_draws=config.surrogate_draws,
        rows=config.rows, seed=config.seed,
    )  # fmt: skip


def open_control(folder: Path) -> Controlled:
    """What `ebar control fit` left in a folder."""
    config = read_control(folder)
    if not (folder / "lambda.json").exists():
        raise UserError(f"{folder} has no λ yet: finish `ebar control fit` first.")
    return fit_control(config, folder)


def load_language_model(config: ControlConfig) -> Any:
    """That of the configuration."""
    return load_model_at(
        config.model, length=config.length, ends=config.ends, device=config.device, dtype=config.precision,
        trust_remote_code=config.trust_remote_code,
    )  # fmt: skip


def load_model_at(where: Path | str, **options: Any) -> Any:
    """A pretrained model or, where the folder is of `ebar train`, that run's."""
    place = Path(where)
    return load_trained(place).model if (place / "config.yaml").exists() else from_pretrained(where, **options)


def read_constraints(terms: Sequence[str]) -> list[tuple[Feature, float]]:
    """Features and their moments from terms KIND:ARGUMENT=MOMENT; errors in them are reported before any work."""
    share = "MOMENT, the share of texts from 0 to 1 of which it is to hold"
    found = []
    for term in terms:
        words, moment = split_term(term, share, "word:dragon=1")
        if not 0 <= moment <= 1:
            raise UserError(f"The term {term!r} must end in ={share}, as in word:dragon=1.")
        found.append((read_feature(words), moment))
    if not found:
        raise UserError("There is nothing to control: give --features KIND:ARGUMENT=MOMENT.")
    return found
