"""What the commands that draw are given: a trained model, truncated and tilted, a sampler and its proposal."""

from typing import NamedTuple

from torch import Generator

from ebar.build.terms import read_energy
from ebar.build.train import load_trained
from ebar.config.drawing import Drawing, TiltedDrawing
from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.tokenisers import reading_of_space
from ebar.estimators.exact import device_of
from ebar.models.rolling import lengthened
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import LookAhead, guided_for
from ebar.types import Sampler, Stepwise


class Opened(NamedTuple):
    """A trained model to draw from."""

    data: Corpus
    base: Stepwise  # truncated, where that was asked for
    target: Tilted | None  # None without a tilt
    sampler: Sampler
    generator: Generator


def open_drawing(config: TiltedDrawing) -> Opened:
    """The model of the run and what is to be drawn from it."""
    trained = load_trained(config.run)
    data, model = trained.data, _long_enough(trained.model, trained.data, config.maximal_length)
    base = config.of(model, length=config.maximal_length)
    target = None
    if config.tilt:
        target = Tilted(base, read_energy(config.tilt, reading_of_space(data.tokeniser, base.space)))
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    return Opened(data, base, target, config.sampler.make(SAMPLERS), generator)


def _long_enough(model: Stepwise, data: Corpus, length: int | None) -> Stepwise:
    """Text has no end: where more is asked for than the model was trained on at a time, it goes on and on."""
    if length is None or data.tokeniser is None or data.source_tokeniser is not None or model.space.end is not None:
        return model
    return lengthened(model, length, marked=not isinstance(data.parts["train"], Stream))


def build_proposal(
    config: Drawing, sampler: Sampler, target: Tilted, n: int, generator: Generator, *, draws: int = 4000
) -> Guided | None:
    """Made once, for the sampler and for whatever else is measured; None means the model itself."""
    if config.proposal == "base" and not isinstance(sampler, LookAhead):
        return None
    return guided_for(sampler, target, n, draws=draws, generator=generator)
