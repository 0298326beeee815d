"""`ebar control`: features of the text of a pretrained model made to come true."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Generator

from ebar.bounds import Amount, Count
from ebar.build.control import check_control, fit_control, open_control, run_prompts
from ebar.build.drawing import build_proposal
from ebar.cli.folder import RunFolder, carry_out, run_folder
from ebar.cli.show import show_json, show_table, show_warnings
from ebar.config.control import MANUAL, CheckConfig, ControlConfig
from ebar.config.drawing import Drawing, OfRun
from ebar.config.prompts import MANUAL as PROMPTS
from ebar.config.prompts import PromptsConfig
from ebar.config.reader import Answer, Chosen, Manual, argument, option, read
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.control.bending import HEADER
from ebar.journeys.control.controlled import Controlled
from ebar.journeys.control.report import MOMENTS, TARGET, Checked, Tuned, lambda_warnings, moment_rows
from ebar.journeys.control.tuning import Tuning
from ebar.progress import shown
from ebar.samplers import SAMPLERS
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.look_ahead import LookAhead
from ebar.shards.workers import OptionalWorkers
from ebar.store.writing import plain
from ebar.types import Estimate


def check(words: Sequence[str]) -> int:
    """`ebar control check`: how far constraints bend a model, before anything is fitted.

    For each constraint alone and for all together: log Z, how far p is from the model (KL(p‖q)) and from what masking
    token by token would draw (KL(p‖masking)), and effective samples per draw, with 95 % intervals. Nothing is kept.

    Example:
        ebar control check FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'
    """
    config, answer = read(words, Manual.of(check.__doc__), CheckConfig, Answer)
    with shown(not answer.json):
        rows = check_control(config)
    if answer.json:
        show_json({"draws": config.draws, "constraints": [plain(row) for row in rows]})
        return 0
    title = f"{config.model}: divergences in nats per text, {config.draws:,} draws each, 95 % intervals"
    show_table(title, HEADER, [row.cells() for row in rows])
    show_warnings(f"{row.constraint}: {row.problem}" for row in rows if row.problem is not None)
    return 0


@dataclass(frozen=True, kw_only=True)
class ControlPlace(RunFolder):
    """Where the run is kept, and what else is printed."""

    within: Amount | None = option(metavar="EPSILON")
    """Also say how many draws make log Z and the moments of p known within ± EPSILON."""


def fit(words: Sequence[str]) -> int:
    """λ, or that of a run that has it; and fresh draws."""
    config, place = read(words, MANUAL, ControlConfig, ControlPlace)
    folder = place.folder

    def work() -> tuple[Controlled, Checked]:
        controlled = fit_control(config, folder)
        return controlled, controlled.check(within=place.within)

    def show(found: tuple[Controlled, Checked]) -> None:
        controlled, checked = found
        rows = moment_rows(controlled.constraints, controlled.fitted, checked)
        show_table(f"{folder}: 95 % intervals", MOMENTS, rows)
        show_table("how far it is", ("figure", "value"), list(checked.distances().items()))
        if checked.budgets is not None:
            show_table("how many draws", ("figure", "draws"), list(checked.budgets.items()))
        show_warnings(lambda_warnings(controlled.fitted))
        sys.stdout.write(f"{folder / 'report.html'}\n")

    return carry_out(
        place, work, show=show,
        to_dict=lambda found: {"lambda": found[0].fitted.to_dict(), **plain(found[1])},
    )  # fmt: skip


def prompts(words: Sequence[str]) -> int:
    """All prompts, and means over them."""
    config, place = read(words, PROMPTS, PromptsConfig, RunFolder)

    def show(found: dict[str, Any]) -> None:
        rows = [[name, one._replace(warning=None)] for name, one in found["means"].items() if isinstance(one, Estimate)]
        title = f"{place.folder}: means over {found['prompts']:,} prompts, 95 % intervals over draws"
        show_table(title, ("figure", "value"), rows)
        show_warnings([found["warning"]] if found["warning"] else [])
        sys.stdout.write(f"{place.folder / 'prompts.jsonl'}\n")

    return carry_out(place, lambda: run_prompts(config, place.folder), to_dict=dict, show=show)


@dataclass(frozen=True, kw_only=True)
class ControlSampleConfig(OptionalWorkers, Drawing, OfRun):
    """What to draw."""

    n: Count = 10
    """Draws."""
    compare: bool = True
    """Whether to draw from the model itself, too."""


def sample(words: Sequence[str]) -> int:
    r"""`ebar control sample`: text of the controlled model, with weights.

    Draw from the controlled model that `ebar control fit` left in RUN. Where the draws of a sampler carry weights, each
    line begins with its log-weight and a tab; line breaks are shown as \n. Effective samples per draw go to standard
    error, beside those of as many draws of the model itself.

    Example:
        ebar control sample runs/rabbits --n 5
        ebar control sample runs/rabbits --n 5 --sampler.kind resampling --proposal look_ahead
    """
    manual = Manual.of(sample.__doc__, defaults={"sampler": Chosen(kind="look_ahead")})
    arguments = read(words, manual, ControlSampleConfig)
    controlled = open_control(arguments.run)
    # Again: what was not given is as it was for `fit`.
    defaults = {**manual.defaults, **_of_run(controlled, arguments.sampler.options)}
    arguments = read(words, replace(manual, defaults=defaults), ControlSampleConfig)
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


@dataclass(frozen=True, kw_only=True)
class TunePlace(Answer):
    """Where the controlled model is and π is kept."""

    run: Path = argument()
    """Folder of `ebar control fit`."""
    name: str = "tune"
    """Of π: its folder is RUN/NAME."""

    @property
    def folder(self) -> Path:
        return run_folder(self.run, self.name)


def tune(words: Sequence[str]) -> int:
    """`ebar control tune`: a language model of its own that has learnt what is wanted.

    π, a language model of its own, brought to the controlled one by distributional policy gradient (DPG), by learning
    what draws that look ahead would choose (distillation), or by whichever of both comes nearer. It goes on until the
    moments of π are what was asked. π is saved so that transformers alone can read it. Run it again to go on where it
    was stopped.

    Example:
        ebar control tune runs/rabbits --steps 300 --learning_rate 0.001
        ebar control tune runs/rabbits --name whole --lora_rank null --method both
    """
    tuning, place = read(words, Manual.of(tune.__doc__), Tuning, TunePlace)
    folder = place.folder
    if place.name in ("checkpoints", "lambda", "check") or folder.is_file():
        raise UserError(f"{folder} is part of the run itself: choose another --name.")

    def show(tuned: Tuned) -> None:
        which = f"best at step {tuned.best_step}" if tuned.best_step else "best at step 0: no step came nearer than q"
        how = f"{tuned.method}, {tuned.seconds:.0f} s, {tuned.stopped}"
        show_table(f"{folder}: {which}; {how}", ("figure", "before", "best π", "p"), tuned.rows())
        if tuned.ways is not None:
            rows = [[name, way.distance, way.seconds, way.nats_per_second] for name, way in tuned.ways.items()]
            show_table("both methods", ("method", TARGET, "seconds", "nats nearer per second"), rows)
        sys.stdout.write(f"{folder / 'model'}\n{(tuned.folder or folder) / 'report.html'}\n")

    return carry_out(
        place, lambda: open_control(place.run).tune(folder, **vars(tuning)), to_dict=Tuned.to_dict, show=show
    )
