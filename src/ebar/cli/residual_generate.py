"""`ebar residual generate`: continue prompts with the joint model."""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Generator

from ebar.build.entry import make
from ebar.build.residual import load_residual
from ebar.cli.show import show_json
from ebar.config.options import add_kind, group, parse, parser
from ebar.config.run import Chosen
from ebar.data.corpora import lines
from ebar.errors import UserError
from ebar.journeys.residual.journey import Residual
from ebar.progress import shown
from ebar.samplers.joint import WAYS, Continuations, Generated, Truncation
from ebar.types import Sampler

LISTED = 20  # candidates, up to which all are shown


def main(words: Sequence[str]) -> int:
    """Print each continuation with its energy, its weight, and how far the weights are to be believed."""
    options = parser(
        words,
        "residual generate",
        "Continue prompts with the joint model: the base draws candidates, and of these some are chosen by their\n"
        "energy (top-k joint sampling); or by rejection, Metropolis or sequential Monte Carlo. Beside every text\n"
        "stand its energy, its weight among the candidates, their worth (ESS), and Pareto k̂ where there are 100.",
        "ebar residual generate runs/mine --prompt 'It was a dark' --candidates 64 --top_k 40\n"
        "  ebar residual generate runs/mine --prompts beginnings.txt --count 3 --sampler.kind metropolis",
    )
    options.add_argument("run", type=Path, help="folder of a trained residual model")
    options.add_argument("--prompt", type=str | None, default=None, help="what to continue")
    options.add_argument("--prompts", type=str | None, default=None, metavar="FILE",
        help="prompts, one a line; - reads the pipe")  # fmt: skip
    options.add_argument("--candidates", type=PositiveInt, default=64, help="of the base, for each prompt")
    options.add_argument("--count", type=PositiveInt, default=1, help="continuations of each prompt")
    options.add_argument("--temperature", type=PositiveFloat, default=1.0, help="divides the base's logits")
    options.add_argument("--top_k", type=PositiveInt | None, default=None, help="candidates of the k likeliest tokens")
    options.add_argument("--top_p", type=float | None, default=None, help="candidates of the tokens of this mass")
    add_kind(options, words, "sampler", WAYS, "joint")
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    if (arguments.prompt is None) == (arguments.prompts is None):
        raise UserError("Give either --prompt, a text to continue, or --prompts, a file of them.")
    trained = load_residual(arguments.run)
    way, sampler = _sampler(arguments)
    truncation = Truncation(temperature=arguments.temperature, top_k=arguments.top_k, top_p=arguments.top_p)
    generator = Generator(device=trained.base.device).manual_seed(arguments.seed)
    found = []
    with shown(not arguments.json):
        for prompt in _prompts(arguments):
            made = trained.generate(
                prompt, count=arguments.count, candidates=arguments.candidates, way=way, sampler=sampler,
                truncation=truncation, generator=generator,
            )  # fmt: skip
            if arguments.json:
                found.append(_record(trained, prompt, made))
            else:
                _tell(trained, prompt, made)
    if arguments.json:
        show_json({"sampler": way, "prompts": found})
    return 0


def _sampler(arguments: Namespace) -> tuple[str, Sampler]:
    options = group(arguments, "sampler")
    kind = options.pop("kind")
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    sampler: Sampler = make(WAYS, Chosen(kind=kind, options=listed), "sampler")
    return kind, sampler


def _prompts(arguments: Namespace) -> Iterator[str]:
    if arguments.prompt is not None:
        yield arguments.prompt
    elif arguments.prompts == "-":
        yield from (line.rstrip("\r\n") for line in sys.stdin)
    else:
        yield from (text for _, text in lines(Path(arguments.prompts)))


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
