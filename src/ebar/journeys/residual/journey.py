"""A residual model from a language model, an energy and data: the base's draws, a warm-up, noise-contrastive training.

P(x|C) = q(x|C)·exp(−E(x, C)). The stages are stored in a folder, and an interrupted journey goes on with them:

    negatives/               the base's draws: train/ (or epoch-0/, epoch-1/ … where refreshed), validation/
    warm-up/                 masked language modelling of a bidirectional encoder
    energy/                  noise-contrastive estimation: a run, whose best checkpoint is the energy
    evaluation/              draws for test prefixes, and their energies
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import tee
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from ebar import progress
from ebar.data.chunks import Chunks, Positives
from ebar.data.corpus import Corpus
from ebar.energies.kinds import WarmUp
from ebar.energies.neural import Bidirectional
from ebar.errors import UserError
from ebar.estimators.log_z import log_z
from ebar.estimators.per_step import Steps, per_step
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.next_words import NextWords, next_words
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.evaluation import Evaluation, evaluate
from ebar.journeys.residual.negatives import Negatives, draw_negatives
from ebar.journeys.residual.settings import Fitting, Measuring, NegativesDraws
from ebar.journeys.residual.train_energy import EpochNegatives, train_energy
from ebar.journeys.residual.train_energy import warm_up as warm
from ebar.maths.randomness import default_generator, folded
from ebar.models.tilted import Tilted
from ebar.models.truncated import Truncation
from ebar.progress import shown
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.joint import Generated, generate, generate_each
from ebar.shards import Workers
from ebar.store.store import Store
from ebar.store.writing import saving
from ebar.training.batches import to_device
from ebar.training.players import Learning
from ebar.training.train import load_best
from ebar.types import Estimate, Sampler, Sequences, Stepwise

TRIED = 64  # chunks that an energy must be able to read before any draw is made


@dataclass(frozen=True, kw_only=True)
class Residual:
    """A trained residual model."""

    base: Base
    energy: Any  # an nn.Module that gives E(x, C) of each row
    chunks: Chunks
    folder: Path | None = None  # of its stages; None where they were not to be kept
    at_once: int = 256  # draws computed together

    @property
    def p(self) -> Tilted:
        """P = q·e⁻ᴱ."""
        return Tilted(self.base.q, self.energy)

    def perplexity(
        self, part: str | Sequences | Positives = "test", *, draws: int = 200, seed: int | None = None
    ) -> Estimate:
        """Per token. With prefixes, each has its own Z, and the interval is that of Z on these prefixes; without, one Z
        serves all sequences, and the interval speaks for other sequences too.
        """
        data = getattr(self.chunks, part) if isinstance(part, str) else part
        data = data if isinstance(data, Positives) else Positives(data)
        if data.context is not None:
            return self.evaluate(Measuring(draws=draws, last_rows=0), part=data, seed=seed).perplexity.perplexity
        drawn = draw(Importance(), self.p, draws, generator=self._generator(seed))
        return cross_entropy(self.p, to_device(data.x, self.base.device), log_z=log_z(drawn)[0].estimate).perplexity

    def evaluate(
        self, how: Measuring | None = None, *, part: Positives | None = None, seed: int | None = None,
        workers: Workers = Workers(),  # noqa: B008 — immutable
    ) -> Evaluation:  # fmt: skip
        """The joint model beside its base on test prefixes: perplexity, log Z, last tokens, energies, n-grams, text."""
        seed = _seed(seed)
        with ExitStack() as stack:
            folder = self.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            return evaluate(
                self.base, self.energy, part or self.chunks.test, how or Measuring(), folder / "evaluation",
                seed=seed, at_once=self.at_once, workers=workers,
            )  # fmt: skip

    def generate(
        self, prompt: str = "", *, count: int = 1, candidates: int = 64, way: str = "joint",
        sampler: Sampler | None = None, truncation: Truncation | None = None, seed: int | None = None,
        generator: Generator | None = None,
    ) -> Generated:  # fmt: skip
        """Continuations of a prompt, or whole sequences: candidates of the base, some of them chosen by energy."""
        return generate(
            self.base.q, self.energy, self.base.context_of(prompt), count=count, candidates=candidates, way=way,
            sampler=sampler, truncation=truncation, generator=generator or self._generator(seed),
        )  # fmt: skip

    def generate_each(
        self, prompts: Iterable[str], *, seed: int | None = None, generator: Generator | None = None,
        workers: Workers | None = None, **options: Any,
    ) -> Iterator[tuple[str, Generated]]:  # fmt: skip
        """Each prompt, read when its turn comes, and what `generate` makes of it with these options.

        With `workers`, each prompt is a shard, with random numbers of its own.
        """
        told, read = tee(prompts)  # which may come from a pipe
        yield from zip(
            told,
            generate_each(
                self.base.q, self.energy, map(self.base.context_of, read), workers=workers,
                generator=generator or self._generator(seed), **options,
            ),
            strict=True,
        )  # fmt: skip

    def texts(self, x: Sequences, prompt: str = "") -> list[str]:
        """Sequences as text, after the prompt that they continue."""
        before = self.base.encode(prompt) if prompt else []
        return [self.base.spell(before, x.prefix(row)) for row in range(len(x.lengths))]

    def explain(
        self, prompt: str, continuation: str | None = None, *, candidates: int = 50, futures: int = 64,
        exact_last: bool = False, seed: int | None = None,
    ) -> tuple[NextWords, Sequences | None, Steps | None]:  # fmt: skip
        """Next words under the base and the joint model; of a continuation, what each token costs under both."""
        context, generator = self.base.context_of(prompt), self._generator(seed)
        words = next_words(self.base.q, self.energy, context, candidates=candidates, n=futures, generator=generator)
        if continuation is None:
            return words, None, None
        x = self.base.continuation_of(prompt, continuation)
        steps = per_step(self.base.q, self.energy, x, context, n=futures, exact_last=exact_last, generator=generator)
        return words, x, steps

    def _generator(self, seed: int | None) -> Generator:
        return Generator(device=self.base.device).manual_seed(_seed(seed))


def residual(
    base: Stepwise | Base,
    energy: nn.Module,
    data: Corpus | Chunks,
    *,
    negatives: NegativesDraws | None = None,
    fitting: Fitting | None = None,
    warm_up: WarmUp | None = None,
    seed: int | None = None,
    folder: Path | str | None = None,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> Residual:
    """Trains the energy to tell data from the base's own draws; finished stages in the folder are read back.

    `data` are prefixes with continuations, or whole sequences: then there is one Z. A bidirectional encoder is warmed
    up first, unless `warm_up` (by default the energy's own) has no epochs. Without a folder nothing is kept on disk;
    without a seed, randomness comes from torch's own state. The base's draws are made by `workers`.
    """
    chunks = data if isinstance(data, Chunks) else Chunks.of(data)
    negatives, fitting, seed = negatives or NegativesDraws(), fitting or Fitting(), _seed(seed)
    if not isinstance(base, Base):
        base = Base.of(base, chunks.tokeniser, int(chunks.train.x.lengths.max()))
    with ExitStack() as stack:
        place = Path(folder if folder is not None else stack.enter_context(tempfile.TemporaryDirectory()))
        with saving(str(place)):
            place.mkdir(parents=True, exist_ok=True)
        train = chunks.train.spread(fitting.chunks)
        _try(energy, train)
        store, encoder = Store(folder=place, seed=seed), getattr(energy, "encoder", None)
        warmed = isinstance(encoder, Bidirectional)
        how = (warm_up or getattr(energy, "begins_with", None) or WarmUp()) if warmed else WarmUp(epochs=0)
        stack.enter_context(progress.journey(_forecast(train, chunks, negatives, fitting, how)))
        drawn, held_out = _negatives(base.q, train, chunks.validation, negatives, fitting, seed, place, workers)
        if how.epochs:
            assert isinstance(encoder, Bidirectional)
            with (
                store.stage("warm-up", {**asdict(replace(how, model=None)), "seed": seed}) as stage,
                progress.part("warm-up"),
            ):
                warm(place / "warm-up", encoder.backbone, chunks, how, fitting, seed=stage.seed, device=base.device)
        with store.stage("energy", {**asdict(fitting), "seed": seed}) as stage, progress.part("energy"):
            train_energy(
                place / "energy", energy, train, drawn, validation=(chunks.validation, held_out), fitting=fitting,
                seed=stage.seed,
            )  # fmt: skip
    return Residual(
        base=base, energy=energy, chunks=chunks, folder=None if folder is None else place, at_once=negatives.at_once
    )


def load_energy(energy: nn.Module, folder: Path) -> nn.Module:
    """The energy of a finished journey, with its best weights."""
    if not (folder / "energy" / "results.json").exists():
        raise UserError(f"{folder} is not trained yet: run `ebar residual train` to its end.")
    load_best(Learning(energy), folder / "energy", player="energy")
    return energy.eval()


def _seed(seed: int | None) -> int:
    return default_generator().initial_seed() if seed is None else seed


@torch.no_grad()
def _try(energy: nn.Module, data: Positives) -> None:
    """An energy that cannot read the data is refused before hours of drawing."""
    some = data.select(torch.arange(min(TRIED, len(data.x.lengths))))
    energy.eval()(*to_device(some, str(next(energy.parameters()).device)))


def _forecast(
    train: Positives, chunks: Chunks, negatives: NegativesDraws, fitting: Fitting, how: WarmUp
) -> dict[str, float]:
    """How much work each part is, at most: texts that a network reads or makes, learning from one being three.

    It is a guess for the time left, and nothing else.
    """
    rows, draws = len(train.x.lengths), fitting.negatives if negatives.draws is None else negatives.draws
    return {
        "negatives": float(rows * draws),
        "negatives, held out": float(len(chunks.validation.x.lengths) * fitting.negatives),
        "warm-up": 3.0 * how.epochs * len(chunks.train.x.lengths),
        "energy": 3.0 * fitting.epochs * rows * (1 + fitting.negatives),
    }


def _negatives(
    q: Stepwise, train: Positives, validation: Positives, how: NegativesDraws, fitting: Fitting, seed: int,
    folder: Path, workers: Workers,
) -> tuple[EpochNegatives, Negatives]:  # fmt: skip
    """Draws for training and for held-out prefixes, from the base's full softmax."""
    place, wanted = how.folder or folder / "negatives", fitting.negatives
    own = seed if how.seed is None else how.seed

    def draws(name: str, part: Positives, n: int, what: str = "negatives") -> Negatives:
        stage = f"negatives/{name}"
        with progress.part(what):
            return draw_negatives(
                place / name, q, part.context, n, rows=len(part.x.lengths), seed=folded(own, stage),
                at_once=how.at_once, what=what, stage=stage, workers=workers,
            )  # fmt: skip

    def of_epoch(epoch: int) -> Negatives:
        # The bar of training is shown meanwhile.
        with shown(epoch == 0):
            return draws(f"epoch-{epoch}", train, wanted)

    drawn: EpochNegatives = of_epoch
    if not how.refresh:
        drawn = draws("train", train, wanted if how.draws is None else how.draws)
    elif how.draws is not None:
        raise UserError("Negatives that are drawn anew are as many as are used: leave out negatives.draws.")
    else:
        of_epoch(0)
    return drawn, draws("validation", validation, wanted, "negatives, held out")
