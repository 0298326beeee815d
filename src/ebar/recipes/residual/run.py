"""One run: a base, its rivals and its energies, measured on the same prefixes and the same draws of the base.

What the recipes of Deng et al. 2020 share: their runs, names in their rows, and what their intervals are over.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.build.residual import load_base, load_chunks, train_residual
from ebar.build.train import build_corpus, build_model, load_model, train_as
from ebar.data.chunks import Positives
from ebar.energies.neural import bit
from ebar.estimators.per_step import per_step
from ebar.evaluation.cross_entropy import cross_entropy_difference, negative_log_scores
from ebar.evaluation.diversity import unique_difference
from ebar.evaluation.next_words import next_words
from ebar.evaluation.token_search import TokenSearch, random_tokens, search
from ebar.journeys.judge import Judge, fooling
from ebar.journeys.residual.base import Base
from ebar.journeys.residual.distil import chosen_draws, distil_by_gradient, distil_joint_model
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.residual.negatives import draw_negatives
from ebar.journeys.train import train
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive
from ebar.models.locally_residual import LocallyResidual
from ebar.models.tilted import measured_energy
from ebar.recipes.recipe import Cell, Items, Result, Row
from ebar.recipes.residual.configurations import base_config, cells, residual_config
from ebar.samplers.joint import chosen_by_energy
from ebar.store.writing import once, plain
from ebar.training.optimisers import OPTIMISERS, SCHEDULES, Adam, AdamW
from ebar.training.randomness import seeded
from ebar.training.train import Course, History
from ebar.types import Distribution


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Everything that the tables of Deng et al. 2020 are made of; an interrupted run goes on where it was."""
    kinds = {"base": base_figures} | ({"ralm": _ralm, "balm": _balm} if cell["base"] == "transformer" else {})
    rivals = {kind: once(folder / f"{kind}.json", partial(rival, cell, folder)) for kind, rival in kinds.items()}
    energies = {
        kind: [
            once(folder / f"{kind}-{seed}.json", partial(_energy, cell, kind, settings, seed, folder))
            for seed in range(cell["energy_seeds"])
        ]
        for kind, settings in cell["energies"].items()
    }
    return {"rivals": rivals, "energies": energies}


def trained(
    cell: Cell, kind: str, settings: Mapping[str, Any], seed: int, folder: Path, name: str
) -> tuple[Residual, Evaluation]:
    """As `ebar residual train` does it."""
    config = residual_config(cell, kind, settings, seed, folder)
    joint = train_residual(config, folder / name)
    return joint, joint.evaluate(config.evaluation, seed=seed)


