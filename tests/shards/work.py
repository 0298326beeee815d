"""What shards of the tests do: small things of which every byte is known, and the three that draw."""

import os
import resource
import signal
from pathlib import Path
from typing import Any, cast

import torch
from torch import Generator

import ebar
from ebar.evaluation.cross_entropy import negative_log_scores, stream_cost
from ebar.evaluation.exact_cross_entropy import exact_cross_entropy
from ebar.journeys.estimate import estimate
from ebar.journeys.residual.negatives import draw_negatives
from ebar.models.tabular import Tabular
from ebar.samplers.beam import decode_contexts
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.joint import generate_each
from ebar.samplers.rejection import QuasiRejection
from ebar.shards import Workers
from ebar.store.writing import to_json
from ebar.training.distillation import distil
from ebar.types import Context, Sequences, Space, Stepwise


class Common:
    """Says how often it came to a process."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with (self.folder / f"received-{os.getpid()}").open("a") as file:
            file.write("x")


class TooLarge:
    """What no process has room for: it finds out when it is received."""

    def __reduce__(self) -> tuple[Any, ...]:
        return torch.empty, (2**55,)


def squared(common: Any, job: int) -> int:
    return job**2


def dies_once(common: Common, job: int) -> int:
    """The process that is given 2 first is gone."""
    if job == 2 and not (flag := common.folder / "died").exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job**2


def dies_always(common: Common, job: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def fails(common: Common, job: int) -> int:
    if job == 1:
        raise ebar.UserError("Choose another job.")
    if job == 2:
        raise MemoryError
    if job == 3:
        raise ZeroDivisionError("by nought")
    return torch.get_num_threads()


def scarce(common: Any, job: int) -> int:
    """The process has a megabyte more than it has taken already, and wants two hundred."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return int(torch.zeros(200, 2**20, dtype=torch.uint8).sum())


SPACE = Space(vocabulary=3, length=4, end=2)


def tilted() -> ebar.Tilted:
    base = Tabular.random(SPACE, scale=0.7, generator=Generator().manual_seed(3))
    absent = ebar.Motif(motif="11", alphabet="01", end=2, absent=True)
    return ebar.Tilted(base, ebar.Linear(ebar.Features([absent]), torch.tensor([-3.0]).double()))


class Spelling:
    """Decodes; and kills its process once, in the middle of the draws, where it is given a flag to leave behind."""

    def __init__(self, flag: Path | None = None):
        self.flag, self.driver, self.lines = flag, os.getpid(), 0

    def __call__(self, tokens: list[int]) -> str:
        self.lines += 1
        if self.flag is not None and self.lines == 70 and os.getpid() != self.driver and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "".join("01"[token] for token in tokens)


def distilled(folder: Path, workers: Workers, flag: Path | None = None) -> bytes:
    path = folder / "lines"
    distil(
        tilted(), 330, path, decode=Spelling(flag), seed=5, round_size=50, sampler=QuasiRejection(), look_ahead=False,
        workers=workers,
    )  # fmt: skip
    return path.read_bytes()


def negatives(folder: Path, workers: Workers) -> bytes:
    q = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1))
    given = torch.tensor([0, 1, 2, 1, 0, 2, 2])[:, None]
    draw_negatives(
        folder, q, Context(Sequences(given, torch.ones(7).long())), 6, seed=3, at_once=12, workers=workers
    )  # fmt: skip
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


def estimated(folder: Path, workers: Workers, **options: Any) -> bytes:
    figures = estimate(
        tilted(), 240, divergences=("kl", "total_variation"), shard_size=120, folder=folder, workers=workers,
        generator=Generator().manual_seed(7), proposal=Tabular.random(SPACE, generator=Generator().manual_seed(9)),
        **options,
    )  # fmt: skip
    return to_json(figures) + b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


THREE = (distilled, negatives, estimated)


def anything(common: Any, job: int) -> int:
    return job


def scored(folder: Path, workers: Workers) -> bytes:
    """Costs of data and of windows of a text, beams, draws of P and an exact cross-entropy: what has several shards."""
    target = tilted()
    x = target.base.sample(2500, generator=Generator().manual_seed(1))
    windows = Tabular.random(Space(vocabulary=3, length=4, end=None), generator=Generator().manual_seed(2))
    text = torch.randint(3, (80,), generator=Generator().manual_seed(4))
    given = Tabular.random(SPACE, conditions=3, generator=Generator().manual_seed(1))
    contexts = Context(Sequences(torch.tensor([0, 1, 2, 1, 0])[:, None], torch.ones(5).long()))
    drawn = draw(
        Importance(), target, 130, shard_size=50, generator=Generator().manual_seed(6), workers=workers
    )  # fmt: skip
    generated = generate_each(
        cast(Stepwise, target.base), target.energy, [None] * 3, candidates=5, generator=Generator().manual_seed(8),
        workers=workers,
    )  # fmt: skip
    truth = ebar.Language(motif="11", length=9).distribution()
    student = Tabular.random(truth.space, generator=Generator().manual_seed(5))
    return to_json(
        {
            "costs": negative_log_scores(target, x, workers=workers).tolist(),
            "text": stream_cost(windows, text, stride=2, workers=workers).total,
            "beams": decode_contexts(given, contexts, width=2, batch=2, workers=workers).log_probs.tolist(),
            "draws": [drawn.x.tokens.tolist(), drawn.log_weights.tolist()],
            "generated": [one.drawn.x.tokens.tolist() for one in generated],
            "exact": exact_cross_entropy(truth, student, batch=4, workers=workers).per_sequence.value,
        }
    )
