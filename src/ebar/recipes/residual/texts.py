"""What one energy makes of the base's text: where energies lie, what is said next, how texts repeat, whom they fool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.backbones.encoder import BidirectionalTransformer
from ebar.energies.encoders import bit
from ebar.energies.neural import Neural
from ebar.estimators.last_step import last_step
from ebar.estimators.per_step import per_step
from ebar.evaluation.cross_entropy import cross_entropy_difference
from ebar.evaluation.energy_distributions import energy_distributions
from ebar.evaluation.next_words import next_words
from ebar.evaluation.ngrams import unique_difference, unique_ratios
from ebar.evaluation.token_search import TokenSearch, random_tokens, search
from ebar.journeys.judge import Fooling, Judge, fooling
from ebar.journeys.residual.distil import chosen_draws, distil, distil_by_gradient
from ebar.journeys.residual.negatives import Negatives, draw_negatives
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.autoregressive import Autoregressive
from ebar.models.stepwise import draw_tokens
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.task import Task, spaced
from ebar.training.best import Course
from ebar.training.optimisers import Adam, AdamW
from ebar.types import Sequences, Stepwise

SAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An energy, and what it says of the test continuations and of the base's draws for the same prefixes."""

    energy: Neural
    of_data: Float[Tensor, " prefixes"]
    of_draws: Float[Tensor, "prefixes draws"]
    pool: Negatives

    def resampled(self, generator: Generator) -> Sequences:
        """One of each prefix's draws, in proportion to e⁻ᴱ: Algorithm 1 with all of the softmax."""
        chosen = draw_tokens(torch.log_softmax(-self.of_draws, 1), generator)
        return Sequences.join(
            [self.pool.fetch(torch.tensor([row]), draws=draw[None]) for row, draw in enumerate(chosen)]
        )


def text_figures(cell: Cell, task: Task, base: Stepwise, measured: Measured, folder: Path) -> dict[str, Any]:
    """Plain JSON, for the tables and figures that are read off a run."""
    generator = Generator().manual_seed(folded(cell["seed"], 2))
    distributions = energy_distributions(measured.of_data, measured.of_draws)
    joint = measured.resampled(generator)
    plain = measured.pool.fetch(torch.arange(len(measured.pool)), draws=torch.tensor([0]))
    return {
        "distributions": _plain(distributions),
        "samples": _samples(task, measured, plain, joint),
        "ngrams": _ngrams(task.test[0], plain, joint),
        "last_step": _last_step(cell, task, base, measured, generator),
        "per_step": _per_step(cell, task, base, measured, generator),
        "next_words": _next_words(cell, task, base, measured, generator),
        "fooling": _fooling(cell, task, base, measured, folder),
        "search": _search(cell, task, base, measured, generator),
        "distilled": _distilled(cell, task, base, measured, folder),
    }


