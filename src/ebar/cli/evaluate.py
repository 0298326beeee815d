"""`ebar evaluate`: how good a trained model is, with intervals."""

import json
import re
from collections.abc import Sequence

import torch
from torch import Generator

from ebar.automata import entropy, measures
from ebar.build.terms import read_feature
from ebar.cli.measured import EvaluateConfig, Measured, text_figures, translation_figures
from ebar.cli.show import show_json, show_table
from ebar.cli.trained import Trained, load_trained
from ebar.config.reader import Manual, read
from ebar.data.corpus import Corpus
from ebar.estimators.models import device_of
from ebar.evaluation.bits_per_dimension import bits_per_dimension
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.frequencies import frequencies, mean_length
from ebar.features.feature import Features, bind
from ebar.features.regular import Motif
from ebar.progress import shown
from ebar.report.page import Samples
from ebar.report.run_page import write_run_page
from ebar.store.writing import to_json
from ebar.training.run import Run
from ebar.types import Estimate, Sequences

MANUAL = Manual(
    command="evaluate",
    purpose="How good a trained model is on held-out data, with intervals: cross-entropy next to the entropy where "
    "the language is known, and features in the model's own draws; perplexity of text, per token, byte and "
    "word; perplexity and BLEU of translations, by length too; bits per dimension of images. Writes "
    "results.json and report.html.",
    example="ebar evaluate runs/motif\n  ebar evaluate runs/motif --feature motif:1011 'expression:(01){3}' --json\n"
    "  ebar evaluate runs/de-en --width 5 --edges 6 10",
)


def main(words: Sequence[str]) -> int:
    """Measure on held-out data and on the model's own draws."""
    arguments = read(words, MANUAL, EvaluateConfig)
    trained = load_trained(arguments.run)
    corpus = trained.corpus
    features = Features([bind(read_feature(words), corpus.reading) for words in arguments.feature])
    generator = Generator(device=device_of(trained.model)).manual_seed(arguments.seed)
    with shown(not arguments.json), torch.no_grad():
        if corpus.sources("test") is not None:
            measured = translation_figures(trained, arguments)
        elif corpus.tokeniser is None:
            measured = Measured({"bits_per_dimension": bits_per_dimension(trained.model, _test(trained))}, None)
        elif corpus.space.end is None:
            measured = text_figures(trained, arguments, generator)
        else:
            drawn = trained.model.sample(arguments.n, generator=generator)
            measured = Measured(_figures(trained, drawn, features), _marked(corpus, drawn), f"{arguments.n:,} draws")
    _record(trained, measured)
    if arguments.json:
        show_json(measured.figures)
    else:
        about = f", {measured.about}" if measured.about else ""
        show_table(
            f"{arguments.run}: seed {arguments.seed}{about}", ("figure", "value"), list(measured.figures.items())
        )
    return 0


def _test(trained: Trained) -> Sequences:
    device = device_of(trained.model)
    test = trained.corpus.test
    return Sequences(test.tokens.to(device), test.lengths.to(device))


def _figures(trained: Trained, drawn: Sequences, features: Features) -> dict[str, object]:
    corpus = trained.corpus
    costs = cross_entropy(trained.model, _test(trained))
    figures: dict[str, object] = {
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
            motif = bind(Motif(corpus.language.motif), corpus.reading)
            figures.update(_named("frequency", drawn, Features([motif])))
    figures.update(_named("frequency", drawn, features))
    figures["mean_length"] = mean_length(drawn)
    return figures


def _named(what: str, drawn: Sequences, features: Features) -> dict[str, Estimate]:
    return {f"{what} of {name}": value for name, value in frequencies(drawn, features).items()}


def _record(trained: Trained, measured: Measured) -> None:
    """results.json keeps what training wrote there, and gains the figures."""
    path = trained.folder / "results.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    known["evaluation"] = measured.figures
    Run(trained.folder).write("results.json", to_json(known, indent=1))
    write_run_page(trained.folder, figures=measured.figures, samples=measured.samples)


def _marked(corpus: Corpus, drawn: Sequences, most: int = 30) -> Samples:
    lines = corpus.text(Sequences(drawn.tokens[:most], drawn.lengths[:most]))
    motif = None if corpus.language is None else corpus.language.motif
    if motif is None:
        return Samples(lines)
    return Samples(lines, [[found.span() for found in re.finditer(re.escape(motif), line)] for line in lines])
