"""Cyclical training: the better π becomes, the better it proposes (Parshakova et al. 2019, Algorithm 1).

π starts as r. A round copies π into P_λ, fits λ from 0, draws a batch from P_λ, and moves π one step towards it. Once
the acceptance rate has not improved for `PATIENCE` rounds, the best P_λ so far is used from then on, as in the
authors' code. The batches of all rounds are the distilled set. A round is one step of the training loop, so that it
is checkpointed like any other; the file it writes is the same when it is done again.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from ebar.data.corpus import Corpus, read_corpus
from ebar.errors import Interrupted, UserError
from ebar.evaluation.moments import frequencies, mean_length
from ebar.features.feature import Features
from ebar.journeys.gam.settings import Distillation, Phase
from ebar.maths.randomness import folded
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.samplers.look_ahead import guided
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.store.stages import Stage
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving, to_json
from ebar.training.batches import Batches
from ebar.training.distillation import Distilled, distil
from ebar.training.moment_matching.matching import Fitted, Matching
from ebar.training.optimisers import Adam
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.train import Plan, train_run
from ebar.types import Clock, Estimate, Loss, Sampler, Sequences, Stepwise

ROUND = 500  # sequences drawn in a round
PATIENCE = 15  # rounds without a better acceptance rate before P_λ changes no more


class _Teacher(nn.Module):
    """P_λ now and at its best: what a round leaves to the next besides π."""

    def __init__(self, base: nn.Module):
        super().__init__()
        self.model: Any = copy.deepcopy(base)
        self.best_model = copy.deepcopy(base)
        self.best_round: torch.Tensor
        self.register_buffer("best_round", torch.zeros((), dtype=torch.long))
        self.best_rate: torch.Tensor
        self.register_buffer("best_rate", torch.zeros((), dtype=torch.float64))
        self.stale: torch.Tensor
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))

    @property
    def final(self) -> bool:
        """Whether the best P_λ is used from now on."""
        return int(self.stale) >= PATIENCE

    def compare(self, number: int, rate: float) -> None:
        if rate > float(self.best_rate):
            self.best_model.load_state_dict(self.model.state_dict())
            self.best_round.fill_(number)
            self.best_rate.fill_(rate)
            self.stale.zero_()
        else:
            self.stale += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """The objective: one round, one loss."""

    data: Corpus
    features: Features
    student: Any
    teacher: _Teacher
    matching: Matching
    sampler: Rejection | QuasiRejection
    look_ahead: bool
    folder: Path

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        fitted = self._teach(generator)
        x, rate = self._draw(fitted, generator)
        if not self.teacher.final:
            self.teacher.compare(clock.step, rate)
        self._write(clock.step, x, fitted, rate)
        for loss in MaximumLikelihood(model=self.student).losses(x, clock, generator=generator):
            yield loss._replace(metrics={"acceptance_rate": rate, "distance": fitted.distance})

    def _teach(self, generator: Generator) -> Fitted:
        """P_λ for this round: fitted anew to π's copy, or the best one."""
        if self.teacher.final:
            self.teacher.model.load_state_dict(self.teacher.best_model.state_dict())
            return _read_round(self.folder, int(self.teacher.best_round))
        self.teacher.model.load_state_dict(self.student.state_dict())
        self.teacher.model.eval()
        return self.matching.fit(self.teacher.model, self.features, data=self.data.train, generator=generator)

    @torch.no_grad()
    def _draw(self, fitted: Fitted, generator: Generator) -> tuple[Sequences, float]:
        self.teacher.model.eval()
        target = fitted.tilted(self.teacher.model, self.features)
        proposal = guided(target, generator=generator) if self.look_ahead else None
        parts = list(self.sampler.attempts(target, ROUND, proposal=proposal, generator=generator))
        rate = sum(int(part.accepted.sum()) for part in parts) / sum(int(part.proposed.sum()) for part in parts)
        return Sequences.join([part.x for part in parts]).select(torch.arange(ROUND)), rate

    def _write(self, number: int, x: Sequences, fitted: Fitted, rate: float) -> None:
        with saving(str(self.folder)):
            replace_file(self.folder / f"{number:05d}.txt", _lines(self.data, x))
            replace_file(_about(self.folder, number), to_json({**fitted.to_dict(), "acceptance_rate": rate}))


