"""What the commands that use a trained run share: finding it, truncating it, tilting it, choosing a sampler."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.build.corpus import build_corpus
from ebar.build.model import load_model
from ebar.build.terms import read_energy
from ebar.config.drawing import Drawing, Tilt, Truncation
from ebar.config.train import read_train
from ebar.data.corpus import Corpus
from ebar.data.tokenisers import reading_of
from ebar.errors import UserError
from ebar.models.autoregressive import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import LookAhead, guided
from ebar.samplers.rejection import Rejection
from ebar.types import Sampler, Stepwise


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run that has been trained."""

    folder: Path
    corpus: Corpus
    model: Autoregressive


def load_trained(folder: Path) -> Trained:
    """The best model of a run folder, and its data."""
    run = read_train(folder)
    corpus = build_corpus(run, folder)
    return Trained(folder=folder, corpus=corpus, model=load_model(run, folder, corpus.space))


def truncated(model: Autoregressive, arguments: Truncation) -> Stepwise:
    """The model, or its truncation where one is asked for."""
    wanted: dict[str, Any] = {
        "temperature": arguments.temperature,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
        "length": arguments.maximal_length,
    }
    if wanted == {"temperature": 1.0, "top_k": None, "top_p": None, "length": None}:
        return model
    try:
        return model.truncated(**wanted)
    except ValueError as error:
        raise UserError(f"The model cannot be truncated so: {error}.") from None


def tilted(base: Stepwise, arguments: Tilt, trained: Trained) -> Tilted | None:
    """The model tilted by the terms given, if any are."""
    if not arguments.tilt:
        return None
    return Tilted(base, read_energy(arguments.tilt, reading_of(trained.corpus.tokeniser, base.space)))


def build_sampler(arguments: Drawing) -> Sampler:
    """The sampler chosen."""
    sampler: Sampler = arguments.sampler.make(SAMPLERS)
    return sampler


def build_proposal(arguments: Drawing, sampler: Sampler, target: Tilted, n: int, generator: Generator) -> Guided | None:
    """Made once, for the sampler and for whatever else is measured; None means the model itself."""
    if isinstance(sampler, Rejection) and arguments.proposal == "look_ahead" and sampler.log_bound is None:
        raise UserError(
            "Rejection gains nothing by looking ahead, as its bound must hold for the worst of all models: "
            "use --proposal base, or --sampler.kind quasi_rejection."
        )
    if isinstance(sampler, LookAhead):
        return sampler.proposal(target, n=n, generator=generator)
    return guided(target, generator=generator) if arguments.proposal == "look_ahead" else None
