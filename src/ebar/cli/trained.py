"""What the commands that use a trained run share: finding it, truncating it, tilting it, choosing a sampler."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Generator

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.model import load_model
from ebar.build.terms import kinds_help, read_energy
from ebar.config.options import add_kind, group
from ebar.config.run import Chosen, read_run
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
    run = read_run(folder / "config.yaml")
    corpus = build_corpus(run, folder)
    return Trained(folder=folder, corpus=corpus, model=load_model(run, folder, corpus.space))


def add_tilt(options: ArgumentParser) -> None:
    """Options that tilt the model."""
    options.add_argument("--tilt", nargs="+", default=[], metavar="KIND:ARGUMENT=COEFFICIENT",
        help="terms of the energy, each adding COEFFICIENT·feature to the log-score; ! in front means absent. "
        + kinds_help(),
    )  # fmt: skip


def add_truncation(options: ArgumentParser) -> None:
    """Options that truncate the model: the result is a distribution of its own."""
    options.add_argument("--temperature", type=PositiveFloat, default=1.0, help="divides the logits")
    options.add_argument("--top_k", type=PositiveInt | None, default=None, help="keep the k likeliest tokens")
    options.add_argument("--top_p", type=float | None, default=None, help="keep the likeliest tokens of this mass")
    options.add_argument("--maximal_length", type=PositiveInt | None, default=None, help="in tokens, the end included")


def add_sampler(options: ArgumentParser, words: Sequence[str], default: str) -> None:
    """Options that choose a sampler and where it proposes from."""
    add_kind(options, words, "sampler", SAMPLERS, default)
    options.add_argument("--proposal", choices=["base", "look_ahead"], default="base",
        help="what the sampler proposes from: the model, or the model steered by the automata of the tilt",
    )  # fmt: skip
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")


def truncated(model: Autoregressive, arguments: Namespace) -> Stepwise:
    """The model, or its truncation where one is asked for."""
    wanted = {
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


def tilted(base: Stepwise, arguments: Namespace, trained: Trained) -> Tilted | None:
    """The model tilted by the terms given, if any are."""
    if not arguments.tilt:
        return None
    return Tilted(base, read_energy(arguments.tilt, reading_of(trained.corpus.tokeniser, base.space)))


def build_sampler(arguments: Namespace) -> Sampler:
    """The sampler chosen."""
    options = group(arguments, "sampler")
    kind = options.pop("kind")
    if "moves" in options:
        options["moves"] = tuple(options["moves"])
    sampler: Sampler = make(SAMPLERS, Chosen(kind=kind, options=options), "sampler")
    return sampler


def build_proposal(arguments: Namespace, sampler: Sampler, target: Tilted, generator: Generator) -> Guided | None:
    """Made once, for the sampler and for whatever else is measured; None means the model itself."""
    if isinstance(sampler, Rejection) and arguments.proposal == "look_ahead" and sampler.log_bound is None:
        raise UserError(
            "Rejection gains nothing by looking ahead, as its bound must hold for the worst of all models: "
            "use --proposal base, or --sampler.kind quasi_rejection."
        )
    if isinstance(sampler, LookAhead):
        return sampler.proposal(target, n=arguments.n, generator=generator)
    return guided(target, generator=generator) if arguments.proposal == "look_ahead" else None