def base_figures(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base, trained where it is not pretrained, as `ebar train` does it."""
    if cell["base"] == "transformer":
        train_as(base_config(cell, folder), folder / "base")
    return _measured(*_loaded(cell, folder))


def _measured(model: Distribution, part: Positives) -> dict[str, Any]:
    """Size of a normalised model, and its cost of every continuation."""
    assert isinstance(model, nn.Module)
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": size, "nats": negative_log_scores(model, *part).tolist(), "tokens": part.x.lengths.tolist()}


def _loaded(cell: Cell, folder: Path) -> tuple[Distribution, Positives]:
    """The base, and the continuations it is measured by."""
    kind, settings = next(iter(cell["energies"].items()))
    config = residual_config(cell, kind, settings, 0, folder)
    found = load_base(config)
    return found.base.q, load_chunks(config, found, folder).test


def _balm(cell: Cell, folder: Path) -> dict[str, Any]:
    """A plain model of matched total size."""
    model = train_as(base_config(cell, folder, layers=cell["balm_layers"]), folder / "balm").model
    return _measured(Base.of(model, None, cell["continuation"]).q, _loaded(cell, folder)[1])


def _ralm(cell: Cell, folder: Path) -> dict[str, Any]:
    """The locally normalised residual: a second model whose logits are added to the base's, token by token."""
    config = base_config(cell, folder)
    _, test = _loaded(cell, folder)
    corpus = build_corpus(config, folder / "base")
    base = load_model(config, folder / "base", corpus.space).requires_grad_(False)
    generator = seeded(config.seed)
    model = LocallyResidual(base, build_model(config, corpus.space))
    train(
        model, corpus, training=config.training, optimiser=config.optimiser.make(OPTIMISERS),
        schedule=config.schedule.make(SCHEDULES), seed=config.seed, generator=generator,
        folder=folder / "ralm",
    )  # fmt: skip
    halves: Any = (Base.of(half, None, cell["continuation"]).q for half in (base, model.residual))
    return _measured(LocallyResidual(*halves), test)


def _energy(cell: Cell, kind: str, settings: Mapping[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """One energy, trained and measured; of the first seed, what it makes of the base's text too."""
    cell = {**cell, **settings.get("figures", {})}
    place = folder / f"{kind}-{seed}"
    joint, evaluation = trained(cell, kind, settings, seed, folder, place.name)
    log_z = [row.estimate.value for row in evaluation.perplexity.log_z]
    found = {
        "parameters": sum(parameter.numel() for parameter in joint.energy.parameters()),
        "evaluation": evaluation.to_dict(),
        # Of each prefix, joint − base: for an interval over seeds and prefixes at once.
        "gains": [float(cost) + z for cost, z in zip(evaluation.of_data.tolist(), log_z, strict=True)],
        "held_out": best_figures(place / "energy"),
    }
    if seed:
        return found
    generator, systems = evaluation.generator, evaluation.systems
    return found | {
        "ngrams": {str(n): plain(unique_difference(systems["joint"], systems["base"], n)) for n in range(1, 5)},
        "per_step": _per_step(cell, joint, generator),
        "next_words": _next_words(cell, joint, generator),
        "fooling": _fooling(cell, joint, place),
        "search": _search(cell, joint, generator),
        "distilled": _distilled(cell, joint, place),
    }


def best_figures(folder: Path) -> dict[str, float]:
    """What held-out chunks gave at the best of all evaluations."""
    evaluations = [line for line in History.read(folder) if "validation.loss" in line]
    best = min(evaluations, key=lambda line: float(line["validation.loss"]))
    return {name.removeprefix("validation."): value for name, value in best.items() if name.startswith("validation.")}


def _per_step(cell: Cell, joint: Residual, generator: Generator) -> list[Any]:
    x, context = joint.chunks.test.spread(cell["per_step"]["prefixes"])
    whole, draws = cell["last_step"]["candidates"] is None, cell["per_step"]["draws"]
    steps = per_step(joint.base.q, joint.energy, x, context, n=draws, exact_last=whole, generator=generator)
    return [plain(place) for place in steps.places()]


def _next_words(cell: Cell, joint: Residual, generator: Generator) -> dict[str, Any]:
    """After the first prefix of the test text."""
    _, context = joint.chunks.test.select(torch.tensor([0]))
    assert context is not None
    base, before, draws = joint.base, context.given.prefix(0), cell["per_step"]["draws"]
    found = next_words(base.q, joint.energy, context, candidates=20, n=draws, generator=generator)
    words = [{**plain(word), "token": base.spell(before, [word.token])} for word in found.words]
    return {"prefix": base.spell([], before), "words": words}


def _fooling(cell: Cell, joint: Residual, folder: Path) -> Any:
    """On held-out prefixes; each joint text is chosen among a few draws."""
    settings, seed, base = cell["fooling"], folded(cell["seed"], 4), joint.base.q
    candidates = settings["candidates"]
    real, context = joint.chunks.validation.spread(settings["prefixes"])
    drawn = draw_negatives(folder.parent / "fooling-draws", base, context, candidates + 1, seed=seed)
    first = torch.zeros(len(drawn), dtype=torch.long)
    others = drawn.fetch(torch.arange(len(drawn)), draws=torch.arange(1, candidates + 1))
    with torch.no_grad():
        costs = measured_energy(joint.energy, others, context).view(len(drawn), -1)
    chosen = chosen_by_energy(costs, Generator().manual_seed(seed))
    judge = Judge(epochs=settings["epochs"], optimiser=AdamW(learning_rate=settings["learning_rate"]))
    found = fooling(
        folder / "fooling", lambda: bit(BidirectionalTransformer(base.space.vocabulary, **settings["judge"])), real,
        drawn.one_each(first), drawn.one_each(chosen + 1), context, judge=judge,
    )  # fmt: skip
    return plain(found)


def _search(cell: Cell, joint: Residual, generator: Generator) -> dict[str, Any]:
    """From random tokens, without regard to the base."""
    x, context = joint.chunks.test.spread(cell["search"]["prefixes"])
    assert context is not None
    start = random_tokens(joint.base.q.space, len(x.lengths), generator=generator)
    how = TokenSearch(steps=cell["search"]["steps"], candidates=8)
    found = search(joint.energy, joint.base.q, start, context, how=how, data=x, generator=generator)
    return {"rows": plain(found.rows()), "text": joint.base.spell(context.given.prefix(0), found.x.prefix(0))}


def _distilled(cell: Cell, joint: Residual, folder: Path) -> dict[str, Any] | None:
    """Cost of the test continuations before, and after the joint model has been brought back into the base."""
    settings, base = cell["distil"], joint.base.q
    if settings is None or not isinstance(base, Autoregressive):
        return None
    count, seed = settings["candidates"], folded(cell["seed"], 5)
    _, context = joint.chunks.train.spread(settings["chunks"])
    assert context is not None
    held_out: Any = tuple(joint.chunks.validation)
    place = folder.parent / f"distil-draws-{settings['chunks']}-{count}"
    drawn = draw_negatives(place, base, context, count, seed=seed)
    chosen = chosen_draws(joint.energy, drawn, context, generator=Generator().manual_seed(seed))
    own = drawn.one_each(torch.zeros(len(drawn), dtype=torch.long))
    adam = Adam(learning_rate=settings["learning_rate"])
    course = Course(epochs=settings["epochs"], seed=seed, optimiser=adam, checkpoint_every=500)
    students = {
        "the base's own draws": distil_joint_model(folder / "distilled-base", course, base, (own, context), held_out),
        "draws of the joint model": distil_joint_model(folder / "distilled", course, base, (chosen, context), held_out),
        "policy gradient": distil_by_gradient(
            folder / "distilled-gradient", course, base, joint.energy, context, held_out, draws=count
        ),
    }
    x, prefixes = joint.chunks.test
    return {name: plain(cross_entropy_difference(one, base, x, context=prefixes)) for name, one in students.items()}


PAPER = "Deng et al. 2020"
RUNS: dict[str, Any] = {"grid": cells, "run": run_cell, "runs": "residual/text"}
TASK = ("base", "corpus")
MODEL = (*TASK, "model")
BY_TASK: dict[str, Any] = {"panels": TASK, "title": "{base} on {corpus}"}
NAMES = {"base": "base LM", "ralm": "RALM", "balm": "BALM", "unit": "UniT", "bit": "BiT", "pretrained": "BiT*"}
BASES = {"transformer": "Transformer", "smollm2": "SmolLM2-135M", "stories260k": "stories260K"}


def row_settings(cell: Cell, kind: str) -> dict[str, Any]:
    """What a row is about."""
    return {"corpus": cell["corpus"], "base": BASES[cell["base"]], "model": NAMES[kind]}


def energy_results(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """Every energy of a cell, as a run of its own."""
    return [
        ({**row_settings(cell, kind), "energy seed": seed, "parameters": run["parameters"]}, run)
        for kind, runs in result["energies"].items()
        for seed, run in enumerate(runs)
    ]


def cell_of(row: Row, cells: Sequence[Cell]) -> Cell:
    """The run that a row is of, with the settings that its energy has of its own."""
    own = {(cell["corpus"], BASES[cell["base"]]): cell for cell in reversed(cells)}
    found = own[row.settings["corpus"], row.settings["base"]]
    kind = next(kind for kind, name in NAMES.items() if name == row.settings["model"])
    return {**found, **found["energies"].get(kind, {}).get("figures", {})}


def prefixes_of(key: str | None = None) -> Items:
    """Says over how many prefixes the intervals are: all of the test text's, or as many as one part of a run has."""

    def items(row: Row, cells: Sequence[Cell]) -> str:
        cell = cell_of(row, cells)
        count = cell["test_chunks"] if key is None else min(cell[key]["prefixes"], cell["test_chunks"])
        return f"{count} prefixes, one energy seed"

    return items
