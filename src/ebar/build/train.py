"""Training as a configuration says: what `ebar train`, GAM's phases and the recipes have in common."""

from collections.abc import Mapping
from pathlib import Path

from ebar.build.corpus import build_corpus
from ebar.build.model import build_model
from ebar.config.reader import described, to_yaml
from ebar.config.train import MANUAL, TrainConfig
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.journeys.train import Trained, train
from ebar.models.autoregressive import Autoregressive
from ebar.objectives import OBJECTIVES
from ebar.training import OPTIMISERS, SCHEDULES, distributed, seeded

TRUNK = "trunk"


def train_as(
    run: TrainConfig,
    folder: Path | None,
    *,
    data: Corpus | None = None,
    replace_config: bool = False,
    trunk: Path | None = None,
    until: int | None = None,
    quiet: bool = True,
) -> Trained[Autoregressive]:
    """Seeds all random sources, reads the data, builds the model and trains it, in that order."""
    try:
        generator = seeded(run.seed, device=run.device, rank=distributed.rank())
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None
    data = data or build_corpus(run, folder)
    model = build_model(run, data.space, data.shape)
    return train(
        model,
        data,
        objective=run.objective.make(OBJECTIVES, model=model),
        training=run.training,
        optimiser=run.optimiser.make(OPTIMISERS),
        schedule=run.schedule.make(SCHEDULES),
        seed=run.seed,
        generator=generator,
        folder=folder,
        description=to_yaml(run) if folder is None else described(folder, MANUAL, run),
        replace_config=replace_config,
        trunk=trunk,
        until=until,
        quiet=quiet,
    )


def train_branches(
    runs: Mapping[str, TrainConfig], folder: Path, *, epochs: int, data: Corpus | None = None
) -> dict[str, Trained[Autoregressive]]:
    """Runs that differ in their objectives, which are alike in the first epochs: those are trained once.

    They are trained by the objective of the first run, in `trunk`. Each run is then what `train_as` makes of it alone.
    """
    train_as(next(iter(runs.values())), folder / TRUNK, data=data, until=epochs)
    return {name: train_as(run, folder / name, data=data, trunk=folder / TRUNK) for name, run in runs.items()}
