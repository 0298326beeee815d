"""From a configuration to objects. Classes never see a configuration: it is unpacked here into plain arguments."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from ebar.backbones import BACKBONES
from ebar.config.run import Chosen, LanguageData, LinesData, Run
from ebar.data.corpora import longest_of, read_corpus, symbols_of, validation_size
from ebar.data.languages import Language
from ebar.data.tokenisers import Alphabet
from ebar.energies.linear import Linear
from ebar.errors import UserError, choose
from ebar.features.expression import Expression
from ebar.features.feature import Feature, Features
from ebar.features.length import Length
from ebar.features.motif import Motif
from ebar.features.ngram_count import NgramCount
from ebar.features.predicate import Predicate
from ebar.features.starts_with import StartsWith
from ebar.heads import HEADS
from ebar.models.autoregressive import Autoregressive
from ebar.training import Checkpoints, Player, restore_weights
from ebar.training.batches import folded
from ebar.training.optimisers import OPTIMISERS
from ebar.training.schedules import SCHEDULES
from ebar.types import Sequences, Space


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What a model is trained on, held out from, and tested on."""

    alphabet: Alphabet
    space: Space  # the model's
    train: Sequences
    validation: Sequences
    test: Sequences
    language: Language | None  # where the truth is known

    def text(self, x: Sequences) -> list[str]:
        """Sequences as strings, the end left out."""
        return [
            self.alphabet.decode([t for t in x.prefix(row) if t != self.space.end]) for row in range(len(x.lengths))
        ]


def make(table: Mapping[str, Any], chosen: Chosen, what: str, **provided: Any) -> Any:
    """An entry of a table, with its options and what only we can provide; a value it refuses is a user's error."""
    try:
        return choose(table, chosen.kind, what)(**provided, **chosen.options)
    except (ValueError, RuntimeError, OverflowError) as error:
        raise UserError(f"The {what} {chosen.kind} cannot be made: {error}.") from None


def build_corpus(run: Run) -> Corpus:
    """The data of a run. A language's draws depend on the seed; a user's files do not."""
    maximal = run.training.maximal_length
    if run.data.kind == "language":
        return _language_corpus(LanguageData(**run.data.options), run.seed, maximal)
    return _lines_corpus(LinesData(**run.data.options), maximal)


def _language_corpus(data: LanguageData, seed: int, maximal: int | None) -> Corpus:
    language = Language(
        motif=data.motif, expression=data.expression, alphabet=data.alphabet, length=data.length,
        presence=data.presence, stop=data.stop,
    )  # fmt: skip
    alphabet = Alphabet(data.alphabet)
    space = _space(alphabet, data.length, maximal)
    truth = language.distribution()
    sizes = {"train": data.size, "validation": validation_size(data.size), "test": data.test_size}
    parts = {
        name: truth.sample(size, generator=Generator().manual_seed(folded(seed, place)))
        for place, (name, size) in enumerate(sizes.items())
    }
    return Corpus(alphabet=alphabet, space=space, language=language, **parts)


def _lines_corpus(data: LinesData, maximal: int | None) -> Corpus:
    alphabet = Alphabet(data.alphabet if data.alphabet is not None else symbols_of(data.train))
    space = _space(alphabet, longest_of(data.train, alphabet), maximal)
    train = read_corpus(data.train, alphabet, space)
    if data.validation is not None:
        validation = read_corpus(data.validation, alphabet, space)
    else:
        rows = torch.arange(len(train.lengths))
        if len(rows) < 5:
            raise UserError(f"{data.train} has only {len(rows)} lines: give more, or a validation file.")
        train, validation = train.select(rows % 5 != 4), train.select(rows % 5 == 4)
    test = validation if data.test is None else read_corpus(data.test, alphabet, space)
    return Corpus(alphabet=alphabet, space=space, train=train, validation=validation, test=test, language=None)


def _space(alphabet: Alphabet, longest: int, maximal: int | None) -> Space:
    length = 2 * longest + 1 if maximal is None else maximal
    if length < longest + 1:
        raise UserError(
            f"The longest sequence has {longest} symbols and an end, more than a maximal_length of {length}."
        )
    return Space(alphabet.size + 1, length, alphabet.size)


def build_model(run: Run, space: Space) -> Autoregressive:
    """Weights are drawn from torch's global state: seed it before."""
    backbone = make(BACKBONES, run.backbone, "backbone", vocabulary=space.vocabulary)
    head = make(HEADS, run.head, "head", width=backbone.width, vocabulary=space.vocabulary)
    try:
        return Autoregressive(backbone, head, space).to(torch.device(run.device), getattr(torch, run.dtype))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The model cannot be put on {run.device!r}: {str(error).splitlines()[0]}.") from None


