"""`ebar residual generate`: continue prompts with the joint model.

Continue prompts with the joint model: the base draws candidates, and of these some are chosen by their energy (top-k
joint sampling); or by rejection, Metropolis or sequential Monte Carlo. Beside every text stand its energy, its weight
among the candidates, their effective sample size (ESS), and Pareto k̂ where there are 100.

Example:
    ebar residual generate runs/mine --prompt 'It was a dark' --candidates 64 --top_k 40
    ebar residual generate runs/mine --prompts beginnings.txt --count 3 --sampler.kind metropolis
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.build.residual import load_residual
from ebar.cli.decode import input_lines
from ebar.cli.show import show_json
from ebar.config.drawing import OfRun
from ebar.config.reader import Chosen, Manual, choice, option, read
from ebar.errors import UserError
from ebar.journeys.residual.journey import Residual
from ebar.models.truncated import Truncation
from ebar.progress import shown
from ebar.samplers.joint import WAYS, Continuations, Generated
from ebar.types import Sampler

LISTED = 20  # candidates, up to which all are shown


MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Truncation, OfRun):
    """What is continued, and how."""

    prompt: str | None = None
    """What to continue."""
    prompts: str | None = option(metavar="FILE")
    """Prompts, one a line; - reads the pipe."""
    candidates: Count = 64
    """Of the base, for each prompt."""
    count: Count = 1
    """Continuations of each prompt."""
    sampler: Chosen = choice(WAYS, "joint")


def main(words: Sequence[str]) -> int:
    """Print each continuation with its energy, its weight, and how far the weights are to be believed."""
    arguments = read(words, MANUAL, GenerateConfig)
    if (arguments.prompt is None) == (arguments.prompts is None):
        raise UserError("Give either --prompt, a text to continue, or --prompts, a file of them.")
    trained = load_residual(arguments.run)
    way = arguments.sampler.kind
    sampler: Sampler = arguments.sampler.make(WAYS)
    generator = Generator(device=trained.base.device).manual_seed(arguments.seed)
    found = []
    with shown(not arguments.json):
        for prompt in _prompts(arguments):
            made = trained.generate(
                prompt, count=arguments.count, candidates=arguments.candidates, way=way, sampler=sampler,
                truncation=arguments, generator=generator,
            )  # fmt: skip
            if arguments.json:
                found.append(_record(trained, prompt, made))
            else:
                _tell(trained, prompt, made)
    if arguments.json:
        show_json({"sampler": way, "prompts": found})
    return 0


def _prompts(arguments: GenerateConfig) -> Iterator[str]:
    if arguments.prompt is not None:
        yield arguments.prompt
    elif arguments.prompts is not None:
        yield from input_lines(arguments.prompts)


def _record(trained: Residual, prompt: str, made: Generated) -> dict[str, Any]:
    def rows(scored: Continuations, weights: torch.Tensor) -> list[dict[str, object]]:
        numbers = zip(scored.energy.tolist(), scored.log_q.tolist(), weights.tolist(), strict=True)
        texts = trained.texts(scored.x, prompt)
        return [
            {"text": text, "energy": energy, "log_q": log_q, "weight": None if math.isnan(weight) else weight}
            for text, (energy, log_q, weight) in zip(texts, numbers, strict=True)
        ]

    return {
        "prompt": prompt,
        "continuations": rows(made.drawn, made.weights),
        "candidates": rows(made.candidates, made.candidate_weights),
        "effective_sample_size": made.effective_sample_size,
        "pareto_k": None if math.isnan(made.k) else made.k,
        "distinct": made.distinct,
        "warning": made.warning,
    }


def _tell(trained: Residual, prompt: str, made: Generated) -> None:
    count = len(made.candidate_weights)
    worth = f"ESS {made.effective_sample_size:.1f} of {count}, k̂ {_number(made.k, 2)}"
    out = [prompt]
    for text, energy, log_q, weight in zip(
        trained.texts(made.drawn.x, prompt), made.drawn.energy, made.drawn.log_q, made.weights, strict=True
    ):
        numbers = f"energy {energy:.3f}, log q {log_q:.2f}, weight {_number(float(weight), 3)}, {worth}"
        out += [f"→ {_line(text)}", f"  ({numbers})"]
    if count <= LISTED:
        out.append("candidates: energy, log q, weight, text")
        listed = zip(
            made.candidates.energy, made.candidates.log_q, made.candidate_weights,
            trained.texts(made.candidates.x, prompt), strict=True,
        )  # fmt: skip
        out += [f"  {energy:8.3f} {log_q:9.2f} {weight:7.3f}  {_line(text)}" for energy, log_q, weight, text in listed]
    if made.warning is not None:
        out.append(f"⚠ {made.warning}")
    sys.stdout.write("\n".join(out) + "\n\n")


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _line(text: str) -> str:
    """On one line, so that columns stay columns."""
    return text.replace("\n", "⏎")
