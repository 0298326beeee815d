"""From the configuration of a GAM to its objects, and the journey with them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebar import progress
from ebar.build.terms import read_feature
from ebar.build.train import build_corpus, build_model, train_as
from ebar.config.gam import MANUAL, GamConfig
from ebar.config.reader import Chosen, described, read_file
from ebar.config.train import TrainConfig
from ebar.data.corpus import Corpus
from ebar.errors import UserError
from ebar.journeys.gam.figures import GamFigures
from ebar.journeys.gam.journey import Gam, bound, gam
from ebar.journeys.gam.settings import FLOOR, forecast
from ebar.models.construction import Autoregressive
from ebar.samplers import SAMPLERS
from ebar.shards import Workers
from ebar.store.differences import refuse_earlier_version
from ebar.store.store import Store, open_store
from ebar.store.writing import to_json
from ebar.training.moment_matching import MATCHING
from ebar.training.train import History


def base_settings(config: GamConfig) -> TrainConfig:
    """r as a run of `ebar train`."""
    phase = config.base
    cosine = Chosen(kind="cosine", options={"floor": FLOOR, "warmup": 0})
    return TrainConfig(
        seed=config.seed, device=config.device, precision=config.precision, data=config.data,
        backbone=config.backbone, head=config.head,
        training=replace(phase.arguments()["training"], maximal_length=config.maximal_length),
        objective=Chosen(kind="maximum_likelihood", options={"per": "token"}),
        optimiser=Chosen(kind="adam", options={"learning_rate": phase.learning_rate}),
        schedule=cosine if phase.schedule == "cosine" else Chosen(kind="constant", options={"warmup": 0}),
    )  # fmt: skip


def make_gam(
    config: GamConfig,
    folder: Path,
    *,
    quiet: bool = True,
    page: bool = True,
    workers: Workers = Workers(),  # noqa: B008 — immutable
) -> tuple[Gam, GamFigures]:
    """All that `ebar gam` does, in a run folder, from where it stands: r, the journey, its figures and its page."""
    refuse_earlier_version(folder, MANUAL.command, f"its models {folder}/r and {folder}/round-1/pi open as they are")
    about = described(folder, MANUAL, config)
    with open_store(folder, description=about, seed=config.seed, take_over=True) as store:
        made = _stages(config, store, quiet, workers)
        figures = made.measure(exact=config.exact, draws=config.checks, workers=workers)
        store.write("results.json", to_json(figures.to_dict(), indent=1))
        if page:
            made.report(folder / "report.html", figures=figures, history=History.read(folder / "r"))
    return made, figures


def load_gam(folder: Path) -> Gam:
    """What `ebar gam` left in a folder."""
    refuse_earlier_version(folder, MANUAL.command, f"its models {folder}/r and {folder}/round-1/pi open as they are")
    config = read_file(folder / "config.yaml", MANUAL, GamConfig)
    if not (folder / "results.json").exists():
        raise UserError(f"{folder} is not finished yet: run `ebar gam` to its end.")
    with open_store(folder, description=described(folder, MANUAL, config), seed=config.seed) as store:
        return _stages(config, store, True, Workers())


def _features(config: GamConfig, data: Corpus) -> list[Any]:
    """Bound to the data; one that ends in a number may have been meant for a tilt."""
    try:
        return list(bound([read_feature(term) for term in config.features], data).features)
    except UserError as error:
        ended = [found[0] for term in config.features if (found := re.search(r"=[-+.\d]+$", term))]
        if not ended:
            raise
        more = f"{str(error).rstrip('.')}; a GAM finds how much a feature counts, so leave out {ended[0]}"
        raise UserError(f"{more}.") from error


def _stages(config: GamConfig, store: Store, quiet: bool, workers: Workers) -> Gam:
    """r and the journey; finished stages are read back."""
    run = base_settings(config)
    data = build_corpus(run)
    features = _features(config, data)
    matching, sampler = config.matching.make(MATCHING), config.sampler.make(SAMPLERS)

    def fresh() -> Autoregressive:
        options = {**config.backbone.options, **config.student_backbone}
        return build_model(replace(run, backbone=replace(config.backbone, options=options)), data.space, data.shape)

    pi = config.student if config.fresh else config.continuation
    work = forecast(len(data.train.lengths), config.base, config.distillation, pi, config.refinement, config.rounds)
    with progress.journey(work):
        with store.stage("r") as stage, progress.part("r"):
            r = train_as(run, stage.folder, data=data, quiet=quiet)
        return gam(
            r.model, features, data, matching=matching, sampler=sampler, distillation=config.distillation,
            rounds=config.rounds, regime=config.regime, fresh=fresh if config.fresh else None, student=config.student,
            continuation=config.continuation, refinement=config.refinement, cycle=config.base, seed=config.seed,
            folder=store, quiet=quiet, workers=workers,
        )  # fmt: skip
