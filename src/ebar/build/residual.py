"""From the configuration of a residual model to its objects: base, chunks and energy; and the journey with them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ebar.backbones.pretrained.lora import with_lora
from ebar.backbones.transformer import BidirectionalTransformer
from ebar.build.model import build_model, load_model
from ebar.config.residual import ResidualConfig, read_residual
from ebar.config.train import TrainConfig, read_train
from ebar.data.built_tokeniser import TOKENISER, build_tokeniser
from ebar.data.chunks import CHUNKS, Chunks, stored_chunks
from ebar.data.text import TextData
from ebar.energies.encoders import bit, unit, unit_from
from ebar.energies.kinds import BitEnergy, PretrainedEnergy, UnitEnergy
from ebar.energies.loading import LoadedEncoder, load_encoder
from ebar.energies.neural import Neural
from ebar.energies.reencoded import Reencoded
from ebar.errors import UserError, choose
from ebar.journeys.gam.journey import timed
from ebar.journeys.residual import journey
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.warm_up import WarmUp
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.loading import load_causal
from ebar.objectives.masked import MaskedModel
from ebar.store.writing import saving
from ebar.training import seeded
from ebar.types import Space

RECURRENT = ("lstm",)  # backbones that read as far as they are asked to


class Found(NamedTuple):
    """A base, and the run it was trained in, where that was one of ebar's."""

    base: Base
    run: TrainConfig | None

    @property
    def text(self) -> TextData | None:
        """What it was trained on, where that is known."""
        return None if self.run is None else TextData(**self.run.data.options)


def train_residual(residual: ResidualConfig, folder: Path) -> journey.Residual:
    """As configured, in a run folder, from where it stands."""
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    found = load_base(residual)
    with timed(folder, "chunks"):
        chunks = load_chunks(residual, found, folder)
    seeded(folded(residual.seed, journey.WEIGHTS), device=residual.device)
    energy, warm_up = build_energy(residual, found)
    return journey.residual(
        found.base, energy, chunks, negatives=residual.negatives, fitting=residual.training, warm_up=warm_up,
        seed=residual.seed, folder=folder,
    )  # fmt: skip


def load_residual(folder: Path) -> journey.Residual:
    """A trained residual model from its folder."""
    residual = read_residual(folder)
    if not (folder / CHUNKS).exists():
        raise UserError(f"{folder} is not trained yet: run `ebar residual train` to its end.")
    found = load_base(residual)
    energy, _ = build_energy(residual, found)
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
        return data.read(tokeniser, base.q.space.vocabulary, text=found.text)

    return stored_chunks(folder / CHUNKS, tokeniser, cut)


def load_base(residual: ResidualConfig) -> Found:
    """A run of ebar's, where the folder holds one; else a pretrained model."""
    place = Path(residual.base)
    if place.is_dir() and (place / "config.yaml").exists():
        return _own(place, residual)
    loaded = load_causal(
        residual.base, length=residual.data.continuation, device=residual.device, dtype=residual.precision
    )
    loaded.model.requires_grad_(False)
    return Found(Base(q=loaded.model, tokeniser=loaded.tokeniser), None)


def _own(folder: Path, residual: ResidualConfig) -> Found:
    run = read_train(folder)
    if run.data.kind != "text":
        raise UserError(f"{folder} was trained on {run.data.kind} data, and a base continues text: train one on text.")
    if run.device != residual.device:
        run = replace(run, device=residual.device)
    data = TextData(**run.data.options)

    def missing() -> Any:
        raise UserError(f"{folder} has no {TOKENISER}: train it first.")

    tokeniser = build_tokeniser(data, missing, folder)
    q = load_model(run, folder, Space(tokeniser.size, residual.data.continuation))
    longest = None if run.backbone.kind in RECURRENT else data.length
    return Found(Base(q=q.requires_grad_(False), tokeniser=tokeniser, longest=longest), run)


def build_energy(residual: ResidualConfig, found: Found) -> tuple[Neural, WarmUp | None]:
    """The energy before any training. Weights are drawn from torch's global state: seed it before."""
    builders: dict[str, Callable[[Mapping[str, Any], ResidualConfig, Found], tuple[Neural, WarmUp | None]]] = {
        "unit": _unit, "bit": _bit, "pretrained": _pretrained,
    }  # fmt: skip
    builder = choose(builders, residual.energy.kind, "energy")
    try:
        energy, warm_up = builder(residual.energy.options, residual, found)
        return energy.to(residual.device), warm_up
    except ValueError as error:
        raise UserError(f"The energy {residual.energy.kind} cannot be made: {error}.") from None
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The energy cannot be put on {residual.device!r}: {str(error).splitlines()[0]}.") from None


def _unit(options: Mapping[str, Any], residual: ResidualConfig, found: Found) -> tuple[Neural, None]:
    """A pretrained base's twin reads the text, as any other pretrained network does."""
    told, base = UnitEnergy(**options), found.base
    if found.run is None:
        if told.start == "fresh":
            raise UserError("A UniT beside a pretrained base begins with the base's weights: leave out energy.start.")
        body = load_encoder(residual.base, device=residual.device)
        return _reading(body, base, told), None
    if told.lora is not None:
        raise UserError("LoRA is for pretrained networks, and this base is a run of ebar's: leave out energy.lora.")
    if told.start == "base":
        assert isinstance(base.q, Autoregressive)
        return unit_from(base.q, pool=told.pool, bound=told.bound), None
    twin: Any = build_model(found.run, base.q.space)
    return unit(twin.backbone, pool=told.pool, bound=told.bound), None


def _bit(options: Mapping[str, Any], residual: ResidualConfig, found: Found) -> tuple[Neural, WarmUp]:
    told = BitEnergy(**options)
    network = BidirectionalTransformer(
        found.base.q.space.vocabulary, layers=told.layers, hidden=told.hidden, heads=told.heads, dropout=told.dropout
    )
    warm_up = WarmUp(
        epochs=told.warm_up, learning_rate=told.warm_up_learning_rate, masked=told.masked, model=MaskedModel(network)
    )
    return bit(network, pool=told.pool, bound=told.bound), warm_up


def _pretrained(options: Mapping[str, Any], residual: ResidualConfig, found: Found) -> tuple[Neural, None]:
    told = PretrainedEnergy(**options)
    loaded = load_encoder(told.encoder, device=residual.device)
    if told.frozen_layers:
        freeze(loaded.network, told.frozen_layers)
    return _reading(loaded, found.base, told, cut_prefix=told.cut_prefix), None


def _reading(
    loaded: LoadedEncoder, base: Base, told: UnitEnergy | PretrainedEnergy, *, cut_prefix: bool = False
) -> Neural:
    network = loaded.network if told.lora is None else with_lora(loaded.network, rank=told.lora, kind="encoder")
    assert base.tokeniser is not None
    reading = Reencoded(network, loaded.tokeniser.original, base.tokeniser, end=base.q.space.end, cut_prefix=cut_prefix)
    return Neural(reading, pool=told.pool, bound=told.bound)


def freeze(network: nn.Module, layers: int) -> None:
    """The embeddings and the lowest layers learn no more: cheaper, and less to learn by heart."""
    stacks = [part for part in network.modules() if isinstance(part, nn.ModuleList)]
    if not stacks or layers > len(stacks[0]):
        count = len(stacks[0]) if stacks else 0
        raise UserError(f"The encoder has {count} layers, so {layers} of them cannot be frozen.")
    network.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    for part in (*([network.embeddings] if hasattr(network, "embeddings") else []), *stacks[0][:layers]):
        part.requires_grad_(False)
