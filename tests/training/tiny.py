"""A model small enough to be trained in a blink, a game of two, and a run that uses every source of randomness."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Generator, Tensor, nn

from ebar.data import LanguageData
from ebar.data.pretraining_inputs import Form, PretrainingText
from ebar.data.specials import Specials
from ebar.data.stream import Stream, Varied
from ebar.errors import Interrupted
from ebar.journeys.train import train
from ebar.models.construction import assemble
from ebar.objectives import MaximumLikelihood
from ebar.objectives.earm import Earm
from ebar.objectives.pretraining import Pretraining
from ebar.training.batches import Batches
from ebar.training.course import Training
from ebar.training.distributed import rank
from ebar.training.loop import evaluate_objective
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, LinearDecay
from ebar.training.players import Player
from ebar.training.randomness import seeded
from ebar.training.run import open_run
from ebar.training.streams import Columns, OnStream, PretrainingColumns
from ebar.training.train import Plan, Result, train_run
from ebar.types import Clock, Context, Loss, Sequences, Space


class Bigram(nn.Module):
    """The next token given the one before, through a dropout."""

    def __init__(self, vocabulary: int = 5, width: int = 8, dropout: float = 0.0):
        super().__init__()
        self.space = Space(vocabulary=vocabulary, length=6, end=0)
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, vocabulary)

    def log_prob(self, x: Sequences, context: Context | None = None) -> Tensor:
        before = nn.functional.pad(x.tokens[:, :-1], (1, 0))
        logits = self.out(self.dropout(self.embedding(before)))
        each: Tensor = logits.log_softmax(-1).gather(-1, x.tokens[..., None])[..., 0]
        return (each * x.mask()).sum(1)

    def sample(self, n: int, context: Context | None = None, *, generator: Generator) -> Sequences:
        raise NotImplementedError


def data(rows: int, *, seed: int = 0, vocabulary: int = 5, length: int = 6) -> Sequences:
    generator = Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    tokens = torch.randint(1, vocabulary, (rows, length), generator=generator)
    tokens[torch.arange(rows), lengths - 1] = 0
    return Sequences(tokens, lengths)


@dataclass(frozen=True)
class Jittered:
    """Likelihood for the model, then noise from every source for the second player to learn the mean of."""

    model: MaximumLikelihood
    guess: nn.Linear

    def losses(self, batch: Any, clock: Clock, *, generator: Generator) -> Iterator[Loss]:
        yield from self.model.losses(batch, clock, generator=generator)
        noise = torch.randn(4, generator=generator) + random.gauss(0, 1) + float(numpy.random.normal())
        yield Loss(((self.guess(torch.ones(1)) - noise) ** 2).mean(), "guess", {}, weight=4.0)


def run_everything(folder: Path, *, steps: int, checkpoint_every: int = 4) -> Result:
    """A run whose every bit depends on dropout, on a generator, on numpy's, Python's and torch's own states."""
    generator = seeded(7)
    model, guess = Bigram(dropout=0.3), nn.Linear(1, 4)
    players = {
        "model": Player(
            module=model,
            optimiser=OPTIMISERS["adam"](learning_rate=0.01).build(model.parameters()),
            schedule=SCHEDULES["cosine"](steps=steps, warmup=5),
            clip_norm=0.25,
        ),
        "guess": Player(module=guess, optimiser=OPTIMISERS["asgd"](learning_rate=0.05).build(guess.parameters())),
    }
    likelihood = MaximumLikelihood(model=model)
    held_out = Batches(data=data(20, seed=1), batch_size=8, shuffle=False)
    plan = Plan(steps=steps, log_every=1, validate_every=7, checkpoint_every=checkpoint_every, monitor="nll_per_token")
    with open_run(folder, config="kind: tiny\n", seed=7) as run:
        return train_run(
            run,
            Jittered(likelihood, guess),
            Batches(data=data(50), batch_size=16, seed=7),
            players,
            plan,
            generator=generator,
            validation=lambda: evaluate_objective(likelihood, held_out, generator=Generator().manual_seed(0)),
        )


STREAM = Stream(
    torch.randint(5, (170,), generator=Generator().manual_seed(9)).int(), 6, Varied(deviation=1.0, shortest=3)
)


