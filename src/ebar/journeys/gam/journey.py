"""The whole journey: r fitted to D, λ by moment matching, samples of P_λ on disk, π trained on them.

A folder holds it, stage by stage, and each stage goes on where it was killed:

    r/                      the autoregressive model, a run like any other
    round-1/lambda.json     Training-1
    round-1/distilled.txt   samples of P_λ; distilled-validation.txt for early stopping
    round-1/pi/             Training-2: a run on distilled ∪ D
    round-1/refined/        … and, where another round follows, on D alone
    round-2/ …              the same with π in r's place

With one round this is the document's two-stage training. What r has not learnt and no feature names (document 000: that
all strings have 30 symbols) P_λ does not know either, and π neither; a π that already has the features learns it from D
more easily than r did, and the next round's λ mends what it then forgets.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Generator

from ebar.build.corpus import build_corpus
from ebar.build.entry import make
from ebar.build.terms import read_feature
from ebar.build.train import train_as
from ebar.config.gam import GamConfig
from ebar.config.reader import Chosen
from ebar.config.train import TrainConfig
from ebar.data.corpora import read_corpus
from ebar.data.corpus import Corpus
from ebar.errors import Interrupted, UserError
from ebar.features.feature import Features, bind
from ebar.journeys.gam.cyclical import cyclical
from ebar.journeys.gam.phases import base_settings, in_phase
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.tilted import Tilted
from ebar.samplers import SAMPLERS
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving, to_json
from ebar.training.distillation import Distilled, distil
from ebar.training.moment_matching import MATCHING, Fitted
from ebar.types import Sampler, Sequences


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round's: the model tilted, λ, what was drawn from P_λ, and π."""

    base: Autoregressive
    fitted: Fitted
    distilled: Distilled
    student: Autoregressive
    folder: Path  # of π's run

    def tilted(self, features: Features) -> Tilted:
        """P_λ."""
        return self.fitted.tilted(self.base, features)


@dataclass(frozen=True, kw_only=True)
class Journey:
    """What the stages made."""

    folder: Path
    corpus: Corpus
    features: Features
    base: Autoregressive  # r
    rounds: tuple[Round, ...]

    @property
    def student(self) -> Autoregressive:
        """π."""
        return self.rounds[-1].student

    def examples(self, n: int, *, seed: int) -> dict[str, Sequences]:
        """A few sequences of the data, of r, of P_λ and of π."""
        generator = Generator(device=next(self.base.parameters()).device).manual_seed(folded(seed, 5))
        place = self.rounds[-1].folder.parent
        distilled = read_corpus(place / "distilled.txt", self.corpus.alphabet, self.corpus.space)
        return {
            "data": self.corpus.train.select(slice(n)),
            "r": self.base.sample(n, generator=generator),
            "P": distilled.select(slice(n)),
            "π": self.student.sample(n, generator=generator),
        }


