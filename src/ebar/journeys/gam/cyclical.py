"""Cyclical training: π's own improvement makes a better proposal, batch after batch (document 000, Algorithm 1).

π starts as r. A round copies π into P_λ, fits λ from 0, draws a batch from P_λ, and moves π one step towards it. Once
the acceptance rate has not improved for `PATIENCE` rounds, the best P_λ so far is restored and kept, as in the
authors' code. The batches of all rounds are the distilled set. A round is one step of the training loop, so that it
is checkpointed like any other; the file it writes is the same when it is done again.
"""

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from ebar.build.entry import make
from ebar.config.gam import GamConfig
from ebar.data.corpora import read_corpus
from ebar.data.corpus import Corpus
from ebar.errors import Interrupted, UserError
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.features.feature import Features
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.objectives.maximum_likelihood import MaximumLikelihood
from ebar.samplers import SAMPLERS
from ebar.samplers.look_ahead import guided
from ebar.samplers.rejection import QuasiRejection, Rejection
from ebar.store.writing import replace as replace_file
from ebar.store.writing import saving, to_json
from ebar.training.batches import Batches
from ebar.training.distillation import Distilled, distil
from ebar.training.moment_matching import MATCHING, Fitted
from ebar.training.optimisers import Adam
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.train import Plan, train
from ebar.types import Clock, Estimate, Loss, Sequences

ROUND = 500  # sequences drawn in a round
PATIENCE = 15  # rounds without a better acceptance rate before P_λ is kept as it is


class _Teacher(nn.Module):
    """P_λ now and at its best: what a round leaves to the next besides π."""

    def __init__(self, base: Autoregressive):
        super().__init__()
        self.model = copy.deepcopy(base)
        self.best_model = copy.deepcopy(base)
        self.best_round: torch.Tensor
        self.register_buffer("best_round", torch.zeros((), dtype=torch.long))
        self.best_rate: torch.Tensor
        self.register_buffer("best_rate", torch.zeros((), dtype=torch.float64))
        self.stale: torch.Tensor
        self.register_buffer("stale", torch.zeros((), dtype=torch.long))

    @property
    def kept(self) -> bool:
        return int(self.stale) >= PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """The objective: one round, one loss."""

    gam: GamConfig
    corpus: Corpus
    features: Features
    student: Autoregressive
    teacher: _Teacher
    method: Any
    sampler: Rejection | QuasiRejection
    folder: Path

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        fitted = self._teach(generator)
        x, rate = self._draw(fitted, generator)
        if not self.teacher.kept:
            self._compare(clock.step, rate)
        self._write(clock.step, x, fitted, rate)
        for loss in MaximumLikelihood(model=self.student).losses(x, clock, generator=generator):
            yield loss._replace(metrics={"acceptance_rate": rate, "distance": fitted.distance})

    def _teach(self, generator: Generator) -> Fitted:
        """P_λ for this round: fitted anew on π's copy, or the one that is kept."""
        if self.teacher.kept:
            self.teacher.model.load_state_dict(self.teacher.best_model.state_dict())
            return read_round(self.folder, int(self.teacher.best_round))
        self.teacher.model.load_state_dict(self.student.state_dict())
        self.teacher.model.eval()
        fitted: Fitted = self.method.fit(self.teacher.model, self.features, data=self.corpus.train, generator=generator)
        return fitted

    @torch.no_grad()
    def _draw(self, fitted: Fitted, generator: Generator) -> tuple[Sequences, float]:
        self.teacher.model.eval()
        target = fitted.tilted(self.teacher.model, self.features)
        ahead = self.gam.distillation.proposal == "look_ahead"
        proposal = guided(target, generator=generator) if ahead else None
        parts = list(self.sampler.attempts(target, ROUND, proposal=proposal, generator=generator))
        accepted, proposed = (sum(int(counts.sum()) for counts in each) for each in
                              ([part.accepted for part in parts], [part.proposed for part in parts]))  # fmt: skip
        x = Sequences.join([part.x for part in parts])
        return x.select(torch.arange(ROUND)), accepted / proposed

    def _compare(self, number: int, rate: float) -> None:
        if rate > float(self.teacher.best_rate):
            self.teacher.best_model.load_state_dict(self.teacher.model.state_dict())
            self.teacher.best_round.fill_(number)
            self.teacher.best_rate.fill_(rate)
            self.teacher.stale.zero_()
        else:
            self.teacher.stale += 1

    def _write(self, number: int, x: Sequences, fitted: Fitted, rate: float) -> None:
        text = "".join(f"{line}\n" for line in self.corpus.text(x)).encode()
        with saving(str(self.folder)):
            replace_file(self.folder / f"{number:05d}.txt", text)
            replace_file(_about(self.folder, number), to_json({**fitted.to_dict(), "acceptance_rate": rate}))


