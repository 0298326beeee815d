r"""`ebar control sample`: text of the controlled model, with weights.

Draw from the controlled model that `ebar control fit` left in RUN. Where the draws of a sampler carry weights, each
line begins with its log-weight and a tab; line breaks are shown as \n. Effective samples per draw go to standard
error, beside those of as many draws of the model itself.

Example:
    ebar control sample runs/rabbits --n 5
    ebar control sample runs/rabbits --n 5 --sampler.kind resampling --proposal look_ahead
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Generator

from ebar.bounds import Count
from ebar.build.control import open_control
from ebar.build.drawing import build_proposal
from ebar.cli.show import show_json
from ebar.config.drawing import Drawing, OfRun
from ebar.config.reader import Chosen, Manual, read
from ebar.estimators.exact import device_of
from ebar.journeys.control.controlled import Controlled
from ebar.progress import shown
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.shards.workers import OptionalWorkers

MANUAL = Manual.of(__doc__, defaults={"sampler": Chosen(kind="look_ahead")})


@dataclass(frozen=True, kw_only=True)
class ControlSampleConfig(OptionalWorkers, Drawing, OfRun):
    """What to draw."""

    n: Count = 10
    """Draws."""
    compare: bool = True
    """Whether to draw from the model itself, too."""


def main(words: Sequence[str]) -> int:
    """Texts, and effective samples per draw."""
    arguments = read(words, MANUAL, ControlSampleConfig)
    controlled = open_control(arguments.run)
    # Again: what was not given is as it was for `fit`.
    defaults = {**MANUAL.defaults, **_of_run(controlled, arguments.sampler.options)}
    arguments = read(words, replace(MANUAL, defaults=defaults), ControlSampleConfig)
    sampler, generator = (
        arguments.sampler.make(SAMPLERS),
        Generator(device_of(controlled.q)).manual_seed(arguments.seed),
    )
    with shown(not arguments.json):
        # What a fit with rounds has learnt is kept in its folder, and is what looks ahead.
        looks = arguments.proposal == "look_ahead" or isinstance(sampler, LookAhead)
        if looks and controlled.rounds:
            proposal = controlled.ahead
        else:
            proposal = build_proposal(
                arguments, sampler, controlled.p, arguments.n, generator, draws=controlled.surrogate_draws
            )
        texts = controlled.sample(
            arguments.n, sampler=sampler, proposal=proposal, generator=generator, workers=arguments.chosen
        )
        drawn = texts.draws if texts.draws.estimates_z else None
        gains = {} if drawn is None else {"these draws": controlled.effective_samples(drawn)}
        if arguments.compare:
            plain = draw(Importance(batch_size=controlled.rows), controlled.p, arguments.n, generator=generator)
            gains["the model"] = controlled.effective_samples(plain, beside=drawn, which="the draws above")
    numbers = [None] * len(texts) if drawn is None else drawn.log_weights[0].double().tolist()
    if arguments.json:
        samples = [
            {"text": text} | ({} if number is None else {"log_weight": number})
            for text, number in zip(texts, numbers, strict=True)
        ]
        show_json({"draws": len(texts), "effective_samples_per_draw": gains, "samples": samples})
        return 0
    for text, number in zip(texts, numbers, strict=True):
        line = text.replace("\n", "\\n")
        sys.stdout.write(f"{line}\n" if number is None else f"{number:.6f}\t{line}\n")
    for name, one in gains.items():
        sys.stderr.write(f"effective samples per draw, {name}: {one}\n")
    return 0


def _of_run(controlled: Controlled, sampler: Mapping[str, Any]) -> dict[str, int]:
    """Defaults of the sampler's options; what belongs together is not cut apart to save memory."""
    together = [int(sampler[name] or 1) for name in ("proposals_per_draw", "particles", "chains") if name in sampler]
    found = {"batch_size": max(controlled.rows, 2, *together), "surrogate_draws": controlled.surrogate_draws}
    return {f"sampler.{name}": value for name, value in found.items() if name in sampler}
