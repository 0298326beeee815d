"""From the configuration of a residual model to its objects: base, chunks and energy; and the journey with them."""

import inspect
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ebar.build.train import build_model, load_model
from ebar.config.reader import read_file
from ebar.config.residual import MANUAL, ResidualConfig
from ebar.config.train import TrainConfig, read_train
from ebar.data.built_tokeniser import TOKENISER, build_tokeniser, read_tokeniser_file
from ebar.data.chunks import CHUNKS, Chunks, stored_chunks
from ebar.data.specials import vocabulary_with_specials
from ebar.data.text import TextData
from ebar.devices import device_at_hand, device_named
from ebar.energies.kinds import ENERGIES
from ebar.errors import UserError
from ebar.journeys.residual import journey
from ebar.journeys.residual.base import Base
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive, from_pretrained
from ebar.models.rolling import remembers
from ebar.models.xlnet_weights import xlnet_from_hugging_face
from ebar.shards import Workers
from ebar.store.differences import refuse_earlier_version
from ebar.store.names import CONFIG
from ebar.store.writing import saving
from ebar.training.randomness import seeded
from ebar.types import Space


class Found(NamedTuple):
    """A base, and the run it was trained in, where that was one of ebar's."""

    base: Base
    run: TrainConfig | None

    @property
    def text(self) -> TextData | None:
        """What it was trained on, where that is known and stands in files as it was read."""
        if self.run is None:
            return None
        options = self.run.data.options
        if options.get("clean", "none") != "none" or options.get("shuffle", False):
            raise UserError(
                "The base was trained on a text that was cleaned or shuffled while it was read: write what is to be "
                "continued into a file of its own, and give it as data.train."
            )
        return _text_of(self.run)


def train_residual(
    residual: ResidualConfig,
    folder: Path,
    *,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> journey.Residual:
    """As configured, in a run folder, from where it stands."""
    refuse_earlier_version(folder, "residual train", "if it is finished, the other commands and `ebar.load` open it")
    residual = replace(residual, device=device_named(residual.device))
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    found = load_base(residual)
    chunks = load_chunks(residual, found, folder)
    seeded(folded(residual.seed, "weights"), device=residual.device)
    return journey.residual(
        found.base, build_energy(residual, found), chunks, negatives=residual.negatives, fitting=residual.training,
        seed=residual.seed, folder=folder, workers=workers,
    )  # fmt: skip


def load_residual(folder: Path) -> journey.Residual:
    """A trained residual model from its folder."""
    residual = read_file(folder / CONFIG, MANUAL, ResidualConfig)
    residual = replace(residual, device=device_at_hand(residual.device))
    if not (folder / CHUNKS).exists():
        raise UserError(f"{folder} is not trained yet: run `ebar residual train` to its end.")
    found = load_base(residual)
    energy = build_energy(residual, found)
    return journey.Residual(
        base=found.base, energy=journey.load_energy(energy, folder), chunks=load_chunks(residual, found, folder),
        folder=folder, at_once=residual.negatives.at_once,
    )  # fmt: skip


def load_chunks(residual: ResidualConfig, found: Found, folder: Path) -> Chunks:
    """Those that the folder holds; else those of the text."""
    base, data = found.base, residual.data
    assert base.tokeniser is not None
    tokeniser = base.tokeniser

    def cut() -> Chunks:
        base.check(data.prefix)
        text = found.text if data.train is None and data.dataset is None else None
        return data.read(tokeniser, base.q.space.vocabulary, text=text)

    return stored_chunks(folder / CHUNKS, tokeniser, cut)


def load_base(residual: ResidualConfig) -> Found:
    """A run of ebar's, where the folder holds one; else a pretrained model."""
    place = Path(residual.base)
    if place.is_dir() and (place / "config.yaml").exists():
        return _own(place, residual)
    q = from_pretrained(
        residual.base, length=residual.data.continuation, device=residual.device, dtype=residual.precision
    )
    return Found(Base(q=q.requires_grad_(False), tokeniser=q.tokeniser), None)


def _own(folder: Path, residual: ResidualConfig) -> Found:
    run = read_train(folder)
    if run.data.kind not in ("text", "stream"):
        raise UserError(f"{folder} was trained on {run.data.kind} data, and a base continues text: train one on text.")
    if run.device != residual.device:
        run = replace(run, device=residual.device)
    data = _text_of(run)

    def missing() -> Any:
        raise UserError(f"{folder} has no {TOKENISER}: train it first.")

    tokeniser = build_tokeniser(data, missing, folder)
    q = load_model(run, folder, Space(tokeniser.size, residual.data.continuation))
    longest = None if remembers(q) else data.length  # a memory of fixed size reads as far as it is asked to
    return Found(Base(q=q.requires_grad_(False), tokeniser=tokeniser, longest=longest), run)


def _text_of(run: TrainConfig) -> TextData:
    """Where the text of a run is and how it is read; of a stream, what it has in common with text in windows."""
    own = {field.name for field in fields(TextData)}
    return TextData(**{name: value for name, value in run.data.options.items() if name in own})


def build_energy(residual: ResidualConfig, found: Found) -> nn.Module:
    """The energy before any training. Weights are drawn from torch's global state: seed it before."""
    base, run, chosen = found.base, found.run, residual.energy
    provided = {
        "base": base.q,
        "vocabulary": base.q.space.vocabulary,
        "tokeniser": base.tokeniser,
        "device": residual.device,
        "location": residual.base if run is None else None,
        "fresh": None if run is None else lambda: build_model(run, base.q.space).backbone,
        "opened": lambda folder: _open_xlnet(Path(folder), residual.device),
    }
    wanted = inspect.signature(ENERGIES.choose(chosen.kind)).parameters
    own = {name: provided[name] for name in ENERGIES.given if name in wanted}
    energy: nn.Module = chosen.make(ENERGIES, **own)
    return energy.to(residual.device)


def _open_xlnet(folder: Path, device: str) -> Autoregressive:
    """A pretrained XLNet, in a run folder or as transformers saves it, with its tokeniser."""
    if not (folder / "config.yaml").exists():
        return xlnet_from_hugging_face(folder, device=device)
    tokeniser = read_tokeniser_file(folder / TOKENISER)
    run = replace(read_train(folder), device=device)
    model = load_model(run, folder, Space(vocabulary_with_specials(tokeniser), 1))
    model.tokeniser = tokeniser
    return model