def cyclical(
    gam: GamConfig, corpus: Corpus, features: Features, base: Autoregressive, folder: Path, *, seed: int
) -> tuple[Fitted, Distilled]:
    """The rounds; then the last P_λ, and all that was drawn, as one set."""
    began = time.monotonic()
    method = make(MATCHING, gam.matching, "moment matching")
    sampler = make(SAMPLERS, gam.sampler, "sampler")
    if not isinstance(sampler, Rejection | QuasiRejection):
        raise UserError("Cyclical training draws by acceptance: choose rejection or quasi_rejection.")
    rounds = -(-gam.distillation.size // ROUND)
    generator = seeded(folded(seed, 3))
    student, teacher = copy.deepcopy(base), _Teacher(base)
    files = folder / "cycle" / "rounds"
    with saving(str(files)):
        files.mkdir(parents=True, exist_ok=True)
    objective = _Rounds(
        gam=gam, corpus=corpus, features=features, student=student, teacher=teacher, method=method, sampler=sampler,
        folder=files,
    )  # fmt: skip
    players = {
        "model": Player(
            module=student,
            optimiser=Adam(learning_rate=gam.base.learning_rate).build(student.parameters()),
            clip_norm=gam.base.clip,
        ),
        "teacher": Player(module=teacher),
    }
    plan = Plan(steps=rounds, checkpoint_every=1, log_every=1)
    one = Batches(data=torch.zeros(1), batch_size=1)  # a round needs no data but its own draws
    with open_run(folder / "cycle", config="# rounds of cyclical training\n", seed=seed) as run:
        result = train(run, objective, one, players, plan, generator=generator)
    if result.status == "interrupted":
        raise Interrupted(files)
    last = read_round(files, rounds - 1)
    drawn = [read_corpus(files / f"{at:05d}.txt", corpus.alphabet, corpus.space) for at in range(rounds)]
    everything = Sequences.join(drawn).select(torch.arange(gam.distillation.size))
    text = "".join(f"{line}\n" for line in corpus.text(everything)).encode()
    with saving(str(folder)):
        replace_file(folder / "distilled.txt", text)
        replace_file(folder / "lambda.json", to_json(last.to_dict(), indent=1))
    ahead = gam.distillation.proposal == "look_ahead"
    done = distil(
        last.tilted(teacher.model.eval(), features), gam.distillation.validation, folder / "distilled-validation.txt",
        sampler=sampler, look_ahead=ahead, decode=corpus.alphabet.decode, seed=folded(seed, 2),
    )  # fmt: skip
    if not done.complete:
        raise Interrupted(folder)
    rates = [float(json.loads(_about(files, at).read_text())["acceptance_rate"]) for at in range(rounds)]
    # Rounds differ in their rates: the whole's is draws over proposals, and each round has as many draws.
    proposed = sum(ROUND / rate for rate in rates)
    return last, replace(
        done,
        path=folder / "distilled.txt",
        n=len(everything.lengths),
        acceptance_rate=Estimate.exact(rounds * ROUND / proposed),
        proposed=round(proposed),
        effective_sample_size=float(len(everything.lengths)),
        total_variation=None,  # each round has a target and a β of its own
        moments=frequencies(everything, features),
        mean_length=_symbols(everything),
        seconds=time.monotonic() - began,
    )


def read_round(folder: Path, number: int) -> Fitted:
    """λ of a round."""
    tree = json.loads(_about(folder, number).read_text())
    return Fitted.from_dict(tree)


def _about(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.json"


def _symbols(x: Sequences) -> Estimate:
    """The mean length, the end left out."""
    found = mean_length(x)
    return found._replace(value=found.value - 1, low=found.low - 1, high=found.high - 1)
