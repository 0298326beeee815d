"""A global autoregressive model (Parshakova et al. 2019): from a model r and features to a better model π.

λ is fitted so that P_λ(x) = r(x)·exp⟨λ, φ(x)⟩ has the data's moments; P_λ is sampled; π is trained on the samples and
the data D together. With one round this is the paper's two-stage training. What r has not learnt and no feature names
(in the paper: that all strings have 30 symbols) P_λ does not know either, and neither does π; a π that already has the
features learns it from D more easily than r did, and λ of the next round corrects what π then forgets.

The stages are kept in a folder, and an interrupted journey goes on with them:

    round-1/lambda.json     λ
    round-1/distilled.txt   samples of P_λ; distilled-validation.txt for early stopping
    round-1/pi/             π, a run like any other
    round-1/refined/        where another round follows, π trained on D alone
    round-2/ …              the same with the refined π in r's place

Where sequences have sources (parallel data), r, P_λ and π are conditional: see `journeys.gam.conditional`.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from torch import Generator, nn

from ebar import progress
from ebar.data.corpus import Corpus, Part, read_corpus
from ebar.errors import Interrupted, UserError
from ebar.estimators.exact import device_of
from ebar.features.feature import Feature, Features, SourceBindable, bind
from ebar.journeys.gam.conditional import distil_pairs, fit_pairs, joined, only_x
from ebar.journeys.gam.cyclical import cyclical
from ebar.journeys.gam.figures import GamFigures, measure
from ebar.journeys.gam.report import write_gam_page
from ebar.journeys.gam.rounds import GamRound
from ebar.journeys.gam.settings import BasePhase, ContinuationPhase, Distillation, Phase, RefinementPhase, StudentPhase
from ebar.journeys.train import Trained, seed_of, train
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted
from ebar.samplers.rejection import QuasiRejection
from ebar.shards import Workers
from ebar.store.differences import as_yaml
from ebar.store.environment import environment
from ebar.store.fingerprint import describe, fingerprint
from ebar.store.names import CONFIG
from ebar.store.stages import Stage, stage_seconds
from ebar.store.store import ENVIRONMENT, Store, open_store
from ebar.store.writing import to_json
from ebar.training.distillation import Distilled, distil
from ebar.training.moment_matching.matching import Fitted, Matching
from ebar.training.moment_matching.newton import Newton
from ebar.training.randomness import seeded
from ebar.training.train import History
from ebar.types import Sampler, Stepwise

CHECKS = 10_000  # draws of P_λ, for its log Z and for KL(p‖π)


@dataclass(frozen=True, kw_only=True)
class Gam:
    """A global autoregressive model and what it was distilled into."""

    data: Corpus
    features: Features
    rounds: tuple[GamRound, ...]
    seed: int
    settings: Mapping[str, Any]  # its arguments, as plain data
    config: str  # what the folder keeps as config.yaml
    environment: Mapping[str, Any]  # where it was made
    seconds: Mapping[str, float]  # of each stage

    @property
    def base(self) -> Stepwise:
        """r."""
        return self.rounds[0].base

    @property
    def fitted(self) -> Fitted:
        """λ of the last round."""
        return self.rounds[-1].fitted

    @property
    def p(self) -> Tilted:
        """The last P_λ."""
        return self.rounds[-1].tilted(self.features)

    @property
    def pi(self) -> Any:
        """π, the last model trained on samples of P_λ."""
        return self.rounds[-1].student

    @cached_property
    def figures(self) -> GamFigures:
        """r, P_λ and π compared, with intervals; computed when first asked for."""
        return self.measure()

    def measure(
        self, *, exact: bool = False, draws: int = CHECKS, workers: Workers | None = None
    ) -> GamFigures:  # fmt: skip
        """The figures from `draws` draws of P_λ; `exact`: over the whole language too, where it is known and small,
        which `workers` share."""
        return measure(
            self.data, self.features, self.rounds, seed=self.seed, exact=exact, draws=draws, seconds=self.seconds,
            workers=workers,
        )  # fmt: skip

    def report(self, path: Path | str, *, figures: GamFigures | None = None, history: History | None = None) -> Path:
        """Writes a page that needs no other file. `history` is that of the training of r, to be shown with π's."""
        histories = {} if history is None else {"r": history}
        for number, one in enumerate(self.rounds, 1):
            suffix = "" if len(self.rounds) == 1 else f", round {number}"
            histories |= {f"{name}{suffix}": log for name, log in one.histories.items()}
        write_gam_page(
            Path(path), figures or self.figures, data=self.data, features=self.features, rounds=self.rounds,
            histories=histories, settings=self.settings, config=self.config, environment=self.environment,
        )  # fmt: skip
        return Path(path)


