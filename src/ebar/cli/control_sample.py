"""`ebar control sample`: text of the controlled model, with weights."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.build.drawing import build_proposal
from ebar.cli.show import show_json
from ebar.config.control import ControlConfig
from ebar.config.drawing import Drawing
from ebar.config.reader import Chosen, Manual, argument, read
from ebar.estimators.draws import Support
from ebar.estimators.effective_samples import EffectiveSamples, effective_samples, effective_samples_of_base, same_draws
from ebar.journeys.control.fit import Controlled, open_controlled
from ebar.maths.importance import all_warnings
from ebar.progress import shown
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead, guided
from ebar.samplers.rejection import Rejection
from ebar.types import Distribution, Sampler, Weighted

MANUAL = Manual(
    command="control sample",
    purpose="Draw from the controlled model. Where the draws of a sampler carry weights, each line begins with its "
    "log-weight and a tab; line breaks are shown as \\n. What a draw is worth goes to standard error, beside "
    "that of as many draws of the model itself.",
    example="ebar control sample runs/rabbits --n 5\n"
    "  ebar control sample runs/rabbits --n 5 --sampler.kind resampling --proposal look_ahead",
    defaults={"sampler": Chosen(kind="look_ahead")},
)


@dataclass(frozen=True, kw_only=True)
class ControlSampleConfig(Drawing):
    """What to draw."""

    run: Path = argument()
    """Folder of `ebar control fit`."""
    n: Count = 10
    """Draws."""
    compare: bool = True
    """Whether to draw from the model itself, too."""
    json: bool = False
    """Print one JSON object."""


def main(words: Sequence[str]) -> int:
    """Texts, and what each draw is worth."""
    arguments = read(words, MANUAL, ControlSampleConfig)
    controlled = open_controlled(arguments.run)
    control = controlled.control
    # Again: what was not given is as it was for `fit`.
    defaults = {**MANUAL.defaults, **_of_run(control, arguments.sampler.options)}
    arguments = read(words, replace(MANUAL, defaults=defaults), ControlSampleConfig)
    target, sampler = controlled.target, arguments.sampler.make(SAMPLERS)
    generator = Generator(device=controlled.subject.device).manual_seed(arguments.seed)
    with shown(not arguments.json):
        proposal = _proposal(arguments, sampler, controlled, generator)
        drawn = draw(sampler, target, arguments.n, proposal=proposal, generator=generator)
        plain = None
        if arguments.compare:
            plain = draw(Importance(batch_size=control.rows), target, arguments.n, generator=generator)
    weights = drawn.log_weights[0].double().cpu() if drawn.estimates_z else None
    texts = controlled.subject.text(drawn.x)
    gains = {}
    if drawn.estimates_z:
        gains["these draws"] = _worth(drawn, controlled)
    if plain is not None:
        gains["the model"] = _worth(plain, controlled)
        if math.isnan(gains["the model"].per_draw.value) and drawn.estimates_z:
            told = effective_samples_of_base(drawn.log_weights[0].cpu(), -target.energy(drawn.x).double().cpu())
            missing = f"{gains['the model'].per_draw.warning}; so this is from the draws above"
            told = told._replace(warning=all_warnings(missing, told.warning))
            gains["the model"] = gains["the model"]._replace(per_draw=told)
    _tell_texts(texts, weights, gains, as_json=arguments.json)
    return 0


def _worth(drawn: Weighted, controlled: Controlled) -> EffectiveSamples:
    support = Support(controlled.target)
    support.see(drawn.x, 1)
    return effective_samples(
        drawn.log_weights[0], same_draws(drawn.x), groups=drawn.groups, unseen=support.warnings(1)[0]
    )


def _of_run(control: ControlConfig, sampler: Mapping[str, Any]) -> dict[str, int]:
    """Defaults of the sampler's options; what belongs together is not cut apart to save memory."""
    together = [int(sampler[name] or 1) for name in ("proposals_per_draw", "particles", "chains") if name in sampler]
    found = {"batch_size": max(control.rows, 2, *together), "surrogate_draws": control.surrogate_draws}
    return {f"sampler.{name}": value for name, value in found.items() if name in sampler}


def _proposal(
    arguments: ControlSampleConfig, sampler: Sampler, controlled: Controlled, generator: Generator
) -> Distribution | None:
    if arguments.proposal == "look_ahead" and not isinstance(sampler, LookAhead | Rejection):
        return guided(controlled.target, draws=controlled.control.surrogate_draws, generator=generator)
    return build_proposal(arguments, sampler, controlled.target, arguments.n, generator)


def _tell_texts(
    texts: list[str], weights: torch.Tensor | None, gains: dict[str, EffectiveSamples], *, as_json: bool
) -> None:
    numbers = [None] * len(texts) if weights is None else weights.tolist()
    if as_json:
        samples = [
            {"text": text} | ({} if number is None else {"log_weight": number})
            for text, number in zip(texts, numbers, strict=True)
        ]
        told = {name: one.to_dict() for name, one in gains.items()}
        show_json({"draws": len(texts), "effective_samples_per_draw": told, "samples": samples})
        return
    for text, number in zip(texts, numbers, strict=True):
        line = text.replace("\n", "\\n")
        sys.stdout.write(f"{line}\n" if number is None else f"{number:.6f}\t{line}\n")
    for name, one in gains.items():
        sys.stderr.write(f"effective samples per draw, {name}: {one}\n")