def travel(gam: GamConfig, folder: Path, *, quiet: bool = True) -> Journey:
    """Every stage in turn; those that are done are read back."""
    check(gam)
    base_run = base_settings(gam)
    corpus = build_corpus(base_run)
    features = Features([bind(read_feature(term), corpus.reading) for term in gam.features])
    with saving(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with timed(folder, "r"):
        base = _trained(base_run, folder / "r", corpus, quiet)
    rounds: list[Round] = []
    run, model, weights = base_run, base, folder / "r"
    for number in range(1, gam.rounds + 1):
        place = folder / f"round-{number}"
        with saving(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        with timed(folder, f"λ and samples, round {number}"):
            fitted, distilled = _teach(gam, number, corpus, features, model, place)
        run = _student_run(gam, number, run, corpus, place, weights)
        with timed(folder, f"π, round {number}"):
            student = _trained(run, place / "pi", corpus, quiet)
        rounds.append(Round(base=model, fitted=fitted, distilled=distilled, student=student, folder=place / "pi"))
        if number < gam.rounds:
            run = _refinement_run(gam, run, corpus, place)
            weights = place / "refined"
            with timed(folder, f"refined, round {number}"):
                model = _trained(run, weights, corpus, quiet)
    return Journey(folder=folder, corpus=corpus, features=features, base=base, rounds=tuple(rounds))


def _trained(run: TrainConfig, folder: Path, corpus: Corpus, quiet: bool) -> Autoregressive:
    return train_as(run, folder, quiet=quiet).model


def _teach(
    gam: GamConfig, number: int, corpus: Corpus, features: Features, model: Autoregressive, place: Path
) -> tuple[Fitted, Distilled]:
    """Training-1, and samples of P_λ."""
    if gam.regime == "cyclical":
        return cyclical(gam, corpus, features, model, place, seed=folded(gam.seed, number))
    fitted = _fit(gam, number, corpus, features, model, place / "lambda.json")
    return fitted, _distil(gam, number, corpus, fitted.tilted(model, features), place)


def _fit(gam: GamConfig, number: int, corpus: Corpus, features: Features, base: Autoregressive, path: Path) -> Fitted:
    if path.exists():
        return Fitted.from_dict(json.loads(path.read_text()))
    method = make(MATCHING, gam.matching, "moment matching")
    fitted: Fitted = method.fit(base, features, data=corpus.train, generator=_generator(gam, number, 1))
    with saving(str(path)):
        replace_file(path, to_json(fitted.to_dict(), indent=1))
    return fitted


def _distil(gam: GamConfig, number: int, corpus: Corpus, target: Tilted, place: Path) -> Distilled:
    sampler: Sampler = make(SAMPLERS, gam.sampler, "sampler")
    sizes = {"distilled-validation": gam.distillation.validation, "distilled": gam.distillation.size}
    for part, (name, size) in enumerate(sizes.items()):
        distilled = distil(
            target,
            size,
            place / f"{name}.txt",
            sampler=sampler,
            look_ahead=gam.distillation.proposal == "look_ahead",
            decode=corpus.alphabet.decode,
            seed=folded(gam.seed, number, 2, part),
        )
        if not distilled.complete:
            raise Interrupted(place)
    return distilled


def _student_run(
    gam: GamConfig, number: int, before: TrainConfig, corpus: Corpus, place: Path, weights: Path
) -> TrainConfig:
    """π on the distilled sequences and D together: the other half of Training-2."""
    distilled = read_corpus(place / "distilled.txt", corpus.alphabet, corpus.space)
    held_out = read_corpus(place / "distilled-validation.txt", corpus.alphabet, corpus.space)
    files = {
        "train": _lines(place / "student.txt", corpus, Sequences.join([distilled, corpus.train])),
        "validation": _lines(place / "student-validation.txt", corpus, Sequences.join([held_out, corpus.validation])),
        "test": _lines(place / "test.txt", corpus, corpus.test),
        "alphabet": corpus.alphabet.symbols,
    }
    run = replace(before, data=Chosen(kind="lines", options=files))
    rows, maximal = len(distilled.lengths) + len(corpus.train.lengths), corpus.space.length
    if number > 1 or not gam.fresh:
        return in_phase(run, gam.continuation, rows, start=weights, maximal=maximal)
    backbone = Chosen(kind=gam.backbone.kind, options={**gam.backbone.options, **gam.student_backbone})
    return in_phase(replace(run, backbone=backbone), gam.student, rows, maximal=maximal)


def _refinement_run(gam: GamConfig, before: TrainConfig, corpus: Corpus, place: Path) -> TrainConfig:
    """π on D alone."""
    files = {
        **before.data.options,
        "train": _lines(place / "data.txt", corpus, corpus.train),
        "validation": _lines(place / "validation.txt", corpus, corpus.validation),
    }
    run = replace(before, data=Chosen(kind="lines", options=files))
    return in_phase(run, gam.refinement, len(corpus.train.lengths), start=place / "pi", maximal=corpus.space.length)


def _lines(path: Path, corpus: Corpus, x: Sequences) -> Path:
    """Sequences as a file of lines, written once."""
    if not path.exists():
        with saving(str(path)):
            replace_file(path, "".join(f"{line}\n" for line in corpus.text(x)).encode())
    return path


def seconds_of(folder: Path) -> dict[str, float]:
    """How long each stage has taken so far, over all starts."""
    path = folder / "seconds.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


@contextmanager
def timed(folder: Path, stage: str) -> Iterator[None]:
    """Adds to a stage's time, also where it was interrupted."""
    began = time.monotonic()
    try:
        yield
    finally:
        known = seconds_of(folder)
        known[stage] = known.get(stage, 0.0) + time.monotonic() - began
        with saving(str(folder)):
            replace_file(folder / "seconds.json", to_json(known, indent=1))


def _generator(gam: GamConfig, *stage: int) -> Generator:
    return Generator(device=gam.device).manual_seed(folded(gam.seed, *stage))


def check(gam: GamConfig) -> None:
    """What can be told before any work."""
    if not gam.features:
        raise UserError("A GAM needs features: give --features, or --ft for a language with a motif.")
    if gam.rounds < 1:
        raise UserError(f"There must be at least one round, not {gam.rounds}.")
    if gam.student_backbone and not gam.fresh:
        raise UserError("A π that begins with r's weights has r's backbone: ask for a fresh one to give it another.")
    names = list(gam.features)
    if len(set(names)) < len(names):
        raise UserError(f"Features are given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}.")
