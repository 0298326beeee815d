"""Table A.13: how much longer a training step takes with a mixture of softmaxes, at the same batch size."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ebar.build.train import build_corpus, build_model
from ebar.journeys.train import training_batches
from ebar.objectives.scheduled_sampling import MaximumLikelihood
from ebar.recipes.earm.timing import endless, median_row, ratios, taking_turns, update
from ebar.recipes.mos import words
from ebar.recipes.mos.words import COMMON, PAPER, PTB, WT2, dropouts, group, head, text
from ebar.recipes.pieces import Caption, Cell, Claim, Layout, Points, Recipe, Result, Row
from ebar.recipes.training import configuration, grouped_options, training_grid
from ebar.training.streams import Columns, OnStream
from ebar.types import Clock

SECONDS, SLOWDOWN = "seconds per step", "times a step with a softmax"
SOFTMAX = "Softmax"
# Place and model → times the softmax, at the same batch size on one GPU; and each at its best settings, on one and on
# three GPUs.
SAME_BATCH = {
    (PTB, "MoS-5"): 1.2, (PTB, "MoS-10"): 1.6, (PTB, "MoS-15"): 1.9, (WT2, "MoS-5"): 1.3, (WT2, "MoS-10"): 1.9,
    (WT2, "MoS-15"): 2.5,
}  # fmt: skip
ALL_SAID = (
    "The thesis also has slowdowns of the settings that are best for each model, where a mixture's batch has to be "
    "computed in parts: MoS-15 2.8 on Penn Treebank and 6.4 on WikiText-2 with one GPU, 2.9 with three; MoS-7 on One "
    "Billion Word 3.8 with equal batches, 5.7 and 2.1. They depend on a GPU's memory and have no counterpart here."
)

NARROWER = (
    "At a quarter of the widths the LSTM has a sixteenth of the multiplications, the output layer, which a mixture "
    "repeats for each of its softmaxes, a quarter: what a mixture adds weighs more here than at the authors' sizes."
)


def _models(softmax: Mapping[str, Any], mixtures: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Options of the network by the name of the model."""
    settings = {SOFTMAX: {**softmax, **head(1)}} | {
        f"MoS-{components}": {**own, **head(components)} for components, own in mixtures.items()
    }
    groups = {name: grouped_options({**COMMON, **own})[1] for name, own in settings.items()}
    return {name: {part: own[part] for part in ("backbone", "head")} for name, own in groups.items()}


def _layers(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"backbone.layers": 3} | {key: value for key, value in options.items() if key.startswith("backbone.")}


QUARTER = {
    **text("wikitext-2", "txt.xz", length=70, vocabulary=10_000, limit=50_000, held_out_limit=5000),
    "training.batch_size": 10, **dropouts(embedding=0.1, input=0.4, hidden=0.2, output=0.4, weight=0.5),
}  # fmt: skip
PLACES = {
    "demo": [{
        **words.TOY, "place": WT2, "measures.rounds": 6, "models": _models(words.TOY_SOFTMAX, words.TOY_MIXTURES),
    }],
    # A quarter of each width of the authors' models.
    "cpu": [{
        **QUARTER, "place": WT2, "measures.rounds": 12,
        "models": _models(
            _layers(group("backbone", embedding=100, hidden=288)),
            dict.fromkeys((5, 10, 15), _layers(group("backbone", embedding=75, hidden=288, last=162))),
        ),
    }],
    "paper": [
        {**text("penn", "txt", **words.WORDS), "corpus": PTB, "place": PTB, "training.batch_size": 12,
         "measures.rounds": 100,
         "models": _models(_layers(words.PENN_SOFTMAX), dict.fromkeys((5, 10, 15), _layers(words.PENN_MOS)))},
        {**text("wikitext-2", "txt.xz", **words.WORDS), "corpus": WT2, "place": WT2, "training.batch_size": 15,
         "measures.rounds": 100,
         "models": _models(_layers(words.WIKITEXT2_SOFTMAX), dict.fromkeys((5, 10, 15), _layers(words.WIKITEXT2_MOS)))},
    ],
}  # fmt: skip


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Seconds of each step; models take turns on the same batches."""
    tree = cell["configuration"]
    configs = {name: configuration({**tree, **own}, folder) for name, own in cell["models"].items()}
    first = configs[SOFTMAX]
    corpus = build_corpus(first)
    batches = training_batches(corpus, first.training, cell["seed"], first.device)
    assert isinstance(batches, Columns)
    torch.manual_seed(cell["seed"])
    models = {name: build_model(own, corpus.space, corpus.shape).train() for name, own in configs.items()}
    objectives = {name: OnStream.of(MaximumLikelihood(model=model), model, batches) for name, model in models.items()}
    optimisers = {name: torch.optim.SGD(model.parameters(), 1.0) for name, model in models.items()}
    generator = torch.Generator().manual_seed(cell["seed"])
    updates = {
        name: partial(update, objective, clock=Clock(0, 0), optimiser=optimisers[name], generator=generator)
        for name, objective in objectives.items()
    }
    sizes = {name: sum(parameter.numel() for parameter in model.parameters()) for name, model in models.items()}
    return {"seconds": taking_turns(updates, endless(batches), cell["measures"]["rounds"]), "parameters": sizes}


def figures(results: Sequence[Result]) -> list[Row]:
    """Medians over rounds: of the seconds, and of the ratio to the softmax within a round."""
    rows = []
    for cell, result in results:
        times = {name: [float(one) for one in own] for name, own in result["seconds"].items()}
        for name, own in times.items():
            settings = {"corpus": cell["corpus"], "model": name}
            size = float(result["parameters"][name])
            rows.append(Row(name="parameters", settings=settings, value=size, low=size, high=size))
            rows.append(median_row(SECONDS, settings, own, None))
            if name != SOFTMAX:
                theirs = SAME_BATCH.get((cell["place"], name))
                rows.append(median_row(SLOWDOWN, settings, ratios(times, name, SOFTMAX), theirs))
    return rows


TABLE_A13 = Recipe(
    title="How much longer a training step takes with a mixture of softmaxes",
    source=f"{PAPER}, Table A.13, equal batches; at scale cpu WikiText-2, widths a quarter of the authors', one thread",
    grid=training_grid(COMMON, {"place": PLACES}),
    run=run_cell,
    figures=figures,
    tables=Layout(rows=("corpus", "model")),
    plots=Points(of=[SLOWDOWN], label="{model}", title="Time of a training step", x_label=SLOWDOWN),
    claims=[
        Claim(says="a mixture makes a step longer", figure=SLOWDOWN, above=1.0),
        Claim(says="… 15 softmaxes by less than 15 times", figure=SLOWDOWN, below=15.0, where={"model": "MoS-15"}),
    ],
    reading=Caption(
        items="{measures[rounds]} rounds of one run (sign test)",
        elsewhere=lambda cells: "one GPU, the authors' sizes",
        departures=lambda cells: [ALL_SAID] if cells[0]["measures"]["rounds"] == 100 else [ALL_SAID, NARROWER],
    ),
)
