"""What the commands that draw are given: a trained model, truncated, prompted, tilted, a sampler, its proposal."""

from typing import NamedTuple

import torch
from torch import Generator

from ebar.build.terms import read_energy
from ebar.build.train import load_trained
from ebar.config.drawing import Drawing, TiltedDrawing
from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.tokenisers import decode_after, reading_of_space
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.train import Trained
from ebar.models.construction import Autoregressive
from ebar.models.rolling import lengthened
from ebar.models.tilted import Tilted
from ebar.models.truncated import Prompted
from ebar.samplers import SAMPLERS
from ebar.samplers.guided import Guided
from ebar.samplers.look_ahead import LookAhead, guided_for
from ebar.types import Context, Sampler, Sequences, Stepwise


class Opened(NamedTuple):
    """A trained model to draw from."""

    data: Corpus
    base: Stepwise  # truncated and prompted, where that was asked for
    target: Tilted | None  # None without a tilt
    sampler: Sampler
    generator: Generator
    prompt: str = ""
    given: list[int] = []  # noqa: RUF012 — the tokens of the prompt

    def texts(self, x: Sequences) -> list[str]:
        """Draws as text, the prompt in front."""
        if not self.prompt or self.data.tokeniser is None:
            return self.data.text(x)
        rows = [[token for token in row if token != self.data.space.end] for row in x.rows()]
        return [self.prompt + decode_after(self.data.tokeniser, self.given, row) for row in rows]


def open_drawing(config: TiltedDrawing) -> Opened:
    """The model of the run and what is to be drawn from it."""
    return drawing_from(load_trained(config.run), config)


def drawing_from(trained: Trained[Autoregressive], config: TiltedDrawing, *, prompt: str = "") -> Opened:
    """The same of a run that is open; with a prompt, the model goes on from there."""
    data, model = trained.data, trained.model
    if data.source_tokeniser is not None:
        raise UserError(f"{config.run} translates: give it sentences by `ebar decode {config.run} --input FILE`.")
    given = _tokens(data, prompt)
    length = config.maximal_length if not given or model.space.completes else _to_come(model, len(given), config)
    reach = None if length is None else length + len(given)
    base = config.of(_long_enough(model, data, reach), length=length)
    if given:
        tokens = torch.tensor([given], device=device_of(model))
        base = Prompted(base, Context(Sequences(tokens, torch.tensor([len(given)], device=tokens.device))))
        _ = base.space  # a prompt that leaves nothing to come is refused here
    target = None
    if config.tilt:
        reading = reading_of_space(data.tokeniser, base.space, before=prompt)
        target = Tilted(base, read_energy(config.tilt, reading))
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    return Opened(data, base, target, config.sampler.make(SAMPLERS), generator, prompt, given)


def _tokens(data: Corpus, prompt: str) -> list[int]:
    if not prompt:
        return []
    if data.tokeniser is None:
        raise UserError("Images have no prompt of words: leave out --prompt, or give --complete to complete some.")
    return data.tokeniser.encode(prompt)


def _to_come(model: Autoregressive, given: int, config: TiltedDrawing) -> int:
    """How many tokens come after a prompt: as many as are asked for, or as in training; before an end, what is left."""
    space = model.space
    if space.end is None:
        return space.length if config.maximal_length is None else config.maximal_length
    if given >= space.length:
        raise UserError(
            f"The prompt has {given} tokens, and sequences of this run {space.length} at most, the end included: "
            "give a shorter one."
        )
    return min(config.maximal_length or space.length, space.length - given)


def _long_enough(model: Stepwise, data: Corpus, length: int | None) -> Stepwise:
    """Text has no end: where more is asked for than the model was trained on at a time, it goes on and on."""
    space = model.space
    if length is None or data.tokeniser is None or space.end is not None or space.completes:
        return model
    return lengthened(model, length, marked=not isinstance(data.parts["train"], Stream))


def build_proposal(
    config: Drawing, sampler: Sampler, target: Tilted, n: int, generator: Generator, *, draws: int = 4000
) -> Guided | None:
    """Made once, for the sampler and for whatever else is measured; None means the model itself."""
    if config.proposal == "base" and not isinstance(sampler, LookAhead):
        return None
    return guided_for(sampler, target, n, draws=draws, generator=generator)
