"""`ebar residual`: an energy on a language model, from its training to its draws."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.bounds import Count
from ebar.build.residual import load_residual, train_residual
from ebar.cli.decode import input_lines
from ebar.cli.folder import SharedRunFolder, carry_out
from ebar.cli.show import show_json, show_table, show_warnings
from ebar.config.drawing import OfRun
from ebar.config.reader import Chosen, Manual, choice, described, option, read
from ebar.config.residual import MANUAL, ResidualConfig
from ebar.data.chunks import CHUNKS
from ebar.errors import UserError
from ebar.estimators.per_step import Steps
from ebar.evaluation.next_words import NextWord, NextWords
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.residual.report import write_residual_page
from ebar.journeys.residual.settings import Measuring
from ebar.models.truncated import Truncation
from ebar.progress import shown
from ebar.samplers.joint import WAYS, Continuations, Generated
from ebar.shards import Workers
from ebar.shards.workers import OptionalWorkers
from ebar.store.writing import to_json
from ebar.training.run import Run, open_run
from ebar.types import Estimate, Sampler, Sequences


def train(words: Sequence[str]) -> int:
    """The whole journey, or the rest of one that was interrupted."""
    config, place = read(words, MANUAL, ResidualConfig, SharedRunFolder)
    folder = place.folder
    description = described(folder, MANUAL, config)

    def work() -> tuple[Residual, Evaluation | None]:
        with open_run(
            folder, config=description, seed=config.seed, take_over=True, quickly_made=(CHUNKS,),
            advice=f"choose another --name, or delete it; or `ebar residual evaluate {folder}` to measure it otherwise",
        ) as run:  # fmt: skip
            trained, how = train_residual(config, folder, workers=place), config.evaluation
            evaluation = trained.evaluate(how, seed=config.seed, workers=place) if how.prefixes else None
            run.write("results.json", to_json(_results(trained, evaluation), indent=1))
            write_residual_page(folder, evaluation)
        return trained, evaluation

    def show(found: tuple[Residual, Evaluation | None]) -> None:
        if found[1] is not None:
            show_evaluation(folder, found[1])
        sys.stdout.write(f"{folder / 'report.html'}\n")

    return carry_out(place, work, to_dict=lambda found: _results(*found), show=show)


def _results(trained: Residual, evaluation: Evaluation | None) -> dict[str, Any]:
    whole, energy = (
        sum(parameter.numel() for parameter in module.parameters()) for module in (trained.p, trained.energy)
    )
    found: dict[str, Any] = {"parameters": {"base": whole - energy, "energy": energy}}
    return found if evaluation is None else {**found, "evaluation": evaluation.to_dict()}


def show_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """For people."""
    found = evaluation.perplexity
    title = f"{folder}: {len(found.log_z):,} prefixes, {found.by_draws[-1].draws:,} draws each, 95 % intervals"
    figures, reasons = evaluation.figures(), dict[str, list[str]]()
    for name, value in figures.items():
        if isinstance(value, Estimate) and value.warning:
            reasons.setdefault(value.warning, []).append(name)
    silent = [[name, value._replace(warning=None) if isinstance(value, Estimate) else value]
              for name, value in figures.items()]  # fmt: skip
    show_table(title, ("figure", "value"), silent)
    show_table(
        "with fewer draws",
        ("draws", "low", "perplexity", "high", "mean log Z"),
        [[row.draws, row.low, row.value, row.high, row.log_z] for row in found.by_draws],
    )
    show_warnings(f"{reason} ({', '.join(names)})" for reason, names in reasons.items())


@dataclass(frozen=True, kw_only=True)
class ResidualEvaluateConfig(OfRun, Measuring, Workers):
    """How much is measured."""

    prefixes: Count = 100
    """Test prefixes, spread over the text."""
    draws: Count = 200
    """Of the base, for each prefix; below 100 nothing is established."""


def evaluate(words: Sequence[str]) -> int:
    """`ebar residual evaluate`: how good a joint model is, beside its base.

    The joint model beside its base on held-out prefixes: the perplexity interval, log Z of each prefix with its lower
    and upper estimates, how far k̂ lets them be believed, how they move with the number of draws, the last token
    without an estimate of Z, energies of data and draws, unique n-grams. Writes results.json and report.html; stopped,
    it goes on where it was.

    Example:
        ebar residual evaluate runs/mine --prefixes 200 --draws 1000
    """
    arguments = read(words, Manual.of(evaluate.__doc__), ResidualEvaluateConfig)
    trained = load_residual(arguments.run)
    with shown(not arguments.json):
        evaluation = trained.evaluate(arguments, seed=arguments.seed, workers=arguments)
    Run(arguments.run).add_results(evaluation=evaluation.to_dict())
    page = write_residual_page(arguments.run, evaluation)
    if arguments.json:
        show_json(evaluation.to_dict())
    else:
        show_evaluation(arguments.run, evaluation)
        sys.stdout.write(f"{page}\n")
    return 0


LISTED = 20  # candidates, up to which all are shown


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


def generate(words: Sequence[str]) -> int:
    """`ebar residual generate`: continue prompts with the joint model.

    Continue prompts with the joint model: the base draws candidates, and of these some are chosen by their energy
    (top-k joint sampling); or by rejection, Metropolis or sequential Monte Carlo. Beside every text stand its energy,
    its weight among the candidates, their effective sample size (ESS), and Pareto k̂ where there are 100.

    Example:
        ebar residual generate runs/mine --prompt 'It was a dark' --candidates 64 --top_k 40
        ebar residual generate runs/mine --prompts beginnings.txt --count 3 --sampler.kind metropolis
    """
    arguments = read(words, Manual.of(generate.__doc__), GenerateConfig)
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


@dataclass(frozen=True, kw_only=True)
class ExplainConfig(OfRun):
    """What is explained, and how thoroughly."""

    prompt: str
    """The text before."""
    continuation: str | None = None
    """Text after it, long enough."""
    words: Count = 10
    """Shown, of each model."""
    candidates: Count = 50
    """Tokens looked at, the base's likeliest."""
    futures: Count = 64
    """Of the base, after each token."""
    exact_last: bool = False
    """Score every token in the last place: as many energies as there are tokens."""