def cyclical(
    base: nn.Module, features: Features, data: Corpus, stage: Stage, *, matching: Matching, sampler: Sampler,
    distillation: Distillation, phase: Phase,
) -> tuple[Stepwise, Fitted, Distilled]:  # fmt: skip
    """The rounds; then the last P_λ (the copy of π and the λ fitted to it), and all that was drawn, as one set."""
    if not isinstance(sampler, Rejection | QuasiRejection):
        raise UserError("Cyclical training draws by acceptance: choose rejection or quasi_rejection.")
    rounds, look_ahead = -(-distillation.size // ROUND), distillation.proposal == "look_ahead"
    generator = seeded(folded(stage.seed, "cycle"))
    student, teacher = copy.deepcopy(base), _Teacher(base)
    files = stage.folder / "cycle" / "rounds"
    with saving(str(files)):
        files.mkdir(parents=True, exist_ok=True)
    objective = _Rounds(
        data=data, features=features, student=student, teacher=teacher, matching=matching, sampler=sampler,
        look_ahead=look_ahead, folder=files,
    )  # fmt: skip
    optimiser = Adam(learning_rate=phase.learning_rate).build(student.parameters())
    players = {
        "model": Player(module=student, optimiser=optimiser, clip_norm=phase.clip),
        "teacher": Player(module=teacher),
    }
    plan = Plan(steps=rounds, checkpoint_every=1, log_every=1)
    one = Batches(data=torch.zeros(1), batch_size=1)  # a round needs no data but its own draws
    with open_run(stage.folder / "cycle", config="# rounds of cyclical training\n", seed=stage.seed) as run:
        result = train_run(run, objective, one, players, plan, generator=generator)
    if result.status == "interrupted":
        raise Interrupted(files)
    last = _read_round(files, rounds - 1)
    drawn = [read_corpus(files / f"{at:05d}.txt", data.alphabet, data.space) for at in range(rounds)]
    everything = Sequences.join(drawn).select(torch.arange(distillation.size))
    stage.write("distilled.txt", _lines(data, everything))
    stage.write("lambda.json", to_json(last.to_dict(), indent=1))
    done = distil(
        last.tilted(teacher.model.eval(), features), distillation.validation,
        stage.folder / "distilled-validation.txt", sampler=sampler, look_ahead=look_ahead,
        decode=data.alphabet.decode, seed=folded(stage.seed, "distilled-validation"),
    )  # fmt: skip
    if not done.complete:
        raise Interrupted(stage.folder)
    rates = [float(json.loads(_about(files, at).read_text())["acceptance_rate"]) for at in range(rounds)]
    # Rounds differ in their rates: the whole's is draws over proposals, and each round has as many draws.
    proposed = sum(ROUND / rate for rate in rates)
    return (
        teacher.model,
        last,
        replace(
            done,
            path=stage.folder / "distilled.txt",
            n=len(everything.lengths),
            acceptance_rate=Estimate.exact(rounds * ROUND / proposed),
            proposed=round(proposed),
            effective_sample_size=float(len(everything.lengths)),
            total_variation=None,  # each round has a target and a β of its own
            moments=frequencies(everything, features),
            mean_length=mean_length(everything).mapped(lambda length: length - 1),  # without end
            seconds=stage.seconds,
        ),
    )


def _read_round(folder: Path, number: int) -> Fitted:
    return Fitted.from_dict(json.loads(_about(folder, number).read_text()))


def _about(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.json"


def _lines(data: Corpus, x: Sequences) -> bytes:
    return "".join(f"{line}\n" for line in data.text(x)).encode()
