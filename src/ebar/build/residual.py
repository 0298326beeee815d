"""The two halves of a residual model: a base that is already there, and an energy to be trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ebar.backbones.encoder import BidirectionalTransformer
from ebar.backbones.pretrained.lora import with_lora
from ebar.build.model import build_model, load_model
from ebar.config.residual import Residual
from ebar.config.run import Run, read_run
from ebar.data.built_tokeniser import TOKENISER, build_tokeniser
from ebar.data.kinds import TextData
from ebar.data.tokenisers import Tokeniser, decode_after
from ebar.energies.encoders import bit, unit, unit_from
from ebar.energies.kinds import BitEnergy, PretrainedEnergy, UnitEnergy
from ebar.energies.loading import LoadedEncoder, load_encoder
from ebar.energies.neural import Neural
from ebar.energies.reencoded import Reencoded
from ebar.errors import UserError, choose
from ebar.models.autoregressive import Autoregressive
from ebar.models.loading import load_causal
from ebar.models.pretrained import Pretrained
from ebar.types import Space

RECURRENT = ("lstm",)  # backbones that read as far as they are asked to


@dataclass(frozen=True, kw_only=True)
class Base:
    """q over continuations, and what its tokens spell."""

    q: Autoregressive | Pretrained
    tokeniser: Tokeniser
    run: Run | None = None  # where it is one of ebar's
    longest: int | None = None  # prefix and continuation together, in tokens; None where the model itself knows

    @property
    def text(self) -> TextData | None:
        """What it was trained on, where that is known."""
        return None if self.run is None else TextData(**self.run.data.options)

    def check(self, prefix: int) -> None:
        """A prefix that the model can read and continue."""
        length = self.q.space.length
        if self.longest is not None and prefix + length > self.longest:
            raise UserError(
                f"A prefix of {prefix} tokens and a continuation of {length} are {prefix + length} in all, and the "
                f"base was trained on windows of {self.longest}: make the prefix or the continuation shorter."
            )
        if isinstance(self.q, Pretrained) and self.q.positions is not None:
            begun = self.q.read_before(prefix)
            if begun + length - 1 > self.q.positions:
                raise UserError(
                    f"A prefix of {begun} tokens and a continuation of {length} are {begun + length} in all, and the "
                    f"base reads at most {self.q.positions}: make the prefix or the continuation shorter."
                )

    def spell(self, before: list[int], tokens: list[int]) -> str:
        """What tokens add to the text of those before them."""
        tokens = [token for token in tokens if token != self.q.space.end]
        return decode_after(self.tokeniser, before, tokens)


def load_base(residual: Residual) -> Base:
    """A run of ebar's, where the folder holds one; else a pretrained model."""
    place = Path(residual.base)
    if place.is_dir() and (place / "config.yaml").exists():
        return _own(place, residual)
    loaded = load_causal(
        residual.base, length=residual.data.continuation, device=residual.device, dtype=residual.precision
    )
    loaded.model.requires_grad_(False)
    return Base(q=loaded.model, tokeniser=loaded.tokeniser)


def _own(folder: Path, residual: Residual) -> Base:
    run = read_run(folder / "config.yaml")
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
    return Base(q=q.requires_grad_(False), tokeniser=tokeniser, run=run, longest=longest)


def build_energy(residual: Residual, base: Base) -> Neural:
    """The energy before any training. Weights are drawn from torch's global state: seed it before."""
    builders: dict[str, Callable[[Mapping[str, Any], Residual, Base], Neural]] = {
        "unit": _unit, "bit": _bit, "pretrained": _pretrained,
    }  # fmt: skip
    builder = choose(builders, residual.energy.kind, "energy")
    try:
        return builder(residual.energy.options, residual, base).to(residual.device)
    except ValueError as error:
        raise UserError(f"The energy {residual.energy.kind} cannot be made: {error}.") from None
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The energy cannot be put on {residual.device!r}: {str(error).splitlines()[0]}.") from None


def _unit(options: Mapping[str, Any], residual: Residual, base: Base) -> Neural:
    """A pretrained base's twin reads the text, as any other pretrained network does."""
    told = UnitEnergy(**options)
    if base.run is None:
        if told.start == "fresh":
            raise UserError("A UniT beside a pretrained base begins with the base's weights: leave out energy.start.")
        body = load_encoder(residual.base, device=residual.device)
        return _reading(body, base, told)
    if told.lora is not None:
        raise UserError("LoRA is for pretrained networks, and this base is a run of ebar's: leave out energy.lora.")
    if told.start == "base":
        assert isinstance(base.q, Autoregressive)
        return unit_from(base.q, pool=told.pool, bound=told.bound)
    twin: Any = build_model(base.run, base.q.space)
    return unit(twin.backbone, pool=told.pool, bound=told.bound)


def _bit(options: Mapping[str, Any], residual: Residual, base: Base) -> Neural:
    told = BitEnergy(**options)
    network = BidirectionalTransformer(
        base.q.space.vocabulary, layers=told.layers, hidden=told.hidden, heads=told.heads, dropout=told.dropout
    )
    return bit(network, pool=told.pool, bound=told.bound)


def _pretrained(options: Mapping[str, Any], residual: Residual, base: Base) -> Neural:
    told = PretrainedEnergy(**options)
    loaded = load_encoder(told.encoder, device=residual.device)
    if told.frozen_layers:
        freeze(loaded.network, told.frozen_layers)
    return _reading(loaded, base, told, cut_prefix=told.cut_prefix)


def _reading(
    loaded: LoadedEncoder, base: Base, told: UnitEnergy | PretrainedEnergy, *, cut_prefix: bool = False
) -> Neural:
    network = loaded.network if told.lora is None else with_lora(loaded.network, rank=told.lora, kind="encoder")
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