def run_stream(folder: Path, *, steps: int, checkpoint_every: int = 4, dropout: float = 0.3) -> Result:
    """A run on a stream, of segments that vary, by E-ARM from scheduled sampling: all that a memory goes through."""
    generator = seeded(7, rank=rank())
    model = assemble(Space(5, 6), "lstm", {"layers": 1, "hidden": 6, "embedding": 3, "dropout": dropout})
    source, held_out = Columns(stream=STREAM, columns=5, seed=7), Columns(stream=STREAM, columns=3)
    objective = Earm(model=model, start_step=5, ramp=9, window=4, draws=2, base="scheduled_sampling", k=0.6)
    plain = MaximumLikelihood(model=model)
    on_stream = OnStream.of(objective if dropout else plain, model, source)
    judge = OnStream.of(plain, model, held_out)
    players = {
        "model": Player(
            module=model, optimiser=OPTIMISERS["adam"](learning_rate=0.01).build(model.parameters()), clip_norm=0.25
        ),
        "objective": Player(module=on_stream.memory),
    }
    plan = Plan(steps=steps, log_every=1, validate_every=7, checkpoint_every=checkpoint_every, monitor="nll_per_token")
    with open_run(folder, config="kind: stream\n", seed=7) as run:
        return train_run(
            run,
            on_stream,
            source,
            players,
            plan,
            generator=generator,
            validation=lambda: evaluate_objective(judge, held_out, generator=Generator().manual_seed(0)),
        )


def to_pretrain_on(tokens: int = 260, *, form: Form | None = None) -> PretrainingText:
    """Words of two tokens, sentences of five, documents of 50."""
    places = numpy.arange(tokens)
    return PretrainingText(
        tokens=(places * places // 3 % 9).astype(numpy.int32), words=places % 2 == 0, sentences=places[::5],
        documents=places[::50], specials=Specials(9, 10, 11, 12), size=9, form=form or Form(length=16, reuse=6),
    )  # fmt: skip


def run_pretraining(
    folder: Path, *, steps: int, checkpoint_every: int = 4, dropout: float = 0.3, accumulate: int = 1
) -> Result:
    """XLNet's, with all that it has: memory, both directions, next sentences."""
    generator = seeded(7, rank=rank())
    options = {"layers": 2, "hidden": 8, "heads": 2, "memory": 9, "dropout": dropout, "attention_dropout": dropout}
    model = assemble(Space(13, 16), "xlnet", options, "softmax", {"tied": True})
    source = PretrainingColumns(text=to_pretrain_on(), columns=5, seed=7)
    held_out = PretrainingColumns(text=to_pretrain_on(), columns=3)
    objective = Pretraining(model=model, next_sentence=True)
    on_stream, judge = (OnStream.of(objective, model, columns) for columns in (source, held_out))
    learnt = [*model.parameters(), *on_stream.memory.parameters()]
    players = {
        "model": Player(
            module=model, optimiser=OPTIMISERS["adamw"](learning_rate=0.01).build(learnt),
            schedule=SCHEDULES["linear"](steps=steps, warmup=5), clip_norm=0.25,
        ),
        "objective": Player(module=on_stream.memory),
    }  # fmt: skip
    plan = Plan(
        steps=steps, log_every=1, validate_every=7, checkpoint_every=checkpoint_every, accumulate=accumulate,
    )  # fmt: skip
    with open_run(folder, config="kind: pretraining\n", seed=7) as run:
        return train_run(
            run,
            on_stream,
            source,
            players,
            plan,
            generator=generator,
            validation=lambda: evaluate_objective(judge, held_out, generator=Generator().manual_seed(0)),
        )


def run_limited(folder: Path, *, steps: int, checkpoint_every: int = 4) -> Result:
    """So many steps, of which each call takes one before its time is up."""
    corpus = LanguageData(motif="11", length=5, size=40, test_size=10).read()
    training = Training(
        max_steps=steps, max_minutes=1e-9, evaluate_steps=3, batch_size=16, checkpoint_every=checkpoint_every
    )
    while True:
        seeded(7)
        model = assemble(corpus.space, "lstm", {"layers": 1, "hidden": 4, "dropout": 0.3})
        try:
            found = train(model, corpus, training=training, schedule=LinearDecay(), seed=7, folder=folder).result
        except Interrupted:
            continue
        assert found is not None
        return found


def kept(folder: Path) -> dict[str, bytes]:
    """All that a run leaves and that must not depend on how often it was killed."""
    passing = {"timing.jsonl", "lock", "environment.json"}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in passing]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
