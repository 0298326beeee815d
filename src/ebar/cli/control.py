"""`ebar control`: what is to be true of a pretrained model's text, draws that keep it, a model that has learnt it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jsonargparse.typing import PositiveInt
from torch import Generator

from ebar.cli.show import show_json, show_table
from ebar.cli.train import run_folder
from ebar.cli.trained import add_sampler, build_proposal, build_sampler
from ebar.config.control import Control, Tuning
from ebar.config.options import parse, parser
from ebar.errors import UserError, choose
from ebar.pipelines.control.draws import worth
from ebar.pipelines.control.fit import check, fit, open_controlled
from ebar.pipelines.control.report import MOMENTS, distance_rows, moment_rows, write_fit_page, write_tune_page
from ebar.pipelines.control.terms import KINDS
from ebar.pipelines.control.tune import tune
from ebar.pipelines.train_run import as_yaml
from ebar.progress import shown
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.training import open_run
from ebar.training.storage import to_json
from ebar.types import Weighted

ACTIONS = {
    "fit": "find how much each feature must count, and check it on fresh draws",
    "sample": "draw text of the controlled model, with weights",
    "tune": "make a model of its own of it, by policy gradient with low-rank adapters",
}
EXAMPLES = {
    "fit": "ebar control fit --name rabbits --model FOLDER --features 'word:rabbit|bunny=1' 'word:[Ss]he|[Hh]er=0.5'",
    "sample": "ebar control sample runs/rabbits --n 5\n"
    "  ebar control sample runs/rabbits --n 5 --sampler.kind resampling --proposal look_ahead",
    "tune": "ebar control tune runs/rabbits --steps 300 --learning_rate 0.001",
}


def main(words: Sequence[str]) -> int:
    """Fit, sample or tune."""
    if not words or words[0] in {"-h", "--help"}:
        actions = "\n".join(f"  {name:<7} {purpose}" for name, purpose in ACTIONS.items())
        options = parser(
            words,
            "control",
            f"Constraints on the text of any causal language model, GDC's way.\n\nactions:\n{actions}\n\n"
            "`ebar control ACTION --help` shows an action's options.",
            "\n  ".join(EXAMPLES.values()),
        )
        options.add_argument("action", choices=list(ACTIONS), help="what to do")
        if not words:
            raise UserError(f"Say what to do: one of {', '.join(ACTIONS)}.")
        options.parse_args(["--help"])
    return int(choose({"fit": _fit, "sample": _sample, "tune": _tune}, words[0], "action")(words[1:]))


def _fit(words: Sequence[str]) -> int:
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    options = parser(
        words,
        "control fit",
        "P(x) = q(x)·exp⟨λ, φ(x)⟩, with λ such that each feature has the mean it is to have over all text, or is in\n"
        "every single one (=1), or in none (=0). Run it again to read what it found.",
        EXAMPLES["fit"],
    )
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_argument("--features", nargs="+", type=str, default=[], metavar="KIND:ARGUMENT=MOMENT",
        help=f"what is wanted of the text; ! in front of KIND means absent. {kinds}")  # fmt: skip
    options.add_class_arguments(Control, skip={"features"}, instantiate=False)
    options.add_argument("--name", type=str, default="control", help="of the run: its folder is RUNS/NAME")
    options.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    given = parse(options, words).as_dict()
    name, runs, as_json = (given.pop(key) for key in ("name", "runs", "json"))
    given.pop("config", None)
    control = Control(**{**given, "features": tuple(_absolute(term) for term in given["features"])})
    control = Control(**{**asdict(control), "model": _place(control.model)})
    folder = run_folder(runs, name)
    with shown(not as_json), open_run(folder, config=as_yaml(asdict(control)), seed=control.seed) as run:
        controlled = fit(control, folder)
        checked = check(controlled)
        figures = {"lambda": controlled.fitted.to_dict(), **checked.to_dict()}
        run.write("results.json", to_json(figures, indent=1))
        write_fit_page(folder, controlled, checked)
    if as_json:
        show_json({"folder": str(folder), **figures})
        return 0
    show_table(f"{folder}: 95 % intervals", MOMENTS, moment_rows(controlled, checked))
    show_table("how far it is", ("figure", "value"), distance_rows(checked))
    sys.stdout.write(f"{folder / 'report.html'}\n")
    return 0


def _sample(words: Sequence[str]) -> int:
    options = parser(
        words,
        "control sample",
        "Draw from the controlled model. Where the draws of a sampler carry weights, each line begins with its\n"
        "log-weight and a tab; line breaks are shown as \\n. What a draw is worth goes to standard error, beside that\n"
        "of as many draws of the model itself.",
        EXAMPLES["sample"],
    )
    options.add_argument("run", type=Path, help="folder of `ebar control fit`")
    options.add_argument("--n", type=PositiveInt, default=10, help="draws")
    options.add_argument("--compare", type=bool, default=True, help="whether to draw from the model itself, too")
    add_sampler(options, words, "look_ahead")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    controlled = open_controlled(arguments.run)
    target, sampler = controlled.target, build_sampler(arguments)
    generator = Generator(device=controlled.subject.device).manual_seed(arguments.seed)
    with shown(not arguments.json):
        proposal = build_proposal(arguments, sampler, target, generator)
        drawn = draw(sampler, target, arguments.n, proposal=proposal, generator=generator)
        plain = draw(Importance(), target, arguments.n, generator=generator) if arguments.compare else None
    weights = drawn.log_weights[0].double().cpu() if isinstance(drawn, Weighted) else None
    texts = controlled.subject.text(drawn.x if isinstance(drawn, Weighted) else drawn)
    gains = {} if weights is None else {"these draws": worth(weights)}
    if plain is not None:
        gains["the model"] = worth(plain.log_weights[0].double().cpu())
    _tell_texts(texts, weights, gains, as_json=arguments.json)
    return 0


def _tell_texts(texts: list[str], weights: torch.Tensor | None, gains: dict[str, Any], *, as_json: bool) -> None:
    numbers = [None] * len(texts) if weights is None else weights.tolist()
    if as_json:
        samples = [
            {"text": text} | ({} if number is None else {"log_weight": number})
            for text, number in zip(texts, numbers, strict=True)
        ]
        show_json({"draws": len(texts), "effective_samples_per_draw": gains, "samples": samples})
        return
    for text, number in zip(texts, numbers, strict=True):
        line = text.replace("\n", "\\n")
        sys.stdout.write(f"{line}\n" if number is None else f"{number:.6f}\t{line}\n")
    for name, one in gains.items():
        sys.stderr.write(f"effective samples per draw, {name}: {one}\n")


def _tune(words: Sequence[str]) -> int:
    options = parser(
        words,
        "control tune",
        "π, a language model of its own, brought to the controlled one by distributional policy gradient (DPG).\n"
        "It is saved so that transformers alone can read it. Run it again to go on where it was stopped.",
        EXAMPLES["tune"],
    )
    options.add_argument("run", type=Path, help="folder of `ebar control fit`; π goes to its folder tune")
    options.add_argument("--config", action="config", help="YAML file with any of these options")
    options.add_class_arguments(Tuning, instantiate=False)
    options.add_argument("--json", action="store_true", help="print all figures as one JSON object")
    given = parse(options, words).as_dict()
    run, as_json = given.pop("run"), given.pop("json")
    given.pop("config", None)
    tuning, folder = Tuning(**given), run / "tune"
    try:
        with shown(not as_json):
            tuned = tune(open_controlled(run), tuning, folder)
            write_tune_page(folder, tuned)
    except KeyboardInterrupt:
        if as_json:
            show_json({"status": "interrupted", "folder": str(folder)})
        else:
            sys.stdout.write(f"interrupted, and saved in {folder}: run the same command to go on\n")
        return 130
    if as_json:
        show_json({"status": "finished", **tuned.to_dict()})
        return 0
    rows = [[name, tuned.start[name], tuned.end[name], tuned.target.get(name, "–")] for name in tuned.start]
    show_table(f"{folder}: best at step {tuned.best_step}", ("figure", "before", "best π", "p"), rows)
    sys.stdout.write(f"{folder / 'model'}\n{folder / 'report.html'}\n")
    return 0


def _absolute(term: str) -> str:
    """Files by their whole path, so that the run can be gone on with from any folder."""
    words, _, moment = term.rpartition("=")
    kind, _, place = words.partition(":")
    path, _, name = place.rpartition(":")
    if kind in ("predicate", "score", "classifier") and path and Path(path).exists():
        return f"{kind}:{Path(path).resolve()}:{name}={moment}"
    return term


def _place(model: str) -> str:
    """A file or folder by its whole path; what is none is a name on the hub."""
    return str(Path(model).resolve()) if Path(model).exists() else model