def gam(
    base: Stepwise,
    features: Sequence[Any],
    data: Corpus,
    *,
    matching: Matching = Newton(),  # noqa: B008 — immutable
    sampler: Sampler = QuasiRejection(),  # noqa: B008
    distillation: Distillation = Distillation(),  # noqa: B008
    rounds: int = 1,
    regime: Literal["two_stage", "cyclical"] = "two_stage",
    fresh: Callable[[], Stepwise] | None = None,
    student: Phase = StudentPhase(),  # noqa: B008
    continuation: Phase = ContinuationPhase(),  # noqa: B008
    refinement: Phase = RefinementPhase(),  # noqa: B008
    cycle: Phase = BasePhase(),  # noqa: B008
    seed: int | None = None,
    folder: Path | str | Store | None = None,
    quiet: bool = True,
    workers: Workers = Workers(),  # noqa: B008
) -> Gam:
    """Fits λ, samples P_λ and trains π; finished stages in the folder are read back.

    Features need not be bound to the data's tokens. π begins with the weights of the model it is distilled from and
    is trained as `continuation` says; where `fresh` makes a model with random weights, the first π is that one,
    trained as `student` says. Between two rounds π is trained on the data alone (`refinement`). The regime "cyclical"
    fits λ anew after every step of π; the learning rate and clipping of these steps are those of `cycle`.

    Without a folder everything is in memory; without a seed, it is drawn from torch's own state (or is that of the
    folder). A folder may be an open store, whose description then has to cover all arguments. Samples of P_λ are drawn
    by `workers`.
    """
    if rounds < 1:
        raise UserError(f"There must be at least one round, not {rounds}.")
    phi = bound(features, data)
    if seed is None:
        seed = folder.seed if isinstance(folder, Store) else seed_of(None if folder is None else Path(folder))
    settings = {
        "seed": seed,
        "data": {**(data.origin or {}), "digest": fingerprint(dict(data.parts))},
        "features": {feature.name: fingerprint(feature) for feature in phi.features},
        "base": fingerprint(base),
        **describe(
            {"matching": matching, "regime": regime, "rounds": rounds, "fresh": fresh is not None,
             "distillation": distillation, "sampler": sampler, "student": student, "continuation": continuation,
             "refinement": refinement, "cycle": cycle}
        ),
    }  # fmt: skip
    with ExitStack() as stack:
        if not isinstance(folder, Store):
            place = None if folder is None else Path(folder)
            folder = stack.enter_context(open_store(place, description=as_yaml(dict(settings)), seed=seed))
        work = _Work(
            store=folder, data=data, features=phi, matching=matching, sampler=sampler, distillation=distillation,
            regime=regime, cycle=cycle, seed=seed, device=str(device_of(base)), quiet=quiet,
            workers=workers,
        )  # fmt: skip
        found: list[GamRound] = []
        model = base
        for number in range(1, rounds + 1):
            teacher, fitted, distilled, draws, held_out = work.teach(number, model)
            together = {
                "train": joined(draws, data.parts["train"]),
                "validation": joined(held_out, data.parts["validation"]),
                "test": data.parts["test"],
            }
            anew = fresh if number == 1 else None
            phase = continuation if anew is None else student
            pi = work.train(
                f"round-{number}/pi", anew or partial(copy.deepcopy, model), replace(data, parts=together), phase
            )
            histories = {"π": pi.history}
            one = GamRound(
                base=model, teacher=teacher, fitted=fitted, distilled=distilled, draws=only_x(draws), student=pi.model,
                histories=histories,
            )  # fmt: skip
            if number < rounds:
                refined = work.train(f"round-{number}/refined", partial(copy.deepcopy, pi.model), data, refinement)
                histories["π refined on the data"], model = refined.history, refined.model
            found.append(one)
        config, noted = (folder.folder / name for name in (CONFIG, ENVIRONMENT))
        return Gam(
            data=data, features=phi, rounds=tuple(found), seed=seed, settings=settings,
            config=config.read_text(encoding="utf-8") if config.exists() else as_yaml(dict(settings)),
            environment=json.loads(noted.read_bytes()) if noted.exists() else environment(seed),
            seconds=stage_seconds(folder.folder),
        )  # fmt: skip


