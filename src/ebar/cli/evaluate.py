"""`ebar evaluate`: how good a trained model is, with intervals."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse.typing import NonNegativeInt, PositiveInt
from torch import Generator

from ebar.automata import entropy, measures
from ebar.build.corpus import Corpus
from ebar.build.energy import build_feature
from ebar.cli.show import plain, show_json, show_table
from ebar.cli.trained import Trained, load_trained
from ebar.config.options import parse, parser
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.features.feature import Features
from ebar.progress import shown
from ebar.report.page import Samples
from ebar.report.run_page import write_run_page
from ebar.training.run import Run
from ebar.training.storage import to_json
from ebar.types import Estimate, Sequences


def main(words: Sequence[str]) -> int:
    """Measure on held-out data and on the model's own draws."""
    options = parser(
        words,
        "evaluate",
        "Cross-entropy of a trained model on held-out data, and frequencies of features in its own draws, with\n"
        "intervals; next to the entropy where the language is known. Writes results.json and report.html.",
        "ebar evaluate runs/motif\n  ebar evaluate runs/motif --feature motif:1011 'expression:(01){3}' --json",
    )
    options.add_argument("run", type=Path, help="folder of a trained run")
    options.add_argument("--n", type=PositiveInt, default=2000, help="draws from the model")
    options.add_argument("--feature", nargs="+", default=[], metavar="KIND:ARGUMENT", help="features to count in them")
    options.add_argument("--seed", type=NonNegativeInt, default=0, help="of the draws")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parse(options, words)
    trained = load_trained(arguments.run)
    features = Features(
        [build_feature(words, trained.corpus.alphabet, trained.corpus.space) for words in arguments.feature]
    )
    generator = Generator(device=next(trained.model.parameters()).device).manual_seed(arguments.seed)
    with shown(not arguments.json), torch.no_grad():
        drawn = trained.model.sample(arguments.n, generator=generator)
        figures = _figures(trained, drawn, features)
    _record(trained, figures, drawn)
    if arguments.json:
        show_json(figures)
    else:
        show_table(
            f"{arguments.run}: {arguments.n:,} draws, seed {arguments.seed}", ("figure", "value"), list(figures.items())
        )
    return 0


def _figures(trained: Trained, drawn: Sequences, features: Features) -> dict[str, Estimate]:
    corpus = trained.corpus
    device = next(trained.model.parameters()).device
    test = Sequences(corpus.test.tokens.to(device), corpus.test.lengths.to(device))
    costs = cross_entropy(trained.model, test)
    figures = {
        "cross_entropy": costs.per_sequence,
        "cross_entropy_per_token": costs.pooled_per_token,
        "cross_entropy_per_token, mean over sequences": costs.per_token,  # as document 000's authors report it
        "perplexity_per_token": costs.perplexity,
    }
    if corpus.language is not None:
        truth = corpus.language.distribution()
        nats = entropy(truth)
        figures["entropy"] = Estimate.exact(nats)
        figures["entropy_per_token"] = Estimate.exact(nats / measures.mean_length(truth))
        # CE − H is KL(language‖model), whatever the test set's size: what the model still has to learn.
        figures["kl_from_language"] = costs.per_sequence._replace(
            value=costs.per_sequence.value - nats,
            low=costs.per_sequence.low - nats,
            high=costs.per_sequence.high - nats,
        )
        if corpus.language.motif is not None:
            motif = build_feature(f"motif:{corpus.language.motif}", corpus.alphabet, corpus.space)
            figures.update(_named("frequency", drawn, Features([motif])))
    figures.update(_named("frequency", drawn, features))
    figures["mean_length"] = mean_length(drawn)
    return figures


def _named(what: str, drawn: Sequences, features: Features) -> dict[str, Estimate]:
    return {f"{what} of {name}": value for name, value in frequencies(drawn, features).items()}


def _record(trained: Trained, figures: dict[str, Estimate], drawn: Sequences) -> None:
    """results.json keeps what training wrote there, and gains the figures."""
    path = trained.folder / "results.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    known["evaluation"] = plain(figures)
    Run(trained.folder).write("results.json", to_json(known, indent=1))
    write_run_page(trained.folder, figures=figures, samples=_marked(trained.corpus, drawn))


def _marked(corpus: Corpus, drawn: Sequences, most: int = 30) -> Samples:
    lines = corpus.text(Sequences(drawn.tokens[:most], drawn.lengths[:most]))
    motif = None if corpus.language is None else corpus.language.motif
    if motif is None:
        return Samples(lines)
    return Samples(lines, [[found.span() for found in re.finditer(re.escape(motif), line)] for line in lines])
