"""What one trained energy makes of the base's text: figures that the tables of Deng et al. 2020 are made of.

Each takes a cell with the energy's own settings, the joint model, its evaluation, and the folder of the energy; what
all energies of a cell share lies beside that folder.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from ebar.build.residual import build_energy, load_base
from ebar.config.reader import Chosen
from ebar.estimators.per_step import mean_between, per_step
from ebar.evaluation.diversity import repeated_tokens, unique_ratios
from ebar.evaluation.next_words import next_words
from ebar.evaluation.ratings import compare_verdicts, verdict
from ebar.evaluation.token_search import TokenSearch, random_tokens, search
from ebar.journeys.judge import Judge, energies, train_judge
from ebar.journeys.residual.evaluation import Evaluation
from ebar.journeys.residual.journey import Residual
from ebar.journeys.residual.negatives import Negatives, draw_negatives
from ebar.maths.randomness import folded
from ebar.models.tilted import Tilted, measured_energy
from ebar.models.truncated import Truncation
from ebar.objectives.nce import Contrasted
from ebar.recipes.recipe import Cell
from ebar.recipes.residual.configurations import energy_options, residual_config
from ebar.samplers.draw import draw
from ebar.samplers.importance import Importance
from ebar.samplers.joint import chosen_by_energy
from ebar.samplers.metropolis import Metropolis
from ebar.samplers.smc import Smc
from ebar.store.writing import plain
from ebar.training.optimisers import AdamW
from ebar.types import Context, Estimate, Sampler, Sequences, Weighted

NEXT = "of the next words"


def over_prefixes(values: Float[Tensor, " prefixes"] | Bool[Tensor, " prefixes"]) -> Estimate:
    """A mean, with an interval for other prefixes too."""
    values = values.double()
    return mean_between(values, values, values)


def repetition(evaluation: Evaluation) -> dict[str, dict[str, Estimate]]:
    """How much of the text, and of the next words alone, has been there before: of data, base and joint model.

    The joint model's is a mean over all draws of the base, weighted by e⁻ᴱ: no text is drawn anew for it.
    """
    context = evaluation.data.context
    assert context is not None
    of_data = repeated_tokens(evaluation.data.x, context).double()
    both = []
    for row in torch.arange(len(evaluation.drawn)):
        again = repeated_tokens(evaluation.drawn.fetch(row[None]), context.select(row[None])).double()
        weights = torch.softmax(-evaluation.of_draws[row], 0)
        both.append(torch.stack([again.mean(0), weights @ again]))
    base, joint = torch.stack(both).unbind(1)
    return {
        what: {
            name: over_prefixes(values[:, 0] if what == NEXT else values.mean(1))
            for name, values in {"data": of_data, "base": base, "joint": joint, "base − data": base - of_data,
                                 "joint − data": joint - of_data, "joint − base": joint - base}.items()
        }
        for what in (NEXT, "of all words")
    }  # fmt: skip


def _per_step(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> list[Any]:
    """Every place by its own futures, the last too: what it says there can be held against the exact last step."""
    x, context = evaluation.data.spread(cell["per_step"]["prefixes"])
    draws = cell["per_step"]["draws"]
    steps = per_step(joint.base.q, joint.energy, x, context, n=draws, exact_last=False, generator=evaluation.generator)
    return [plain(place) for place in steps.places()]


def _next_words(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """After the first prefix of the test text."""
    _, context = joint.chunks.test.select(torch.tensor([0]))
    assert context is not None
    base, before, settings = joint.base, context.given.prefix(0), cell["next_words"]
    found = next_words(
        base.q, joint.energy, context, candidates=settings["candidates"], n=settings["draws"],
        generator=evaluation.generator,
    )  # fmt: skip
    words = [{**plain(word), "token": base.spell(before, [word.token])} for word in found.words]
    return {"prefix": base.spell([], before), "words": words}


def _search(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """From random tokens, without regard to the base."""
    x, context = joint.chunks.test.spread(cell["search"]["prefixes"])
    assert context is not None
    start = random_tokens(joint.base.q.space, len(x.lengths), generator=evaluation.generator)
    how = TokenSearch(steps=cell["search"]["steps"], candidates=8)
    found = search(joint.energy, joint.base.q, start, context, how=how, data=x, generator=evaluation.generator)
    return {"rows": plain(found.rows()), "text": joint.base.spell(context.given.prefix(0), found.x.prefix(0))}


class Court:
    """The judges of a cell. They learn on the first half of the test prefixes and judge on the second.

    The judge of the base's text is one for all energies of the cell.
    """

    def __init__(self, cell: Cell, joint: Residual, folder: Path):
        settings, self.cell, self.joint, self.folder = cell["fooling"], cell, joint, folder
        self.real, context = joint.chunks.test.spread(settings["prefixes"])
        assert context is not None
        self.context, rows = context, context.rows
        self.first, self.second = torch.arange(rows // 2), torch.arange(rows // 2, rows)
        self.candidates, self.seed = settings["candidates"], folded(cell["seed"], 4)
        self.drawn = draw_negatives(
            folder.parent / "fooling-draws", joint.base.q, context, self.candidates + 1, seed=self.seed
        )
        self.of_base = self.drawn.one_each(torch.zeros(rows, dtype=torch.long))

    def judge(self, folder: Path, generated: Sequences) -> nn.Module:
        """Trained against one kind of text: rows of the first half."""
        settings, rows = self.cell["fooling"], self.first
        config = residual_config(self.cell, next(iter(self.cell["energies"].values())), 0, self.folder.parent)
        own = {"learning_rate": settings["learning_rate"], **settings["judge"]}
        config = replace(config, energy=Chosen(kind=own["kind"], options=energy_options(own)))
        found = load_base(config)
        judge = Judge(epochs=settings["epochs"], optimiser=AdamW(learning_rate=settings["learning_rate"]))
        data = Contrasted(self.real.select(rows), self.context.select(rows), (generated,))
        trained: nn.Module = train_judge(folder, lambda: build_energy(config, found), data, judge=judge)
        return trained

    def of_all(self) -> nn.Module:
        """The judge that is trained against the base's text."""
        return self.judge(self.folder.parent / "judge", self.of_base.select(self.first))

    def chosen(self, rows: Tensor) -> Sequences:
        """The joint model's text of some prefixes: one of the base's draws, none of them the one that is the base's."""
        context = self.context.select(rows)
        others = self.drawn.fetch(rows, draws=torch.arange(1, self.candidates + 1))
        with torch.no_grad():
            costs = measured_energy(self.joint.energy, others, context).view(len(rows), -1)
        which = chosen_by_energy(costs, Generator().manual_seed(self.seed))
        return others.select(torch.arange(len(rows)) * self.candidates + which.cpu())

    def takes(self, judge: Any, x: Sequences) -> Bool[Tensor, " prefixes"]:
        """Whether the judge takes texts of the second half for real."""
        return energies(judge, x, self.context.select(self.second)) < 0