def explain(words: Sequence[str]) -> int:
    """`ebar residual explain`: what the energy changes about the next word.

    The likeliest next words after a prompt, under the base and under the joint model, which looks at how the base would
    go on after each. With a continuation: what each of its tokens costs under both, in nats.

    Example:
        ebar residual explain runs/mine --prompt 'The old man' --futures 64
        ebar residual explain runs/mine --prompt 'The old man' --continuation ' went down to the sea and …'
    """
    arguments = read(words, Manual.of(explain.__doc__), ExplainConfig)
    trained, prompt = load_residual(arguments.run), arguments.prompt
    with shown(not arguments.json):
        found, x, steps = trained.explain(
            prompt, arguments.continuation, candidates=arguments.candidates, futures=arguments.futures,
            exact_last=arguments.exact_last, seed=arguments.seed,
        )  # fmt: skip
    if arguments.json:
        show_json({
            "prompt": prompt,
            "next_words": [_word(trained, prompt, word) for word in found.words],
            "rest": None if found.rest is None else _word(trained, prompt, found.rest),
            "steps": None if steps is None or x is None else _steps(trained, prompt, x, steps),
            "warnings": [] if steps is None else list(dict.fromkeys(filter(None, steps.doubts))),
        })  # fmt: skip
        return 0
    _tell_words(trained, prompt, found, arguments.words)
    if steps is not None and x is not None:
        rows = [list(row.values()) for row in _steps(trained, prompt, x, steps)]
        show_table("each token, nats", ("token", "base", "joint", "joint − base"), rows)
        total = -float(steps.log_q.sum()), -float(steps.log_joint.sum())
        sys.stdout.write(f"together: base {total[0]:.3f}, joint {total[1]:.3f} nats\n")
        show_warnings(dict.fromkeys(filter(None, steps.doubts)))
    return 0


def _word(trained: Residual, prompt: str, word: NextWord) -> dict[str, Any]:
    return {"token": word.token, "text": _spelt(trained, prompt, word), "base": word.base, "joint": word.joint}


def _spelt(trained: Residual, prompt: str, word: NextWord) -> str:
    if word.token < 0:
        return "(all others)"
    return trained.base.spell(trained.base.encode(prompt), [word.token])


def _tell_words(trained: Residual, prompt: str, found: NextWords, most: int) -> None:
    """The likeliest of both side by side, each with what the other model gives it."""
    reasons: dict[str, None] = {}
    rows = []
    pairs = zip(found.under_base(most), found.under_joint(most), strict=True)
    left = found.others(found.under_base(most)), found.others(found.under_joint(most))
    rest = [(left[0], left[1])] if left[0] is not None and left[1] is not None else []
    for rank, (base, joint) in [*enumerate(pairs, 1), *(("", pair) for pair in rest)]:
        reasons |= {word.joint.warning: None for word in (base, joint) if word.joint.warning}
        rows.append([
            rank, repr(_spelt(trained, prompt, base)), base.base, f"{base.joint.value:.6f}",
            repr(_spelt(trained, prompt, joint)), joint.joint._replace(warning=None), joint.base,
        ])  # fmt: skip
    header = ("", "likeliest under the base", "base", "joint", "likeliest under the joint model", "joint", "base")
    show_table(f"after {prompt[-60:]!r}", header, rows)
    show_warnings(reasons)


def _steps(trained: Residual, prompt: str, x: Sequences, steps: Steps) -> list[dict[str, Any]]:
    before, tokens = trained.base.encode(prompt), x.prefix(0)
    return [
        {
            "token": repr(trained.base.spell([*before, *tokens[:place]], [token])),
            "base": -float(steps.log_q[0, place]),
            "joint": -float(steps.log_joint[0, place]),
            "difference": float(steps.log_q[0, place] - steps.log_joint[0, place]),
        }
        for place, token in enumerate(tokens)
    ]