def build_player(run: Run, model: Autoregressive) -> Player:
    """The model with its optimiser; a value that torch refuses is a user's error."""
    try:
        optimiser = make(OPTIMISERS, run.optimiser, "optimiser").build(model.parameters())
    except ValueError as error:
        raise UserError(f"The optimiser {run.optimiser.kind} cannot be made: {error}.") from None
    schedule = make(SCHEDULES, run.schedule, "schedule")
    return Player(module=model, optimiser=optimiser, schedule=schedule, clip_norm=run.training.clip)


def load_model(run: Run, folder: Path, space: Space) -> Autoregressive:
    """The best model of a run folder, in evaluation mode."""
    model = build_model(run, space)
    checkpoint = Checkpoints(folder / "checkpoints").best()
    if checkpoint is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first.")
    restore_weights(checkpoint, {"model": Player(module=model)})
    return model.eval()


def build_energy(terms: Sequence[str], alphabet: Alphabet, space: Space) -> Linear:
    """A linear energy from terms KIND:ARGUMENT=COEFFICIENT; ! in front of KIND makes the feature's absence count."""
    features, coefficients = [], []
    for term in terms:
        words, equals, number = term.rpartition("=")
        try:
            if not equals:
                raise ValueError
            coefficients.append(float(number))
        except ValueError:
            raise UserError(f"The term {term!r} must end in =COEFFICIENT, as in motif:101=2.5.") from None
        features.append(build_feature(words, alphabet, space))
    try:
        return Linear(Features(features), torch.tensor(coefficients, dtype=torch.float64))
    except ValueError as error:
        raise UserError(f"The energy cannot be made: {error}.") from None


# What a term's KIND may be, and what its ARGUMENT then is.
KINDS = {
    "motif": "a string that occurs",
    "expression": "a regular expression that matches somewhere",
    "whole": "a regular expression that matches the whole",
    "starts_with": "a string it begins with",
    "ngram_count": "a string, counted",
    "length": "nothing: the number of tokens, the end included",
    "predicate": "FILE.py:FUNCTION, a function of the text, true or false",
}


def build_feature(words: str, alphabet: Alphabet, space: Space) -> Feature:
    """A feature from KIND:ARGUMENT, or !KIND:ARGUMENT for its absence."""
    absent = words.startswith("!")
    kind, _, argument = words.removeprefix("!").partition(":")
    choose(KINDS, kind, "kind of feature")
    symbols, end = alphabet.symbols, space.end
    if absent and kind in {"ngram_count", "length", "predicate"}:
        raise UserError(f"Only a feature that is there or not can be absent, so ! cannot stand before {kind}.")
    if not argument and kind != "length":
        raise UserError(f"The feature {words!r} needs an argument: {KINDS[kind]}.")
    feature: Feature
    if kind == "motif":
        feature = Motif(motif=argument, alphabet=symbols, end=end, absent=absent)
    elif kind in {"expression", "whole"}:
        whole = kind == "whole"
        feature = Expression(expression=argument, alphabet=symbols, end=end, whole=whole, absent=absent)
    elif kind == "starts_with":
        feature = StartsWith(prefix=argument, alphabet=symbols, end=end, absent=absent)
    elif kind == "ngram_count":
        feature = NgramCount(ngram=argument, alphabet=symbols, end=end, longest=space.length)
    elif kind == "length":
        feature = Length(longest=space.length, end=end)
    else:
        feature = _predicate(argument, alphabet, end)
    # Automata and spellings are made when first asked for: ask now, so that a mistake is told before any work.
    feature(Sequences(torch.zeros(0, 1, dtype=torch.long), torch.zeros(0, dtype=torch.long)))
    return feature


def _predicate(argument: str, alphabet: Alphabet, end: int | None) -> Predicate:
    path, _, name = argument.rpartition(":")
    if not path:
        raise UserError(f"A predicate is given as FILE.py:FUNCTION, not {argument!r}.")
    specification = importlib.util.spec_from_file_location("ebar_user_predicate", path)
    if specification is None or specification.loader is None or not Path(path).is_file():
        raise UserError(f"There is no Python file {path}.")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{path} has no function {name!r}.")
    return Predicate(name=name, function=function, end=end, decode=alphabet.decode)
