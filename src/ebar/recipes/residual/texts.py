"""What one energy makes of the base's text: next words, repetition, judges that are fooled, searches, students."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.backbones.transformer import BidirectionalTransformer
from ebar.energies.encoders import bit
from ebar.energies.neural import Neural
from ebar.estimators.per_step import per_step
from ebar.evaluation.cross_entropy import cross_entropy_difference
from ebar.evaluation.next_words import next_words
from ebar.evaluation.ngrams import unique_difference
from ebar.evaluation.token_search import TokenSearch, random_tokens, search
from ebar.journeys.judge import Judge, fooling
from ebar.journeys.residual.distil import chosen_draws, distil, distil_by_gradient
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.residual.negatives import draw_negatives
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.scoring import measured_energy
from ebar.recipes.recipe import Cell
from ebar.samplers.joint import chosen_by_energy
from ebar.store.writing import plain
from ebar.training.best import Course
from ebar.training.optimisers import Adam, AdamW


def text_figures(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Plain JSON, for the tables and figures that are read off a run."""
    last = plain({name: getattr(evaluation.last, name) for name in ("base", "joint", "difference", "rest")})
    generator = evaluation.generator
    systems = evaluation.systems
    return {
        "distributions": plain(evaluation.energies),
        "samples": [{**asdict(one), "draws": evaluation.drawn.draws} for one in evaluation.continued],
        "ngrams": {
            "ratios": plain(evaluation.unique),
            "difference": {str(n): plain(unique_difference(systems["joint"], systems["base"], n)) for n in range(1, 5)},
        },
        "last_step": last,
        "per_step": _per_step(cell, joint, generator),
        "next_words": _next_words(cell, joint, generator),
        "fooling": _fooling(cell, joint, folder),
        "search": _search(cell, joint, generator),
        "distilled": _distilled(cell, joint, folder),
    }


def _per_step(cell: Cell, joint: Residual, generator: Generator) -> list[Any]:
    x, context = joint.chunks.test.spread(cell["per_step"]["prefixes"])
    whole = cell["last_step"]["candidates"] is None
    steps = per_step(
        joint.base.q, joint.energy, x, context, n=cell["per_step"]["draws"], exact_last=whole, generator=generator
    )
    return [plain(place) for place in steps.places()]


def _next_words(cell: Cell, joint: Residual, generator: Generator) -> dict[str, Any]:
    """After the first prefix of the test text."""
    _, context = joint.chunks.test.select(torch.tensor([0]))
    assert context is not None
    found = next_words(
        joint.base.q, joint.energy, context, candidates=20, n=cell["per_step"]["draws"], generator=generator
    )
    before = context.given.prefix(0)
    words = [
        {"token": joint.base.spell(before, [word.token]), "base": word.base, "joint": plain(word.joint)}
        for word in found.words
    ]
    return {"prefix": joint.base.spell([], before), "words": words}


def _fooling(cell: Cell, joint: Residual, folder: Path) -> Any:
    """On held-out prefixes; each joint text is chosen among a few draws."""
    settings, seed = cell["fooling"], folded(cell["seed"], 4)
    candidates = settings["candidates"]
    real, context = joint.chunks.validation.spread(settings["prefixes"])
    drawn = draw_negatives(folder.parent / "fooling-draws", joint.base.q, context, candidates + 1, seed=seed)
    rows = torch.arange(len(drawn))
    others = drawn.fetch(rows, draws=torch.arange(1, candidates + 1))
    with torch.no_grad():
        costs = measured_energy(joint.energy, others, context).view(len(drawn), -1)
    chosen = chosen_by_energy(costs, Generator().manual_seed(seed))

    def build() -> Neural:
        return bit(BidirectionalTransformer(joint.base.q.space.vocabulary, **settings["judge"]))

    return plain(
        fooling(
            folder / "fooling", build, real, drawn.fetch(rows, draws=torch.tensor([0])),
            others.select(rows * candidates + chosen), context,
            judge=Judge(epochs=settings["epochs"], optimiser=AdamW(learning_rate=settings["learning_rate"])),
        )
    )  # fmt: skip


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
    drawn = draw_negatives(
        folder.parent / f"distil-draws-{settings['chunks']}-{count}", base, context, count, seed=seed
    )
    draws = chosen_draws(joint.energy, drawn, context, generator=Generator().manual_seed(seed))
    plain_draws = drawn.fetch(torch.arange(len(drawn)), draws=torch.tensor([0]))
    course = Course(
        epochs=settings["epochs"], seed=seed, optimiser=Adam(learning_rate=settings["learning_rate"]),
        checkpoint_every=500,
    )  # fmt: skip
    students = {
        "the base's own draws": distil(folder / "distilled-base", course, base, (plain_draws, context), held_out),
        "draws of the joint model": distil(folder / "distilled", course, base, (draws, context), held_out),
        "policy gradient": distil_by_gradient(
            folder / "distilled-gradient", course, base, joint.energy, context, held_out, draws=count
        ),
    }
    x, prefixes = joint.chunks.test
    return {
        name: plain(cross_entropy_difference(student, base, x, context=prefixes)) for name, student in students.items()
    }