def _plain(tree: Any) -> Any:
    """Named tuples as JSON has them."""
    if hasattr(tree, "_asdict"):
        return {key: _plain(value) for key, value in tree._asdict().items()}
    if isinstance(tree, dict):
        return {str(key): _plain(value) for key, value in tree.items()}
    return [_plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def _samples(task: Task, measured: Measured, plain: Sequences, joint: Sequences) -> list[dict[str, Any]]:
    """A few prefixes with a continuation of each kind, and what the resampling is worth there."""
    x, context = task.test
    sizes = effective_sample_size(-measured.of_draws).tolist()
    found = []
    for row in range(min(SAMPLES, len(x.lengths))):
        before = context.given.prefix(row)
        texts = {"data": x, "base": plain, "joint": joint}
        spelt = {name: task.spell(before, text.prefix(row)) for name, text in texts.items()}
        found.append({"prefix": task.spell([], before), **spelt, "effective": sizes[row], "draws": measured.pool.draws})
    return found


def _ngrams(data: Sequences, plain: Sequences, joint: Sequences) -> dict[str, Any]:
    ratios = unique_ratios({"data": data, "base": plain, "joint": joint})
    return {
        "ratios": _plain(ratios),
        "difference": {str(n): _plain(unique_difference(joint, plain, n)) for n in (1, 2, 3, 4)},
    }


def _last_step(cell: Cell, task: Task, base: Stepwise, measured: Measured, generator: Generator) -> dict[str, Any]:
    """Exact where every token of the vocabulary is scored; otherwise the rest of them is sampled."""
    x, context = spaced(task.test, cell["last_step"]["prefixes"])
    found = last_step(
        base, measured.energy, x, context, candidates=cell["last_step"]["candidates"], generator=generator
    )
    return {name: _plain(getattr(found, name)) for name in ("base", "joint", "difference", "rest")}


def _per_step(cell: Cell, task: Task, base: Stepwise, measured: Measured, generator: Generator) -> list[Any]:
    x, context = spaced(task.test, cell["per_step"]["prefixes"])
    whole = cell["last_step"]["candidates"] is None
    steps = per_step(
        base, measured.energy, x, context, n=cell["per_step"]["draws"], exact_last=whole, generator=generator
    )
    return [_plain(place) for place in steps.places()]


def _next_words(cell: Cell, task: Task, base: Stepwise, measured: Measured, generator: Generator) -> dict[str, Any]:
    """The first prefix of the test text."""
    context = task.test[1].select(torch.tensor([0]))
    found = next_words(base, measured.energy, context, candidates=20, n=cell["per_step"]["draws"], generator=generator)
    before = context.given.prefix(0)
    return {
        "prefix": task.spell([], before),
        "words": [
            {"token": task.spell(before, [word.token]), "base": word.base, "joint": word.joint._asdict()}
            for word in found.words
        ],
    }


def _fooling(cell: Cell, task: Task, base: Stepwise, measured: Measured, folder: Path) -> dict[str, Any]:
    """On held-out prefixes; each joint text is chosen among a few draws."""
    settings = cell["fooling"]
    real, context = spaced(task.validation, settings["prefixes"])
    seed = folded(cell["seed"], 4)
    pool = draw_negatives(folder.parent / "fooling-pool", base, context, settings["candidates"] + 1, seed=seed)
    rows = torch.arange(len(pool))
    plain = pool.fetch(rows, draws=torch.tensor([0]))
    others = pool.fetch(rows, draws=torch.arange(1, settings["candidates"] + 1))
    with torch.no_grad():
        costs = measured.energy(others, context).view(len(pool), -1)
    chosen = draw_tokens(torch.log_softmax(-costs, 1), Generator().manual_seed(seed))
    joint = others.select(rows * settings["candidates"] + chosen)

    def build() -> Neural:
        return bit(BidirectionalTransformer(task.space.vocabulary, **settings["judge"]))

    judge = Judge(epochs=settings["epochs"], optimiser=AdamW(learning_rate=settings["learning_rate"]))
    found: Fooling = fooling(folder / "fooling", build, real, plain, joint, context, judge=judge)
    return _plain(found)  # type: ignore[no-any-return]


def _search(cell: Cell, task: Task, base: Stepwise, measured: Measured, generator: Generator) -> dict[str, Any]:
    """From random tokens, without a thought for the base."""
    x, context = spaced(task.test, cell["search"]["prefixes"])
    start = random_tokens(task.space, len(x.lengths), generator=generator)
    how = TokenSearch(steps=cell["search"]["steps"], candidates=8)
    found = search(measured.energy, base, start, context, how=how, data=x, generator=generator)
    rows = [[name, *(_plain(figure) for figure in rest)] for name, *rest in found.rows()]
    return {"rows": rows, "text": task.spell(context.given.prefix(0), found.x.prefix(0))}


def _distilled(cell: Cell, task: Task, base: Stepwise, measured: Measured, folder: Path) -> dict[str, Any] | None:
    """Cost of the test continuations before, and after the joint model has been brought back into the base."""
    settings = cell["distil"]
    if settings is None or not isinstance(base, Autoregressive):
        return None
    context = spaced(task.train, settings["chunks"])[1]
    seed = folded(cell["seed"], 5)
    name = f"distil-pool-{settings['chunks']}-{settings['candidates']}"
    pool = draw_negatives(folder.parent / name, base, context, settings["candidates"], seed=seed)
    draws = chosen_draws(measured.energy, pool, context, generator=Generator().manual_seed(seed))
    course = Course(
        epochs=settings["epochs"], seed=seed, optimiser=Adam(learning_rate=settings["learning_rate"]),
        checkpoint_every=500,
    )  # fmt: skip
    plain = pool.fetch(torch.arange(len(pool)), draws=torch.tensor([0]))
    students = {
        "the base's own draws": distil(folder / "distilled-base", course, base, (plain, context), task.validation),
        "draws of the joint model": distil(folder / "distilled", course, base, (draws, context), task.validation),
        "policy gradient": distil_by_gradient(
            folder / "distilled-gradient", course, base, measured.energy, context, task.validation,
            draws=settings["candidates"],
        ),
    }  # fmt: skip
    x, prefixes = task.test
    return {
        name: cross_entropy_difference(student, base, x, context=prefixes)._asdict()
        for name, student in students.items()
    }
