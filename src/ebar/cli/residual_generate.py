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
from collections.abc import Sequence
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
from ebar.shards.workers import OptionalWorkers
from ebar.types import Sampler

LISTED = 20  # candidates, up to which all are shown


MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Truncation, OptionalWorkers, OfRun):
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
    prompts = [arguments.prompt or ""] if arguments.prompts is None else input_lines(arguments.prompts)
    found = []
    with shown(not arguments.json):
        for prompt, made in trained.generate_each(
            prompts, count=arguments.count, candidates=arguments.candidates, way=way, sampler=sampler,
            truncation=arguments, generator=generator, workers=arguments.chosen,
        ):  # fmt: skip
            found.append(_record(trained, prompt, made))
            if not arguments.json:
                _write(found.pop())
    if arguments.json:
        show_json({"sampler": way, "prompts": found})
    return 0


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


def _write(record: dict[str, Any]) -> None:
    count = len(record["candidates"])
    quality = f"ESS {record['effective_sample_size']:.1f} of {count}, k̂ {_number(record['pareto_k'], 2)}"
    out = [record["prompt"]]
    for one in record["continuations"]:
        weight = _number(one["weight"], 3)
        out += [f"→ {_line(one['text'])}"]
        out += [f"  (energy {one['energy']:.3f}, log q {one['log_q']:.2f}, weight {weight}, {quality})"]
    if count <= LISTED:
        out.append("candidates: energy, log q, weight, text")
        for one in record["candidates"]:
            out += [f"  {one['energy']:8.3f} {one['log_q']:9.2f} {one['weight']:7.3f}  {_line(one['text'])}"]
    if record["warning"] is not None:
        out.append(f"⚠ {record['warning']}")
    sys.stdout.write("\n".join(out) + "\n\n")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _line(text: str) -> str:
    """On one line, so that columns stay columns."""
    return text.replace("\n", "⏎")