def bound(features: Sequence[Any], data: Corpus) -> Features:
    """The features for the data's tokens."""
    found = Features([_bound(feature, data) for feature in features])
    if not found.features:
        raise UserError("A GAM needs features: give at least one.")
    twice = sorted({name for name in found.names if found.names.count(name) > 1})
    if twice:
        raise UserError(f"Features are given twice: {', '.join(twice)}.")
    return found


def _bound(feature: Any, data: Corpus) -> Feature:
    own = bind(feature, data.reading)
    if isinstance(own, SourceBindable) and data.source_reading is not None:
        return own.bind_source(data.source_reading)
    return own


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What all rounds have in common."""

    store: Store
    data: Corpus
    features: Features
    matching: Matching
    sampler: Sampler
    distillation: Distillation
    regime: str
    cycle: Phase
    seed: int
    device: str
    quiet: bool
    workers: Workers

    def teach(self, number: int, base: Stepwise) -> tuple[Stepwise, Fitted, Distilled, Part, Part]:
        """The model that λ was fitted to; λ; samples of P_λ and how they were made; and others to stop early by."""
        with self.store.stage(f"round-{number}") as stage:
            if self.data.sources("train") is not None:
                return self._teach_pairs(base, stage)
            if self.regime == "cyclical":
                teacher, fitted, distilled = cyclical(
                    _module(base), self.features, self.data, stage, matching=self.matching, sampler=self.sampler,
                    distillation=self.distillation, phase=self.cycle,
                )  # fmt: skip
            else:
                teacher, fitted = base, self._fit(base, stage)
                distilled = self._distil(fitted.tilted(base, self.features), stage)
            names = ("distilled.txt", "distilled-validation.txt")
            draws, held_out = (read_corpus(stage.folder / name, self.data.alphabet, self.data.space) for name in names)
        return teacher, fitted, distilled, draws, held_out

    def _teach_pairs(self, base: Stepwise, stage: Stage) -> tuple[Stepwise, Fitted, Distilled, Part, Part]:
        """The same where sequences have sources: two-stage training, in contexts."""
        if self.regime == "cyclical":
            raise UserError("Data with sources are trained on in two stages: leave out the regime cyclical.")
        fitted = fit_pairs(base, self.features, self.data, self.matching, stage)
        target = fitted.tilted(base, self.features)
        sizes = {"validation": self.distillation.validation, "train": self.distillation.size}
        made = [distil_pairs(target, self.features, self.data, *one, self.sampler, stage) for one in sizes.items()]
        (held_out, _), (draws, distilled) = made
        return base, fitted, distilled, draws, held_out

    def _fit(self, base: Stepwise, stage: Stage) -> Fitted:
        if stage.has("lambda.json"):
            return Fitted.from_dict(json.loads(stage.read("lambda.json")))
        generator = Generator(device=self.device).manual_seed(folded(stage.seed, "lambda"))
        with progress.part(f"{stage.header.stage}/lambda"):
            fitted = self.matching.fit(base, self.features, data=self.data.train, generator=generator)
        stage.write("lambda.json", to_json(fitted.to_dict(), indent=1))
        return fitted

    def _distil(self, target: Tilted, stage: Stage) -> Distilled:
        sizes = {"distilled-validation": self.distillation.validation, "distilled": self.distillation.size}
        for name, size in sizes.items():
            with progress.part(f"{stage.header.stage}/{name}"):
                distilled = distil(
                    target, size, stage.folder / f"{name}.txt", sampler=self.sampler, decode=self.data.alphabet.decode,
                    look_ahead=self.distillation.proposal == "look_ahead", seed=folded(stage.seed, name),
                    workers=self.workers,
                )  # fmt: skip
            if not distilled.complete:
                raise Interrupted(stage.folder)
        return distilled

    def train(self, name: str, make: Callable[[], Stepwise], data: Corpus, phase: Phase) -> Trained[Any]:
        """A stage that trains a model, made after all random sources were seeded."""
        generator = seeded(self.seed, device=self.device)
        with self.store.stage(name) as stage, progress.part(name):
            return train(
                _module(make()), data, **phase.arguments(), seed=self.seed, generator=generator, folder=stage.folder,
                quiet=self.quiet,
            )  # fmt: skip


def _module(model: Any) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    raise UserError(f"π is trained from the base, which {type(model).__name__} cannot be: give a torch module.")