def _fooling(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """One judge for both kinds of text, as in the paper; and where `own` is set, one that knows the joint model's."""
    court = Court(cell, joint, folder)
    judge, text = court.of_all(), court.chosen(court.second)
    real = court.takes(judge, court.real.select(court.second))
    base = (real, court.takes(judge, court.of_base.select(court.second)))
    found = {"same": compare_verdicts(base, (real, court.takes(judge, text)))}
    if cell["fooling"]["own"]:
        other = court.judge(folder / "judge", court.chosen(court.first))
        own = (court.takes(other, court.real.select(court.second)), court.takes(other, text))
        found["own"] = compare_verdicts(base, own)
    return found


def _top_k(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Algorithm 1: candidates of the base cut to its k likeliest next tokens, one of them chosen by energy."""
    settings, base = cell["top_k"], joint.base.q
    x, context = evaluation.data
    assert context is not None
    judge = None if cell["fooling"] is None else Court(cell, joint, folder).of_all()
    found = {}
    for k in (None, *settings["k"]):
        seed = folded(cell["seed"], f"top-{k}")
        drawn = draw_negatives(
            folder.parent / f"top-{k}-draws", Truncation(top_k=k).of(base), context, settings["candidates"], seed=seed
        )
        costs = costs_of_draws(joint.energy, drawn, context)
        which = chosen_by_energy(costs, Generator().manual_seed(seed))
        rows = torch.arange(len(drawn))
        texts = {"base": (torch.zeros_like(rows), costs[:, 0]), "joint": (which, costs[rows, which])}
        found[str(k or "all")] = {
            name: _about(drawn.one_each(draws), energy - evaluation.of_data, context, judge)
            for name, (draws, energy) in texts.items()
        }
    found["data"] = {"data": _about(x, torch.zeros_like(evaluation.of_data), context, judge)}
    return found


def _about(text: Sequences, gap: Float[Tensor, " prefixes"], context: Context, judge: Any) -> dict[str, Any]:
    """Of one text for each prefix: how far its energy is from the data's, what it repeats, whom it fools."""
    found = {
        "gap": over_prefixes(gap),
        "unique": unique_ratios({"text": text}, orders=[2])["text"][2].pooled,
        "repeated": over_prefixes(repeated_tokens(text, context).double().mean(1)),
    }
    if judge is not None:
        taken = energies(judge, text, context) < 0
        found["fooled"] = verdict(taken, taken).false_positive_rate
    return found


@torch.no_grad()
def costs_of_draws(energy: Any, drawn: Negatives, context: Context) -> Float[Tensor, "prefixes draws"]:
    """The energies of all draws after each prefix."""
    rows = torch.arange(len(drawn))
    parts = [measured_energy(energy, drawn.fetch(some), context.select(some)) for some in torch.split(rows, 64)]
    return torch.cat(parts).view(len(drawn), -1).double()


class Counted(nn.Module):
    """An energy that counts the texts it reads."""

    def __init__(self, energy: nn.Module):
        super().__init__()
        self.energy, self.texts = energy, 0

    def forward(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        self.texts += len(x.lengths)
        found: Tensor = self.energy(x, context)
        return found


def _samplers(cell: Cell, joint: Residual, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Draws of the joint model by several samplers, each of which may read as many texts with the energy.

    The energy of a draw less its mean under the joint model, which all draws of the evaluation together tell: 0 for an
    exact sampler. Where a sampler chooses among weighted draws, the mean over its choice stands for the choice.
    """
    settings, q = cell["samplers"], joint.base.q
    rows = torch.linspace(0, len(evaluation.drawn) - 1, settings["prefixes"]).round().long()
    assert evaluation.data.context is not None
    context, known = evaluation.data.context.select(rows), evaluation.of_draws[rows]
    truth = (torch.softmax(-known, 1) * known).sum(1)
    found: dict[str, Any] = {"base": over_prefixes(known.mean(1) - truth), "budgets": {}}
    for particles in settings["particles"]:
        budget = particles * q.space.length
        ways: dict[str, tuple[Sampler, int]] = {
            "resampling": (Importance(), budget),
            "SMC": (Smc(particles=particles, twist="energy"), particles),
            "Metropolis, whole texts": (Metropolis(chains=1, burn_in=budget - 1, moves=("independent",)), 1),
            "Metropolis, ends of texts": (Metropolis(chains=1, burn_in=budget - 1, moves=("suffix",)), 1),
        }
        own: dict[str, Any] = {}
        for name, (sampler, draws) in ways.items():
            counted, generator = Counted(joint.energy), Generator().manual_seed(folded(cell["seed"], name))
            drawn = draw(sampler, Tilted(q, counted), draws, context=context, generator=generator)
            gaps = _mean_energies(joint.energy, drawn, context) - truth
            own[name] = {"gap": over_prefixes(gaps), "texts": counted.texts / len(rows)}
        found["budgets"][str(budget)] = own
    return found


@torch.no_grad()
def _mean_energies(energy: Any, drawn: Weighted, context: Context) -> Float[Tensor, " prefixes"]:
    """Of what is chosen in proportion to the weights."""
    costs = measured_energy(energy, drawn.x, context).view(context.rows, -1).double()
    return (torch.softmax(drawn.log_weights.double(), 1) * costs).sum(1)


PARTS: dict[str, Callable[[Cell, Residual, Evaluation, Path], Any]] = {
    "per_step": _per_step, "next_words": _next_words, "search": _search, "fooling": _fooling, "top_k": _top_k,
    "samplers": _samplers,
}  # fmt: skip
