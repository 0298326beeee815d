"""The trainings of a journey as runs of `ebar train`."""

from dataclasses import replace
from pathlib import Path

from ebar.build.corpus import build_corpus
from ebar.config.gam import GamConfig
from ebar.config.reader import Chosen
from ebar.config.train import TrainConfig
from ebar.journeys.gam.settings import Phase
from ebar.training.course import Training

FLOOR = 0.02  # of the cosine schedule, as a share of the learning rate


def base_settings(gam: GamConfig) -> TrainConfig:
    """r as a run of `ebar train`."""
    run = TrainConfig(
        seed=gam.seed, device=gam.device, precision=gam.precision, data=gam.data, backbone=gam.backbone, head=gam.head,
        objective=Chosen(kind="maximum_likelihood", options={"per": "token"}),
        optimiser=Chosen(kind="adam", options={}), schedule=Chosen(kind="constant", options={}), training=Training(),
    )  # fmt: skip
    return in_phase(run, gam.base, len(build_corpus(run).train.lengths))


def in_phase(
    run: TrainConfig, phase: Phase, rows: int, *, start: Path | None = None, maximal: int | None = None
) -> TrainConfig:
    """A run with a phase's way of training, on so many sequences."""
    steps = phase.epochs * max(1, rows // phase.batch_size if phase.drop_last else -(-rows // phase.batch_size))
    cosine = Chosen(kind="cosine", options={"steps": steps, "floor": FLOOR, "warmup": 0})
    return replace(
        run,
        optimiser=Chosen(kind="adam", options={"learning_rate": phase.learning_rate}),
        schedule=cosine if phase.schedule == "cosine" else Chosen(kind="constant", options={"warmup": 0}),
        training=Training(
            epochs=phase.epochs, batch_size=phase.batch_size, patience=phase.patience, clip=phase.clip,
            patience_in_all=phase.patience_in_all, drop_last=phase.drop_last, start=start, maximal_length=maximal,
        ),
    )  # fmt: skip
